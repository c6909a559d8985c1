"""tinygrad's HCQ graph, peer copies and profiler on our queues: the CPU device under the name AMD, and AMD:1."""

import json
from itertools import pairwise

import numpy as np
import pytest
from running import PROGRAMS, client, last_json
from test_same_results import NAMES, assert_close, without_hcq
from tinygrad import Device, Tensor, TinyJit, Variable
from tinygrad.engine.jit import GraphRunner
from tinygrad.engine.realize import BufferXfer, CompiledRunner
from tinygrad.runtime.graph.hcq import HCQGraph

import hcq

DEVICES = ("AMD", "AMD:1")
RANDOM = np.random.default_rng(4)


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def graphs(jit):
    return [item.prg for item in jit.jit_cache if isinstance(item.prg, GraphRunner)]


def tensor_parallel():
    """A replayed chain whose matrices lie in parts on both devices, and NumPy's result for an input."""
    weights = [floats(16, 16) / 4 for _ in range(4)]
    shards = [Tensor(w).shard(DEVICES, axis=1 - k % 2).realize() for k, w in enumerate(weights)]

    @TinyJit
    def chain(x):
        for w in shards:
            x = (x @ w).relu().contiguous()
        return x.realize()

    def numpys(x):
        for w in weights:
            x = np.maximum(x @ w, 0)
        return x

    return chain, numpys


