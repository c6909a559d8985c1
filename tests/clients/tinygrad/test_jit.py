"""tinygrad's JIT on hcq: capture, replay, its graph in C, symbolic sizes, pickled captures, searches for kernels."""

import gc
import pickle

import numpy as np
import pytest
from tinygrad import Device, GlobalCounters, Tensor, TinyJit, Variable
from tinygrad.engine.jit import GraphRunner
from tinygrad.engine.realize import CompiledRunner
from tinygrad.helpers import Context

from hcq.graph import ListGraph

DEVICES = ["CLANG", "LLVM", "CLANG:1"]


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def three_steps(x):
    return (((x + 1).contiguous() * 2).contiguous() - 3).contiguous().realize()


def inputs(device, count=6):
    for seed in range(count):
        yield Tensor(np.random.default_rng(seed).integers(0, 100, 50).astype(np.int32), device=device).realize()


def test_a_replay_computes_from_each_input_anew(device):
    jitted = TinyJit(three_steps)
    for x in inputs(device):
        assert jitted(x).tolist() == [(v + 1) * 2 - 3 for v in x.tolist()]


def test_clang_replays_through_tinygrads_own_graph_on_the_right_device():
    for name in ("CLANG", "CLANG:1"):
        jitted = TinyJit(three_steps)
        for x in inputs(name, 3):
            jitted(x)
        (item,) = jitted.jit_cache
        assert isinstance(item.prg, GraphRunner)
        before = Device[name].timeline_value, Device["LLVM"].timeline_value
        jitted(x)
        assert (Device[name].timeline_value, Device["LLVM"].timeline_value) == (before[0] + 1, before[1])


def test_llvm_replays_through_a_graph_of_hcqs_where_tinygrad_has_none():
    jitted = TinyJit(three_steps)
    for x in inputs("LLVM", 3):
        jitted(x)
    (item,) = jitted.jit_cache
    assert isinstance(item.prg.graph, ListGraph)
    assert len(item.prg.graph.graph) == 3


def test_a_graph_of_more_inputs_than_a_function_takes(device):
    @TinyJit
    def sums(*xs):
        outs = [(a + b).contiguous() for a, b in zip(xs[::2], xs[1::2], strict=True)]
        Tensor.realize(*outs)
        return outs

    xs = [Tensor([n, n], device=device).realize() for n in range(520)]
    outs = None
    for _ in range(4):
        del outs  # else tinygrad finds that all of it was computed before
        outs = sums(*xs)
    assert [out.tolist() for out in outs] == [[n + n + 1] * 2 for n in range(0, 520, 2)]
    assert len(sums.jit_cache) < 10


def test_a_graph_comes_after_what_is_queued_before_it():
    """On the second device the graph must not overtake the copy that brings its input."""
    jitted = TinyJit(three_steps)
    for seed in range(20):
        source = Tensor(np.full(100_000, seed, np.int32), device="CLANG").realize()
        assert set(jitted(source.to("CLANG:1").realize()).tolist()) == {(seed + 1) * 2 - 3}


def test_a_graph_can_be_timed():
    jitted = TinyJit(three_steps)
    for x in inputs("CLANG", 3):
        jitted(x)
    with Context(DEBUG=2):
        before = GlobalCounters.time_sum_s
        jitted(x)
        assert GlobalCounters.time_sum_s > before


def test_a_hundred_kernels_are_replayed_in_order(device):
    @TinyJit
    def chain(x):
        for step in range(100):
            x = (x * 3 + step if step % 2 else x - step).contiguous()
        return x.realize()

    for x in inputs(device, 4):
        expected = np.array(x.tolist(), np.int32)
        for step in range(100):
            expected = expected * np.int32(3) + np.int32(step) if step % 2 else expected - np.int32(step)
        assert chain(x).tolist() == expected.tolist()


def test_several_inputs_and_one_that_is_a_view(device):
    @TinyJit
    def combine(a, b):
        return ((a + b).contiguous() * a).realize()

    for seed in range(5):
        whole = Tensor(np.arange(seed, seed + 40, dtype=np.float32), device=device).contiguous().realize()
        part = whole.shrink(((8, 24),)).contiguous().realize()
        other = Tensor(np.full(16, seed, np.float32), device=device).realize()
        values = np.arange(seed, seed + 40, dtype=np.float32)[8:24]
        np.testing.assert_array_equal(combine(part, other).numpy(), (values + seed) * values)


def test_assigned_state_is_carried_over_replays(device):
    state = Tensor([0, 0, 0], device=device).contiguous().realize()

    @TinyJit
    def advance(x):
        return state.assign(state + x).realize()

    for _ in range(6):
        advance(Tensor([1, 2, 3], device=device).realize())
    assert state.tolist() == [6, 12, 18]


def test_symbolic_sizes(device):
    @TinyJit
    def total(x):
        return (x * 2).contiguous().sum().realize()

    for n in range(1, 9):
        x = Tensor(np.arange(10, dtype=np.float32), device=device).realize()
        assert total(x[:n].contiguous().realize().reshape(Variable("n", 1, 10).bind(n))).item() == n * (n - 1)


def test_a_captured_function_pickles(device):
    jitted = TinyJit(three_steps)
    for x in inputs(device, 3):
        jitted(x)
    again = pickle.loads(pickle.dumps(jitted))
    for x in inputs(device):
        assert again(x).tolist() == [(v + 1) * 2 - 3 for v in x.tolist()]


def test_a_dropped_graph_gives_its_memory_back(device):
    gc.collect()
    before = GlobalCounters.mem_used
    jitted = TinyJit(three_steps)
    for x in inputs(device, 4):
        out = jitted(x)
    assert GlobalCounters.mem_used > before
    del jitted, x, out
    gc.collect()
    assert GlobalCounters.mem_used == before


def test_jit_of_two_leaves_kernels_one_by_one(device):
    with Context(JIT=2):
        jitted = TinyJit(three_steps)
        for x in inputs(device):
            assert jitted(x).tolist() == [(v + 1) * 2 - 3 for v in x.tolist()]
        assert all(isinstance(item.prg, CompiledRunner) for item in jitted.jit_cache)


@pytest.mark.parametrize("device", ["CLANG", "LLVM"])
def test_a_search_for_kernels_finds_one_that_is_right(device):
    values = np.random.default_rng(8).standard_normal((16, 20)).astype(np.float32)
    with Context(BEAM=1):
        x = Tensor(values, device=device)
        np.testing.assert_allclose((x @ x.T).numpy(), values @ values.T, rtol=1e-4, atol=1e-5)
