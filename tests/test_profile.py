"""Traces: what a profile records, on native devices and on one in Python, and the files that are made of it."""

import gc
import itertools
import json
import os
import subprocess
import sys
import threading
import time
import uuid
import weakref
from collections import Counter

import pytest
from third_party.mini import MiniComputeQueue, MiniDevice
from third_party.suite import SOURCE

import hcq
from hcq.profiling import files
from hcq.queues import profile as feed
from hcq.testing import inject

NO_PERFETTO = "the extra hcq[perfetto] is not installed"
I32 = hcq.dtypes.int32
C = """
void one(int* a) { a[0] += 1; }
void two(int* a) { a[0] += 2; }
void spin(int* a, int n) { for (volatile int i = 0; i < n; ++i) {} a[0] = n; }
"""
OTHER_ONE = "void one(int* a) { a[0] += 100; }"


@pytest.fixture(scope="module", autouse=True)
def mini():
    hcq.Device.register("SLOW", MiniDevice)
    yield
    for name in ("SLOW", "SLOW:1"):
        hcq.Device.close(name)
    hcq.Device.unregister("SLOW")


@pytest.fixture
def clang():
    return hcq.Device["CLANG"]


def buffer(device="CLANG", count=1024):
    made = hcq.Buffer(device, count, I32).allocate()
    made.copyin(bytes(4 * count))
    return made


def of(profile, *kinds):
    return [span for span in profile.spans if span.kind in kinds]


def named(profile):
    spans = profile.spans
    return {(spans[a].name, spans[b].name) for a, b in profile.flows}


def events(path):
    with open(path) as file:
        return json.load(file)["traceEvents"]


def packets(path):
    pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason=NO_PERFETTO)
    trace = pb2.Trace()
    with open(path, "rb") as file:
        trace.ParseFromString(file.read())
    return pb2, trace.packet


def two_devices(path=None):
    """A profile of kernels and copies over two devices, each part of the contract's names in it."""
    one, other = hcq.Device["CLANG"], hcq.Device["CLANG:1"]
    a, b, c = buffer(), buffer("CLANG:1"), buffer()
    add, also = one.program("one", C), other.program("two", C)
    with hcq.profile(path) as p:
        a.copyin(bytes(4096))
        add(a)
        add(a)
        hcq.copy(b, a)
        also(b)
        hcq.copy(c, a)
        b.copyout(bytearray(4096))
    return p


# What is recorded


def test_kernels_and_copies_have_the_names_of_the_contract_and_times_that_follow_each_other():
    p = two_devices()
    assert Counter((span.name, span.device, span.queue) for span in of(p, "kernel", "copy")) == {
        ("CPU -> CLANG", "CLANG", "DMA"): 1,
        ("one", "CLANG", "COMPUTE"): 2,
        ("CLANG -> CLANG:1", "CLANG", "DMA"): 1,
        ("two", "CLANG:1", "COMPUTE"): 1,
        ("CLANG -> CLANG", "CLANG", "DMA"): 1,
        ("CLANG:1 -> CPU", "CLANG:1", "DMA"): 1,
    }
    by_name = {span.name: span for span in of(p, "kernel", "copy")}
    order = ["CPU -> CLANG", "one", "CLANG -> CLANG:1", "two", "CLANG:1 -> CPU"]
    for before, after in itertools.pairwise(order):
        assert by_name[before].end <= by_name[after].start
    assert all(p.began <= span.start < span.end <= p.ended for span in p.spans)


def test_flows_lead_from_producer_to_consumer_across_queues_and_by_host_copies():
    flows = named(two_devices())
    assert {
        ("CPU -> CLANG", "one"),
        ("one", "CLANG -> CLANG:1"),
        ("CLANG -> CLANG:1", "two"),
        ("two", "CLANG:1 -> CPU"),
    } <= flows
    assert ("one", "two") not in flows and ("two", "one") not in flows