def replay(chain, numpys, times):
    for _ in range(times):
        x = floats(16, 16)
        result = chain(Tensor(x).shard(DEVICES).realize())
        np.testing.assert_allclose(result.numpy(), numpys(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("devices", [(), DEVICES], ids=["one", "two"])
@pytest.mark.parametrize("name", NAMES)
def test_programs_give_the_results_of_tinygrad_alone(name, devices):
    ours = last_json(client(PROGRAMS / f"{name}.py", *devices, AMD="1"))
    assert_close(ours, without_hcq(name, "CLANG"))


def test_it_is_our_command_queue_device_and_only_used_when_named():
    for name in DEVICES:
        assert isinstance(Device[name], hcq.HCQCompiled)
    assert last_json(client("-c", "from tinygrad import Device; print(f'\"{Device.DEFAULT}\"')")) == "CLANG"
    assert last_json(client("-c", "from tinygrad import Device; print(f'\"{Device.DEFAULT}\"')", AMD="1")) == "AMD"


def test_kernels_have_groups_items_local_memory_and_barriers():
    @TinyJit
    def total(x):
        return x.sum().realize()

    x = Tensor(floats(4096), device="AMD").realize()
    for _ in range(3):
        assert total(x).item() == pytest.approx(x.numpy().sum(), rel=1e-4, abs=1e-3)
    (item,) = [i for i in total.jit_cache if isinstance(i.prg, CompiledRunner)]
    assert np.prod(item.prg.p.local_size) > 1
    assert "HCQ_LOCAL" in item.prg.p.src and "hcq_barrier();" in item.prg.p.src


def test_a_jit_over_two_devices_is_one_graph_of_our_queues():
    chain, numpys = tensor_parallel()
    replay(chain, numpys, 3)
    (graph,) = graphs(chain)
    assert isinstance(graph, HCQGraph) and {dev.dname for dev in graph.devices} == set(DEVICES)
    for dev in graph.devices:
        assert isinstance(graph.comp_queues[dev], dev.hw_compute_queue_t) and len(graph.comp_queues[dev]) > 8
        assert isinstance(graph.copy_queues[dev], dev.hw_copy_queue_t)
    assert any(isinstance(item.prg, BufferXfer) for item in graph.jit_cache)
    before = [(dev.timeline_value, graph.last_timeline[dev][1]) for dev in graph.devices]
    x = Tensor(floats(16, 16)).shard(DEVICES).realize()
    chain(x)
    for dev, (value, last) in zip(graph.devices, before, strict=True):
        assert dev.timeline_value > value and graph.last_timeline[dev][1] > last
        graph.last_timeline[dev][0].wait(graph.last_timeline[dev][1])


def test_a_graph_is_submitted_a_hundred_times_with_other_inputs_each_time():
    chain, numpys = tensor_parallel()
    replay(chain, numpys, 100)
    assert graphs(chain)[0].kickoff_value >= 98


def test_replays_in_flight_and_a_graph_dropped_meanwhile():
    chain, numpys = tensor_parallel()
    replay(chain, numpys, 3)
    x = floats(16, 16)
    given = Tensor(x).shard(DEVICES).realize()
    for _ in range(20):
        result = chain(given)
    del chain
    np.testing.assert_allclose(result.numpy(), numpys(x), rtol=1e-4, atol=1e-5)


def test_a_graph_takes_other_values_and_sizes():
    @TinyJit
    def grow(x, n):
        return ((x.reshape(n, 4) * 2 + n).contiguous() + 1).contiguous().realize()

    for length in range(1, 8):
        x = floats(length, 4)
        n = Variable("n", 1, 10).bind(length)
        result = grow(Tensor(x, device="AMD").realize().reshape(n, 4), n)
        np.testing.assert_allclose(result.reshape(length, 4).numpy(), x * 2 + length + 1, rtol=1e-6)
    assert [type(graph).__mro__[1] for graph in graphs(grow)] == [HCQGraph]


def test_the_timeline_can_be_raised_between_replays():
    chain, numpys = tensor_parallel()
    replay(chain, numpys, 3)
    pairs = []
    for _ in range(5):
        for dev in map(Device.__getitem__, DEVICES):
            pairs.append((dev.timeline_signal, dev.timeline_value))
            dev.hw_copy_queue_t().wait(dev.timeline_signal, dev.timeline_value - 1).signal(*pairs[-1]).submit(dev)
            dev.timeline_value += 1
        replay(chain, numpys, 1)
    for signal, value in pairs:
        signal.wait(value, timeout=1000)


def test_a_graph_behind_a_gate_times_out_and_then_succeeds():
    chain, numpys = tensor_parallel()
    replay(chain, numpys, 3)
    x, dev = floats(16, 16), Device["AMD:1"]
    given = Tensor(x).shard(DEVICES).realize()
    gate = dev.signal_t(value=0)
    dev.hw_compute_queue_t().wait(gate, 1).signal(dev.timeline_signal, dev.timeline_value).submit(dev)
    dev.timeline_value += 1
    result = chain(given)
    with pytest.raises(RuntimeError):
        dev.timeline_signal.wait(dev.timeline_value - 1, timeout=50)
    gate.value = 1
    np.testing.assert_allclose(result.numpy(), numpys(x), rtol=1e-4, atol=1e-5)


def test_peers_copy_to_each_other_in_order():
    there, back = Device["AMD"].timeline_value, Device["AMD:1"].timeline_value
    x = Tensor(floats(1000), device="AMD").realize()
    kept = x.numpy()
    for _ in range(10):
        x = (x.to("AMD:1") + 1).to("AMD").contiguous().realize()
    np.testing.assert_allclose(x.numpy(), kept + 10, rtol=1e-5)
    assert Device["AMD"].timeline_value > there + 10 and Device["AMD:1"].timeline_value > back + 10


PROFILED = """
import sys, numpy as np
from tinygrad import Tensor, TinyJit
weights = Tensor(np.ones((16, 16), np.float32)).shard(("AMD", "AMD:1"), axis=0).realize()
@TinyJit
def step(x):
    return ((x @ weights).relu().contiguous() + 1).realize()
for _ in range(6):
    step(Tensor(np.ones((16, 16), np.float32)).shard(("AMD", "AMD:1"), axis=1).realize())
print([type(item.prg).__name__ for item in step.jit_cache])
"""


def test_the_profiler_shows_kernels_and_copies_of_both_devices_and_their_order(tmp_path):
    path = tmp_path / "profile.json"
    said = client("-c", PROFILED, AMD="1", PROFILE="1", PROFILEPATH=str(path))
    assert "HCQGraph" in said and "Saved profile" in said
    events = json.loads(path.read_text())["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    assert sorted(processes.values()) == ["AMD", "AMD:1"]
    spans = [e for e in events if e["ph"] == "X"]
    seen = {(processes[e["pid"]], threads[e["pid"], e["tid"]]) for e in spans}
    assert seen == {(name, queue) for name in DEVICES for queue in ("COMPUTE", "DMA")}
    names = {e["name"] for e in spans}
    assert {"AMD -> AMD:1", "AMD:1 -> AMD", "CPU -> AMD"} <= names
    assert all(e["dur"] > 0 for e in spans)
    # the sixth replay is there too: the last of a graph is collected when the program ends
    kernels = [e["name"] for e in spans if threads[e["pid"], e["tid"]] == "COMPUTE"]
    assert max(kernels.count(name) for name in set(kernels)) >= 2 * 6
    for queue in threads:
        mine = sorted((e["ts"], e["ts"] + e["dur"]) for e in spans if (e["pid"], e["tid"]) == queue)
        assert all(end <= start + 1e-3 for (_, end), (start, _) in pairwise(mine))
    flows = [e for e in events if e["ph"] in "sf"]
    assert flows and len(flows) % 2 == 0
    for start, end in zip(flows[::2], flows[1::2], strict=True):
        assert start["id"] == end["id"] and start["ts"] <= end["ts"] + 1e-3


def test_a_search_for_fast_kernels_runs_on_it():
    said = client("-c", "from tinygrad import Tensor; print((Tensor.ones(64, 64).contiguous() @ Tensor.ones(64, 64)"
                  ".contiguous()).sum().item())", AMD="1", BEAM="1", PARALLEL="0", CACHELEVEL="0")  # fmt: skip
    assert float(said.strip().splitlines()[-1]) == 64**3
