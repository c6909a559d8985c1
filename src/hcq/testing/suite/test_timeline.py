"""The timeline: what each device counts its work by, who may move it, and what waiting for it means."""

import threading

import pytest

from hcq.errors import SignalTimeout
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import address, filled, printed, read, together


@promise("timeline.attributes")
@needs("queues")
def test_a_device_has_its_timeline(dev):
    assert isinstance(dev.timeline_signal, dev.signal_t)
    assert isinstance(dev.timeline_value, int) and dev.timeline_value >= 1
    assert callable(dev.hw_compute_queue_t) and callable(dev.hw_copy_queue_t)
    with dev.timeline_lock:
        assert dev.timeline_value >= 1
    assert dev in list(type(dev).devices) or dev in list(dev.devices)


@promise("timeline.begins")
@needs("queues")
def test_the_timeline_begins_at_one(fresh):
    assert fresh.timeline_value == 1 and fresh.timeline_signal.value == 0
    fresh.synchronize()
    assert fresh.timeline_value == 1


@promise("timeline.launch_moves", "timeline.idle")
@needs("queues", "compiles")
def test_a_launch_moves_the_timeline_by_one(fresh, fresh_kernels):
    for n in range(1, 20):
        before = fresh.timeline_value
        fresh_kernels.nothing()
        assert fresh.timeline_value == before + 1
        if n % 5 == 0:
            fresh.synchronize()
            assert fresh.timeline_signal.value == fresh.timeline_value - 1
    fresh.timeline_signal.wait(fresh.timeline_value - 1)


@promise("timeline.next")
@needs("queues")
def test_reserving_is_atomic(fresh):
    start = fresh.timeline_value
    got = together(*[lambda: [fresh.next_timeline() for _ in range(500)] for _ in range(4)])
    assert sorted(value for values in got for value in values) == list(range(start, start + 2000))
    assert fresh.timeline_value == start + 2000
    fresh.hw_compute_queue_t().signal(fresh.timeline_signal, start + 1999).submit(fresh)
    fresh.synchronize()


@promise("timeline.client")
@needs("queues", "compiles")
def test_clients_move_the_timeline_themselves(fresh, fresh_kernels):
    for _ in range(5):
        queue = fresh.hw_compute_queue_t().wait(fresh.timeline_signal, fresh.timeline_value - 1)
        queue.signal(fresh.timeline_signal, fresh.timeline_value).submit(fresh)
        fresh.timeline_value += 1
        fresh_kernels.nothing()
        copier = fresh.hw_copy_queue_t().wait(fresh.timeline_signal, fresh.timeline_value - 1)
        copier.signal(fresh.timeline_signal, fresh.timeline_value).submit(fresh)
        fresh.timeline_value += 1
    fresh.synchronize()
    assert fresh.timeline_signal.value == 15 == fresh.timeline_value - 1


@promise("timeline.client", "launch.ordered")
@needs("queues", "computes", "async", "host_memory")
def test_a_launch_comes_after_what_a_client_put_on_the_timeline(fresh, fresh_kernels):
    source, out, gate = filled(fresh, [41]), filled(fresh, [0]), fresh.signal_t()
    value = fresh.next_timeline()
    queue = fresh.hw_copy_queue_t().wait(gate, 1).copy(address(out), address(source), 4)
    queue.signal(fresh.timeline_signal, value).submit(fresh)
    fresh_kernels.increment(out._buf)
    gate.value = 1
    assert read(out).tolist() == [42]


