"""Command queues: what each command does, in which order, and what a submit may count on."""

import gc
import itertools

import numpy as np
import pytest

import hcq
from hcq.errors import LaunchError
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import address, empty, eventually, filled, later, noise, printed, read

KINDS = ("hw_compute_queue_t", "hw_copy_queue_t")
REFUSED = (ValueError, TypeError, RuntimeError, OverflowError, AttributeError)


def one_time(dev, queue, kind="hw_compute_queue_t"):
    """Submits a queue and waits until it has finished."""
    done = dev.signal_t()
    queue.signal(done, 1).submit(dev)
    done.wait(1)


# -- commands ---------------------------------------------------------------------------------------------------------


@promise("queue.kinds")
@needs("queues")
def test_a_device_has_both_kinds_of_queue(dev):
    assert isinstance(dev.hw_compute_queue_t(), hcq.HWComputeQueue)
    assert isinstance(dev.hw_copy_queue_t(), hcq.HWCopyQueue)
    for kind in KINDS:
        assert isinstance(getattr(dev, kind)(), hcq.HWCommandQueue)


@promise("queue.returns_self", "queue.memory_barrier", "queue.submit_returns")
@needs("queues", "compiles")
def test_every_method_returns_the_queue_and_adds_one(dev, kernels):
    sig, buf = dev.signal_t(), filled(dev, [0, 0])
    program = kernels.nothing
    queue = dev.hw_compute_queue_t()
    assert len(queue) == 0
    for count, add in enumerate(
        (
            lambda: queue.signal(sig, 1),
            lambda: queue.wait(sig, 1),
            lambda: queue.timestamp(sig),
            lambda: queue.memory_barrier(),
            lambda: queue.exec(program, program.fill_kernargs([]), (1, 1, 1), (1, 1, 1)),
        ),
        1,
    ):
        assert add() is queue and len(queue) == count
    assert queue.submit(dev) is queue and len(queue) == 5
    sig.wait(1)  # before the other queue, which runs beside it, sets more
    copier = dev.hw_copy_queue_t()
    assert copier.copy(address(buf) + 4, address(buf), 4) is copier and len(copier) == 1
    for count, add in enumerate(
        (lambda: copier.signal(sig, 2), lambda: copier.wait(sig, 2), lambda: copier.timestamp(sig)), 2
    ):
        assert add() is copier and len(copier) == count
    assert copier.submit(dev) is copier
    sig.wait(2)


@promise("queue.copy", "queue.copy_odd", "queue.signal_after")
@needs("queues", "host_memory")
@pytest.mark.parametrize("size", [1, 7, 64, 4095, 1_000_001])
@pytest.mark.parametrize(("dest_at", "source_at"), [(0, 0), (3, 0), (1, 5)])
def test_copy_is_exact(dev, size, dest_at, source_at):
    data = noise(size + 16)
    source, dest = filled(dev, data), filled(dev, np.zeros(size + 16, np.uint8))
    one_time(dev, dev.hw_copy_queue_t().copy(address(dest) + dest_at, address(source) + source_at, size))
    expected = np.zeros(size + 16, np.uint8)
    expected[dest_at : dest_at + size] = data[source_at : source_at + size]
    assert (read(dest) == expected).all()


@promise("queue.copy")
@needs("queues")
def test_copy_works_on_the_devices_own_addresses(dev):
    data = noise(5000)
    source, dest = filled(dev, data), filled(dev, np.zeros(5000, np.uint8))
    one_time(dev, dev.hw_copy_queue_t().copy(address(dest), address(source), 5000))
    assert (read(dest) == data).all()


@promise("queue.exec", "program.fill_kernargs")
@needs("queues", "computes")
def test_exec_runs_the_program(dev, kernels):
    a, b, out = filled(dev, range(50)), filled(dev, [3] * 50), empty(dev, 50)
    kernargs = kernels.add.fill_kernargs([out._buf, a._buf, b._buf], (50,))
    one_time(dev, dev.hw_compute_queue_t().exec(kernels.add, kernargs, (1, 1, 1), (1, 1, 1)))
    assert read(out).tolist() == list(range(3, 53))


@promise("queue.exec_none_zero")
@needs("queues", "computes")
def test_exec_takes_none_and_no_groups(dev, kernels):
    out = filled(dev, [0])
    kernargs = kernels.increment.fill_kernargs([out._buf])
    queue = dev.hw_compute_queue_t()
    queue.exec(kernels.increment, kernargs, None, None).exec(kernels.increment, kernargs, (0, 1, 1), (1, 1, 1))
    one_time(dev, queue)
    assert read(out).tolist() == [1]


