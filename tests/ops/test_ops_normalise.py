"""hcq.ops: softmax, layer norm and RMS norm, beside NumPy in f64."""

import numpy as np
import pytest

import hcq
from hcq import ops
from hcq.errors import LaunchError

TYPES = {"f4": 2e-6, "f8": 1e-14, "f2": 2e-3}


def data(shape, dtype, seed=1):
    return (np.random.default_rng(seed).normal(size=shape) * 3).astype(dtype)


def check(got, wanted, dtype):
    got = got.numpy()
    assert got.shape == wanted.shape and got.dtype == np.dtype(dtype)
    np.testing.assert_allclose(got, wanted, rtol=TYPES[dtype], atol=TYPES[dtype])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(1,), (3, 7), (2, 3, 256), (5, 1000)], ids=str)
def test_softmax(shape, dtype):
    x = data(shape, dtype)
    e = np.exp(x.astype("f8") - x.astype("f8").max(-1, keepdims=True))
    check(ops.softmax(hcq.array(x, "LLVM")), e / e.sum(-1, keepdims=True), dtype)


@pytest.mark.parametrize("axis", [0, 1, -2])
def test_rows_lie_along_any_axis(axis):
    x, w = data((5, 40, 3), "f4"), data((5, 40, 3)[axis], "f4", 2)
    buf, weight = hcq.array(x, "LLVM"), hcq.array(w, "LLVM")
    along = np.moveaxis(x.astype("f8"), axis, -1)
    e = np.exp(along - along.max(-1, keepdims=True))
    check(ops.softmax(buf, axis=axis), np.moveaxis(e / e.sum(-1, keepdims=True), -1, axis), "f4")
    normal = (along - along.mean(-1, keepdims=True)) / np.sqrt(along.var(-1, keepdims=True) + 1e-5) * w
    check(ops.layer_norm(buf, weight, axis=axis), np.moveaxis(normal, -1, axis), "f4")
    normal = along / np.sqrt((along * along).mean(-1, keepdims=True) + 1e-6) * w
    check(ops.rms_norm(buf, weight, axis=axis, out=buf), np.moveaxis(normal, -1, axis), "f4")
    with pytest.raises(ValueError, match="axis 3"):
        ops.softmax(buf, axis=3)


def test_softmax_of_large_and_missing_scores():
    x = np.array([[1e4, 1e4, -np.inf], [-np.inf, -np.inf, -np.inf]], "f4")
    got = ops.softmax(hcq.array(x, "LLVM")).numpy()
    assert got[0].tolist() == [0.5, 0.5, 0.0] and np.isnan(got[1]).all()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("parts", ["", "w", "b", "wb"])
def test_layer_norm(parts, dtype):
    x, w, b = data((4, 300), dtype), data(300, dtype, 2), data(300, dtype, 3)
    wide = x.astype("f8")
    y = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    y = y * (w.astype("f8") if "w" in parts else 1) + (b.astype("f8") if "b" in parts else 0)
    given = {
        name: hcq.array(value, "LLVM") for name, key, value in (("weight", "w", w), ("bias", "b", b)) if key in parts
    }
    got = ops.layer_norm(hcq.array(x, "LLVM"), **given).numpy()
    np.testing.assert_allclose(got, y, rtol=4 * TYPES[dtype], atol=8 * TYPES[dtype])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_rms_norm(weighted, dtype):
    x, w = data((4, 300), dtype), data(300, dtype, 2)
    wide = x.astype("f8")
    y = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-6) * (w.astype("f8") if weighted else 1)
    got = ops.rms_norm(hcq.array(x, "LLVM"), hcq.array(w, "LLVM") if weighted else None).numpy()
    np.testing.assert_allclose(got, y, rtol=4 * TYPES[dtype], atol=4 * TYPES[dtype])


def test_they_are_right_to_the_strict_device():
    x = data((2, 5), "f4")
    for name in ("softmax", "layer_norm", "rms_norm"):
        results = [getattr(ops, name)(hcq.array(x, device)).numpy() for device in ("PYTHON", "LLVM")]
        assert np.array_equal(*results)  # to the last bit


def test_what_they_don_t_take():
    x = hcq.zeros((2, 4), hcq.f32, "LLVM")
    with pytest.raises(LaunchError, match="weight has 3 elements: rows have 4"):
        ops.layer_norm(x, weight=hcq.zeros(3, hcq.f32, "LLVM"))
    with pytest.raises(LaunchError, match="takes floats, not i32"):
        ops.softmax(hcq.zeros((2, 4), hcq.i32, "LLVM"))
