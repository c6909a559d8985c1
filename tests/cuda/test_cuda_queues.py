"""Queues of CUDA devices: streams that wait for each other without the host, peers, CUDA C and PTX."""

import signal
import time
from pathlib import Path

import numpy as np
import pytest

import hcq
from hcq import _native
from hcq.testing.suite.tools import eventually

HELD = """
extern "C" __global__ void held(int *out, volatile int *gate, int value) {
  while (*gate == 0) ;
  out[0] = value;
}
"""


def reported(text, patience=20.0):
    """Whether a report of the queues comes to say that."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if text in _native.queue_report():
            return True
        time.sleep(0.001)
    return False


def test_a_copy_queue_waits_on_the_device_for_a_kernel_that_runs(dev, nvrtc):
    held = dev.program("held", HELD)
    gate = hcq.Buffer("CUDA", 1, hcq.i32, options=hcq.BufferOptions(host=True), preallocate=True)
    gate.copyin(np.zeros(1, np.int32))
    x, y, z = (hcq.zeros(1, hcq.i32, "CUDA") for _ in range(3))
    dev.synchronize()
    opened = np.frombuffer(hcq.queues.staging.host_view(gate._buf.va_addr, 4), np.int32)
    done = dev.signal_t()
    try:
        kernargs = held.fill_kernargs([x._buf, gate._buf], (7,))
        dev.hw_compute_queue_t().exec(held, kernargs, (1, 1, 1), (1, 1, 1)).signal(done, 1).submit(dev)
        dev.hw_copy_queue_t().wait(done, 1).copy(y._buf.va_addr, x._buf.va_addr, 4).signal(done, 2).submit(dev)
        dev.stream()  # one more queue of the device that has nothing to do
        stream = dev.stream()
        dev.hw_compute_queue_t().wait(done, 2).signal(done, 3).submit(dev)
        assert reported("CUDA copy queue:") and reported("runs: wait for signal")
        assert "stands at" not in _native.queue_report().partition("CUDA copy queue:")[2].partition("queue:")[0]
        assert done.value == 0
    finally:
        opened[0] = 1
    done.wait(3)
    hcq.copy(z, y, stream=stream)
    stream.synchronize()
    dev.synchronize()
    assert (x.numpy()[0], y.numpy()[0], z.numpy()[0]) == (7, 7, 7)


def blocked_signals(name):
    """The signals that the threads of that name don't take, one set a thread."""
    masks = []
    for status in Path("/proc/self/task").glob("*/status"):
        lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines())
        if lines["Name"] == name:
            mask = int(lines["SigBlk"], 16)
            masks.append({each for each in signal.Signals if mask >> (each - 1) & 1})
    return masks


def test_threads_that_wait_in_the_driver_leave_signals_to_python(dev):
    """Control-C interrupts the main thread's waits only where that takes the signal."""
    out = hcq.zeros(1 << 20, hcq.f32, "CUDA")

    def waiting():
        hcq.ops.add(out, 1.0, out=out)
        dev.synchronize()
        return blocked_signals("hcq cuda")

    assert eventually(waiting)
    for blocked in waiting():
        assert {signal.SIGINT, signal.SIGALRM, signal.SIGTERM} <= blocked and signal.SIGSEGV not in blocked


def test_queues_that_wait_for_each_other_in_turns_keep_their_order(dev):
    """A hundred rounds by one signal: a kernel, a copy of what it wrote, and so on."""
    add = hcq.kernel(_plus_one)
    x, y = hcq.zeros(64, hcq.i32, "CUDA"), hcq.zeros(64, hcq.i32, "CUDA")
    add[2, 32](x, x)
    dev.synchronize()
    program = add._chosen({}).loaded(dev).program
    forth, back = program.fill_kernargs([x._buf, y._buf]), dev.signal_t()
    value = 0
    for _ in range(100):
        queue = dev.hw_copy_queue_t().wait(back, value).copy(y._buf.va_addr, x._buf.va_addr, 256)
        queue.signal(back, value + 1).submit(dev)
        queue = dev.hw_compute_queue_t().wait(back, value + 1).exec(program, forth, (2, 1, 1), (32, 1, 1))
        queue.signal(back, value + 2).submit(dev)
        value += 2
    back.wait(value)
    dev.synchronize()
    assert (x.numpy() == 101).all() and (y.numpy() == 100).all()


def _plus_one(out: hcq.ptr[hcq.i32], src: hcq.ptr[hcq.i32]):
    i = hcq.global_id(0)
    out[i] = src[i] + 1


