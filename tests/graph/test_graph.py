"""Graphs on the CPU devices, in MINI, and across both: what is placed where, what a replay costs its caller, lifetimes.

What any device must do is in the conformance suite (test_graphs, test_random_graphs).
"""

import gc
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from third_party.mini import MiniDevice

import hcq
from hcq import Device, _native, dtypes
from hcq.errors import LaunchError
from hcq.graph import CopyItem, LaunchItem, ListGraph
from hcq.graph.nodes import EVERYTHING, Node
from hcq.graph.plan import LaneKey, plan
from hcq.graph.ranges import Ranges

SOURCE = """
#include <stdint.h>
void add(int *out, const int *a, const int *b) { out[0] = a[0] + b[0]; }
void put(int *out, int value) { out[0] = value; }
void wide(double *out, int8_t a, float b, uint64_t c) { out[0] = a; out[1] = b; out[2] = (double)c; }
void inner(int *out, int n) { out[0] += n; }
"""


@pytest.fixture(scope="module")
def dev():
    return Device["CLANG"]


@pytest.fixture(scope="module")
def kernels(dev):
    lib = dev.compiler.compile_cached(SOURCE)
    return {name: dev.runtime(name, lib) for name in ("add", "put", "wide", "inner")}


@pytest.fixture
def mini():
    Device.register("MINI", MiniDevice, replace=True)
    yield Device["MINI"]
    Device.close("MINI")


def ints(count, device="CLANG"):
    return [hcq.empty(1, dtypes.int32, device).fill(number) for number in range(count)]


# -- order ------------------------------------------------------------------------------------------------------------


def nodes_of(*spans):
    made = []
    for index, (reads, writes) in enumerate(spans):
        node = Node(None, "launch", str(index), reads, writes)
        node.index = index
        made.append(node)
    return made


def test_order_goes_by_bytes_and_not_by_buffers():
    ranges = Ranges()
    nodes = nodes_of(
        ((), [(0, 8)]),
        ((), [(8, 16)]),  # beside the first
        ([(4, 12)], ()),  # of both
        ([(0, 4)], ()),  # of the first
        ((), [(0, 16)]),  # after all that read or wrote there
        ([EVERYTHING], [(100, 104)]),
        ([(50, 60)], ()),  # of nobody
        ((), [(50, 60)]),
    )
    assert [[source.index for source in ranges.add(node)] for node in nodes] == [
        [],
        [],
        [0, 1],
        [0],
        [0, 1, 2, 3],
        [4],
        [],
        [5, 6],
    ]


def test_waits_that_others_give_are_left_out():
    a, b = object(), object()
    lanes = {id(a): [LaneKey(a, 0, "all")], id(b): [LaneKey(b, 0, "all")]}
    nodes = nodes_of(*[((), ())] * 5)
    for node, device in zip(nodes, (a, a, b, b, b), strict=True):
        node.device = device
    # 2 waits for 1 and so knows 0; 3 stands behind 2; 4 needs 0, which its queue knows.
    made = plan(nodes, {0: [], 1: [0], 2: [0, 1], 3: [1], 4: [0]}, lambda device: lanes[id(device)])
    assert [step.waits for step in made.steps] == [(), (), (1,), (), ()]
    assert made.marked == {1}


def test_knowledge_passes_on_only_along_waits_that_were_kept():
    a, b, c = object(), object(), object()
    nodes = nodes_of(*[((), ())] * 4)
    for node, device in zip(nodes, (a, b, c, c), strict=True):
        node.device = device
    # 1 comes after 0 on another queue; 3 comes after 1, and so after 0; 2 knew nothing of either.
    made = plan(nodes, {0: [], 1: [0], 2: [], 3: [0, 1]}, lambda device: [LaneKey(device, 0, "all")])
    assert [step.waits for step in made.steps] == [(), (0,), (), (1,)]