@promise("queue.wrong_arguments", "launch.sizes_refused", "errors.no_assert")
@needs("queues", "compiles")
@pytest.mark.parametrize("sizes", [(-1, 1, 1), (1.5, 1, 1), (2**64, 1, 1), (1,) * 4, "111"])
def test_exec_refuses_wrong_sizes_and_adds_nothing(dev, kernels, sizes):
    queue = dev.hw_compute_queue_t()
    with pytest.raises(LaunchError):
        queue.exec(kernels.nothing, kernels.nothing.fill_kernargs([]), sizes, (1, 1, 1))
    with pytest.raises(LaunchError):
        queue.exec(kernels.nothing, kernels.nothing.fill_kernargs([]), (1, 1, 1), sizes)
    assert len(queue) == 0


@promise("queue.wrong_arguments", "errors.no_assert")
@needs("queues")
def test_wrong_arguments_add_no_command(dev):
    sig, buf = dev.signal_t(), filled(dev, [1])
    queue, copier = dev.hw_compute_queue_t(), dev.hw_copy_queue_t()
    for call in (
        lambda: queue.signal(None, 1),
        lambda: queue.signal(sig, -1),
        lambda: queue.signal(sig, 1.5),
        lambda: queue.signal(sig, 2**64),
        lambda: queue.wait(object(), 1),
        lambda: queue.wait(sig, "1"),
        lambda: queue.timestamp(None),
        lambda: queue.exec(object(), 0, (1, 1, 1), (1, 1, 1)),
        lambda: copier.copy(address(buf), address(buf), -1),
        lambda: copier.copy(-1, address(buf), 4),
        lambda: copier.copy("x", address(buf), 4),
    ):
        with pytest.raises(REFUSED):
            call()
    assert len(queue) == len(copier) == 0
    with pytest.raises(REFUSED):
        queue.submit(None)
    with pytest.raises(REFUSED):
        queue.bind(object())


@promise("queue.timestamp", "signal.timestamp")
@needs("queues")
@pytest.mark.parametrize("kind", KINDS)
def test_time_stamps_follow_each_other(dev, kind):
    marks = [dev.signal_t() for _ in range(5)]
    queue = getattr(dev, kind)()
    for mark in marks:
        queue.timestamp(mark)
    one_time(dev, queue)
    times = [mark.timestamp for mark in marks]
    assert times == sorted(times) and times[0] > 0
    assert [mark.value for mark in marks] == [0] * 5


@promise("queue.timestamp", "queue.in_order")
@needs("queues", "async")
@pytest.mark.parametrize("kind", KINDS)
def test_a_time_stamp_after_a_wait_is_taken_after_it(dev, kind):
    before, after, gate, opened = (dev.signal_t() for _ in range(4))
    queue = getattr(dev, kind)().timestamp(before).wait(gate, 1).timestamp(after).signal(opened, 1)
    queue.submit(dev)
    middle = dev.signal_t()
    other = dev.hw_compute_queue_t() if kind == KINDS[1] else dev.hw_copy_queue_t()
    other.timestamp(middle).signal(gate, 1).submit(dev)
    opened.wait(1)
    assert after.timestamp >= middle.timestamp > 0 and after.timestamp >= before.timestamp > 0


@promise("queue.memory_barrier")
@needs("queues", "computes", "host_memory")
def test_a_barrier_shows_what_the_host_wrote(dev, kernels):
    import ctypes

    a, out = filled(dev, [1]), filled(dev, [0])
    kernargs = kernels.add.fill_kernargs([out._buf, a._buf, a._buf], (1,))
    queue = dev.hw_compute_queue_t().memory_barrier().exec(kernels.add, kernargs, (1, 1, 1), (1, 1, 1))
    for value in (1, 20, 300):
        ctypes.c_int32.from_address(address(a)).value = value
        one_time(dev, dev.hw_compute_queue_t().memory_barrier().exec(kernels.add, kernargs, (1, 1, 1), (1, 1, 1)))
        assert read(out).tolist() == [2 * value]
    assert len(queue) == 2


# -- order ------------------------------------------------------------------------------------------------------------


@promise("queue.signal_after", "queue.in_order")
@needs("queues")
@pytest.mark.parametrize("kind", KINDS)
def test_signals_are_set_in_order(dev, kind):
    first, second = dev.signal_t(), dev.signal_t()
    queue = getattr(dev, kind)().signal(first, 5).signal(first, 3).signal(second, 1)
    queue.submit(dev)
    second.wait(1)
    assert first.value == 3