def test_a_transfer_between_two_devices_moves_both_timelines(dev, devices):
    if devices[1] is None:
        pytest.skip("one CUDA device is here")
    other = hcq.Device[devices[1]]
    x, y = hcq.array(np.arange(100, dtype=np.int32), "CUDA"), hcq.zeros(100, hcq.i32, other.dname)
    dev.synchronize()
    other.synchronize()
    before = dev.timeline_value, other.timeline_value
    dev.allocator.transfer(y._buf, x._buf, 400, src_dev=dev, dest_dev=other)
    assert (dev.timeline_value, other.timeline_value) == (before[0] + 1, before[1] + 1)
    assert (y.numpy() == np.arange(100)).all()


def test_copies_to_and_from_the_processor_go_through_the_host(dev):
    there = hcq.array(np.arange(3000, dtype=np.int32), "NULL")
    here = hcq.zeros(3000, hcq.i32, "CUDA")
    hcq.copy(here, there)
    assert (here.numpy() == np.arange(3000)).all()
    with hcq.capture() as graph:
        hcq.copy(there, here)
    here.fill(5)
    graph.replay().wait()
    assert (there.numpy() == 5).all()


def test_overlapping_copies_are_as_if_read_first(dev):
    buf = hcq.array(np.arange(1000, dtype=np.int32), "CUDA")
    whole = np.arange(1000, dtype=np.int32)
    hcq.copy(buf.view(900, hcq.i32, 400).ensure_allocated(), buf.view(900, hcq.i32, 0).ensure_allocated())
    whole[100:] = whole[:900].copy()
    assert (buf.numpy() == whole).all()


def test_host_memory_is_reached_by_both(dev, nvrtc):
    fill = dev.program("fill", 'extern "C" __global__ void fill(int *out, int v) { out[threadIdx.x] = v; }')
    for options in (hcq.BufferOptions(host=True), hcq.BufferOptions(cpu_access=True)):
        buf = hcq.Buffer("CUDA", 64, hcq.i32, options=options, preallocate=True)
        fill(buf, vals=(3,), local_size=(64, 1, 1))
        dev.synchronize()
        assert (np.frombuffer(hcq.queues.staging.host_view(buf._buf.va_addr, 256), np.int32) == 3).all()


SOURCE = """
#include <cuda_fp16.h>
typedef unsigned long long word;
extern "C" __global__ void many(const float *a, int n, double *out, word w, __half h, bool b, signed char c) {
  if (threadIdx.x == 0) {
    out[0] = a[n]; out[1] = (double)w; out[2] = __half2float(h); out[3] = b; out[4] = c;
  }
}
__global__ void mangled(int *out, unsigned short v) { out[0] = v; }
"""


def test_arguments_of_any_order_and_type_arrive(dev, nvrtc):
    many = dev.program("many", SOURCE)
    a, out = hcq.array(np.arange(4, dtype=np.float32), "CUDA"), hcq.zeros(5, hcq.f64, "CUDA")
    many(a, out, vals=(2, 2**40, 1.5, True, -7))
    assert out.numpy().tolist() == [2.0, 2.0**40, 1.5, 1.0, -7.0]
    assert [kind for kind, _ in many.signature] == ["pointer", "pointer", "int32", "uint64", "float16", "bool", "int8"]
    with pytest.raises(hcq.errors.LaunchError):
        many(a, out, vals=(2, 2**40, 1.5, True, 200))
    with pytest.raises(hcq.errors.LaunchError):
        many(a, vals=(2, 2**40, 1.5, True, 2))


def test_kernels_are_found_by_their_plain_and_mangled_names(dev, nvrtc):
    library = dev.compiler.compile_cached(SOURCE)
    for name in ("mangled", "_Z7mangledPit"):
        out = hcq.zeros(1, hcq.i32, "CUDA")
        dev.runtime(name, library)(out, vals=(40_000,))
        assert out.numpy()[0] == 40_000
    with pytest.raises(hcq.errors.InvalidProgram, match="no kernel 'absent' in the library: it has many"):
        dev.runtime("absent", library)


