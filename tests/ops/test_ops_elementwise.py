"""hcq.ops, maps: NumPy's results, types and broadcasting, on every device that runs kernels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hcq
from hcq import ops
from hcq.errors import LaunchError

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

DEVICES = ["LLVM", "CLANG", "PYTHON"]


def special(name):
    import math

    return np.vectorize(getattr(math, name))


UNARY = {name: getattr(np, name) for name in ("negative", "absolute", "sqrt", "exp", "log", "sin", "cos", "tanh")}
UNARY |= {"sigmoid": lambda x: 1 / (1 + np.exp(-x)), "relu": lambda x: np.maximum(x, 0)}
UNARY |= {"silu": lambda x: x / (1 + np.exp(-x)), "erf": lambda x: special("erf")(x).astype(x.dtype)}
UNARY |= {"gelu": lambda x: (0.5 * x * (1 + special("erf")(x / np.sqrt(2)))).astype(x.dtype)}
BINARY = ("add", "subtract", "multiply", "divide", "power", "minimum", "maximum")
BINARY += ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def close(got, wanted):
    assert got.shape == wanted.shape and got.dtype == wanted.dtype, (got.dtype, wanted.dtype)
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(got, wanted, rtol=8 * np.finfo(wanted.dtype).eps, atol=1e-7)
    else:
        assert np.array_equal(got, wanted)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_number(name, device, dtype):
    x = np.random.default_rng(1).uniform(-3, 3, (5, 13)).astype(dtype)
    x = np.abs(x) if name in ("sqrt", "log") else x
    close(getattr(ops, name)(hcq.array(x, device)).numpy(), UNARY[name](x))


@pytest.mark.parametrize("types", [("f4", "f4"), ("i4", "i4"), ("u1", "i2"), ("f4", "i4"), ("f8", "f4")])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_have_numpys_results_and_types(name, device, types):
    rng = np.random.default_rng(2)
    x, y = (rng.integers(1, 4, (4, 6)).astype(each) for each in types)
    close(getattr(ops, name)(hcq.array(x, device), hcq.array(y, device)).numpy(), getattr(np, name)(x, y))


@pytest.mark.parametrize("device", DEVICES)
def test_numbers_are_weak(device):
    x = np.arange(6, dtype="u1").reshape(2, 3)
    buf = hcq.array(x, device)
    close(ops.add(buf, 3).numpy(), x + 3)
    close(ops.add(buf, 0.5).numpy(), x + 0.5)
    close(ops.subtract(10, buf).numpy(), 10 - x)
    with pytest.raises(OverflowError, match="300 does not fit"):
        ops.add(buf, 300)


SIDES = st.integers(1, 4)


@settings(deadline=None, max_examples=40)
@given(st.lists(SIDES, min_size=0, max_size=4), st.data())
def test_shapes_are_stretched_as_numpy_does(shape, data):
    def narrowed():
        sides = [data.draw(st.sampled_from([1, side])) for side in shape]
        return sides[data.draw(st.integers(0, len(sides))) :]

    x, y, z = (np.random.default_rng(seed).random(narrowed(), dtype="f4") for seed in range(3))
    bx, by, bz = (hcq.array(each, "LLVM") for each in (x, y, z))
    close(ops.add(bx, by).numpy(), x + y)
    close(ops.where(bx, by, bz).numpy(), np.where(x != 0, y, z))


@pytest.mark.parametrize("device", DEVICES)
def test_fill_cast_and_copy(device):
    for dtype in (hcq.bf16, hcq.f16, hcq.f32, hcq.f64, hcq.i8, hcq.u64, hcq.bool_):
        assert np.all(ops.fill(hcq.empty(300, dtype, device), 1).numpy().astype("f4") == 1)
    x = np.array([-1.9, 0.5, 300.7, np.nan, -np.inf, 1e20], "f4")
    assert ops.cast(hcq.array(x, device), hcq.i16).numpy().tolist() == [-1, 0, 300, 0, -32768, 32767]
    assert ops.cast(hcq.array(x, device), hcq.f16).numpy().tobytes() == x.astype("f2").tobytes()
    row = np.arange(3, dtype="i4")
    out = hcq.empty((2, 3), hcq.f32, device)
    assert np.array_equal(ops.copy(hcq.array(row, device), out=out).numpy(), np.broadcast_to(row, (2, 3)))


@pytest.mark.parametrize("device", DEVICES)
def test_map_takes_any_function_of_the_language(device):
    def mix(a, b, t):
        return a + (b - a) * t

    rng = np.random.default_rng(3)
    a, b = (rng.random((7, 5), dtype="f4") for _ in range(2))
    got = ops.map(mix, hcq.array(a, device), hcq.array(b, device), 0.25).numpy()
    close(got, a + (b - a) * np.float32(0.25))


def test_results_go_into_an_operand_or_where_they_are_told():
    x = hcq.array(np.arange(10, dtype="f4"), "LLVM")
    assert ops.add(x, x, out=x) is x
    assert x.numpy().tolist() == [2.0 * k for k in range(10)]
    with pytest.raises(LaunchError, match="out has shape"):
        ops.add(x, 1, out=hcq.empty(9, hcq.f32, "LLVM"))
    with pytest.raises(ValueError, match="don't broadcast"):
        ops.add(x, hcq.empty(9, hcq.f32, "LLVM"))


def test_reshape_is_a_view():
    x = hcq.array(np.arange(12, dtype="f4"), "LLVM")
    y = ops.reshape(x, (3, -1))
    assert y.shape == (3, 4) and y.base is x
    assert np.array_equal(ops.add(y, y).numpy(), 2 * np.arange(12, dtype="f4").reshape(3, 4))
    with pytest.raises(ValueError, match="no shape"):
        ops.reshape(x, (5, -1))