@pytest.mark.unchecked("its kernels race with its copy")
def test_explicit_queues_are_recorded_bound_ones_too_and_copies_named_by_their_addresses(clang):
    a, b = buffer(), buffer("CLANG:1")
    program, done = clang.program("one", C), clang.signal_t()
    exec_queue = clang.hw_compute_queue_t().exec(program, program.fill_kernargs([a._buf])).signal(done, 1)
    bound = clang.hw_compute_queue_t().exec(program, program.fill_kernargs([a._buf])).bind(clang)
    copies = clang.hw_copy_queue_t().wait(done, 1).copy(b._buf.va_addr, a._buf.va_addr, 4096)
    with hcq.profile() as p:
        exec_queue.submit(clang)
        copies.submit(clang)
        for _ in range(3):
            bound.submit(clang)
    assert [span.name for span in of(p, "kernel")] == ["one"] * 4
    assert [(span.name, span.nbytes) for span in of(p, "copy")] == [("CLANG -> CLANG:1", 4096)]
    assert ("one", "CLANG -> CLANG:1") in named(p)
    submits = Counter(p.spans[producer].kind for producer, _ in p.flows)
    assert submits["submit"] == 5


def test_replays_of_a_graph_are_recorded_command_by_command(clang):
    a, b = buffer(), buffer("CLANG:1")
    one, two = clang.program("one", C), hcq.Device["CLANG:1"].program("two", C)
    with hcq.capture() as graph:
        for _ in range(10):
            one(a)
        hcq.copy(b, a)
        two(b)
    graph.replay().wait()
    with hcq.profile() as p:
        for _ in range(3):
            graph.replay()
    assert Counter(span.name for span in of(p, "kernel", "copy")) == {"one": 30, "CLANG -> CLANG:1": 3, "two": 3}
    assert {("one", "CLANG -> CLANG:1"), ("CLANG -> CLANG:1", "two"), ("replay of a graph", "one")} <= named(p)
    assert b.numpy()[0] == 40 + 2


def test_a_queue_that_waits_starts_after_what_it_waited_for(clang):
    a, gate = buffer(), clang.signal_t()
    program = clang.program("one", C)
    with hcq.profile() as p:
        clang.hw_compute_queue_t().wait(gate, 1).submit(clang)
        program(a)
        began = time.perf_counter_ns()
        gate.value = 1
    assert of(p, "kernel")[0].start >= began


def test_flows_are_found_among_thousands_of_submits_without_work(clang):
    """Each passes on what the ones before it waited for, over two queues: a search that follows all would not end."""
    a, there, back = buffer(), clang.signal_t(), clang.signal_t()
    program = clang.program("one", C)
    work = clang.hw_compute_queue_t().exec(program, program.fill_kernargs([a._buf])).signal(there, 1)
    with hcq.profile() as p:
        work.submit(clang)
        for step in range(1, 5000):
            clang.hw_copy_queue_t().wait(there, step).signal(back, step).submit(clang)
            clang.hw_compute_queue_t().wait(back, step).signal(there, step + 1).submit(clang)
        clang.hw_copy_queue_t().wait(there, 5000).copy(a._buf.va_addr + 64, a._buf.va_addr, 64).submit(clang)
    assert len(of(p, "kernel", "copy")) == 2 and len(p.flows) >= 2


def test_streams_have_rows_of_their_own(clang):
    a, b, s = buffer(), buffer(), clang.stream()
    program = clang.program("one", C)
    with hcq.profile() as p:
        program(a)
        program(b, stream=s)
    compute, stream = sorted(span.queue for span in of(p, "kernel"))
    assert compute == "COMPUTE" and stream.startswith("stream ")


def test_the_host_shows_launches_submits_waits_and_compiles(clang):
    a = buffer()
    with hcq.profile() as p:
        program = clang.program("spin", f"{C} // {uuid.uuid4()}")  # nobody has compiled it
        for _ in range(100):
            program(a, vals=(20000,))
        clang.synchronize()
    kinds = Counter(span.kind for span in p.spans)
    assert kinds["kernel"] == 100 and kinds["compile"] == 1 and kinds["wait"] == 1
    launches = of(p, "launch")
    assert sum(span.commands for span in launches) == 100
    assert {span.queue for span in launches} == {threading.current_thread().name}


def test_threads_have_rows_of_their_own_and_their_names(clang):
    program, bufs = clang.program("one", C), [buffer() for _ in range(4)]
    launched, release = [threading.Event() for _ in bufs], threading.Event()

    def work(buf, event):
        for _ in range(50):
            program(buf)
        event.set()
        release.wait(30)  # it is asked for its name while it lives

    threads = [
        threading.Thread(target=work, args=arguments, name=f"worker {n}")
        for n, arguments in enumerate(zip(bufs, launched, strict=True))
    ]
    with hcq.profile() as p:
        for thread in threads:
            thread.start()
        assert all(event.wait(30) for event in launched)
    release.set()
    for thread in threads:
        thread.join(30)
    assert len(of(p, "kernel")) == 200
    assert {span.queue for span in of(p, "launch")} == {f"worker {n}" for n in range(4)}
    assert sum(span.commands for span in of(p, "launch")) == 200


