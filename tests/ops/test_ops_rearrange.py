"""hcq.ops: transposes, gather and scatter, beside NumPy."""

import itertools

import numpy as np
import pytest

import hcq
from hcq import ops
from hcq.errors import LaunchError


@pytest.mark.parametrize("device", ["LLVM", "CLANG", "PYTHON"])
@pytest.mark.parametrize("order", [None, *itertools.permutations(range(3))], ids=str)
def test_transposes_of_three_axes(order, device):
    x = np.arange(2 * 3 * 5, dtype="i4").reshape(2, 3, 5)
    assert np.array_equal(ops.transpose(hcq.array(x, device), order).numpy(), x.transpose(order))


@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "f8"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 100), (32, 32), (33, 65), (100, 7)], ids=str)
def test_matrices_of_any_size_and_type_are_turned(shape, dtype):
    x = np.random.default_rng(1).integers(0, 200, shape).astype(dtype)
    assert np.array_equal(ops.transpose(hcq.array(x, "LLVM")).numpy(), x.T)


def test_transposes_of_more_axes():
    x = np.arange(2 * 3 * 4 * 5 * 2, dtype="f4").reshape(2, 3, 4, 5, 2)
    for order in ((0, 2, 1, 3, 4), (4, 0, 1, 2, 3), (1, 2, 0, 4, 3), (-1, 0, 1, 2, 3)):
        assert np.array_equal(ops.transpose(hcq.array(x, "LLVM"), order).numpy(), x.transpose(order))
    with pytest.raises(LaunchError, match="more than four"):
        ops.transpose(hcq.array(x, "LLVM"))
    with pytest.raises(ValueError, match="no order of 5 axes"):
        ops.transpose(hcq.array(x, "LLVM"), (0, 0, 1, 2, 3))
    with pytest.raises(ValueError, match="axis 5 of an array with 5 axes"):
        ops.transpose(hcq.array(x, "LLVM"), (0, 5, 1, 2, 3))


@pytest.mark.parametrize("wrong", [True, 1.0, "1", None, np.bool_(True), (0, 1)], ids=str)
def test_one_axis_is_a_whole_number(wrong):
    x, index = hcq.zeros((2, 2), hcq.f32, "LLVM"), hcq.zeros(1, hcq.i32, "LLVM")
    for name in ("softmax", "sort", "argmax", "cumsum"):
        with pytest.raises(TypeError, match="an axis is a whole number, not"):
            getattr(ops, name)(x, axis=wrong)
    with pytest.raises(TypeError, match="an axis is a whole number, not"):
        ops.gather(x, index, axis=wrong)
    with pytest.raises(TypeError, match="an axis is a whole number, not"):
        ops.scatter(x, index, x, axis=wrong)
    for several in ((0, wrong), [wrong]):
        with pytest.raises(TypeError, match="an axis is a whole number, not"):
            ops.sum(x, axis=several)
    with pytest.raises(TypeError, match="an axis is a whole number, not"):
        ops.transpose(x, (0, wrong))


@pytest.mark.parametrize("device", ["LLVM", "CLANG", "PYTHON"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_takes_slices(axis, device):
    x = np.random.default_rng(2).random((4, 5, 3), dtype="f4")
    for index in (np.array([2, 0, -1, 2], "i4"), np.array([[1, 0], [2, 2]], "i8")):
        got = ops.gather(hcq.array(x, device), hcq.array(index, device), axis=axis).numpy()
        assert np.array_equal(got, np.take(x, index, axis=axis))


@pytest.mark.parametrize("device", ["LLVM", "CLANG", "PYTHON"])
def test_scatter_puts_slices(device):
    rng = np.random.default_rng(3)
    for axis in (0, 1):
        base, index = rng.random((5, 6), dtype="f4"), np.array([3, -1, 0], "i4")
        x = rng.random((3, 6) if axis == 0 else (5, 3), dtype="f4")
        out = hcq.array(base, device)
        assert ops.scatter(out, hcq.array(index, device), hcq.array(x, device), axis=axis) is out
        wanted = base.copy()
        wanted[(index,) if axis == 0 else (slice(None), index)] = x
        assert np.array_equal(out.numpy(), wanted)


@pytest.mark.parametrize("dtype", ["i4", "f4", "f8", "i8"])
def test_scatter_add_adds_what_falls_together(dtype):
    rng = np.random.default_rng(4)
    index, x = rng.integers(0, 7, 1000).astype("i4"), rng.integers(0, 9, (1000, 3)).astype(dtype)
    out = hcq.zeros((7, 3), dtype=np.dtype(dtype), device="LLVM")
    wanted = np.zeros((7, 3), dtype)
    np.add.at(wanted, index, x)
    assert np.array_equal(ops.scatter_add(out, hcq.array(index, "LLVM"), hcq.array(x, "LLVM")).numpy(), wanted)


def test_what_they_don_t_take():
    x = hcq.zeros((4, 5), hcq.f32, "LLVM")
    with pytest.raises(LaunchError, match="of integers, not f32"):
        ops.gather(x, x)
    with pytest.raises(LaunchError, match="of f32, not"):
        ops.scatter(x, hcq.zeros(3, hcq.i32, "LLVM"), hcq.zeros((3, 4), hcq.f32, "LLVM"))


@pytest.mark.parametrize("bad", [5, -6])
def test_the_checks_find_indices_out_of_bounds_on_every_device(bad):
    from hcq.errors import OutOfBoundsError

    x = hcq.array(np.zeros((5, 70), "f4"), "LLVM")
    index = hcq.array(np.array([0, -5, 4, bad], "i4"), "LLVM")
    rows = hcq.zeros((4, 70), hcq.f32, "LLVM")
    with hcq.checks(), pytest.raises(OutOfBoundsError, match=f"element 3 of the index is {bad}: the axis has 5"):
        ops.gather(x, index)
    for put in (ops.scatter, ops.scatter_add):
        with hcq.checks(), pytest.raises(OutOfBoundsError, match="element 3"):
            put(x, index, rows)