def shares(spans, others=()):
    """Whether inputs that are moved to `spans`, from where they share nothing, share bytes there."""
    apart = [_native.GraphInput(None, None, None, 1000 * index, 1000 * index + 1) for index in range(1, len(spans) + 1)]
    changes = _native.GraphChanges(tuple(apart), {}, [])
    changes.fix(sorted(others))
    assert not changes.look()
    for place, span in zip(apart, spans, strict=True):
        place.take(None, None, *span)
    return changes.look()


def test_overlaps_are_found():
    assert shares([(0, 4), (2, 6)])
    assert shares([(0, 4)], [(3, 9)])
    assert shares([(4, 5)], [(0, 100)])
    assert not shares([(0, 4), (4, 6)], [(6, 7), (8, 9)])
    assert not shares([(0, 4), (9, 12)], [(4, 9), (12, 2**64)])
    assert shares([(0, 4), (9, 13)], [(4, 9), (12, 2**64)])


def test_independent_work_is_spread_and_dependent_work_is_not(dev, kernels):
    bufs = ints(8)
    with hcq.capture() as g:
        for out in bufs[:4]:
            kernels["put"](out, vals=(1,))
    with hcq.capture() as chain:
        for _ in range(4):
            kernels["inner"](bufs[0], vals=(1,))
    spread = {step.lane for step in g.parts[0].plan.steps}
    if not kernels["put"]._estimate(1):
        assert len(spread) > 1
    assert {step.lane for step in chain.parts[0].plan.steps} == {0}
    assert g.parts[0].plan.waits == chain.parts[0].plan.waits == 0


def test_a_circle_of_waits_is_refused_when_recorded(dev):
    one, two = dev.signal_t(), dev.signal_t()
    with pytest.raises(ValueError, match="circle"), hcq.capture():
        dev.hw_compute_queue_t().wait(one, 1).signal(two, 1).submit(dev)
        dev.hw_copy_queue_t().wait(two, 1).signal(one, 1).submit(dev)


def test_a_wait_recorded_before_its_signal_is_placed_behind_it(dev, kernels):
    ready, done = dev.signal_t(), dev.signal_t()
    out = ints(1)[0]
    kernargs = kernels["inner"].fill_kernargs([out._buf], (5,))
    with hcq.capture() as g:
        dev.hw_compute_queue_t().wait(ready, 3).exec(kernels["inner"], kernargs).signal(done, 1).submit(dev)
        dev.hw_copy_queue_t().signal(ready, 4).submit(dev)
    for _ in range(2):
        g.replay().wait()
    assert (out.numpy()[0], ready.value, done.value) == (10, 4, 1)


# -- replays ----------------------------------------------------------------------------------------------------------


def test_values_of_every_type_are_changed_in_place(dev, kernels):
    out = hcq.empty(3, dtypes.float64, "CLANG")
    with hcq.capture() as g:
        kernels["wide"](out, vals=(1, 2.5, 3))
    g.replay().wait()
    assert out.numpy().tolist() == [1, 2.5, 3]
    g.replay(vals={"a": -7, "b": 0.5, "wide.c": 2**60}).wait()
    assert out.numpy().tolist() == [-7, 0.5, 2.0**60]
    with pytest.raises(LaunchError):
        g.replay(vals={"a": 5, "b": 1e300})
    g.replay().wait()
    assert out.numpy().tolist() == [-7, 0.5, 2.0**60]


def test_values_of_kernargs_that_were_filled_by_hand_are_changed(dev, kernels):
    out, other = (hcq.empty(3, dtypes.float64, "CLANG").fill(0) for _ in range(2))
    kernargs = kernels["wide"].fill_kernargs([out._buf], (-1, 2.5, 2**63))
    with hcq.capture(inputs={"out": out}) as g:
        dev.hw_compute_queue_t().exec(kernels["wide"], kernargs).submit(dev)
    kernels["wide"].fill_kernargs([out._buf], (0, 0, 0), kernargs_ptr=kernargs)  # the client's, for other work
    assert g.nodes[0].vals == (-1, 2.5, 2**63)
    g.replay().wait()
    assert out.numpy().tolist() == [-1, 2.5, 2.0**63]
    g.replay(vals={"b": 0.25, (0, 2): 7}, out=other).wait()
    assert (other.numpy().tolist(), out.numpy().tolist()) == ([-1, 0.25, 7], [-1, 2.5, 2.0**63])
    with pytest.raises(LaunchError):
        g.replay(vals={"wide.a": 128})
    with pytest.raises(IndexError, match="no value 3"):
        g.replay(vals={(0, 3): 1})
    g.replay(vals={"wide.a": 127}, out=out).wait()
    assert out.numpy().tolist() == [127, 0.25, 7]