def test_memory_is_counted_by_device():
    kept = buffer()
    with hcq.profile() as p:
        before = hcq.memory_stats("CLANG").live_bytes
        more = hcq.Buffer("CLANG", 1000, I32).allocate()
        del more
    samples = [sample.nbytes for sample in p.memory if sample.device == "CLANG"]
    assert samples == [before, before + 4000, before]
    assert [sample.time for sample in p.memory] == sorted(sample.time for sample in p.memory)
    del kept


def test_kernels_of_one_name_are_told_apart(clang):
    a, first, second = buffer(), clang.program("one", C), clang.program("one", OTHER_ONE)
    with hcq.profile() as p:
        first(a)
        second(a)
        second(a)
    assert [(row.kernel, row.calls) for row in sorted(p.table(), key=lambda row: row.calls)] == [("one", 1), ("one", 2)]
    assert len({span.program for span in of(p, "kernel")}) == 2


def test_the_null_device_is_recorded():
    dev = hcq.Device["NULL"]
    program = dev.program("nothing", "")
    with hcq.profile() as p:
        for _ in range(5):
            program()
    assert [(span.name, span.device) for span in of(p, "kernel")] == [("nothing", "NULL")] * 5


def test_a_driver_in_python_is_recorded_by_launch_by_queue_and_over_two_devices():
    dev, peer = hcq.Device["SLOW"], hcq.Device["SLOW:1"]
    a, b = buffer("SLOW"), buffer("SLOW:1")
    program, there = dev.program("increment", SOURCE), peer.program("increment", SOURCE)
    kernargs = program.fill_kernargs([a._buf])
    with hcq.profile() as p:
        a.copyin(bytes(4096))
        program(a)
        hcq.copy(b, a)
        there(b)
        peer.synchronize()
        queue = dev.hw_compute_queue_t().exec(program, kernargs)
        queue.submit(dev)
        queue.bind(dev).submit(dev)
        queue.submit(dev)
        b.copyout(bytearray(4096))
    assert Counter((span.name, span.device, span.queue) for span in of(p, "kernel", "copy")) == {
        ("CPU -> SLOW", "SLOW", "DMA"): 1,
        ("increment", "SLOW", "COMPUTE"): 4,
        ("SLOW -> SLOW:1", "SLOW", "DMA"): 1,
        ("increment", "SLOW:1", "COMPUTE"): 1,
        ("SLOW:1 -> CPU", "SLOW:1", "DMA"): 1,
    }
    assert {("increment", "SLOW -> SLOW:1"), ("SLOW -> SLOW:1", "increment")} <= named(p)
    assert feed.sink is None and "_profile_pending" not in dev.__dict__
    assert ("SLOW", "SLOW:1") in p.jitter
    # what was submitted ran once each time: stamps are no part of the queue
    assert queue.cmds_meta == ["exec"] and b.numpy()[0] == 2 and a.numpy()[0] == 4


def test_a_clock_that_is_ahead_is_brought_to_the_hosts():
    class Ahead(MiniDevice):
        def host_time(self, timestamp, is_copy=False):
            return timestamp + 1_000_000  # a second

    hcq.Device.register("AHEAD", Ahead)
    try:
        dev = hcq.Device["AHEAD"]
        a = buffer("AHEAD")
        program = dev.program("increment", SOURCE)
        with hcq.profile() as p:
            program(a)
        kernel = of(p, "kernel")[0]
        assert p.began < kernel.start < kernel.end < p.ended
        assert abs(p.clocks["AHEAD", False].ahead - 1_000_000) < 100_000
    finally:
        hcq.Device.close("AHEAD")
        hcq.Device.unregister("AHEAD")


def test_hcq_profile_is_a_range(clang):
    a, program = buffer(), clang.program("one", C)
    with hcq.profile() as p:
        queue = clang.hw_compute_queue_t()
        with hcq.hcq_profile(clang, True, "my range", queue=queue):
            queue.exec(program, program.fill_kernargs([a._buf]))
        queue.submit(clang)
    (span,) = of(p, "range")
    (kernel,) = of(p, "kernel")
    assert span.name == "my range" and span.start <= kernel.start and kernel.end <= span.end
    assert [row.kernel for row in p.table()] == ["one"]


# Sessions


