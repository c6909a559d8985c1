"""Signals that streams set themselves: who sees them, when, and what setting them back does."""

import multiprocessing
import os

import numpy as np
import pytest

import hcq
from hcq import _native
from hcq.queues.allocator import HCQBuffer

SOURCE = """
extern "C" __global__ void put(int *out, int value) { out[0] = value; }
extern "C" __global__ void look(long long *out, const volatile long long *signal) { out[0] = signal[0]; }
"""


@pytest.fixture
def written(dev):
    """Skips where the host sets signals."""
    if dev.info["signals"] != "set by streams":
        pytest.skip("streams of this device write no memory")


def memory_of(dev, where):
    """64 bytes for a signal, and what gives them back."""
    if where == "the pool":
        return None, lambda: None
    if where == "page-locked memory":
        return hcq.Buffer("CUDA", 64, hcq.u8, options=hcq.BufferOptions(host=True), preallocate=True), lambda: None
    name = f"hcq-signals-{os.getpid()}"
    shared = hcq.Buffer(f"DISK:shm:{name}?mode=create", 4096, hcq.u8, preallocate=True)
    return shared.view(64, hcq.u8, 1024).allocate(), lambda: os.unlink(f"/dev/shm/{name}")


@pytest.mark.parametrize("where", ["the pool", "page-locked memory", "a shared segment"])
def test_a_stream_sets_a_signal_before_it_goes_on(dev, nvrtc, written, where):
    """The kernel behind it sees the value, each time: no thread of the host comes in between."""
    if where == "the pool" and not dev.is_cpu_implementation:
        pytest.skip("kernels on a GPU don't reach the pool's signals at the host's address")
    put, look = (dev.program(name, SOURCE) for name in ("put", "look"))
    out, seen = hcq.zeros(1, hcq.i32, "CUDA"), hcq.zeros(1, hcq.i64, "CUDA")
    memory, end = memory_of(dev, where)
    try:
        if where == "a shared segment" and not dev.is_cpu_implementation:
            pytest.skip("kernels on a GPU don't reach shared segments at the host's address")
        signal = dev.signal_t(memory=memory)
        before = put.fill_kernargs([out._buf], (1,))
        after = look.fill_kernargs([seen._buf, HCQBuffer(signal.value_addr, 64)])
        one = (1, 1, 1)
        for value in range(1, 51):
            queue = dev.hw_compute_queue_t().exec(put, before, one, one).signal(signal, value)
            queue.exec(look, after, one, one).submit(dev)
            dev.synchronize()
            assert seen.numpy()[0] == value == signal.value
    finally:
        end()


def test_a_signal_set_back_is_waited_for_anew_by_another_queue(dev, nvrtc):
    """Also where its stream has said so a moment ago, and the host has not looked yet."""
    put = dev.program("put", SOURCE)
    x, y = hcq.zeros(1, hcq.i32, "CUDA"), hcq.zeros(1, hcq.i32, "CUDA")
    dev.synchronize()
    done, copied, one = dev.signal_t(), dev.signal_t(), (1, 1, 1)
    for value in range(1, 101):
        odd, even = (put.fill_kernargs([x._buf], (each,)) for each in (2 * value - 1, 2 * value))
        dev.hw_compute_queue_t().exec(put, odd, one, one).signal(done, 1).submit(dev)
        while done.value != 1:
            pass
        done.value = 0
        dev.hw_copy_queue_t().wait(done, 1).copy(y._buf.va_addr, x._buf.va_addr, 4).signal(copied, value).submit(dev)
        dev.hw_compute_queue_t().exec(put, even, one, one).signal(done, 1).submit(dev)
        copied.wait(value)
        assert done.value == 1
        done.value = 0
        assert y.numpy()[0] == 2 * value