@promise("queue.signal_after", "queue.wait_at_least")
@needs("queues", "async")
@pytest.mark.parametrize("kind", KINDS)
def test_what_follows_a_wait_waits(dev, kind):
    gate, passed, started = dev.signal_t(), dev.signal_t(), dev.signal_t()
    getattr(dev, kind)().signal(started, 1).wait(gate, 10).signal(passed, 1).submit(dev)
    started.wait(1)
    for value in (1, 9):
        gate.value = value
        with pytest.raises(TimeoutError):
            passed.wait(1, timeout=30)
    gate.value = 11
    passed.wait(1)


@promise("queue.unsigned")
@needs("queues", "async", "wide_signals")
def test_queues_compare_unsigned(dev):
    gate, passed, held = dev.signal_t(2**63 + 5), dev.signal_t(), dev.signal_t()
    dev.hw_compute_queue_t().wait(gate, 2**63 - 1).wait(gate, 2**63 + 5).signal(passed, 2**64 - 1).submit(dev)
    passed.wait(2**64 - 1)
    low = dev.signal_t(1)
    dev.hw_compute_queue_t().wait(low, 2**63).signal(held, 1).submit(dev)
    with pytest.raises(TimeoutError):
        held.wait(1, timeout=30)
    low.value = 2**63
    held.wait(1)


@promise("queue.in_order")
@needs("queues", "host_memory")
def test_commands_see_what_earlier_ones_wrote(dev):
    data = noise(1000)
    bufs = [filled(dev, data)] + [filled(dev, np.zeros(1000, np.uint8)) for _ in range(30)]
    queue = dev.hw_copy_queue_t()
    for source, dest in itertools.pairwise(bufs):
        queue.copy(address(dest), address(source), 1000)
    one_time(dev, queue)
    assert (read(bufs[-1]) == data).all()


@promise("queue.in_order", "queue.exec")
@needs("queues", "computes")
def test_programs_of_a_queue_run_in_order(dev, kernels):
    log = filled(dev, [0] * 51)
    queue = dev.hw_compute_queue_t()
    for n in range(50):
        queue.exec(kernels.append, kernels.append.fill_kernargs([log._buf], (n,)), (1, 1, 1), (1, 1, 1))
    one_time(dev, queue)
    assert read(log).tolist() == [50, *range(50)]


@promise("queue.in_order")
@needs("queues")
def test_submits_run_in_the_order_they_came(dev):
    sig, done = dev.signal_t(), dev.signal_t()
    queues = [dev.hw_compute_queue_t().wait(sig, n).signal(sig, n + 1) for n in range(20)]
    for queue in queues:
        queue.submit(dev)
    dev.hw_compute_queue_t().signal(done, 1).submit(dev)
    done.wait(1)
    assert sig.value == 20


@promise("queue.side_by_side")
@needs("queues", "async")
@pytest.mark.parametrize("held", KINDS)
def test_the_other_queue_goes_on(dev, held):
    gate, stood, went = dev.signal_t(), dev.signal_t(), dev.signal_t()
    free = KINDS[1 - KINDS.index(held)]
    getattr(dev, held)().wait(gate, 1).signal(stood, 1).submit(dev)
    getattr(dev, free)().signal(went, 1).submit(dev)
    went.wait(1)
    with pytest.raises(TimeoutError):
        stood.wait(1, timeout=20)
    getattr(dev, free)().signal(gate, 1).submit(dev)
    stood.wait(1)


@promise("queue.side_by_side")
@needs("queues", "async")
def test_two_queues_take_turns(dev):
    one, two = dev.signal_t(), dev.signal_t()
    ping, pong = dev.hw_compute_queue_t(), dev.hw_copy_queue_t()
    for n in range(1, 201):
        ping.wait(two, n - 1).signal(one, n)
        pong.wait(one, n).signal(two, n)
    pong.submit(dev)
    ping.submit(dev)
    two.wait(200)
    assert (one.value, two.value) == (200, 200)


@promise("queue.between_devices")
@needs("queues", "peers")
def test_queues_of_two_devices_order_each_other(dev, peer):
    one, two = dev.signal_t(), peer.signal_t()
    here, there = dev.hw_compute_queue_t(), peer.hw_copy_queue_t()
    for n in range(1, 101):
        here.wait(two, n - 1).signal(one, n)
        there.wait(one, n).signal(two, n)
    there.submit(peer)
    here.submit(dev)
    two.wait(100)
    assert (one.value, two.value) == (100, 100)