def test_profiles_nest_and_each_takes_its_own_part(clang):
    a, one, two = buffer(), clang.program("one", C), clang.program("two", C)
    with hcq.profile() as outer:
        one(a, wait=True)
        with hcq.profile() as inner:
            two(a)
        one(a)
    assert Counter(span.name for span in of(inner, "kernel")) == {"two": 1}
    assert Counter(span.name for span in of(outer, "kernel")) == {"one": 2, "two": 1}


def test_a_profile_is_entered_once_and_read_after_its_end(clang):
    p = hcq.profile()
    with pytest.raises(RuntimeError, match="not ended"):
        p.table()
    with p, pytest.raises(RuntimeError, match="not ended"):
        _ = p.spans
    with pytest.raises(RuntimeError, match="another"):
        p.__enter__()
    assert not p.stop()


def test_nothing_is_recorded_outside_of_a_profile(clang):
    a, program = buffer(), clang.program("one", C)
    program(a, wait=True)
    with hcq.profile() as p:
        pass
    program(a)
    assert not of(p, "kernel", "copy")


def test_a_full_store_drops_what_comes_later_and_says_so(clang, tmp_path):
    a, program = buffer(), clang.program("one", C)
    with hcq.profile(limit=4096) as p:
        for _ in range(20000):
            program(a)
    kernels = of(p, "kernel")
    assert 1000 < len(kernels) <= 4096 and p.dropped > 10000
    assert "missing" in str(p.table())
    with open(p.save(tmp_path / "t.json")) as file:
        assert "dropped" in json.load(file)["otherData"]


def test_a_wrong_suffix_or_limit_is_refused_before_anything_runs():
    for path in ("trace.txt", "trace", "trace.svg"):
        with pytest.raises(ValueError, match=r"\.json or \.pftrace"):
            hcq.profile(path)


@pytest.mark.parametrize("limit", [-1, 0, 10, 1023])
def test_a_limit_too_small_to_keep_anything_is_refused_by_its_name(limit, monkeypatch):
    with pytest.raises(ValueError, match=f"limit={limit}.*1024"):
        hcq.profile(limit=limit)
    if limit >= 0:
        monkeypatch.setenv("HCQ_PROFILE_RECORDS", str(limit))
        with pytest.raises(ValueError, match=f"HCQ_PROFILE_RECORDS={limit}.*1024"):
            hcq.profile()


@pytest.mark.parametrize("limit", [1024, 1500, 5000])
def test_a_small_limit_is_kept_and_never_passed(clang, limit):
    a, program = buffer(), clang.program("one", C)
    with hcq.profile(limit=limit) as p:
        for _ in range(2 * limit):
            program(a, wait=True)
    assert limit / 2 < len(p.spans) <= limit and of(p, "kernel") and p.dropped
    assert "limit=" in str(p.table())


def test_a_queue_that_stands_at_a_wait_does_not_hold_the_end_of_a_profile(clang):
    a, gate, program = buffer(), clang.signal_t(), clang.program("one", C)
    with hcq.profile() as p:
        program(a)
        clang.synchronize()
        clang.hw_compute_queue_t().wait(gate, 1).submit(clang)
        program(a)
    gate.value = 1
    clang.synchronize()
    assert len(of(p, "kernel")) == 1


def test_a_device_lost_inside_a_profile_leaves_what_finished_and_its_error(tmp_path):
    dev = hcq.Device["CLANG:6"]
    a = buffer("CLANG:6")
    one, two = dev.program("one", C), dev.program("two", C)
    with pytest.raises(hcq.errors.DeviceLost), hcq.profile(tmp_path / "t.json") as p:
        one(a, wait=True)
        with inject(dev, "exec"):
            two(a)
        one(a)
    assert [span.name for span in of(p, "kernel")] == ["one"]
    assert any(event.get("name") == "one" for event in events(tmp_path / "t.json"))
    dev.close()


def test_an_error_in_the_block_is_raised_and_the_trace_is_written(clang, tmp_path):
    a, program = buffer(), clang.program("one", C)
    with pytest.raises(KeyError), hcq.profile(tmp_path / "t.json"):
        program(a)
        raise KeyError("mine")
    assert any(event["name"] == "one" for event in events(tmp_path / "t.json"))


