"""Signals: values, waits that end, waiting with asyncio, and signals in memory that others share."""

import asyncio
import contextlib
import gc
import mmap
import os
import signal as posix
import threading
import time
from decimal import Decimal

import numpy as np
import pytest

import hcq
from hcq.errors import SignalTimeout
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import descriptors, filled, later, together


@promise("signal.initial", "signal.get_set")
@needs("queues")
def test_a_signal_has_a_value(dev):
    assert dev.signal_t().value == 0
    sig = dev.signal_t(7)
    assert isinstance(sig, hcq.HCQSignal) and sig.value == 7
    for value in (0, 1, 2**31, 5):
        sig.value = value
        assert sig.value == value


@promise("signal.bits", "queue.unsigned")
@needs("queues", "wide_signals")
def test_a_signal_holds_sixty_four_bits(dev):
    sig = dev.signal_t(2**64 - 1)
    assert sig.value == 2**64 - 1
    sig.value = 2**63
    sig.wait(2**63 - 1)
    with pytest.raises(SignalTimeout):
        sig.wait(2**63 + 1, timeout=5)
    for wrong in (-1, 2**64, 1.5, "1", None):
        with pytest.raises((ValueError, TypeError, OverflowError)):
            sig.value = wrong
    assert sig.value == 2**63


@promise("signal.wait_satisfied", "signal.wait_at_least")
@needs("queues")
def test_a_reached_value_is_not_waited_for(dev):
    sig = dev.signal_t(5)
    for value in (0, 1, 5):
        sig.wait(value)
        sig.wait(value, timeout=0)
    sig.value = 100
    sig.wait(6)


@promise("signal.timeout")
@needs("queues")
@pytest.mark.parametrize("timeout", [0, 1, 30])
def test_a_wait_times_out_and_says_so(dev, timeout):
    sig = dev.signal_t(724)
    began = time.monotonic()
    with pytest.raises(SignalTimeout) as late:
        sig.wait(4096, timeout=timeout)
    assert time.monotonic() - began >= timeout / 1000
    assert isinstance(late.value, TimeoutError) and "4096" in str(late.value) and "724" in str(late.value)


@promise("signal.timeout")
@needs("queues", "async")
def test_a_timeout_names_who_was_to_set_the_signal(fresh):
    sig, gate = fresh.signal_t(), fresh.signal_t()
    fresh.hw_compute_queue_t().wait(gate, 31337).signal(sig, 4096).submit(fresh)
    with pytest.raises(SignalTimeout) as late:
        sig.wait(4096, timeout=20)
    assert fresh.dname in str(late.value) and "31337" in str(late.value)
    gate.value = 31337
    sig.wait(4096)


@promise("signal.late_set", "signal.timeout")
@needs("queues", "async")
@pytest.mark.parametrize("kind", ["hw_compute_queue_t", "hw_copy_queue_t"])
def test_a_wait_that_timed_out_succeeds_later(fresh, kind):
    gate, done = fresh.signal_t(), fresh.signal_t()
    getattr(fresh, kind)().wait(gate, 1).signal(done, 3).submit(fresh)
    for _ in range(3):
        with pytest.raises(SignalTimeout):
            done.wait(3, timeout=10)
    gate.value = 1
    done.wait(3)
    fresh.synchronize()


@promise("signal.wakes", "signal.gil")
@needs("queues")
@pytest.mark.parametrize("rest", [0, 0.001, 0.1])
def test_a_sleeping_wait_wakes_when_the_host_sets_it(dev, rest):
    sig = dev.signal_t()
    setter = later(lambda: setattr(sig, "value", 1), rest)
    sig.wait(1)
    setter.join()


@promise("signal.wakes")
@needs("queues", "async")
@pytest.mark.parametrize("rest", [0, 0.001, 0.1])
def test_a_sleeping_wait_wakes_when_a_queue_sets_it(dev, rest):
    gate, done = dev.signal_t(), dev.signal_t()
    dev.hw_compute_queue_t().wait(gate, 1).signal(done, 1).submit(dev)
    setter = later(lambda: setattr(gate, "value", 1), rest)
    done.wait(1)
    setter.join()


@promise("signal.gil")
@needs("queues")
def test_other_threads_run_while_one_waits(dev):
    sig = dev.signal_t()
    steps = []

    def work():
        for n in range(50):
            steps.append(n)
            time.sleep(0.001)
        sig.value = 1

    thread = threading.Thread(target=work)
    thread.start()
    sig.wait(1)
    assert len(steps) == 50
    thread.join()


@promise("signal.threads", "signal.wakes")
@needs("queues")
def test_many_threads_wait_for_one_signal(dev):
    sig = dev.signal_t()
    setter = later(lambda: setattr(sig, "value", 10))
    together(*[lambda n=n: sig.wait(n) for n in range(1, 11)])
    setter.join()


