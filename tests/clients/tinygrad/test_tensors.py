"""Tensor operations through hcq's devices, against NumPy: dtypes, shapes, several devices, empty tensors, lifetimes."""

import gc
import pickle
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinygrad import Device, GlobalCounters, Tensor, dtypes, nn

DEVICES = ["CLANG", "LLVM", "CLANG:1", "LLVM:1"]

X = np.random.default_rng(1).standard_normal((6, 8)).astype(np.float32)
Y = np.random.default_rng(2).uniform(0.5, 2, (6, 8)).astype(np.float32)

OPERATIONS = {
    "add": (lambda x, y: x + y, lambda x, y: x + y),
    "subtract": (lambda x, y: x - y, lambda x, y: x - y),
    "multiply": (lambda x, y: x * y, lambda x, y: x * y),
    "divide": (lambda x, y: x / y, lambda x, y: x / y),
    "negate": (lambda x, y: -x, lambda x, y: -x),
    "power": (lambda x, y: y**1.5, lambda x, y: y**1.5),
    "exp": (lambda x, y: x.exp(), lambda x, y: np.exp(x)),
    "log": (lambda x, y: y.log(), lambda x, y: np.log(y)),
    "sin": (lambda x, y: x.sin(), lambda x, y: np.sin(x)),
    "sqrt": (lambda x, y: y.sqrt(), lambda x, y: np.sqrt(y)),
    "reciprocal": (lambda x, y: y.reciprocal(), lambda x, y: 1 / y),
    "tanh": (lambda x, y: x.tanh(), lambda x, y: np.tanh(x)),
    "sigmoid": (lambda x, y: x.sigmoid(), lambda x, y: 1 / (1 + np.exp(-x))),
    "relu": (lambda x, y: x.relu(), lambda x, y: np.maximum(x, 0)),
    "maximum": (lambda x, y: x.maximum(y), lambda x, y: np.maximum(x, y)),
    "less": (lambda x, y: x < y, lambda x, y: x < y),
    "where": (lambda x, y: (x > 0).where(x, y), lambda x, y: np.where(x > 0, x, y)),
    "clip": (lambda x, y: x.clip(-1, 1), lambda x, y: np.clip(x, -1, 1)),
    "sum": (lambda x, y: x.sum(), lambda x, y: x.sum()),
    "sum of rows": (lambda x, y: x.sum(axis=1), lambda x, y: x.sum(axis=1)),
    "mean": (lambda x, y: x.mean(axis=0), lambda x, y: x.mean(axis=0)),
    "max": (lambda x, y: x.max(axis=1), lambda x, y: x.max(axis=1)),
    "argmax": (lambda x, y: x.argmax(axis=1), lambda x, y: x.argmax(axis=1)),
    "variance": (lambda x, y: x.var(axis=1), lambda x, y: x.var(axis=1, ddof=1)),
    "softmax": (lambda x, y: x.softmax(), lambda x, y: np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)),
    "cumulative sum": (lambda x, y: x.cumsum(axis=1), lambda x, y: x.cumsum(axis=1)),
    "matmul": (lambda x, y: x @ y.T, lambda x, y: x @ y.T),
    "transpose": (lambda x, y: x.T.contiguous(), lambda x, y: x.T),
    "reshape": (lambda x, y: x.reshape(4, 12) * 2, lambda x, y: x.reshape(4, 12) * 2),
    "flip": (lambda x, y: x.flip(1) + y, lambda x, y: x[:, ::-1] + y),
    "pad": (lambda x, y: x.pad(((1, 2), (0, 3))), lambda x, y: np.pad(x, ((1, 2), (0, 3)))),
    "slice": (lambda x, y: x[1:4, ::2], lambda x, y: x[1:4, ::2]),
    "index": (lambda x, y: x[Tensor([3, 0, 5], device=x.device)], lambda x, y: x[[3, 0, 5]]),
    "concatenate": (lambda x, y: x.cat(y, dim=1), lambda x, y: np.concatenate([x, y], axis=1)),
    "stack": (lambda x, y: Tensor.stack(x, y), lambda x, y: np.stack([x, y])),
    "expand": (lambda x, y: x[:, :1].expand(6, 8) * y, lambda x, y: x[:, :1] * y),
    "triangle": (lambda x, y: x.tril(), lambda x, y: np.tril(x)),
    "outer": (lambda x, y: x[0].reshape(8, 1) * y[0], lambda x, y: np.outer(x[0], y[0])),
    "einsum": (lambda x, y: Tensor.einsum("ij,kj->ik", x, y), lambda x, y: np.einsum("ij,kj->ik", x, y)),
}