def test_fifty_thousand_launches_keep_no_buffer_alive(clang):
    program = clang.program("one", C)
    with hcq.profile() as p:
        gc.collect()
        before = hcq.memory_stats("CLANG")
        last = None
        for _ in range(500):
            a = hcq.Buffer("CLANG", 1024, I32).allocate()
            for _ in range(100):
                program(a)
            last = weakref.ref(a)
        del a
        clang.synchronize()
        assert last() is None
        assert hcq.memory_stats("CLANG").live_bytes == before.live_bytes
        made = weakref.ref(clang.program("two", C))
        gc.collect()
        assert made() is None
    assert len(of(p, "kernel")) == 50000 and p.dropped == 0
    assert p.table()[0].calls == 50000


def test_python_drivers_keep_no_buffer_alive_either():
    dev = hcq.Device["SLOW"]
    program = dev.program("increment", SOURCE)
    with hcq.profile() as p:
        a = buffer("SLOW")
        for _ in range(1500):
            program(a)
        seen = weakref.ref(a)
        del a
        dev.synchronize()
        gc.collect()
        assert seen() is None
    assert len(of(p, "kernel")) == 1500


def test_a_program_that_is_gone_is_still_named(clang):
    a = buffer()
    with hcq.profile() as p:
        clang.program("two", C)(a)
        gc.collect()
    assert [span.name for span in of(p, "kernel")] == ["two"]


# Files


def test_json_names_processes_and_threads_with_ids_of_their_own(tmp_path):
    p = two_devices(tmp_path / "t.json")
    found = events(p.path)
    names = {(e["name"], e["pid"], e.get("tid")): e["args"]["name"] for e in found if e["name"].endswith("_name")}
    processes = {name: pid for (what, pid, _), name in names.items() if what == "process_name"}
    assert {"CLANG", "CLANG:1"} <= processes.keys()
    threads = [(pid, tid, name) for (what, pid, tid), name in names.items() if what == "thread_name"]
    ids = [tid for _, tid, _ in threads]
    assert len(set(ids)) == len(ids) and not set(ids) & set(processes.values())
    for device in ("CLANG", "CLANG:1"):
        assert {"COMPUTE", "DMA"} <= {name for pid, _, name in threads if pid == processes[device]}
    slices = [e for e in found if e["ph"] == "X"]
    assert all(e["dur"] > 0 for e in slices) and {(e["pid"], e["tid"]) for e in slices} <= {t[:2] for t in threads}
    kernel = next(e for e in slices if e["name"] == "two")
    assert kernel["pid"] == processes["CLANG:1"] and kernel["cat"] == "kernel"
    assert [e for e in found if e["ph"] == "C" and e["pid"] == processes["CLANG"]]


class Moved(MiniComputeQueue):
    """A queue whose words the driver moves away at bind."""

    def _bind(self, dev):
        self.moved, self.q = self.q, []

    def _patch(self, offset, words):
        self.moved[offset : offset + len(words)] = words

    def _submit(self, dev):
        dev.worker(self.lane_name).todo.put(list(self.q if self.binded_device is None else self.moved))


def test_bound_queues_whose_words_the_driver_moved_are_timed_as_a_whole(monkeypatch):
    dev = hcq.Device["SLOW"]
    monkeypatch.setattr(dev, "hw_compute_queue_t", Moved)
    a = buffer("SLOW", 4)
    nap = dev.program("nap", 'def nap(launch, x: "i32*"):\n    import time\n    time.sleep(0.002)\n    x[0] += 1\n')
    kernargs = nap.fill_kernargs([a._buf])
    one = dev.hw_compute_queue_t().exec(nap, kernargs, (2, 1, 1)).bind(dev)
    three = dev.hw_compute_queue_t().exec(nap, kernargs).exec(nap, kernargs).exec(nap, kernargs).bind(dev)
    gate = dev.signal_t()
    none = dev.hw_compute_queue_t().signal(gate, 1).bind(dev)
    one.submit(dev)
    with hcq.profile() as p:
        for queue in (one, three, none, one):
            queue.submit(dev)
        dev.synchronize()
    assert [span.name for span in of(p, "kernel")] == ["nap", "bound queue of 3 commands", "nap"]
    first, whole, last = of(p, "kernel")
    assert (first.groups, first.end - first.start >= 4e6, whole.end - whole.start >= 6e6) == (2, True, True)
    assert first.end <= whole.start and whole.end <= last.start
    assert a.numpy()[0] == 9


