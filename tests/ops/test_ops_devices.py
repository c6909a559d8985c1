"""hcq.ops with the rest: in graphs, on streams, under the checks; results that no device's launch shapes change."""

import numpy as np
import pytest
from every_operation import RNG, all_of_them, arrays
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_helpers import there

import hcq
from hcq import ops

DEVICES = ["LLVM", "CLANG", *there("VULKAN")]


@pytest.mark.parametrize("device", DEVICES)
def test_a_graph_of_operations_gives_what_they_gave(device):
    given = arrays(device)
    wanted = [each.numpy() for each in all_of_them(*given)]
    with hcq.capture(inputs={"x": given[0]}) as graph:
        results = all_of_them(*given)
    for _ in range(2):
        graph.replay().wait()
        for got, expected in zip(results, wanted, strict=True):
            assert np.array_equal(got.numpy(), expected)
    other = hcq.array(RNG.random((40, 70), dtype="f4"), device)
    graph.replay(x=other).wait()
    for got, expected in zip(results, all_of_them(other, *given[1:]), strict=True):
        assert np.array_equal(got.numpy(), expected.numpy())


@pytest.mark.parametrize("device", DEVICES)
def test_operations_on_streams_keep_their_order_and_their_memory(device):
    given = arrays(device)
    wanted = [each.numpy() for each in all_of_them(*given)]
    streams = [hcq.Device[device].stream() for _ in range(2)]
    with hcq.checks():
        results = [all_of_them(*given, stream=each) for each in streams for _ in range(3)]
        for each in streams:
            each.synchronize()
    for result in results:
        for got, expected in zip(result, wanted, strict=True):
            assert np.array_equal(got.numpy(), expected)


def test_the_checks_tell_operations_of_two_streams_that_race():
    x = hcq.array(np.ones(1000, "f4"), "LLVM")
    one, two = hcq.Device["LLVM"].stream(), hcq.Device["LLVM"].stream()
    with pytest.raises(hcq.errors.ValidationError, match="race"), hcq.checks():
        ops.add(x, 1, out=x, stream=one)
        ops.multiply(x, 2, out=x, stream=two)
        hcq.Device["LLVM"].synchronize()


@pytest.mark.parametrize("count", [255, 256, 1023, 1024, 1025, 5000])
def test_groups_of_any_size_do_every_element(count):
    x = np.arange(2 * count, dtype="f4").reshape(2, count)
    for device in DEVICES:
        b = hcq.array(x, device)
        assert np.array_equal(ops.add(b, hcq.array(x[0], device)).numpy(), x + x[0])
        assert np.array_equal(ops.fill(hcq.empty((2, count), hcq.f32, device), 7).numpy(), np.full_like(x, 7))
        assert np.array_equal(ops.sum(b, axis=0).numpy(), x.sum(0))
        assert np.array_equal(ops.argmax(b, axis=0).numpy(), x.argmax(0))


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 40), columns=st.integers(1, 70), seed=st.integers(0, 99))
def test_sums_and_softmax_are_the_same_bits_on_every_device(rows, columns, seed):
    x = np.random.default_rng(seed).standard_normal((rows, columns)).astype("f4")
    for work in (lambda b: ops.sum(b, axis=0), lambda b: ops.sum(b, axis=1), ops.sum, ops.softmax, ops.layer_norm):
        wanted = work(hcq.array(x, "LLVM")).numpy()
        for device in DEVICES[1:]:
            assert np.array_equal(work(hcq.array(x, device)).numpy(), wanted)


@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_softmax_may_go_where_its_argument_is(dtype):
    x = RNG.standard_normal((5, 700)).astype(dtype)
    b = hcq.array(x, "LLVM")
    wanted = ops.softmax(b).numpy()
    assert np.array_equal(ops.softmax(b, out=b).numpy(), wanted)


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=20, deadline=None)
@given(slices=st.integers(1, 40), length=st.integers(60, 200), before=st.integers(1, 3), seed=st.integers(0, 99))
def test_long_slices_are_gathered(device, slices, length, before, seed):
    rng = np.random.default_rng(seed)
    x, index = rng.random((before, 30, length), dtype="f4"), rng.integers(-30, 30, slices)
    got = ops.gather(hcq.array(x, device), hcq.array(index, device), axis=1).numpy()
    assert np.array_equal(got, np.take(x, index, axis=1))


@pytest.mark.parametrize("device", [*DEVICES, "PYTHON"])
@pytest.mark.parametrize("shape", [(1, 9), (33, 32), (70, 65)], ids=str)
def test_matrices_are_turned_on_every_device(shape, device):
    x = RNG.random(shape, dtype="f4")
    assert np.array_equal(ops.transpose(hcq.array(x, device)).numpy(), x.T)


def test_a_mistyped_name_is_told_the_near_one():
    with pytest.raises(AttributeError, match=r"no attribute 'sinn'. Did you mean 'sin'\?"):
        ops.sinn  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'quux'$"):
        ops.quux  # noqa: B018


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize(("rows", "count"), [(2, 3), (3, 700), (1, 4100)])
def test_sums_along_rows_are_the_same_bits_on_every_device(rows, count, exclusive):
    """PYTHON runs the form for devices that run many items together."""
    x = (np.random.default_rng(count).random((rows, count)) - 0.5).astype("f4")
    devices = ["LLVM", "CLANG"] + ["PYTHON"] * (count < 1000)
    results = [ops.cumsum(hcq.array(x, each), exclusive=exclusive).numpy() for each in devices]
    assert all(each.tobytes() == results[0].tobytes() for each in results)
    wanted = np.cumsum(x.astype("f8"), axis=1) - (x if exclusive else 0)
    np.testing.assert_allclose(results[0], wanted, atol=1e-4)
    for turned in (x, np.ascontiguousarray(x.T)):  # along rows, and along as long columns
        axis = 1 if turned is x else 0
        sums = [ops.sum(hcq.array(turned, each), axis=axis).numpy() for each in devices]
        assert all(each.tobytes() == sums[0].tobytes() for each in sums)