def test_python_queues_change_values_of_kernargs_that_were_filled_by_hand(mini):
    put = mini.program("put", 'def put(launch, x: "f64*", a: "i8", n: "f64"):\n    x[0] = a + n\n')
    bufs = [hcq.zeros(1, dtypes.float64, "MINI") for _ in range(6)]
    kernargs = put.fill_kernargs([bufs[0]._buf], (-3, 0.5))
    with hcq.capture(inputs={"x": bufs[0]}) as g:
        mini.hw_compute_queue_t().exec(put, kernargs).submit(mini)
    g.replay().wait()
    assert bufs[0].numpy()[0] == -2.5
    for number, buf in enumerate(bufs):
        last = g.replay(x=buf, vals={(0, 1): number + 0.25})
    last.wait()
    with pytest.raises(LaunchError):
        g.replay(vals={(0, 0): 128})
    mini.synchronize()
    assert [buf.numpy()[0] for buf in bufs] == [number - 2.75 for number in range(6)]


def test_many_changes_travel_at_once(dev, kernels):
    bufs = ints(300)
    with hcq.capture(inputs={f"b{index}": buf for index, buf in enumerate(bufs)}) as g:
        for buf in bufs:
            kernels["inner"](buf, vals=(1,))
    others = [hcq.empty(1, dtypes.int32, "CLANG").fill(100 + index) for index in range(300)]
    g.replay(**{f"b{index}": buf for index, buf in enumerate(others)}, vals={(index, 0): index for index in range(300)})
    g.replay().wait()
    assert [buf.numpy()[0] for buf in others] == [100 + 3 * index for index in range(300)]
    assert [buf.numpy()[0] for buf in bufs] == list(range(300))


def test_ten_thousand_commands_replay(dev, kernels):
    total, one, two = ints(3)
    with hcq.capture(inputs={"one": one}) as g:
        for _ in range(5000):
            kernels["add"](total, total, one)
            kernels["add"](total, total, two)
    replays = [g.replay() for _ in range(3)]
    replays[-1].wait()
    assert all(replay.done for replay in replays)
    assert total.numpy()[0] == 3 * 15000
    g.replay(one=two).wait()
    assert total.numpy()[0] == 3 * 15000 + 20000


def test_replays_fill_queues_and_go_on(dev, kernels):
    # More replays than a queue holds wait for room, and none is lost.
    total = ints(1)[0]
    with hcq.capture() as g:
        kernels["inner"](total, vals=(1,))
        kernels["inner"](total, vals=(2,))
    _native.set_queue_limit(1 << 17)
    try:
        for _ in range(6000):
            g.replay(vals={"n": 3})
        g.replay().wait()
    finally:
        _native.set_queue_limit(hcq.config.QUEUE_LIMIT())
    assert total.numpy()[0] == 6001 * 6


def test_a_graph_follows_its_inputs_into_one_buffer_and_back(dev, kernels):
    x, y, z = ints(3)
    with hcq.capture(inputs={"x": x, "y": y, "z": z}) as g:
        kernels["put"](x, vals=(5,))
        kernels["put"](y, vals=(6,))
        kernels["put"](z, vals=(7,))
    one = ints(1)[0]
    for _ in range(20):
        g.replay(x=one, y=one, z=one).wait()
        assert one.numpy()[0] == 7
        g.replay(x=x, y=y, vals={(2, 0): 8}).wait()
        assert (x.numpy()[0], y.numpy()[0], one.numpy()[0]) == (5, 6, 8)
        g.replay(x=one, y=x, z=one, vals={(2, 0): 7}).wait()
        assert (one.numpy()[0], x.numpy()[0]) == (7, 6)


