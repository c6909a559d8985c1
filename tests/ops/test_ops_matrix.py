"""hcq.ops.matmul: NumPy's products, in both forms of the kernel, on every device that runs kernels."""

import numpy as np
import pytest

import hcq
from hcq import ops
from hcq.errors import LaunchError
from hcq.ops import matrix

SHAPES = [
    ((1, 1), (1, 1)),
    ((3, 5), (5, 7)),
    ((130, 70), (70, 33)),
    ((4, 9, 5), (5, 3)),
    ((2, 3, 4, 17), (2, 3, 17, 40)),
]


@pytest.fixture(params=["wide", "tiled"])
def form(request, monkeypatch):
    monkeypatch.setattr(matrix, "on_processor", lambda a: request.param == "wide")
    return request.param


def check(device, a, b):
    got = ops.matmul(hcq.array(a, device), hcq.array(b, device)).numpy()
    wanted = a.astype("f8") @ b.astype("f8")
    assert got.shape == wanted.shape and got.dtype == np.result_type(a, b)
    if got.dtype.kind == "f":
        scale = np.abs(a).astype("f8") @ np.abs(b).astype("f8")
        # Sums in f32 for narrower types, each product rounded once with the sum.
        unit = max(np.finfo(got.dtype).eps, 0) + a.shape[-1] * np.finfo("f8" if got.dtype == "f8" else "f4").eps
        assert np.all(np.abs(got - wanted) <= unit * scale + 1e-30)
    else:
        assert np.array_equal(got, wanted)


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_products_are_numpys(form, shapes, dtype):
    rng = np.random.default_rng(1)
    a, b = ((rng.random(each) * 8 - 4).astype(dtype) for each in shapes)
    check("LLVM", a, b)


@pytest.mark.parametrize("shapes", [((1, 1), (1, 1)), ((5, 19), (19, 18)), ((2, 4, 3), (3, 2))], ids=str)
def test_products_are_right_to_the_strict_device(form, shapes):
    rng = np.random.default_rng(2)
    check("PYTHON", *(rng.random(each, dtype="f4") for each in shapes))


def test_strips_panels_and_columns_that_are_not_full(form):
    rng = np.random.default_rng(3)
    for rows, depth, columns in ((127, 129, 31), (129, 1, 32), (1, 300, 65), (128, 128, 64)):
        check("LLVM", rng.random((rows, depth), dtype="f4"), rng.random((depth, columns), dtype="f4"))


def test_bfloat16_sums_in_f32(form):
    a = np.ones((4, 1000), hcq.dtypes.bfloat16.numpy)
    got = ops.matmul(hcq.array(a, "LLVM"), hcq.array(a.T.copy(), "LLVM")).numpy()
    assert np.all(got.astype("f4") == 1000)  # sums in bf16 would stop at 256


def test_shapes_that_don_t_fit_are_refused():
    a = hcq.zeros((2, 3), hcq.f32, "LLVM")
    for other in ((2, 3), (3,)):
        with pytest.raises(ValueError, match="no matrix product of shapes"):
            ops.matmul(a, hcq.zeros(other, hcq.f32, "LLVM"))
    with pytest.raises(ValueError, match="leading axes"):
        ops.matmul(hcq.zeros((2, 1, 2, 3), hcq.f32, "LLVM"), hcq.zeros((2, 5, 3, 2), hcq.f32, "LLVM"))
    with pytest.raises(LaunchError, match="bool"):
        ops.matmul(hcq.zeros((2, 2), hcq.bool_, "LLVM"), hcq.zeros((2, 2), hcq.bool_, "LLVM"))
