"""Traces: what a profile records, on native devices and on one in Python."""

import itertools
import threading
import time
import uuid
from collections import Counter

import pytest
from profile_tools import I32, OTHER_ONE, C, buffer, named, of, two_devices
from third_party.mini import MiniDevice
from third_party.suite import SOURCE

import hcq
from hcq.queues import profile as feed
from hcq.queues import settling


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


def test_copies_between_buffers_that_lived_in_the_profile_alone_are_named_by_their_devices(clang):
    other = hcq.Device["CLANG:1"]
    with hcq.profile() as p:
        for _ in range(3):
            a, b = buffer(), buffer("CLANG:1")
            clang.hw_copy_queue_t().copy(b._buf.va_addr, a._buf.va_addr, 4096).submit(clang)
            clang.synchronize()
            del a, b
            other.synchronize()
            b, a = buffer("CLANG:1"), buffer()  # the other way round, most likely in the same memory
            clang.hw_copy_queue_t().copy(a._buf.va_addr, b._buf.va_addr, 4096).submit(clang)
            clang.synchronize()
            del a, b
    copies = [span.name for span in sorted(of(p, "copy"), key=lambda span: span.start) if span.nbytes == 4096]
    assert [name for name in copies if "CPU" not in name] == ["CLANG -> CLANG:1", "CLANG:1 -> CLANG"] * 3


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


def test_a_range_that_ends_during_the_last_look_is_kept(clang, monkeypatch):
    a, program, gate = buffer(), clang.program("one", C), clang.signal_t()
    look = settling.has_work

    def late(device):
        gate.value = 1
        while clang.busy():
            time.sleep(0.001)
        return look(device)

    with hcq.profile() as p:
        queue = clang.hw_compute_queue_t().wait(gate, 1)
        with hcq.hcq_profile(clang, True, "late", queue=queue):
            queue.exec(program, program.fill_kernargs([a._buf]))
        queue.submit(clang)
        monkeypatch.setattr(settling, "has_work", late)
    assert len(of(p, "range")) == 1