def test_json_flows_are_bound_to_their_slices(tmp_path):
    p = two_devices(tmp_path / "t.json")
    found = events(p.path)
    slices = [e for e in found if e["ph"] == "X"]

    def at(flow):
        inside = [
            e
            for e in slices
            if (e["pid"], e["tid"]) == (flow["pid"], flow["tid"]) and e["ts"] <= flow["ts"] <= e["ts"] + e["dur"]
        ]
        return {e["name"] for e in inside}

    starts = {e["id"]: at(e) for e in found if e["ph"] == "s"}
    ends = {e["id"]: at(e) for e in found if e["ph"] == "f"}
    assert starts.keys() == ends.keys() and len(starts) == len(p.flows)
    assert all(starts.values()) and all(ends.values())
    assert any("CLANG -> CLANG:1" in starts[i] and "two" in ends[i] for i in starts)


def test_protobuf_reads_back_with_perfettos_own_classes(tmp_path):
    pytest.importorskip("perfetto", reason=NO_PERFETTO)
    p = two_devices(tmp_path / "t.pftrace")
    assert p.path.endswith(".pftrace")
    pb2, found = packets(p.path)
    tracks = {q.track_descriptor.uuid: q.track_descriptor for q in found if q.HasField("track_descriptor")}
    assert len(tracks) == sum(q.HasField("track_descriptor") for q in found)
    processes = {t.process.process_name: t.process.pid for t in tracks.values() if t.HasField("process")}
    assert {"CLANG", "CLANG:1"} <= processes.keys()
    threads = {u: t.thread for u, t in tracks.items() if t.HasField("thread")}
    assert len({t.tid for t in threads.values()}) == len(threads)
    open_slices, names, outgoing, incoming = {}, Counter(), {}, {}
    for q in found:
        if not q.HasField("track_event"):
            continue
        event = q.track_event
        if event.type == pb2.TrackEvent.TYPE_SLICE_BEGIN:
            assert event.track_uuid in threads
            open_slices.setdefault(event.track_uuid, []).append(q.timestamp)
            names[event.name] += 1
            for flow in event.flow_ids:
                outgoing[flow] = event.name
            for flow in event.terminating_flow_ids:
                incoming[flow] = event.name
        elif event.type == pb2.TrackEvent.TYPE_SLICE_END:
            assert open_slices[event.track_uuid].pop() < q.timestamp
    assert not any(open_slices.values())
    assert sum(names.values()) == len(p.spans) and names["one"] == 2 and names["CLANG -> CLANG:1"] == 1
    assert outgoing.keys() == incoming.keys() and len(outgoing) == len(p.flows)
    assert ("CLANG -> CLANG:1", "two") in {(outgoing[i], incoming[i]) for i in outgoing}
    counters = [q for q in found if q.track_event.type == pb2.TrackEvent.TYPE_COUNTER]
    assert counters and all(tracks[q.track_event.track_uuid].HasField("counter") for q in counters)


def test_without_perfetto_a_trace_is_json_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "has_perfetto", lambda: False)
    with pytest.warns(UserWarning, match=r"hcq\[perfetto\].*JSON"):
        p = two_devices(tmp_path / "t.pftrace")
    assert p.path == str(tmp_path / "t.json") and os.listdir(tmp_path) == ["t.json"]
    assert any(event["name"] == "two" for event in events(p.path))


def test_a_trace_that_cannot_be_written_leaves_nothing_and_raises(tmp_path, clang):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        hcq.profile(tmp_path / "nowhere" / "t.json")
    blocked = tmp_path / "t.json"
    blocked.mkdir()
    with pytest.raises(OSError):
        two_devices(blocked)
    assert os.listdir(tmp_path) == ["t.json"]


def test_spans_that_overlap_are_drawn_on_rows_of_their_own(tmp_path):
    from hcq.profiling.layout import arrange

    p = two_devices()
    spans = list(p.spans)
    kernel = next(span for span in spans if span.name == "two")
    p._recorded.spans.append(kernel._replace(name="beside"))
    for process in arrange(p):
        for thread in process.threads:
            if process.name.startswith("CLANG"):
                drawn = [p.spans[index] for index in thread.spans]
                assert all(a.end <= b.start for a, b in itertools.pairwise(drawn))
    names = [thread.name for process in arrange(p) for thread in process.threads]
    assert "COMPUTE 2" in names


# Tables and pictures