def test_two_names_of_one_buffer_get_one_buffer(dev, kernels):
    x, y = ints(2)
    with hcq.capture(inputs={"a": x, "b": x}) as g:
        kernels["put"](x, vals=(5,))
    g.replay(a=y, b=y).wait()
    assert y.numpy()[0] == 5
    with pytest.raises(ValueError, match="one buffer"):
        g.replay(a=x, b=y)


def test_names_that_replay_takes_itself_are_refused(dev):
    with pytest.raises(ValueError, match="vals"), hcq.capture(inputs={"vals": ints(1)[0]}):
        pass


def test_wait_takes_a_time_limit(dev):
    gate = dev.signal_t()
    with hcq.capture() as g:
        dev.hw_compute_queue_t().wait(gate, 1).submit(dev)
    replay = g.replay()
    with pytest.raises(hcq.errors.SignalTimeout):
        replay.wait(timeout=20)
    with pytest.raises(ValueError, match="milliseconds"):
        replay.wait(-1)
    gate.value = 1
    replay.wait(timeout=None)
    replay.wait(0)


def test_launches_between_replays_of_two_lanes_keep_their_order(dev, kernels):
    x, y, total = ints(3)
    total.fill(0)
    with hcq.capture() as g:
        kernels["put"](x, vals=(1,))
        kernels["put"](y, vals=(2,))
        kernels["add"](total, x, y)
    for _ in range(300):
        g.replay()
        kernels["put"](total, vals=(-1,))
        kernels["put"](x, vals=(9,))
        kernels["put"](y, vals=(9,))
        g.replay()
    dev.synchronize()
    assert (x.numpy()[0], y.numpy()[0], total.numpy()[0]) == (1, 2, 3)


def test_two_graphs_share_the_queues_of_a_device(dev, kernels):
    x, y = ints(2)
    graphs = []
    for values in ((1, 2), (3, 4)):
        with hcq.capture() as g:
            kernels["put"](x, vals=(values[0],))
            kernels["put"](y, vals=(values[1],))
        graphs.append(g)
    for _ in range(200):
        graphs[0].replay()
        graphs[1].replay()
    dev.synchronize()
    assert (x.numpy()[0], y.numpy()[0]) == (3, 4)


# -- lifetimes --------------------------------------------------------------------------------------------------------


def test_graphs_leave_nothing_behind(dev, kernels):
    dev.synchronize()
    gc.collect()
    before, queues = hcq.memory_stats("CLANG"), len(_native.queues())
    for _ in range(30):
        x, y, z = ints(3)
        with hcq.capture(inputs={"x": x}) as g:
            kernels["put"](x, vals=(1,))
            kernels["put"](y, vals=(1,))
            kernels["add"](z, x, y)
        g.replay()
        g.replay(x=ints(1)[0])
    gone = weakref.ref(g)
    gc.disable()
    del g, x, y, z
    assert gone() is None, "a graph needs the garbage collector"
    gc.enable()
    dev.synchronize()
    gc.collect()
    after = hcq.memory_stats("CLANG")
    assert (after.live_bytes, after.live_count) == (before.live_bytes, before.live_count)
    assert len(_native.queues()) <= queues + 4


def test_memory_of_a_replaced_input_is_not_handed_out_while_a_replay_uses_it(dev, kernels):
    gate, out, small = dev.signal_t(), hcq.empty(1, dtypes.int32, "CLANG"), hcq.empty(1, dtypes.int32, "CLANG").fill(0)
    x = hcq.empty(1, dtypes.int32, "CLANG").fill(1)
    with hcq.capture(inputs={"x": x}) as g:
        dev.hw_compute_queue_t().wait(gate, 1).submit(dev)
        kernels["add"](out, x, small)
    replaced = hcq.empty(1, dtypes.int32, "CLANG").fill(42)
    address = replaced._buf.va_addr
    replay = g.replay(x=replaced)
    g.replay(x=x)
    del replaced
    other = [hcq.Buffer("CLANG", 1, dtypes.int32, preallocate=True) for _ in range(50)]
    assert address not in {buf._buf.va_addr for buf in other}
    del other
    gate.value = 1
    replay.wait()
    dev.synchronize()
    again = [hcq.Buffer("CLANG", 1, dtypes.int32, preallocate=True) for _ in range(100)]
    assert address in {buf._buf.va_addr for buf in again}, "it comes back once the replay is over"


