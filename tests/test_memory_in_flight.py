"""Memory that the queues of the CPU device still use: not handed out, not freed, given back in the end."""

import gc
import threading
import weakref

import numpy as np
import pytest

import hcq
from hcq import Buffer, BufferOptions, Device, HCQSignal, dtypes, memory_stats
from hcq._native import host_pool_stats

KIB = 1 << 10


@pytest.fixture
def dev():
    dev = Device["CPU"]
    dev.synchronize()
    dev.allocator.free_cache()
    yield dev
    dev.synchronize()


class Held:
    """A copy from `src` to `dest` that a queue of the device has taken, and that waits for `release`."""

    def __init__(self, dev, dest, src):
        self.signal, self.done = HCQSignal(), HCQSignal()
        queue = dev.hw_copy_queue_t().wait(self.signal, 1)
        queue.copy(dest._buf.va_addr, src._buf.va_addr, src.nbytes).signal(self.done, 1).submit(dev)

    def release(self):
        self.signal.value = 1
        self.done.wait(1)


def test_memory_freed_while_a_queue_uses_it_is_not_handed_out(dev):
    source = hcq.array(np.full(4096, 7, np.uint8), "CPU")
    target = hcq.empty(4096, dtypes.uint8, "CPU")
    held, address = Held(dev, target, source), source._buf.va_addr
    del source
    others = [hcq.empty(4096, dtypes.uint8, "CPU") for _ in range(4)]
    assert address not in [other._buf.va_addr for other in others]
    assert memory_stats("CPU").live_count >= 5
    held.release()
    assert (target.numpy() == 7).all()
    again = [hcq.empty(4096, dtypes.uint8, "CPU") for _ in range(4)]
    assert address in [other._buf.va_addr for other in again]


@pytest.mark.unchecked("red zones are part of what the pool gives")
@pytest.mark.parametrize("options", [BufferOptions(nolru=True), BufferOptions(host=True)])
def test_memory_in_use_is_not_given_back_to_the_system(dev, options):
    size = 48 << 20
    source = Buffer("CPU", size, dtypes.uint8, options=options, preallocate=True).fill(9)
    target = hcq.empty(size, dtypes.uint8, "CPU")
    used = host_pool_stats()["used"]
    held = Held(dev, target, source)
    del source
    dev.allocator.free_cache()
    assert host_pool_stats()["used"] == used
    held.release()
    assert target.numpy().min() == 9
    dev.allocator.free_cache()
    assert host_pool_stats()["used"] == used - size


def test_a_callers_memory_is_kept_while_a_queue_uses_it(dev):
    memory = np.full(4096, 5, np.uint8)
    alive = weakref.ref(memory)
    source = hcq.array(memory, "CPU", copy=False)
    target = hcq.empty(4096, dtypes.uint8, "CPU")
    held = Held(dev, target, source)
    del memory, source
    gc.collect()
    assert alive() is not None
    held.release()
    assert (target.numpy() == 5).all()
    hcq.empty(64, dtypes.uint8, "CPU")
    assert alive() is None


def test_a_queue_that_stands_does_not_stop_allocations(dev):
    source, target = hcq.zeros(64, dtypes.uint8, "CPU"), hcq.empty(64, dtypes.uint8, "CPU")
    held = Held(dev, target, source)
    try:
        for _ in range(40):
            hcq.empty(16 << 20, dtypes.uint8, "CPU")  # 640 MiB, all of it waiting
        assert dev.allocator.pending_bytes < 700 << 20
    finally:
        held.release()
    hcq.empty(64, dtypes.uint8, "CPU")
    assert dev.allocator.pending_bytes == 0
    dev.allocator.free_cache()


def test_views_of_memory_in_flight_give_it_back_too(dev):
    source = hcq.array(np.arange(KIB, dtype=np.uint8), "CPU")
    target = hcq.empty(KIB, dtypes.uint8, "CPU")
    window = np.asarray(target)
    held = Held(dev, target, source)
    target.deallocate()
    del target, source
    held.release()
    assert (window == np.arange(KIB, dtype=np.uint8)).all()
    live = dev.allocator.live_bytes
    del window
    assert dev.allocator.live_bytes == live - KIB


def test_threads_that_free_and_allocate_while_queues_run_keep_their_contents(dev):
    problems = []

    def work(number):
        for turn in range(60):
            data = np.full(8 * KIB, (number * 60 + turn) % 251, np.uint8)
            source = hcq.array(data, "CPU")
            target = hcq.empty(8 * KIB, dtypes.uint8, "CPU")
            hcq.copy(target, source)
            del source  # at once: the copy may still be queued
            if (target.numpy() != data).any():
                problems.append((number, turn))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