def test_the_table_sums_by_kernel_and_knows_what_it_is_told(clang):
    a, one, two = buffer(), clang.program("one", C), clang.program("spin", C)
    with hcq.profile() as p:
        for _ in range(3):
            one(a)
        two(a, vals=(200000,))
        a.copyin(bytes(4096))
    table = p.estimate("spin", flops=1e6, nbytes=2e6).table()
    rows = {row.kernel: row for row in table}
    assert rows["one"].calls == 3 and rows["one"].gb_s is None and rows["one"].gflop_s is None
    assert rows["one"].total == pytest.approx(3 * rows["one"].mean)
    assert rows["spin"].gflop_s == pytest.approx(1e6 / rows["spin"].total / 1e9)
    assert rows["spin"].gb_s == pytest.approx(2 * rows["spin"].gflop_s)
    assert rows["CPU -> CLANG"].gb_s == pytest.approx(4096 / rows["CPU -> CLANG"].total / 1e9)
    assert sum(row.share for row in table) == pytest.approx(1)
    assert table[0].total == max(row.total for row in table)
    lines = str(table).splitlines()
    assert lines[0].split() == ["kernel", "device", "calls", "total", "ms", "mean", "us", "GB/s", "GFLOP/s", "share"]
    assert len(lines) == 2 + len(table)


def test_an_empty_profile_has_an_empty_table_trace_and_picture(tmp_path):
    with hcq.profile() as p:
        pass
    assert p.table() == () and str(p.table())
    assert p.save(tmp_path / "t.json") and p.plot(tmp_path / "t.svg")


def test_the_picture_is_an_svg_with_a_box_for_each_span(tmp_path):
    from xml.etree import ElementTree

    p = two_devices()
    path = p.plot(tmp_path / "t.svg")
    tree = ElementTree.parse(path)
    titles = [title.text for title in tree.iter("{http://www.w3.org/2000/svg}title")]
    assert any("CLANG -> CLANG:1" in text or "spans" in text for text in titles)
    assert any(text.text == "CLANG:1 DMA" for text in tree.iter("{http://www.w3.org/2000/svg}text"))
    with pytest.raises(ValueError, match=r"\.svg"):
        p.plot(tmp_path / "t.png")


# PROFILE=1, fork, the command line


def run(code, tmp_path, *arguments, **environment):
    command = [sys.executable, *(["-c", code] if code else []), *arguments]
    clean = {k: v for k, v in os.environ.items() if k not in ("PROFILE", "PROFILEPATH", "HCQ_PROFILE_OWNER")}
    path = os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))
    environment = {**clean, "PYTHONPATH": path, **environment}
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)


PROGRAM = f"""
import hcq
dev = hcq.Device["CLANG"]
a = hcq.Buffer("CLANG", 16, hcq.dtypes.int32).allocate()
prg = dev.program("one", {C!r})
prg(a)
prg(a)
"""


def test_profile_1_writes_a_trace_when_the_interpreter_leaves(tmp_path):
    done = run(PROGRAM, tmp_path, PROFILE="1", PROFILEPATH="mine.json")
    assert done.returncode == 0 and "mine.json" in done.stderr and not done.stdout
    assert os.listdir(tmp_path) == ["mine.json"]
    assert sum(event["name"] == "one" for event in events(tmp_path / "mine.json")) == 2


def test_profile_0_and_none_write_nothing(tmp_path):
    for environment in ({}, {"PROFILE": "0"}, {"PROFILE": ""}):
        done = run(PROGRAM, tmp_path, **environment)
        assert done.returncode == 0 and not done.stderr and not os.listdir(tmp_path)


def test_profile_1_without_a_path_names_the_file_after_the_process(tmp_path):
    done = run(PROGRAM, tmp_path, PROFILE="1")
    (name,) = os.listdir(tmp_path)
    assert name.startswith("hcq-") and name in done.stderr