@promise("queue.host_signal", "signal.late_set")
@needs("queues", "async")
@pytest.mark.parametrize("kind", KINDS)
def test_the_host_sets_a_signal_late(dev, kind):
    gate, done = dev.signal_t(), dev.signal_t()
    getattr(dev, kind)().wait(gate, 7).signal(done, 1).submit(dev)
    setter = later(lambda: setattr(gate, "value", 7))
    done.wait(1)
    setter.join()
    assert gate.value == 7


# -- submits ----------------------------------------------------------------------------------------------------------


@promise("queue.resubmit")
@needs("queues", "host_memory")
def test_a_queue_is_submitted_as_often_as_wanted(dev):
    one, two, done = filled(dev, [1]), filled(dev, [2]), dev.signal_t()
    swap = filled(dev, [0])
    queue = dev.hw_copy_queue_t()
    for dest, source in ((swap, one), (one, two), (two, swap)):
        queue.copy(address(dest), address(source), 4)
    for times in range(1, 6):
        queue.submit(dev)
        dev.hw_copy_queue_t().signal(done, times).submit(dev)
        done.wait(times)
        assert (read(one).tolist(), read(two).tolist()) == (([2], [1]) if times % 2 else ([1], [2]))
    assert len(queue) == 3
    queue.signal(done, 100).submit(dev)  # and it may grow
    done.wait(100)
    assert read(one).tolist() == [1]


@promise("queue.resubmit")
@needs("queues", "computes")
def test_a_queue_resubmitted_without_waiting_runs_each_time(dev, kernels):
    out, done = filled(dev, [0]), dev.signal_t()
    queue = dev.hw_compute_queue_t().exec(
        kernels.increment, kernels.increment.fill_kernargs([out._buf]), (1, 1, 1), (1, 1, 1)
    )
    for _ in range(100):
        queue.submit(dev)
    dev.hw_compute_queue_t().signal(done, 1).submit(dev)
    done.wait(1)
    assert read(out).tolist() == [100]


@promise("queue.empty_submit")
@needs("queues")
@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_submit_does_nothing(dev, kind):
    before = dev.timeline_value
    queue = getattr(dev, kind)()
    assert queue.submit(dev) is queue
    assert dev.timeline_value == before and len(queue) == 0
    dev.synchronize()


@promise("queue.dropped", "queue.uses_live")
@needs("queues", "async", "host_memory")
@pytest.mark.parametrize("bound", [False, True])
def test_a_submitted_queue_may_be_dropped(fresh, bound):
    """So may its signals and what they were made with; nothing of it signals the timeline."""
    import ctypes

    source, out, gate, done = filled(fresh, [42]), filled(fresh, [0]), fresh.signal_t(), fresh.signal_t()
    lone = fresh.signal_t()
    queue = fresh.hw_copy_queue_t().wait(gate, 1).copy(address(out), address(source), 4).signal(lone, 1).signal(done, 1)
    if bound:
        queue.bind(fresh)
    queue.submit(fresh)
    del queue, lone, source
    gc.collect()
    kept = [fresh.signal_t() for _ in range(2000)]
    bufs = [empty(fresh, 1) for _ in range(50)]
    for buf in bufs:
        ctypes.c_int32.from_address(address(buf)).value = -1
    gate.value = 1
    done.wait(1)
    assert read(out).tolist() == [42]
    assert not any(sig.value for sig in kept)


@promise("queue.overrun")
@needs("queues", "async")
@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_submits_behind_a_wait_lose_nothing(dev, kind):
    gate, count = dev.signal_t(), dev.signal_t()
    getattr(dev, kind)().wait(gate, 1).submit(dev)
    for n in range(5000):
        getattr(dev, kind)().wait(count, n).signal(count, n + 1).submit(dev)
    assert count.value == 0
    gate.value = 1
    count.wait(5000)
    assert count.value == 5000


@promise("queue.overrun")
@needs("queues", "computes", "native")
@pytest.mark.slow
def test_a_hundred_thousand_launches_behind_a_wait_all_run(fresh, fresh_kernels):
    out = filled(fresh, [0])
    gate, value = fresh.signal_t(), fresh.next_timeline()
    fresh.hw_compute_queue_t().wait(gate, 1).signal(fresh.timeline_signal, value).submit(fresh)
    program, buf = fresh_kernels.increment, out._buf
    for _ in range(100_000):
        program(buf)
    gate.value = 1
    assert read(out).tolist() == [100_000]


