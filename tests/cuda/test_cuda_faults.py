"""Kernels that fail on CUDA devices, and what opening and closing leaves behind."""

import gc
import time

import numpy as np
import pytest

import hcq
from hcq import _native
from hcq.errors import DeviceLost

SOURCE = """
extern "C" __global__ void good(int *out) { out[threadIdx.x] = threadIdx.x; }
extern "C" __global__ void astray(int *out) { *(int *)8 = 1; out[0] = 1; }
extern "C" __global__ void trapped(int *out) { if (threadIdx.x == 3) __trap(); out[0] = 1; }
extern "C" __global__ void held(volatile int *gate) { while (*gate == 0) ; }
"""


@pytest.mark.parametrize(
    ("name", "error"),
    [("astray", "CUDA_ERROR_ILLEGAL_ADDRESS"), ("trapped", "CUDA_ERROR_(LAUNCH_FAILED|ILLEGAL_INST)")],
)
def test_a_kernel_that_fails_loses_the_device_with_its_name(dev, nvrtc, name, error):
    good, bad = dev.program("good", SOURCE), dev.program(name, SOURCE)
    out = hcq.zeros(64, hcq.i32, "CUDA")
    good(out, local_size=(64, 1, 1))
    with pytest.raises(DeviceLost, match=error) as lost:
        bad(out, local_size=(64, 1, 1))
        for _ in range(3):
            good(out, local_size=(64, 1, 1))  # it may be told here already
        dev.synchronize()
    assert lost.value.command == name
    with pytest.raises(DeviceLost):
        out.numpy()
    with pytest.raises(DeviceLost, match=error):
        hcq.array(np.arange(8), "CUDA")
    del good, bad, out
    dev.close()
    again = hcq.Device["CUDA"]
    assert again is not dev and again.lost is None
    assert hcq.array(np.arange(8), "CUDA").numpy().tolist() == list(range(8))


@pytest.mark.parametrize("what", ["memory", "a program"])
def test_what_is_asked_of_the_driver_next_tells_of_the_kernel_too(dev, nvrtc, what):
    """The driver's answer is the kernel's error then: no want of memory, and no program that is wrong."""
    bad = dev.program("astray", SOURCE)
    out = hcq.zeros(64, hcq.i32, "CUDA")
    lib = dev.compiler.compile(SOURCE)
    bad(out, local_size=(64, 1, 1))
    with pytest.raises(DeviceLost, match="ILLEGAL_ADDRESS"):
        for _ in range(1000):
            hcq.empty(1 << 20, hcq.i32, "CUDA") if what == "memory" else dev.runtime("good", lib)


def test_the_command_that_failed_is_named_where_another_queue_waits_for_it(dev, nvrtc):
    """What stands waiting for it on the device is not, whichever queue is told first."""
    bad = dev.program("astray", SOURCE)
    out, copied = hcq.zeros(64, hcq.i32, "CUDA"), hcq.zeros(64, hcq.i32, "CUDA")
    dev.synchronize()
    done = dev.signal_t()
    kernargs = bad.fill_kernargs([out._buf])
    with pytest.raises(DeviceLost) as lost:
        dev.hw_compute_queue_t().exec(bad, kernargs, (1, 1, 1), (1, 1, 1)).signal(done, 1).submit(dev)
        dev.hw_copy_queue_t().wait(done, 1).copy(copied._buf.va_addr, out._buf.va_addr, 4).signal(done, 2).submit(dev)
        done.wait(2)
    assert lost.value.command == "astray"


def test_a_launch_that_is_refused_for_another_queues_failure_is_not_named_alone(dev, nvrtc):
    good, bad = dev.program("good", SOURCE), dev.program("astray", SOURCE)
    out, other = hcq.zeros(64, hcq.i32, "CUDA"), hcq.zeros(64, hcq.i32, "CUDA")
    stream = dev.stream()
    good(other, local_size=(64, 1, 1), stream=stream, wait=True)
    dev.synchronize()
    with pytest.raises(DeviceLost) as lost:
        bad(out, local_size=(64, 1, 1))
        while True:
            good(other, local_size=(64, 1, 1), stream=stream)
    assert "astray" in lost.value.command