def test_profile_1_in_children_writes_files_of_their_own(tmp_path):
    code = (
        PROGRAM
        + """
import os, subprocess, sys
if len(sys.argv) == 1:
    subprocess.run([sys.executable, "-c", open("program").read(), "child"], check=True)
    pid = os.fork()
    if pid == 0:
        dev = hcq.Device["CLANG"]
        b = hcq.Buffer("CLANG", 16, hcq.dtypes.int32).allocate()
        dev.program("two", SOURCE)(b)
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""
    ).replace("SOURCE", repr(C))
    (tmp_path / "program").write_text(code)
    done = run(code, tmp_path, PROFILE="1", PROFILEPATH="mine.json")
    assert done.returncode == 0, done.stderr
    found = {}
    for name in os.listdir(tmp_path):
        if name.endswith(".json"):
            found[name] = Counter(e["name"] for e in events(tmp_path / name) if e.get("cat") == "kernel")
    assert len(found) == 3 and found.pop("mine.json") == {"one": 2}
    assert sorted(map(dict, found.values()), key=str) == [{"one": 2}, {"two": 1}]


def test_a_child_forked_inside_a_profile_records_nothing_of_it(clang):
    a, program = buffer(), clang.program("one", C)
    with hcq.profile() as p:
        program(a)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                inner = hcq.Device["CLANG"]
                b = hcq.Buffer("CLANG", 4, I32).allocate()
                inner.program("two", C)(b, wait=True)
                with hcq.profile() as own:
                    inner.program("two", C)(b)
                seen = [span.name for span in own.spans if span.kind == "kernel"]
                try:
                    p.stop()
                    _ = p.spans
                except hcq.errors.ForkedDeviceError:
                    code = 0 if seen == ["two"] else 2
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        program(a)
    assert [span.name for span in of(p, "kernel")] == ["one", "one"]


def test_hcq_trace_runs_a_script_with_its_arguments_and_keeps_its_exit_code(tmp_path):
    (tmp_path / "helper.py").write_text("value = 3\n")
    (tmp_path / "script.py").write_text(
        PROGRAM + "import sys, helper\nprint(sys.argv, __name__)\nsys.exit(helper.value)\n"
    )
    done = run("", tmp_path, "-m", "hcq.cli", "trace", "-o", "t.json", "--table", "script.py", "-x", "--output", "y")
    assert done.returncode == 3, done.stderr
    assert done.stdout.strip() == "['script.py', '-x', '--output', 'y'] __main__"
    assert "t.json" in done.stderr and "kernel" in done.stderr
    assert sum(event["name"] == "one" for event in events(tmp_path / "t.json")) == 2


def test_hcq_trace_runs_a_module_as_python_does(tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "helper.py").write_text("value = 3\n")
    text = "import os, sys\nfrom . import helper\nprint(os.path.basename(sys.argv[0]), sys.argv[1:], __name__)"
    (tmp_path / "pack" / "__main__.py").write_text(f"{PROGRAM}{text}\nsys.exit(helper.value)\n")
    (tmp_path / "pack" / "wrong.py").write_text(PROGRAM + "raise ZeroDivisionError('mine')\n")
    plain = run("", tmp_path, "-m", "pack", "-m", "--plot")
    done = run("", tmp_path, "-m", "hcq.cli", "trace", "-o", "t.json", "-m", "pack", "-m", "--plot")
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout) == (3, done.stdout), done.stderr
    assert done.stdout == "__main__.py ['-m', '--plot'] __main__\n"
    assert sum(event["name"] == "one" for event in events(tmp_path / "t.json")) == 2
    done = run("", tmp_path, "-m", "hcq.cli", "trace", "-m", "pack.wrong")
    assert done.returncode == 1 and "ZeroDivisionError: mine" in done.stderr and "runpy" not in done.stderr
    assert any(name.startswith("wrong.") for name in os.listdir(tmp_path))
    for wrong in ("nothing", "nothing.at.all", "pack.nothing"):
        done = run("", tmp_path, "-m", "hcq.cli", "trace", "-m", wrong)
        assert done.returncode == 2 and "Traceback" not in done.stderr and wrong in done.stderr


def test_hcq_trace_writes_the_trace_of_a_script_that_raises(tmp_path):
    (tmp_path / "script.py").write_text(PROGRAM + "raise ZeroDivisionError('mine')\n")
    done = run("", tmp_path, "-m", "hcq.cli", "trace", "-o", "t.json", "--plot", "t.svg", "script.py")
    assert done.returncode == 1 and "ZeroDivisionError: mine" in done.stderr and "runpy" not in done.stderr
    assert {"t.json", "t.svg"} <= set(os.listdir(tmp_path))
    for wrong in (["nothing.py"], ["-o", "t.txt", "script.py"], ["--plot", "t.png", "script.py"]):
        done = run("", tmp_path, "-m", "hcq.cli", "trace", *wrong)
        assert done.returncode == 2 and "Traceback" not in done.stderr and not done.stdout


def test_an_estimate_for_a_kernel_that_was_not_recorded_names_those_that_were(clang):
    one, two = (clang.program(name, C) for name in ("one", "two"))
    a = buffer()
    with hcq.profile().estimate("spin", flops=1) as p:  # before the end nobody knows what will run
        p.estimate("typo", flops=1)
        one(a)
        two(a)
    with pytest.raises(ValueError, match="no kernel 'typo' was recorded: there is one, two"):
        p.estimate("typo", flops=1)
    assert p.estimate("one", flops=1) is p