@promise("queue.limit", "launch.refused_queues_nothing")
@needs("queues", "async", "native")
@pytest.mark.slow
def test_past_the_limit_the_submitter_waits_and_gives_up(driver):
    code = f"""
{driver.setup}
import hcq, os, threading, time
dev = hcq.Device[{driver.device!r}]
gate, count = dev.signal_t(), dev.signal_t()
dev.hw_compute_queue_t().wait(gate, 1).submit(dev)
n = 0
try:
    while n < 200_000:
        dev.hw_compute_queue_t().wait(count, n).signal(count, n + 1).submit(dev)
        n += 1
except hcq.errors.SignalTimeout:
    print("gave up", 1000 < n < 199_999)
before = dev.timeline_value
try: [dev.hw_compute_queue_t().signal(dev.signal_t(), 1).submit(dev) for _ in range(10_000)]
except hcq.errors.SignalTimeout: print("again", dev.timeline_value == before, count.value)
os.environ["HCQ_TIMEOUT_MS"] = "30000"
# the thread that sets the late signal must be able to get there
threading.Thread(target=lambda: (time.sleep(0.2), setattr(gate, "value", 1))).start()
dev.hw_compute_queue_t().wait(count, n).signal(count, n + 1).submit(dev)
count.wait(n + 1)
dev.synchronize()
print("all ran", count.value == n + 1)"""
    said = printed(code, env={"HCQ_QUEUE_LIMIT": str(1 << 20), "HCQ_TIMEOUT_MS": "1000"})
    assert said.splitlines() == ["gave up True", "again True 0", "all ran True"]


@promise("queue.limit", "timeline.order")
@needs("queues", "async", "native", "compiles")
@pytest.mark.slow
def test_a_launch_that_gives_up_loses_no_timeline_value(driver, kernels):
    source = kernels.source("nothing")
    code = f"""
{driver.setup}
import hcq, os
dev = hcq.Device[{driver.device!r}]
program = dev.program("nothing", {source!r})
gate, value = dev.signal_t(), dev.next_timeline()
dev.hw_compute_queue_t().wait(gate, 1).signal(dev.timeline_signal, value).submit(dev)
n = 0
try:
    while n < 200_000: program(); n += 1
except hcq.errors.SignalTimeout: pass
print(n < 200_000, dev.timeline_value == value + n + 1)
os.environ["HCQ_TIMEOUT_MS"] = "30000"
gate.value = 1
dev.synchronize()
print(dev.timeline_signal.value == value + n)
program(wait=True)"""
    said = printed(code, env={"HCQ_QUEUE_LIMIT": str(1 << 20), "HCQ_TIMEOUT_MS": "500"})
    assert said.splitlines() == ["True True", "True"]


@pytest.mark.core
@promise("queue.hcq_command")
def test_hcq_command_records_the_words_of_a_command(driver):
    """A driver's queue of words: each decorated method is one command, known by where it begins and how long it is."""

    class Words(hcq.HWCommandQueue):
        @hcq.hcq_command
        def pair(self, a, b):
            self.q += [a, b]

        @hcq.hcq_command
        def single(self, a):
            self.q += [a]

        @hcq.hcq_command
        def none(self):
            pass

    queue = Words()
    assert queue.pair(1, 2) is queue and queue.single(3) is queue and queue.none().pair(4, 5) is queue
    assert len(queue) == 4 and list(queue.q) == [1, 2, 3, 4, 5]
    assert list(queue.cmds_offset) == [0, 2, 3, 3] and list(queue.cmds_len) == [2, 1, 0, 2]
    assert [getattr(method, "__name__", method) for method in queue.cmds_meta] == ["pair", "single", "none", "pair"]


@promise("queue.dropped")
@needs("queues", "async")
def test_dropped_signals_come_back_only_after_the_work(fresh):
    gate = fresh.signal_t()
    fresh.hw_compute_queue_t().wait(gate, 1).submit(fresh)
    for _ in range(100):
        fresh.hw_compute_queue_t().signal(fresh.signal_t(), 77).submit(fresh)
    gc.collect()
    new = [fresh.signal_t() for _ in range(500)]
    gate.value = 1
    done = fresh.signal_t()
    fresh.hw_compute_queue_t().signal(done, 1).submit(fresh)
    done.wait(1)
    assert eventually(lambda: done.value == 1) and not any(sig.value for sig in new)