def test_all_that_were_under_way_are_named_where_it_may_have_been_any(dev, nvrtc):
    bad, held = dev.program("astray", SOURCE), dev.program("held", SOURCE)
    gate = hcq.Buffer("CUDA", 1, hcq.i32, options=hcq.BufferOptions(host=True), preallocate=True)
    gate.copyin(np.zeros(1, np.int32))
    out = hcq.zeros(64, hcq.i32, "CUDA")
    stream = dev.stream()
    dev.synchronize()
    opened = np.frombuffer(hcq.queues.staging.host_view(gate._buf.va_addr, 4), np.int32)
    try:
        held(gate, stream=stream)
        deadline = time.monotonic() + 20
        while "runs: held" not in _native.queue_report() and time.monotonic() < deadline:
            time.sleep(0.001)
        bad(out, local_size=(64, 1, 1))
        with pytest.raises(DeviceLost, match="ILLEGAL_ADDRESS") as lost:
            dev.synchronize()
    finally:
        opened[0] = 1
    named = lost.value.command.removeprefix("one of ")
    assert sorted(named.split(", ")) == ["astray", "held"] and named != lost.value.command
    assert "CUDA stream" in str(lost.value)


def test_what_is_left_of_a_device_that_was_closed_well_ends_nothing_of_the_next(devices, nvrtc):
    """A program keeps the first one's context; the second is broken and reset; the third goes on when it is let go."""
    dev = hcq.Device["CUDA"]
    kept, memory = dev.program("good", SOURCE), hcq.zeros(64, hcq.i32, "CUDA")
    dev.close()
    broken = hcq.Device["CUDA"]
    bad, out = broken.program("astray", SOURCE), hcq.zeros(64, hcq.i32, "CUDA")
    with pytest.raises(DeviceLost):
        bad(out, wait=True)
    broken.close()
    again = hcq.Device["CUDA"]
    x = hcq.array(np.arange(8), "CUDA")
    del kept, memory, dev, bad, out, broken
    gc.collect()
    _native.run_retired()
    assert hcq.array(np.arange(8), "CUDA").numpy().tolist() == x.numpy().tolist() == list(range(8))
    assert again.lost is None


def test_others_that_wait_for_a_lost_device_are_told(dev, devices, nvrtc):
    if devices[1] is None:
        pytest.skip("one CUDA device is here")
    other = hcq.Device[devices[1]]
    bad = dev.program("astray", SOURCE)
    out = hcq.zeros(64, hcq.i32, "CUDA")
    dev.synchronize()
    done = dev.signal_t()
    other.hw_compute_queue_t().wait(done, 1).signal(done, 2).submit(other)
    kernargs = bad.fill_kernargs([out._buf])
    dev.hw_compute_queue_t().exec(bad, kernargs, (1, 1, 1), (1, 1, 1)).signal(done, 1).submit(dev)
    with pytest.raises(DeviceLost):
        done.wait(1)
    with pytest.raises(DeviceLost):
        other.synchronize()
    assert other.lost is None


def test_a_closed_device_leaves_nothing_with_the_driver(devices):
    def use():
        dev = hcq.Device["CUDA"]
        add = hcq.kernel(_twice)
        x = hcq.array(np.arange(64, dtype=np.int32), "CUDA")
        add[1, 64](x)
        stream = dev.stream()
        hcq.copy(hcq.empty(64, hcq.i32, "CUDA"), x, stream=stream)
        stream.synchronize()
        dev.synchronize()
        dev.close()

    for name in devices:
        if name:
            hcq.Device.close(name)
    gc.collect()
    before = _native.cuda_held()  # what other tests left may still be on its way out: it gets less, not more
    for _ in range(3):
        use()
        gc.collect()
    deadline = time.monotonic() + 20
    while (
        not all(now <= then for now, then in zip(_native.cuda_held(), before, strict=True))
        and time.monotonic() < deadline
    ):
        time.sleep(0.01)
        _native.run_retired()
    assert all(now <= then for now, then in zip(_native.cuda_held(), before, strict=True))


def _twice(x: hcq.ptr[hcq.i32]):
    i = hcq.global_id(0)
    x[i] = x[i] * 2
