"""Traces: what a profile records of the device, and the file it writes."""

import gc
import json
import time
import weakref

import pytest

import hcq
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import address, empty, filled, later, python


def work(profile):
    return [span for span in profile.spans if span.kind in ("kernel", "copy")]


def names(profile):
    return [span.name for span in work(profile)]


@promise("profile.trace")
@needs("queues", "compiles")
def test_a_profile_writes_json_with_processes_threads_and_positive_durations(dev, kernels, tmp_path):
    with hcq.profile(tmp_path / "t.json"):
        kernels.nothing()
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    processes = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
    threads = {e["tid"]: (e["pid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"}
    assert len(threads) == sum(e["name"] == "thread_name" for e in events), "the ids are unique over processes"
    (kernel,) = [e for e in events if e["ph"] == "X" and e["name"] == "nothing"]
    assert threads[kernel["tid"]] == (processes[dev.dname], "COMPUTE") and kernel["pid"] == processes[dev.dname]
    assert (processes[dev.dname], "DMA") in threads.values()
    assert all(e["dur"] > 0 for e in events if e["ph"] == "X")


@promise("profile.trace")
@needs("queues", "compiles")
def test_a_profile_writes_protobuf_by_the_suffix(dev, kernels, tmp_path):
    pytest.importorskip("perfetto", reason="the extra hcq[perfetto] is not installed")
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    with hcq.profile(tmp_path / "t.pftrace"):
        kernels.nothing()
    trace = Trace()
    trace.ParseFromString((tmp_path / "t.pftrace").read_bytes())
    assert "nothing" in {packet.track_event.name for packet in trace.packet}
    assert dev.dname in {packet.track_descriptor.process.process_name for packet in trace.packet}


@promise("profile.names")
@needs("queues", "compiles", "peers")
def test_kernels_go_by_their_names_and_copies_by_where_they_lead(dev, peer, kernels):
    here, there = filled(dev, range(100)), empty(peer, 100)
    with hcq.profile() as p:
        kernels.nothing()
        here.copyin(bytes(400))
        hcq.copy(there, here)
        hcq.copy(empty(dev, 100), here)
        there.copyout(bytearray(400))
    D, E = dev.dname, peer.dname
    assert sorted(names(p)) == sorted(["nothing", f"CPU -> {D}", f"{D} -> {E}", f"{D} -> {D}", f"{E} -> CPU"])
    assert {span.device for span in work(p)} == {D, E}


@promise("profile.names")
@needs("queues", "compiles")
def test_explicit_queues_are_recorded_bound_ones_too(dev, kernels):
    kernargs = kernels.nothing.fill_kernargs([])
    queue = dev.hw_compute_queue_t().exec(kernels.nothing, kernargs)
    with hcq.profile() as p:
        queue.submit(dev)
        queue.bind(dev).submit(dev)
        queue.submit(dev)
    assert names(p) == ["nothing"] * 3


@promise("profile.flows")
@needs("queues", "compiles")
def test_flows_lead_across_queues(dev, kernels):
    a, b, done = filled(dev, range(100)), filled(dev, range(100)), dev.signal_t()
    kernargs = kernels.nothing.fill_kernargs([])
    first = dev.hw_compute_queue_t().exec(kernels.nothing, kernargs).signal(done, 1)
    with hcq.profile() as p:
        dev.hw_copy_queue_t().wait(done, 1).copy(address(a), address(b), 400).submit(dev)
        first.submit(dev)
    spans = p.spans
    between = [(spans[one].kind, spans[other].kind) for one, other in p.flows if spans[one].device]
    assert between == [("kernel", "copy")]


@promise("profile.clock")
@needs("queues", "compiles")
def test_times_are_the_hosts_and_starts_come_after_the_waits(dev, kernels):
    gate, released = dev.signal_t(), []
    with hcq.profile() as p:
        dev.hw_compute_queue_t().wait(gate, 1).submit(dev)
        kernels.nothing()

        def release():
            released.append(time.perf_counter_ns())
            gate.value = 1

        later(release).join()
        dev.synchronize()
    (kernel,) = work(p)
    assert released[0] <= kernel.start < kernel.end <= p.ended


@promise("profile.variable")
@needs("compiles", "queues")
def test_profile_1_writes_the_trace_at_the_end(driver, kernels, tmp_path):
    source = kernels.source("nothing")
    code = f"{driver.setup}\nimport hcq\nhcq.Device[{driver.device!r}].program('nothing', {source!r})()\n"
    path = tmp_path / "mine.json"
    done = python(code, env={"PROFILE": "1", "PROFILEPATH": str(path), "HCQ_PROFILE_OWNER": ""})
    assert done.returncode == 0, done.stderr
    assert "nothing" in {event["name"] for event in json.loads(path.read_text())["traceEvents"]}


@promise("profile.no_hold")
@needs("queues", "compiles")
def test_a_profile_keeps_no_buffer_and_no_program_alive(dev, kernels):
    program = dev.program("nothing", kernels.source("nothing"))
    buf = filled(dev, range(100))
    with hcq.profile() as p:
        program()
        hcq.copy(empty(dev, 100), buf)
        gone, unloaded = weakref.ref(buf), weakref.ref(program)
        dev.synchronize()
        live = hcq.memory_stats(dev.dname).live_bytes
        del program, buf
        gc.collect()
        assert gone() is None and unloaded() is None
        assert hcq.memory_stats(dev.dname).live_bytes == live - 400
    assert "nothing" in names(p)
