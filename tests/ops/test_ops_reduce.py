"""hcq.ops, reductions: NumPy's results and types along any axes, with sums that add in a tree."""

import itertools

import numpy as np
import pytest

import hcq
from hcq import ops
from hcq.ops import reduce

NAMES = ("sum", "prod", "min", "max", "mean")
SHAPE = (3, 5, 4)
AXES = [None, *itertools.chain.from_iterable(itertools.combinations(range(3), count) for count in (1, 2, 3)), -1]


def check(name, x, axis, device="LLVM"):
    got = getattr(ops, name)(hcq.array(x, device), axis=axis).numpy()
    wanted = getattr(np, name)(x, axis=axis)
    assert got.shape == wanted.shape and got.dtype == wanted.dtype, (got.dtype, wanted.dtype)
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(got, wanted, rtol=20 * np.finfo(wanted.dtype).eps)
    else:
        assert np.array_equal(got, wanted)


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_reductions_along_any_axes(name, axis):
    x = np.random.default_rng(1).uniform(0.5, 1.5, SHAPE)
    for dtype in ("f4", "f8", "i4"):
        check(name, (x * 2).astype(dtype), axis)


@pytest.mark.parametrize("name", NAMES)
def test_reductions_on_the_strict_device(name):
    x = np.random.default_rng(2).uniform(0.5, 1.5, (2, 3, 2)).astype("f4")
    for axis in (None, 1, 2):
        check(name, x, axis, "PYTHON")


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u4", "i8", "?"])
def test_narrow_integers_are_summed_in_64_bits(dtype):
    x = np.full((300, 7), 120).astype(dtype)
    check("sum", x, 0)
    check("mean", x, 1)
    if dtype != "?":
        check("max", x, None)


def test_long_rows_and_sums_that_would_lose_digits_one_after_the_other():
    x = np.full(1_000_003, 0.1, "f4")
    got = float(ops.sum(hcq.array(x, "LLVM")).numpy())
    assert abs(got - 100000.3015) < 0.1 < abs(float(np.cumsum(x)[-1]) - 100000.3015)
    check("max", np.arange(100_000, dtype="i4"), None)
    check("sum", np.ones((3, 70_000), "f4"), 1)


@pytest.mark.parametrize("shape", [(127, 5), (129, 4100), (3, 300, 7), (2, 17_000, 3), (5, 1, 6)], ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i1"])
def test_columns_are_added_in_one_order_by_processors_and_others(shape, dtype, monkeypatch):
    x = (np.random.default_rng(4).uniform(-2, 2, shape)).astype(dtype)
    buf = hcq.array(x, "LLVM")
    got = ops.sum(buf, axis=-2).numpy()
    monkeypatch.setattr(reduce, "on_processor", lambda x: False)
    assert got.tobytes() == ops.sum(buf, axis=-2).numpy().tobytes()
    wanted = np.sum(x.astype("f8"), axis=-2)
    np.testing.assert_allclose(got, wanted, rtol=1e-3 if dtype == "f2" else 1e-6, atol=2e-1 if dtype == "f2" else 1e-3)


def test_narrow_floats_are_summed_in_f32():
    x = np.full(5000, 0.25, "f2")
    assert float(ops.sum(hcq.array(x, "LLVM")).numpy()) == 1250.0


def test_nan_is_kept():
    x = np.array([1, np.nan, 2], "f4")
    for name in ("min", "max", "sum"):
        assert np.isnan(getattr(ops, name)(hcq.array(x, "LLVM")).numpy())


@pytest.mark.parametrize("device", ["LLVM", "CLANG", "PYTHON"])
@pytest.mark.parametrize("name", ["argmin", "argmax"])
def test_where_the_extremes_are(name, device):
    rng = np.random.default_rng(3)
    small = rng.integers(0, 4, (3, 5, 4))  # many equal ones: the first counts
    for x in (small.astype("f4"), small.astype("i8"), np.array([[1, np.nan, 3, np.nan]], "f4")):
        for axis in range(x.ndim):
            got = getattr(ops, name)(hcq.array(x, device), axis=axis).numpy()
            assert np.array_equal(got, getattr(np, name)(x, axis=axis)), (x, axis)
    if device == "LLVM":
        x = rng.integers(0, 50, (4, 1000)).astype("f4")
        assert np.array_equal(getattr(ops, name)(hcq.array(x, device)).numpy(), getattr(np, name)(x, axis=-1))


def test_axes_that_are_not_there():
    with pytest.raises(ValueError, match="axis 2 of an array with 2 axes"):
        ops.sum(hcq.zeros((2, 2), hcq.f32, "LLVM"), axis=2)
    with pytest.raises(ValueError, match="each is named once"):
        ops.sum(hcq.zeros((2, 2), hcq.f32, "LLVM"), axis=(1, -1))
    assert ops.sum(hcq.zeros((2, 3), hcq.f32, "LLVM"), axis=np.int64(-1)).shape == (2,)