@promise("signal.control_c")
@needs("queues")
def test_control_c_ends_a_wait(dev):
    sig = dev.signal_t()
    interrupter = later(lambda: os.kill(os.getpid(), posix.SIGINT), 0.1)
    before = posix.signal(posix.SIGINT, posix.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            sig.wait(1, timeout=20_000)
    finally:
        with contextlib.suppress(KeyboardInterrupt):  # where the wait ended before it came
            interrupter.join()
        posix.signal(posix.SIGINT, before)
    sig.value = 1
    sig.wait(1)


@promise("signal.eintr")
@needs("queues")
def test_a_posix_signal_does_not_end_a_wait(dev):
    sig, calls, stop = dev.signal_t(), [], threading.Event()
    main = threading.get_ident()

    def pester():
        for _ in range(20):
            posix.pthread_kill(main, posix.SIGUSR1)
            time.sleep(0.005)
        sig.value = 1
        stop.set()

    before = posix.signal(posix.SIGUSR1, lambda *_: calls.append(1))
    thread = threading.Thread(target=pester)
    thread.start()
    try:
        sig.wait(1)
    finally:
        thread.join()
        posix.signal(posix.SIGUSR1, before)
    assert stop.is_set() and calls


@promise("signal.eintr")
@needs("queues")
def test_an_exception_from_a_handler_ends_a_wait(dev):
    sig = dev.signal_t()

    class Stop(Exception):
        pass

    def handler(*_):
        raise Stop

    before = posix.signal(posix.SIGUSR1, handler)
    main = threading.get_ident()
    pester = later(lambda: posix.pthread_kill(main, posix.SIGUSR1), 0.1)
    try:
        with pytest.raises(Stop):
            sig.wait(1, timeout=20_000)
    finally:
        with contextlib.suppress(Stop):  # where the wait ended before it came
            pester.join()
        posix.signal(posix.SIGUSR1, before)


# -- asyncio ----------------------------------------------------------------------------------------------------------


@promise("signal.await")
@needs("queues", "async")
def test_awaiting_a_signal_and_a_device(dev):
    async def main():
        gate, done = dev.signal_t(), dev.signal_t()
        await gate.reached(0)
        value = dev.next_timeline()
        queue = dev.hw_compute_queue_t().wait(gate, 1).signal(done, 5).signal(dev.timeline_signal, value)
        queue.submit(dev)
        steps = []

        async def other():
            for n in range(5):
                steps.append(n)
                await asyncio.sleep(0.005)
            gate.value = 1

        task = asyncio.ensure_future(other())
        await done.reached(5)
        seen = done.value
        await dev.idle()
        idle = dev.timeline_signal.value >= value
        await task
        return steps, seen, idle

    assert asyncio.run(main()) == ([0, 1, 2, 3, 4], 5, True)


@promise("signal.await")
@needs("queues")
def test_awaiting_can_be_cancelled_and_timed(dev):
    async def main():
        sig = dev.signal_t()
        with pytest.raises((TimeoutError, asyncio.TimeoutError)):
            await asyncio.wait_for(sig.reached(1), 0.02)
        waiting = [asyncio.ensure_future(sig.reached(1)) for _ in range(10)]
        await asyncio.sleep(0.01)
        sig.value = 1
        await asyncio.gather(*waiting)

    asyncio.run(main())


@promise("signal.await_one_descriptor")
@needs("queues")
def test_a_thousand_tasks_use_one_descriptor(dev):
    async def main():
        signals = [dev.signal_t() for _ in range(1000)]
        first = asyncio.ensure_future(signals[0].reached(1))
        await asyncio.sleep(0.01)
        before, threads = descriptors(), threading.active_count()
        tasks = [asyncio.ensure_future(sig.reached(1)) for sig in signals]
        await asyncio.sleep(0.05)
        used = descriptors() - before, threading.active_count() - threads
        for sig in signals:
            sig.value = 1
        await asyncio.gather(first, *tasks)
        return used

    opened, started = asyncio.run(main())
    assert opened <= 1 and started <= 1


# -- memory -----------------------------------------------------------------------------------------------------------


@promise("signal.memory")
@needs("queues", "shared_signals")
def test_a_signal_lies_in_memory_of_the_caller(dev):
    memory = mmap.mmap(-1, 4096)
    sig = dev.signal_t(9, memory=memoryview(memory)[64:128])
    assert sig.value == 9
    assert int.from_bytes(memory[64:72], "little") == 9 and bytes(memory[:64]) == bytes(64)
    dev.hw_compute_queue_t().wait(sig, 9).signal(sig, 10).submit(dev)
    sig.wait(10)
    twin = dev.signal_t(10, memory=memoryview(memory)[64:128])
    sig.value = 12
    assert twin.value == 12
    twin.wait(12)


@promise("signal.memory", "errors.no_assert")
@needs("queues", "shared_signals")
def test_memory_that_will_not_do_is_refused(dev):
    for memory in (bytes(64), bytearray(63), bytearray(0), object(), 4096):
        with pytest.raises((ValueError, TypeError, BufferError)):
            dev.signal_t(0, memory=memory)


@promise("signal.memory")
@needs("queues", "shared_signals", "zero_copy")
def test_a_signal_lies_in_a_buffer(fresh):
    buf = filled(fresh, np.zeros(16, np.int32))
    sig = fresh.signal_t(3, memory=buf.as_buffer(force_zero_copy=True))
    del buf
    gc.collect()
    others = [filled(fresh, np.full(16, -1, np.int32)) for _ in range(8)]
    assert sig.value == 3 and others
    fresh.hw_copy_queue_t().signal(sig, 4).submit(fresh)
    sig.wait(4)
    del sig


@promise("signal.processes")
@needs("queues", "shared_signals", "async")
@pytest.mark.slow
def test_a_signal_works_between_processes(dev, driver, tmp_path):
    """Two queues of two processes take turns through one shared word, and each host waits for the other's."""
    path = tmp_path / "signals"
    path.write_bytes(bytes(4096))
    body = """
import mmap
file = open(PATH, "r+b"); memory = memoryview(mmap.mmap(file.fileno(), 4096))
mine, theirs = dev.signal_t(0, memory=memory[A:A + 64]), dev.signal_t(0, memory=memory[B:B + 64])
queue = dev.hw_compute_queue_t()
for n in range(1, 21): queue.wait(theirs, n).signal(mine, n)
queue.submit(dev)
"""
    with open(path, "r+b") as file:
        memory = memoryview(mmap.mmap(file.fileno(), 4096))
        mine, theirs = dev.signal_t(0, memory=memory[0:64]), dev.signal_t(0, memory=memory[64:128])
        child = f"{driver.setup}\nimport hcq\ndev = hcq.Device[{driver.device!r}]\nPATH, A, B = {str(path)!r}, 64, 0\n"
        # Placing a signal sets its value: the child says when that is done.
        child += body + "theirs.wait(20, timeout=30000); mine.wait(20, timeout=30000)\n"
        child = child.replace("queue.submit(dev)", "queue.submit(dev)\nprint('there', flush=True)")
        import subprocess
        import sys

        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        process = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE, text=True, env=env)
        try:
            assert process.stdout.readline().strip() == "there"
            queue = dev.hw_compute_queue_t()
            for n in range(1, 21):
                queue.signal(mine, n).wait(theirs, n)
            done = dev.signal_t()
            queue.signal(done, 1).submit(dev)
            done.wait(1, timeout=30_000)
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
        assert (mine.value, theirs.value) == (20, 20)
        del mine, theirs, queue