def test_a_device_can_be_closed_and_its_graphs_say_so(kernels):
    dev = Device["CLANG:7"]
    x, y = ints(2, "CLANG:7")
    with hcq.capture() as g:
        hcq.copy(x, y)
    g.replay().wait()
    Device.close("CLANG:7")
    with pytest.raises(RuntimeError, match="closed"):
        g.replay()
    assert dev.closed


def test_signals_and_finalizers_may_replay_in_the_middle_of_a_replay(dev, kernels):
    total = ints(1)[0]
    with hcq.capture() as g:
        kernels["inner"](total, vals=(1,))

    class Late:
        def __del__(self):
            g.replay()

    for _ in range(50):
        late = Late()
        late.cycle = late
        del late
        g.replay()
    gc.collect()
    dev.synchronize()
    assert total.numpy()[0] == 100


# -- faults, profiles, processes --------------------------------------------------------------------------------------


def test_a_failure_on_one_device_of_a_graph_reaches_who_waits_and_the_others_go_on(dev, kernels):
    from hcq.testing import inject

    peer = Device["CLANG:5"]
    there = peer.runtime("inner", dev.compiler.compile_cached(SOURCE))
    here, beyond = ints(1)[0], ints(1, "CLANG:5")[0]
    with hcq.capture() as g:
        kernels["inner"](here, vals=(1,))
        hcq.copy(beyond, here)
        there(beyond, vals=(1,))
        hcq.copy(here, beyond)
    g.replay().wait()
    with inject(peer, "exec"), pytest.raises(hcq.errors.DeviceLost, match="CLANG:5"):
        g.replay().wait()
    kernels["put"](here, vals=(7,))
    dev.synchronize()
    assert here.numpy()[0] == 7
    with pytest.raises(hcq.errors.DeviceLost):
        g.replay()
    Device.close("CLANG:5")


def test_replays_after_one_that_was_dropped_run(dev, kernels):
    from hcq.testing import inject

    peer, gate = Device["CLANG:6"], dev.signal_t()
    there = peer.runtime("inner", dev.compiler.compile_cached(SOURCE))
    beyond = ints(1, "CLANG:6")[0]
    x, y = ints(2)
    with hcq.capture() as g:
        dev.hw_compute_queue_t().wait(gate, 1).submit(dev)
        kernels["put"](x, vals=(1,))
        kernels["put"](y, vals=(2,))
    with inject(peer, "exec"):
        kernargs = there.fill_kernargs([beyond._buf], (1,))
        peer.hw_compute_queue_t().exec(there, kernargs).signal(gate, 1).submit(peer)
        with pytest.raises(hcq.errors.DeviceLost, match="CLANG:6"):
            g.replay().wait()
    with hcq.capture() as other:
        kernels["put"](x, vals=(3,))
        kernels["put"](y, vals=(4,))
        kernels["add"](x, x, y)
    for _ in range(3):
        other.replay().wait()
    assert (x.numpy()[0], y.numpy()[0]) == (7, 4)
    Device.close("CLANG:6")


def test_profiles_show_the_commands_of_replays(dev, kernels):
    out, other = ints(2)
    with hcq.capture() as g:
        for _ in range(5):
            kernels["inner"](out, vals=(1,))
        hcq.copy(other, out)
    with hcq.profile() as p:
        g.replay()
        g.replay().wait()
    table = str(p.table())
    assert [line.split()[2] for line in table.splitlines() if line.startswith("inner")] == ["10"]
    assert out.numpy()[0] == other.numpy()[0] == 10