INTEGERS = [dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32, dtypes.uint32, dtypes.int64]
FLOATS = [dtypes.float16, dtypes.float32, dtypes.float64]


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_numpys(name, device):
    ours, theirs = OPERATIONS[name]
    result = ours(Tensor(X, device=device), Tensor(Y, device=device)).numpy()
    np.testing.assert_allclose(result, theirs(X, Y), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_integers_are_exact_and_wrap(dtype, device):
    kind = np.dtype(dtype.fmt)
    a = np.array([1, 100, np.iinfo(kind).max, 7], kind)
    b = np.array([3, 7, 1, 2], kind)
    for result, expected in [
        (Tensor(a, device=device) + Tensor(b, device=device), a + b),
        (Tensor(a, device=device) * Tensor(b, device=device), a * b),
        (Tensor(a, device=device).div(Tensor(b, device=device), upcast=False), a // b),
        (Tensor(a, device=device).xor(Tensor(b, device=device)), a ^ b),
    ]:
        assert result.numpy().tolist() == expected.tolist()
        assert result.dtype == dtype


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_floats_of_each_size_and_casts_between_them(dtype, device):
    values = np.array([1.5, -2.25, 1000, 0], dtype.fmt)
    assert (Tensor(values, device=device) * 2).numpy().tolist() == (values * 2).tolist()
    assert Tensor(values, device=device).cast(dtypes.int32).numpy().tolist() == [1, -2, 1000, 0]
    assert Tensor([1, 2, 3], device=device).cast(dtype).numpy().tolist() == [1, 2, 3]


def test_bits_are_taken_for_another_type_in_place(device):
    floats = Tensor([1.0, -2.0], device=device).realize()
    assert floats.bitcast(dtypes.int32).numpy().tolist() == [0x3F800000, -0x40000000]


def test_booleans(device):
    a, b = Tensor([True, True, False], device=device), Tensor([True, False, False], device=device)
    assert (a == b).tolist() == [True, False, True]
    assert (a * b).tolist() == [True, False, False]
    assert a.sum().item() == 2


def test_empty_tensors_cost_nothing_and_work(device):
    assert Tensor([], device=device).numpy().shape == (0,)
    assert Tensor.empty(0, 3, device=device).contiguous().realize().shape == (0, 3)
    assert Tensor.zeros(0, 3, device=device).sum().item() == 0
    assert Tensor([], device=device).cat(Tensor([1.0, 2.0], device=device)).tolist() == [1, 2]


def test_bytes_and_scalars_become_tensors(device):
    assert Tensor(b"abcd", device=device).tolist() == [97, 98, 99, 100]
    assert (Tensor(b"\x01\x00\x02\x00", dtype=dtypes.int16, device=device) + 1).tolist() == [2, 3]
    assert (Tensor(3.5, device=device) * 2).item() == 7


def test_assigning_writes_the_same_memory(device):
    x = Tensor([1, 2, 3, 4], device=device).contiguous().realize()
    address = x.lazydata.base.realized._buf.va_addr
    x.assign(x * 10).realize()
    assert x.tolist() == [10, 20, 30, 40]
    assert x.lazydata.base.realized._buf.va_addr == address
    x[1:3] = 0
    assert x.tolist() == [10, 0, 0, 40]


def test_views_are_views_of_the_same_memory(device):
    root = Tensor(np.arange(16, dtype=np.float32), device=device).contiguous().realize()
    part = root.shrink(((4, 8),)).contiguous().realize()
    view, base = part.lazydata.base.realized, root.lazydata.base.realized
    assert view._base is base and view._buf.va_addr == base._buf.va_addr + 16
    del root, base
    gc.collect()
    assert part.tolist() == [4, 5, 6, 7]


def test_data_of_a_tensor_outlives_it(device):
    data = Tensor([1, 2, 3], device=device).data()
    gc.collect()
    others = [Tensor([9, 9, 9], device=device).realize() for _ in range(8)]
    assert data.tolist() == [1, 2, 3]
    assert others


@pytest.mark.parametrize("there", DEVICES)
def test_tensors_move_between_devices(device, there):
    values = np.arange(5000, dtype=np.float32)
    x = (Tensor(values, device=device) + 1).to(there) * 2
    assert x.device == there
    np.testing.assert_array_equal((x.to(device) - 2).numpy(), values * 2)


def test_memory_planned_for_one_device_crosses_to_another_in_order():
    x = Tensor(np.ones((64, 64), np.float32), device="CLANG")
    for step in range(6):
        x = (x.to("CLANG:1" if step % 2 == 0 else "CLANG") + 1).contiguous()
    assert x.numpy().tolist() == [[7.0] * 64] * 64


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_a_tensor_over_two_devices(axis):
    devices = ("CLANG", "CLANG:1")
    x, y = Tensor(X).shard(devices, axis), Tensor(Y).shard(devices, axis)
    np.testing.assert_allclose((x * y + 1).numpy(), X * Y + 1, rtol=1e-5)
    np.testing.assert_allclose((x * y).sum(axis=0).numpy(), (X * Y).sum(axis=0), rtol=1e-4)
    np.testing.assert_allclose((x * y).sum().numpy(), (X * Y).sum(), rtol=1e-4)


def test_gradients(device):
    x, y = Tensor(X, device=device, requires_grad=True), Tensor(Y, device=device, requires_grad=True)
    ((x * y).relu().sum() + (x * x).mean()).backward()
    np.testing.assert_allclose(x.grad.numpy(), Y * (X * Y > 0) + 2 * X / X.size, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(y.grad.numpy(), X * (X * Y > 0), rtol=1e-4, atol=1e-6)


def test_convolution_and_pooling(device):
    image = np.random.default_rng(3).standard_normal((1, 2, 6, 6)).astype(np.float32)
    kernel = np.random.default_rng(4).standard_normal((3, 2, 3, 3)).astype(np.float32)
    expected = np.array(
        [[(image[0, :, i : i + 3, j : j + 3] * k).sum() for j in range(4)] for k in kernel for i in range(4)]
    ).reshape(1, 3, 4, 4)
    result = Tensor(image, device=device).conv2d(Tensor(kernel, device=device))
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-5)
    pooled = result.max_pool2d((2, 2)).numpy()
    np.testing.assert_allclose(pooled, expected.reshape(1, 3, 2, 2, 2, 2).max(axis=(3, 5)), rtol=1e-4, atol=1e-5)


def test_layers_and_an_optimizer(device):
    before = Device.DEFAULT
    Device.DEFAULT = device
    try:
        Tensor.manual_seed(1)
        layer = nn.Linear(8, 3)
        optimizer = nn.optim.SGD(nn.state.get_parameters(layer), lr=0.1)
        with Tensor.train():
            losses = []
            for _ in range(3):
                optimizer.zero_grad()
                loss = (layer(Tensor(X)) ** 2).mean().backward()
                optimizer.step()
                losses.append(loss.item())
        assert losses[0] > losses[1] > losses[2]
        assert layer.weight.lazydata.base.realized.device == device
    finally:
        del Device.DEFAULT
        assert Device.canonicalize(before) in ("CLANG", "LLVM")


def test_random_tensors_repeat_by_their_seed(device):
    Tensor.manual_seed(5)
    first = [Tensor.rand(4, device=device).numpy(), Tensor.randn(4, device=device).numpy()]
    Tensor.manual_seed(5)
    second = [Tensor.rand(4, device=device).numpy(), Tensor.randn(4, device=device).numpy()]
    np.testing.assert_array_equal(first, second)
    assert (first[0] != first[1]).all()


def test_tensors_pickle_with_their_contents(device):
    x = (Tensor(X, device=device) + 1).realize()
    y = pickle.loads(pickle.dumps(x))
    assert y.device == device
    np.testing.assert_array_equal(y.numpy(), X + 1)
    assert y.lazydata.base.realized is not x.lazydata.base.realized


def test_memory_goes_with_its_tensor(device):
    gc.collect()
    before = GlobalCounters.mem_used
    x = Tensor(np.zeros(100_000, np.float32), device=device).contiguous().realize()
    buf = weakref.ref(x.lazydata.base.realized)
    assert GlobalCounters.mem_used >= before + 400_000
    del x
    gc.collect()
    assert buf() is None
    assert GlobalCounters.mem_used == before


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 2**32 - 1), st.sampled_from(DEVICES))
def test_reductions_of_any_shape(shape, seed, device):
    values = np.random.default_rng(seed).integers(-50, 50, shape).astype(np.int32)
    axis = seed % len(shape)
    assert Tensor(values, device=device).sum(axis=axis).numpy().tolist() == values.sum(axis=axis).tolist()
    assert Tensor(values, device=device).max(axis=axis).numpy().tolist() == values.max(axis=axis).tolist()