# -- the pool ---------------------------------------------------------------------------------------------------------


@promise("signal.pool")
@needs("queues")
def test_the_pool_grows_and_signals_are_their_own(dev):
    signals = [dev.signal_t(n) for n in range(5000)]
    assert [sig.value for sig in signals] == list(range(5000))
    for sig in signals[::2]:
        sig.value = 1
    assert [sig.value for sig in signals[1::2]] == list(range(1, 5000, 2))
    del signals
    gc.collect()
    again = [dev.signal_t() for _ in range(5000)]
    assert not any(sig.value for sig in again)


@promise("signal.pool_safe", "queue.uses_live")
@needs("queues", "async")
def test_a_signal_that_work_refers_to_is_not_handed_out(fresh):
    gate, done = fresh.signal_t(), fresh.signal_t()
    queue = fresh.hw_copy_queue_t().wait(gate, 1)
    for _ in range(200):
        queue.signal(fresh.signal_t(), 66)
    queue.signal(done, 1).submit(fresh)
    del queue
    gc.collect()
    new = [fresh.signal_t() for _ in range(1000)]
    gate.value = 1
    done.wait(1)
    assert not any(sig.value for sig in new)


@promise("signal.timestamp")
@needs("queues")
def test_time_stamps_are_on_the_clock_of_perf_counter(dev):
    stamp, done = dev.signal_t(), dev.signal_t()
    before = time.perf_counter_ns()
    dev.hw_compute_queue_t().timestamp(stamp).signal(done, 1).submit(dev)
    done.wait(1)
    after = time.perf_counter_ns()
    assert isinstance(stamp.timestamp, Decimal)
    at = dev.host_time(stamp.timestamp, False) if hasattr(dev, "host_time") else stamp.timestamp
    assert before <= at * 1000 <= after


@promise("signal.pool")
@needs("queues")
def test_signals_made_and_dropped_by_threads_stay_apart(dev):
    def work(seed):
        for n in range(300):
            sig = dev.signal_t(seed + n)
            if n % 10 == 0:
                time.sleep(0)
            assert sig.value == seed + n
            sig.value += 1
            sig.wait(seed + n + 1)

    together(*[lambda seed=1000 * t: work(seed) for t in range(4)])