PTX = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry store(.param .u64 out, .param .u32 v)
.reqntid 1, 1, 1
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [v];
  cvta.to.global.u64 %rd2, %rd1;
  st.global.u32 [%rd2], %r1;
  ret;
}
"""


def test_ptx_is_taken_as_it_is(dev):
    store = dev.program("store", PTX)
    out = hcq.zeros(1, hcq.i32, "CUDA")
    store(out, vals=(77,))
    assert out.numpy()[0] == 77
    with pytest.raises(hcq.errors.LaunchError):
        store(out, vals=(77,), local_size=(2, 1, 1))


def test_ptx_that_the_driver_refuses_is_an_invalid_program_with_its_log(dev):
    with pytest.raises(hcq.errors.InvalidProgram, match="does not load the library"):
        dev.program("store", PTX.replace("[%rd2], %r1", "[%rd2], %r9"))


def test_what_changes_of_bound_commands_is_given_to_the_nodes_of_the_same_graph(dev, nvrtc):
    plus = dev.program("plus", GRAPHED)
    x, y = hcq.array(np.arange(64, dtype=np.int32), "CUDA"), hcq.zeros(64, hcq.i32, "CUDA")
    with hcq.capture() as graph:
        for _ in range(3):
            plus(y, x, vals=(graph.value("by", 1),), local_size=(64, 1, 1))
            hcq.copy(x, y)
    graph.replay().wait()
    made = _native.cuda_graphs_made()
    for by in range(2, 7):
        graph.replay(vals={"by": by}).wait()
    assert _native.cuda_graphs_made() == made
    assert (x.numpy() == np.arange(64) + 3 * sum(range(1, 7))).all()


GRAPHED = """
extern "C" __global__ void plus(int *out, const int *in, int value) {
  out[threadIdx.x + blockIdx.x * blockDim.x] = in[threadIdx.x + blockIdx.x * blockDim.x] + value;
}
extern "C" __global__ void astray(int *out) { *(int *)8 = 1; }
"""


def test_a_graph_is_one_launch_of_a_graph_of_cudas(dev, nvrtc, graphs):
    plus = dev.program("plus", GRAPHED)
    x, y = hcq.zeros(64, hcq.i32, "CUDA"), hcq.zeros(64, hcq.i32, "CUDA")
    plus(y, x, vals=(0,), local_size=(64, 1, 1), wait=True)
    before = _native.cuda_held()[4]
    with hcq.capture(inputs={"x": x}) as graph:
        for value in range(5):
            plus(y, x, vals=(graph.value("by", 1),), local_size=(64, 1, 1))
            plus(x, y, vals=(value,), local_size=(64, 1, 1))
    for _ in range(3):
        graph.replay().wait()
    assert _native.cuda_held()[4] > before
    assert (x.numpy() == 3 * (5 + 10)).all()
    graph.replay(vals={"by": 100}).wait()
    assert (x.numpy() == 45 + 510).all()
    other = hcq.array(np.full(64, 1000, np.int32), "CUDA")
    replays = [graph.replay(x=buf, vals={"by": by}) for buf, by in ((other, 1), (x, 2), (other, 3))]
    for replay in replays:
        replay.wait()
    assert (x.numpy() == 555 + 20).all() and (other.numpy() == 1000 + 15 + 25).all()


def test_a_bound_queue_keeps_a_graph_through_updates(dev, nvrtc):
    plus = dev.program("plus", GRAPHED)
    x, y, z = (hcq.zeros(64, hcq.i32, "CUDA") for _ in range(3))
    dev.synchronize()
    queue = dev.hw_compute_queue_t()
    for value, (out, src) in enumerate(((y, x), (z, y), (x, z)), 1):
        queue.exec(plus, plus.fill_kernargs([out._buf, src._buf], (value,)), (2, 1, 1), (32, 1, 1))
    done = dev.signal_t()
    queue.signal(done, 1).bind(dev)
    for turn in range(1, 4):
        queue.update_signal(3, value=turn).submit(dev)
    done.wait(3)
    assert (x.numpy() == 18).all()
    queue.update_exec(2, (1, 1, 1), (32, 1, 1)).update_signal(3, value=4).submit(dev)
    done.wait(4)
    assert (x.numpy()[:32] == 24).all() and (x.numpy()[32:] == 18).all()
    queue.update_exec(1, (0, 1, 1), (32, 1, 1)).update_signal(3, value=5).submit(dev)
    done.wait(5)
    dev.synchronize()
    assert (y.numpy()[:32] == 25).all() and (x.numpy()[:32] == z.numpy()[:32] + 3).all()


def test_a_failure_within_a_graph_names_where_the_run_begins(dev, nvrtc, graphs):
    plus, astray = dev.program("plus", GRAPHED), dev.program("astray", GRAPHED)
    x, y = hcq.zeros(64, hcq.i32, "CUDA"), hcq.zeros(64, hcq.i32, "CUDA")
    with hcq.capture() as graph:
        plus(y, x, vals=(1,), local_size=(64, 1, 1))
        plus(x, y, vals=(1,), local_size=(64, 1, 1))
        astray(x)
    with pytest.raises(hcq.errors.DeviceLost) as lost:
        graph.replay().wait()
    assert lost.value.command == "one of 3 commands from plus on"