@promise("timeline.order", "threads.launch")
@needs("queues", "computes")
def test_ten_threads_launch_on_one_device(fresh, fresh_kernels):
    total, log = filled(fresh, [0]), filled(fresh, [0] * 2002)
    assert fresh_kernels.increment and fresh_kernels.append
    seen = []

    def work(number):
        for n in range(100):
            fresh_kernels.increment(total._buf)
            fresh_kernels.append(log._buf, vals=(number * 1000 + n,))
            if n % 25 == 0:
                seen.append(fresh.timeline_signal.value)
                fresh.synchronize()

    start = fresh.timeline_value
    together(*[lambda n=n: work(n) for n in range(10)])
    fresh.synchronize()
    assert fresh.timeline_value == start + 2000 and fresh.timeline_signal.value == start + 1999
    assert read(total).tolist() == [1000]
    entries = read(log)[1:1001].tolist()
    for number in range(10):  # each thread's own launches stayed in order
        assert [entry for entry in entries if entry // 1000 == number] == [number * 1000 + n for n in range(100)]


@promise("timeline.order", "threads.launch")
@needs("queues", "compiles")
def test_values_reach_the_queue_in_order_from_many_threads(fresh, fresh_kernels):
    program = fresh_kernels.nothing
    stop, seen = threading.Event(), [0]

    def watch():
        while not stop.is_set():
            if (value := fresh.timeline_signal.value) != seen[-1]:
                seen.append(value)

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = fresh.timeline_value
    try:
        together(*[lambda: [program() for _ in range(200)] for _ in range(10)])
        fresh.synchronize()
    finally:
        stop.set()
        watcher.join()
    assert fresh.timeline_value == start + 2000 and fresh.timeline_signal.value == start + 1999
    assert seen == sorted(seen)


@promise("timeline.wait_timeout")
@needs("queues", "async")
@pytest.mark.slow
def test_a_queue_that_stands_is_no_failure(driver):
    code = f"""
{driver.setup}
import hcq, os
dev = hcq.Device[{driver.device!r}]
gate, value = dev.signal_t(), dev.next_timeline()
dev.hw_compute_queue_t().wait(gate, 31337).signal(dev.timeline_signal, value).submit(dev)
for _ in range(2):
    try: dev.synchronize()
    except hcq.errors.SignalTimeout as late: print("31337" in str(late), isinstance(late, TimeoutError))
os.environ["HCQ_TIMEOUT_MS"] = "30000"
gate.value = 31337
dev.synchronize()
done = dev.signal_t()
dev.hw_compute_queue_t().signal(done, 1).submit(dev)
done.wait(1)
print("good")"""
    assert printed(code, env={"HCQ_TIMEOUT_MS": "300"}).split() == ["True"] * 4 + ["good"]


@promise("timeline.kernel_timeout", "fault.reopen")
@needs("queues", "computes", "async")
@pytest.mark.slow
def test_a_command_that_runs_too_long_loses_the_device(driver, kernels):
    source = kernels.source("spin")
    code = f"""
{driver.setup}
import hcq
dev = hcq.Device[{driver.device!r}]
out = hcq.Buffer(dev.dname, 1, hcq.dtypes.int32).allocate()
dev.program("spin", {source!r})(out._buf, vals=(1_500_000_000,))
try: dev.synchronize()
except hcq.errors.DeviceLost as lost: print("lost", "spin" in str(lost))
print("end")"""
    assert printed(code, env={"HCQ_KERNEL_TIMEOUT_MS": "50"}).split() == ["lost", "True", "end"]


@promise("timeline.wrap", "timeline.wrap_both")
@needs("queues", "host_memory")
@pytest.mark.parametrize("near", [2**31, 2**32])
def test_the_timeline_passes_what_thirty_two_bits_hold(fresh, driver, near):
    wide = "wide_signals" not in driver.lacks
    if not wide and near == 2**32:
        pytest.skip("the device moves to a fresh signal long before")
    one, two = filled(fresh, [1]), filled(fresh, [0])
    fresh.synchronize()
    fresh.timeline_signal.value = near - 7
    fresh.timeline_value = near - 6
    old, pairs = fresh.timeline_signal, []
    for n in range(20):
        signal, value = fresh.timeline_signal, fresh.next_timeline()
        queue = fresh.hw_copy_queue_t() if n % 2 else fresh.hw_compute_queue_t()
        queue.wait(signal, value - 1)
        if n % 2:
            queue.copy(address(two), address(one), 4)
        queue.signal(signal, value).submit(fresh)
        pairs.append((signal, value))
        if n == 12:
            fresh.synchronize()
    last = fresh.timeline_value
    one.copyin(b"\x05\0\0\0")
    assert read(two).tolist() == [1]
    fresh.synchronize()
    for signal, value in pairs:
        signal.wait(value, timeout=1000)
    if wide:
        assert fresh.timeline_signal is old or fresh.timeline_signal.value == old.value
        assert last == near + 14
    else:
        assert fresh.timeline_signal is not old and fresh.timeline_value < 100
        assert old.value >= 2**31
    assert fresh.timeline_signal.value >= fresh.timeline_value - 1


@promise("timeline.late_finalizer")
@needs("queues", "compiles")
def test_a_finalizer_that_synchronizes_sees_the_launch(fresh, fresh_kernels):
    values = []

    class Last:
        def __del__(self):
            fresh.synchronize()
            values.append((fresh.timeline_value, fresh.timeline_signal.value))

    program = fresh_kernels.nothing
    for _ in range(20):
        last = Last()
        program()
        del last
    assert [value - 1 for value, _ in values] == [reached for _, reached in values] and len(values) == 20


@promise("timeline.idle", "signal.timeout")
@needs("queues")
def test_a_value_never_promised_is_waited_for_in_vain(fresh):
    with pytest.raises(SignalTimeout):
        fresh.timeline_signal.wait(fresh.timeline_value + 5, timeout=20)
    fresh.synchronize()