def test_the_host_does_not_set_a_signal_again_that_the_stream_has_set(dev, nvrtc):
    put = dev.program("put", SOURCE)
    x = hcq.zeros(1, hcq.i32, "CUDA")
    dev.synchronize()
    signal, one = dev.signal_t(), (1, 1, 1)
    kernargs = put.fill_kernargs([x._buf], (1,))
    for value in range(1, 101):
        dev.hw_compute_queue_t().exec(put, kernargs, one, one).signal(signal, value).submit(dev)
        while signal.value != value:
            pass
        signal.value = 1000 + value
        dev.synchronize()
        assert signal.value == 1000 + value
        signal.value = 0


def test_times_are_there_with_the_signal_behind_them(dev, nvrtc):
    """They are told by the host, so the signal is set by the host too."""
    put = dev.program("put", SOURCE)
    x = hcq.zeros(1, hcq.i32, "CUDA")
    kernargs, one = put.fill_kernargs([x._buf], (1,)), (1, 1, 1)
    dev.synchronize()
    for _ in range(50):
        begin, end, done = (dev.signal_t() for _ in range(3))
        queue = dev.hw_compute_queue_t().timestamp(begin).exec(put, kernargs, one, one).timestamp(end)
        queue.signal(done, 1).exec(put, kernargs, one, one).signal(done, 2).submit(dev)
        while done.value == 0:
            pass
        assert 0 < begin.timestamp <= end.timestamp


def _set_and_wait(name, ready):
    """Another process: says that it sleeps, waits for 1, and answers with 2."""
    memory = hcq.Buffer(f"DISK:shm:{name}?mode=rw", 4096, hcq.u8, preallocate=True)
    signal = hcq.HCQSignal(memory=memory)
    ready.set()
    signal.wait(1, timeout=60000)
    signal.value = 2


def test_another_process_is_woken_by_a_signal_that_a_stream_sets(dev, nvrtc):
    put = dev.program("put", SOURCE)
    x = hcq.zeros(1, hcq.i32, "CUDA")
    kernargs, one = put.fill_kernargs([x._buf], (1,)), (1, 1, 1)
    name = f"hcq-signals-other-{os.getpid()}"
    memory = hcq.Buffer(f"DISK:shm:{name}?mode=create", 4096, hcq.u8, preallocate=True)
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Event()
    other = spawn.Process(target=_set_and_wait, args=(name, ready))
    other.start()
    try:
        signal = hcq.HCQSignal(memory=memory)
        assert ready.wait(60)
        dev.hw_compute_queue_t().exec(put, kernargs, one, one).signal(signal, 1).submit(dev)
        signal.wait(2, timeout=60000)
        other.join(60)
        assert other.exitcode == 0
    finally:
        other.kill()
        other.join()
        os.unlink(f"/dev/shm/{name}")


def test_mappings_of_callers_memory_do_not_pile_up(dev, nvrtc, written):
    put = dev.program("put", SOURCE)
    x = hcq.zeros(1, hcq.i32, "CUDA")
    kernargs, one = put.fill_kernargs([x._buf], (1,)), (1, 1, 1)
    name = f"hcq-signals-many-{os.getpid()}"
    memory = hcq.Buffer(f"DISK:shm:{name}?mode=create", 4096, hcq.u8, preallocate=True)
    try:
        for value in range(1, 601):
            signal = hcq.HCQSignal(memory=memory)
            dev.hw_compute_queue_t().exec(put, kernargs, one, one).signal(signal, value).submit(dev)
            signal.wait(value)
            dev.synchronize()
        assert _native.cuda_held()[5] <= 300
    finally:
        os.unlink(f"/dev/shm/{name}")


def test_signals_are_set_where_the_host_may_not_write_them_twice(dev, nvrtc):
    """In memory of this process alone, which can't be mapped again, the host sets them."""
    put = dev.program("put", SOURCE)
    x = hcq.zeros(1, hcq.i32, "CUDA")
    kernargs, one = put.fill_kernargs([x._buf], (1,)), (1, 1, 1)
    signal = hcq.HCQSignal(memory=np.zeros(16, np.uint64)[:8])
    for value in range(1, 20):
        dev.hw_compute_queue_t().exec(put, kernargs, one, one).signal(signal, value).submit(dev)
        signal.wait(value)
