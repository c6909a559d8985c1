"""hcq.ops: running sums, sorting, histograms, beside NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import hcq
from hcq import ops
from hcq.ops import sorting


@pytest.mark.parametrize("shape", [(1,), (17,), (2048,), (2049,), (3, 5000), (2, 3, 4), (300_000,)], ids=str)
@pytest.mark.parametrize("dtype", ["i4", "u1", "f8"])
def test_running_sums(shape, dtype):
    x = np.random.default_rng(1).integers(0, 9, shape).astype(dtype)
    for axis in range(len(shape)):
        got = ops.cumsum(hcq.array(x, "LLVM"), axis=axis).numpy()
        wanted = np.cumsum(x, axis=axis)
        assert got.dtype == wanted.dtype and np.array_equal(got, wanted)
        before = ops.cumsum(hcq.array(x, "LLVM"), axis=axis, exclusive=True).numpy()
        assert np.array_equal(before, wanted - x)


def test_running_sums_on_the_strict_device():
    x = np.arange(40, dtype="i4").reshape(2, 20)
    assert np.array_equal(ops.cumsum(hcq.array(x, "PYTHON")).numpy(), np.cumsum(x, axis=-1))


@pytest.fixture(params=["processor", "others"])
def form(request, monkeypatch):
    monkeypatch.setattr(sorting, "on_processor", lambda x: request.param == "processor")
    return request.param


@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "?"])
def test_rows_are_sorted(form, dtype):
    rng = np.random.default_rng(2)
    if dtype == "?":
        x = rng.random((3, 1000)) < 0.5
    elif dtype[0] == "f":
        x = (rng.normal(size=(3, 1000)) * 100).astype(dtype)
        x[0, ::7], x[1, 5], x[1, 9], x[2, 3] = np.nan, np.inf, -np.inf, -0.0
    else:
        info = np.iinfo(dtype)
        x = rng.integers(info.min, info.max, (3, 1000), dtype=dtype, endpoint=True)
    buf = hcq.array(x, "LLVM")
    assert np.array_equal(ops.sort(buf).numpy(), np.sort(x), equal_nan=dtype[0] == "f")
    assert np.array_equal(ops.argsort(buf).numpy(), np.argsort(x, kind="stable"))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_any_axis_is_sorted(form, axis):
    x = np.random.default_rng(5).integers(0, 9, (20, 30, 4)).astype("i4")
    buf = hcq.array(x, "LLVM")
    assert np.array_equal(ops.argsort(buf, axis=axis).numpy(), np.argsort(x, axis, kind="stable"))
    assert np.array_equal(ops.sort(buf, axis=axis).numpy(), np.sort(x, axis))


@settings(deadline=None, max_examples=30)
@given(hnp.arrays("f4", st.integers(1, 300), elements=st.floats(width=32)))
def test_any_floats_are_sorted(x):
    assert np.array_equal(ops.sort(hcq.array(x, "LLVM")).numpy(), np.sort(x), equal_nan=True)


def test_many_elements_and_the_strict_device(form):
    x = np.random.default_rng(3).integers(-1000, 1000, 100_000).astype("i4")
    assert np.array_equal(ops.argsort(hcq.array(x, "LLVM")).numpy(), np.argsort(x, kind="stable"))
    small = x[:70].astype("i1")
    assert np.array_equal(ops.sort(hcq.array(small, "PYTHON")).numpy(), np.sort(small))


@pytest.mark.parametrize("bins", [1, 10, 257, 3000])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1"])
def test_histograms_are_numpys(bins, dtype):
    x = (np.random.default_rng(4).random(50_000) * 120 - (10 if dtype != "u1" else 0)).astype(dtype)
    got = ops.histogram(hcq.array(x, "LLVM"), bins, 0, 100).numpy()
    wanted, _ = np.histogram(x.astype("f8"), bins, (0, 100))
    assert np.array_equal(got, wanted)


def test_histograms_leave_out_what_is_outside():
    x = np.array([0.0, 1.0, 0.999, np.nan, -0.1, 1.1, np.inf], "f4")
    for device in ("LLVM", "PYTHON"):
        assert ops.histogram(hcq.array(x, device), 2, 0, 1).numpy().tolist() == [1, 2]
    with pytest.raises(ValueError, match="no 3 bins"):
        ops.histogram(hcq.array(x, "LLVM"), 3, 1, 1)
