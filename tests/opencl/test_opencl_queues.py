"""Queues of GPU that wait for each other: on the device, by OpenCL's events, wherever what they wait for was given."""

import time

import numpy as np
import pytest

import hcq
from hcq import _native
from hcq.errors import DeviceLost
from hcq.testing.suite.tools import PATIENCE

pytest.importorskip("pyopencl", reason="GPU: pyopencl is not installed")
pytestmark = pytest.mark.usefixtures("in_place")

HELD = """
__kernel void held(volatile __global int *gate, __global int *x, int value) {
  while (!gate[0]) {}
  x[0] = value;
}
"""
ADD = "__kernel void add(__global int *out, __global const int *in) { out[0] = in[0] + 1; }"


def reported(text):
    """Whether the report of all queues comes to say that."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if text in _native.queue_report():
            return True
        time.sleep(0.001)
    return False


def test_a_copy_queue_waits_on_the_device_for_a_kernel_that_runs(gpu):
    held = gpu.program("held", HELD)
    gate, x, y = (hcq.zeros(1, hcq.i32, "GPU") for _ in range(3))
    opened = np.frombuffer(gate.as_buffer(force_zero_copy=True), np.int32)
    opened[0] = 1
    held(gate, x, vals=(1,), wait=True)  # compiled
    opened[0] = 0
    done = hcq.HCQSignal()
    try:
        kernargs = held.fill_kernargs((gate, x), (7,))
        gpu.hw_compute_queue_t().exec(held, kernargs, (1, 1, 1), (1, 1, 1)).signal(done, 1).submit(gpu)
        gpu.hw_copy_queue_t().wait(done, 1).copy(y._buf.va_addr, x._buf.va_addr, 4).signal(done, 2).submit(gpu)
        gpu.hw_compute_queue_t().wait(done, 2).signal(done, 3).submit(gpu)
        assert reported("GPU copy queue:") and reported("runs: wait for signal")
        assert "stands at" not in _native.queue_report().partition("GPU copy queue:")[2].partition("queue:")[0]
        assert done.value == 0
    finally:
        opened[0] = 1
    done.wait(3)
    gpu.synchronize()
    assert (x.numpy()[0], y.numpy()[0]) == (7, 7)


def test_queues_that_wait_for_each_other_in_turns_keep_their_order(gpu):
    """By one signal: a kernel, a copy of what it wrote, and so on."""
    x, y, back = hcq.zeros(1, hcq.i32, "GPU"), hcq.zeros(1, hcq.i32, "GPU"), hcq.HCQSignal()
    program = gpu.program("add", ADD)
    gpu.synchronize()
    kernargs = program.fill_kernargs((x, y))
    for value in range(0, 400, 2):
        queue = gpu.hw_compute_queue_t().wait(back, value).exec(program, kernargs, (1, 1, 1), (1, 1, 1))
        queue.signal(back, value + 1).submit(gpu)
        queue = gpu.hw_copy_queue_t().wait(back, value + 1).copy(y._buf.va_addr, x._buf.va_addr, 4)
        queue.signal(back, value + 2).submit(gpu)
    back.wait(400)
    gpu.synchronize()
    assert (x.numpy()[0], y.numpy()[0]) == (200, 200)


def test_many_streams_that_wait_for_one_run_after_it(gpu):
    first, *others = (gpu.stream() for _ in range(6))
    program = gpu.program("add", ADD)
    x, outs = hcq.zeros(1, hcq.i32, "GPU"), [hcq.zeros(1, hcq.i32, "GPU") for _ in others]
    gpu.synchronize()
    for round_ in range(20):
        program(x, x, stream=first)
        for stream, out in zip(others, outs, strict=True):
            stream.wait(first)
            program(out, x, stream=stream)
        for stream in others:
            first.wait(stream)
        if round_ % 5 == 4:
            first.synchronize()
            assert all(out.numpy()[0] == round_ + 2 for out in outs)


@pytest.mark.parametrize("function", ["clEnqueueMarkerWithWaitList", "clGetEventInfo"])
def test_a_wait_that_opencl_refuses_or_that_fails_is_no_hang(gpu, function):
    """The host waits where the queue can't; a command that failed loses the device for who waits for it too."""
    hcq.Device.close("GPU")
    device = hcq.Device["GPU"]
    held = device.program("held", HELD)
    gate, x, y = (hcq.zeros(1, hcq.i32, "GPU") for _ in range(3))
    opened = np.frombuffer(gate.as_buffer(force_zero_copy=True), np.int32)
    opened[0] = 1
    held(gate, x, vals=(1,), wait=True)
    opened[0] = 0
    done, last = hcq.HCQSignal(), hcq.HCQSignal()
    try:
        _native.opencl_fail(function, -5)
        kernargs = held.fill_kernargs((gate, x), (7,))
        device.hw_compute_queue_t().exec(held, kernargs, (1, 1, 1), (1, 1, 1)).signal(done, 1).submit(device)
        queue = device.hw_copy_queue_t().wait(done, 1).copy(y._buf.va_addr, x._buf.va_addr, 4)
        queue.signal(last, 1).submit(device)
        opened[0] = 1
        if function == "clGetEventInfo":
            for wait in (lambda: done.wait(1), device.synchronize):
                with pytest.raises(DeviceLost, match=r"CL_OUT_OF_RESOURCES \(-5\)"):
                    wait()
        else:
            last.wait(1)
            assert y.numpy()[0] == 7
    finally:
        opened[0] = 1
        _native.opencl_fail("", 0)
    del opened, gate, x, y
    hcq.Device.close("GPU")
