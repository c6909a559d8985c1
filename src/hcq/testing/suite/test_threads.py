"""Many threads, and loops that must leave nothing behind."""

import gc

import numpy as np
import pytest

import hcq
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import (
    BYTE,
    I32,
    descriptors,
    empty,
    filled,
    native_threads,
    noise,
    read,
    resident,
    together,
)


@promise("threads.launch", "launch.threads")
@needs("queues", "computes")
def test_ten_threads_with_queues_of_their_own(dev, kernels):
    outs = [filled(dev, [0]) for _ in range(10)]
    program = kernels.increment

    def work(number):
        done = dev.signal_t()
        queue = dev.hw_compute_queue_t().exec(program, program.fill_kernargs([outs[number]._buf]), (1, 1, 1), (1, 1, 1))
        for _ in range(100):
            queue.submit(dev)
        dev.hw_compute_queue_t().signal(done, 1).submit(dev)
        done.wait(1)

    together(*[lambda n=n: work(n) for n in range(10)])
    assert [read(out).tolist() for out in outs] == [[100]] * 10


@promise("threads.buffers", "allocator.threads")
@needs("queues")
def test_threads_copy_through_their_own_memory(dev):
    def work(seed):
        data = noise(5000, seed)
        for n in range(50):
            one, two = filled(dev, data), empty(dev, 5000, BYTE)
            done = dev.signal_t()
            dev.hw_copy_queue_t().copy(two._buf.va_addr, one._buf.va_addr, 5000).signal(done, n + 1).submit(dev)
            done.wait(n + 1)
            assert (read(two) == data).all()

    together(*[lambda seed=seed: work(seed) for seed in range(6)])


@promise("threads.open_close_flat")
@pytest.mark.slow
def test_opening_and_closing_leaves_nothing_behind(driver):
    def cycle():
        dev = hcq.Device[driver.device]
        buf = filled(dev, noise(10_000))
        if "queues" not in driver.lacks:
            done = dev.signal_t()
            dev.hw_copy_queue_t().signal(done, 1).bind(dev).submit(dev)
            done.wait(1)
        del buf
        hcq.Device.close(driver.device)

    def measure():
        gc.collect()
        return resident(), descriptors(), native_threads()

    for _ in range(50):
        cycle()
    for _ in range(3):  # what is kept for the next opening is touched once, not each time
        before = measure()
        for _ in range(200):
            cycle()
        after = measure()
        assert after[1] <= before[1]
        assert after[2] < before[2] + 50  # pools make threads at need; one for each opening would be 200
        if after[0] - before[0] < 4 << 20:
            break
    assert after[0] - before[0] < 4 << 20


@promise("threads.launches_flat")
@needs("queues", "compiles", "native")
@pytest.mark.slow
def test_launching_leaves_nothing_behind(fresh, fresh_kernels):
    program = fresh_kernels.nothing

    def launches(count):
        for n in range(count):
            program()
            if n % 100 == 0:
                fresh.synchronize()
                fresh.hw_compute_queue_t().signal(fresh.signal_t(), 1).submit(fresh)
                hcq.Buffer(fresh.dname, 1000, I32).allocate()
        fresh.synchronize()
        gc.collect()

    launches(30_000)
    before = resident()
    launches(200_000)
    assert resident() - before < 8 << 20


@promise("threads.launches_flat", "signal.pool")
@needs("queues")
@pytest.mark.slow
def test_queues_and_signals_in_a_loop_leave_nothing_behind(dev, driver):
    def loop(count):
        for _ in range(count):
            sig = dev.signal_t()
            dev.hw_compute_queue_t().signal(sig, 1).bind(dev).submit(dev)
            sig.wait(1)
        gc.collect()

    count = 2000 if "native" in driver.lacks else 20_000
    loop(count // 4)
    before = resident()
    loop(count)
    assert resident() - before < 4 << 20


@promise("threads.buffers")
def test_a_buffer_is_read_by_many_threads(dev):
    data = noise(100_000)
    buf = filled(dev, data)
    assert all(together(*[lambda: all((read(buf) == data).all() for _ in range(10))] * 6))
    assert np.array_equal(read(buf), data)