@pytest.mark.parametrize("fork", [False, True])
def test_processes_end_well_with_replays_under_way(fork):
    code = f"""
import os
import hcq
SOURCE = "void slow(int *out) {{ for (volatile int i = 0; i < 300000; i++) {{}} out[0] += 1; }}"

def graph():
    slow = hcq.Device["CLANG"].program("slow", SOURCE)
    x, y = (hcq.empty(1, hcq.dtypes.int32, "CLANG").fill(0) for _ in range(2))
    with hcq.capture() as g:
        slow(x); slow(y); slow(x)
    return g, x

g, x = graph()
for _ in range(20):
    replay = g.replay()
if {fork}:
    child = os.fork()
    if not child:
        del g, replay
        g, x = graph()
        g.replay().wait()
        assert x.numpy()[0] == 2
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    replay.wait()
    assert x.numpy()[0] == 40
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")


# -- several kinds ----------------------------------------------------------------------------------------------------


def test_a_graph_over_devices_of_different_kinds(dev, kernels, mini):
    double = mini.program("double", 'def double(launch, x: "i32*"):\n    x[0] *= 2\n')
    here, there = ints(1)[0], ints(1, "MINI")[0]
    with hcq.capture(inputs={"here": here}) as g:
        kernels["inner"](here, vals=(1,))
        hcq.copy(there, here)
        double(there)
        hcq.copy(here, there)
    for _ in range(3):
        g.replay().wait()
    assert here.numpy()[0] == 14
    other = ints(1)[0]
    g.replay(here=other).wait()
    assert (other.numpy()[0], here.numpy()[0]) == (2, 14)
    assert len(g.parts) == 4


def test_what_the_host_copies_is_replaced_by_buffers_alone(dev, mini):
    here, there = ints(1)[0], ints(1, "MINI")[0]
    with hcq.capture(inputs={"here": here}) as g:
        hcq.copy(there, here)
    with pytest.raises(TypeError, match="must be a Buffer"):
        g.replay(here=ints(1)[0]._buf)
    g.replay(here=here).wait()


def test_a_wait_for_a_signal_of_a_later_part_is_refused(dev, mini):
    gate, here, there = dev.signal_t(), ints(1)[0], ints(1, "MINI")[0]
    with pytest.raises(ValueError, match="recorded behind it"), hcq.capture():
        dev.hw_compute_queue_t().wait(gate, 1).submit(dev)
        hcq.copy(there, here)
        dev.hw_copy_queue_t().signal(gate, 1).submit(dev)


def test_a_replay_that_finds_a_full_queue_of_a_python_driver_loses_nothing(mini, monkeypatch):
    put = mini.program("put", 'def put(launch, x: "i32*", n: "i32"):\n    x[0] = n\n')
    x = ints(1, "MINI")[0]
    with hcq.capture() as g:
        put(x, vals=(7,))
    with monkeypatch.context() as full:
        full.setenv("HCQ_TIMEOUT_MS", "20")
        full.setattr(mini.hw_compute_queue_t, "try_submit", lambda *_: False)
        with pytest.raises(hcq.errors.SignalTimeout, match="full"):
            g.replay()
    assert mini.lost is None
    g.replay().wait()
    assert x.numpy()[0] == 7


def test_a_list_takes_programs_of_devices_alone(dev):
    with pytest.raises(TypeError, match="queued no launch"):
        ListGraph([LaunchItem(lambda *_, **__: None, [])], [], {})


def test_python_queues_run_replays_with_different_arguments_at_a_time(mini):
    put = mini.program("put", 'def put(launch, x: "i32*", n: "i32"):\n    x[0] = n\n')
    bufs = ints(9, "MINI")
    with hcq.capture(inputs={"x": bufs[0]}) as g:
        put(bufs[0], vals=(g.value("n", 0),))
    replays = [g.replay(x=buf, vals={"n": 50 + index}) for index, buf in enumerate(bufs)]
    for replay in replays:
        replay.wait()
    assert [buf.numpy()[0] for buf in bufs] == list(range(50, 59))
    mini.synchronize()
    blocks, gone = len(mini.memory), weakref.ref(g.parts[0])
    gc.disable()
    del g, replays, replay
    assert gone() is None, "a graph needs the garbage collector"
    gc.enable()
    assert len(mini.memory) < blocks


def test_drivers_bring_graphs_of_their_own(mini, monkeypatch):
    made = []

    class Own:
        in_order = True

        def __init__(self, work):
            made.append([node.name for node in work.nodes])
            self.indices = work.indices

        def replay(self):
            return "the driver's"

    put = mini.program("put", 'def put(launch, x: "i32*", n: "i32"):\n    x[0] = n\n')
    monkeypatch.setattr(MiniDevice, "graph_commands", Own, raising=False)
    with hcq.capture() as g:
        put(hcq.Buffer("MINI", 1, dtypes.int32, preallocate=True), vals=(1,))
    assert g.replay() == "the driver's"
    assert made == [["put"]]


# -- the lower form ---------------------------------------------------------------------------------------------------


def test_a_clients_list_is_a_graph(dev, kernels):
    x, between, out = ints(3)
    items = [
        LaunchItem(kernels["put"], [between], vals=("n",)),
        LaunchItem(kernels["add"], [out, x, between]),
        LaunchItem(kernels["inner"], [out], vals=(lambda variables: variables["n"] * 10,)),
        CopyItem(x, out),
    ]
    graph = dev.graph(items, [x], {"n": 1})
    assert isinstance(graph, ListGraph)
    assert graph([x], {"n": 2}) is None
    took = graph([x], {"n": 2}, wait=True)
    assert took > 0
    assert x.numpy()[0] == 44
    other = hcq.empty(1, dtypes.int32, "CLANG").fill(1000)
    graph([other], {"n": 3}, wait=True)
    assert (other.numpy()[0], x.numpy()[0]) == (1033, 44)


def test_sizes_of_a_list_follow_variables(dev):
    grid = dev.program(
        "count", "#include <hcq.h>\nHCQ_KERNEL void count(int *x) { x[hcq_group_id(0)] = (int)hcq_num_groups(0); }"
    )
    x = hcq.empty(8, dtypes.int32, "CLANG").fill(0)
    graph = ListGraph([LaunchItem(grid, [x], global_size=("n", 1, 1))], [], {"n": 2})
    for n in (2, 5, 5, 3):
        graph([], {"n": n}, wait=True)
        assert x.numpy().max() == max(n, x.numpy().max())
        assert (x.numpy()[:n] == n).all()


def test_clients_translate_their_own_items(dev, kernels):
    class Client(ListGraph):
        def item(self, item):
            return LaunchItem(kernels["put"], [item["out"]], vals=(item["value"],))

    out = ints(1)[0]
    Client([{"out": out, "value": 9}], [], {})([], {}, wait=True)
    assert out.numpy()[0] == 9
    with pytest.raises(TypeError, match="LaunchItem"):
        ListGraph([object()], [], {})


# -- pictures ---------------------------------------------------------------------------------------------------------


def test_a_picture_shows_lanes_and_waits(dev, kernels, tmp_path):
    from xml.etree import ElementTree

    x, y, z = ints(3)
    gate = dev.signal_t()
    with hcq.capture() as g:
        dev.hw_copy_queue_t().wait(gate, 1).copy(x._buf.va_addr, z._buf.va_addr, 4).submit(dev)
        kernels["put"](y, vals=(1,))
        kernels["add"](z, x, y)
    path = tmp_path / "graph.svg"
    assert g.draw(path) == path.read_text()
    tree = ElementTree.parse(path)
    assert len(tree.findall(".//{http://www.w3.org/2000/svg}rect")) == len(g)
    text = g.draw(tmp_path / "graph.gv")
    assert text.startswith("digraph")
    assert text.count("style=dashed") == g.parts[0].plan.waits > 0


def test_a_replay_is_seen_by_who_watches(dev, kernels):
    from hcq.runtime import watch

    seen, written = [], []

    class Sees(watch.Observer):
        def replayed(self, graph, pairs):
            seen.extend(pairs)
            written.extend(graph.inputs.moved(span) for node in graph.nodes for span in node.writes)

    out, other = ints(2)
    with hcq.capture(inputs={"out": out}) as g:
        kernels["put"](out, vals=(1,))
    value = dev.timeline_value
    observer = Sees()
    watch.observe(observer)
    try:
        g.replay(out=other)
    finally:
        watch.forget(observer)
    assert seen == [(dev, dev.timeline_signal, value)]
    assert written == [(other._buf.va_addr, other._buf.va_addr + 4)]


def test_threads_capture_side_by_side(dev, kernels):
    results = []

    def work(number):
        out = ints(1)[0]
        with hcq.capture() as g:
            for _ in range(50):
                kernels["inner"](out, vals=(number,))
        g.replay().wait()
        results.append((out.numpy()[0], 50 * number))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(got == wanted for got, wanted in results)


def test_arguments_of_prepared_launches_are_captured(dev, kernels):
    out = ints(1)[0]
    ready = kernels["inner"].prepare(out, vals=(4,))
    with hcq.capture(inputs={"out": out}) as g:
        ready()
        ready(stream=dev.stream())
    other = ints(1)[0]
    g.replay(out=other, vals={"n": 5}).wait()
    assert (other.numpy()[0], out.numpy()[0]) == (10, 0)
    assert np.asarray(out)[0] == 0


def test_a_wrong_replay_is_told_what_the_graph_has(dev, kernels):
    x = hcq.empty(1, dtypes.int32, "CLANG").fill(1)
    with pytest.raises(TypeError, match="inputs must be a mapping of names to buffers"), hcq.capture(x):
        raise AssertionError("the capture began")
    with hcq.capture() as g:
        kernels["put"](x, vals=(7,))
        kernels["add"](x, x, x)
    for wrong, error, text in (
        ({"vals": {(9, 0): 1}}, ValueError, "no command 9 in this graph: it has 2"),
        ({"vals": {("put", 0): 1}}, TypeError, "by its number, not by 'put'"),
        ({"vals": {4: 1}}, TypeError, r"\(command, position\)"),
        ({"sizes": {"add": 3}}, TypeError, r"sizes\['add'\] must be groups"),
        ({"sizes": {"add": ((1, 1, 1), 3)}}, TypeError, r"sizes\['add'\] must be groups"),
        ({"sizes": {5: (1, 1, 1)}}, ValueError, "it has 2"),
        ({"sizes": {"mul": (1, 1, 1)}}, ValueError, "it has add, put"),
    ):
        with pytest.raises(error, match=text):
            g.replay(**wrong)
    assert x.numpy().tolist() == [1]
    g.replay().wait()
    assert x.numpy().tolist() == [14]


def test_a_listed_graph_names_what_is_missing_and_queues_nothing(dev, kernels):
    x, y = (hcq.empty(1, dtypes.int32, "CLANG").fill(1) for _ in range(2))
    graph = ListGraph([LaunchItem(kernels["put"], [x], vals=("n",)), CopyItem(y, x)], [x, y], {"n": 2})
    for inputs in ([x], [x, y, x]):
        with pytest.raises(TypeError, match="takes 2 input buffers"):
            graph(inputs, {"n": 3})
    with pytest.raises(ValueError, match="no variable 'n' was given: there is 'm'"):
        graph([x, y], {"m": 3})
    assert x.numpy().tolist() == y.numpy().tolist() == [1]
    graph([x, y], {"n": 3}, wait=True)
    assert y.numpy().tolist() == [3]


@pytest.mark.parametrize("name", ["graph.png", "graph"])
def test_a_picture_of_a_graph_is_svg_or_dot_by_its_name(dev, kernels, name, tmp_path):
    with hcq.capture() as g:
        kernels["put"](hcq.empty(1, dtypes.int32, "CLANG").ensure_allocated(), vals=(7,))
    with pytest.raises(ValueError, match=r"\.svg"):
        g.draw(tmp_path / name)
    assert not (tmp_path / name).exists()
    assert g.draw(tmp_path / "graph.gv").startswith("digraph")
