"""Command queues of drivers in Python: what the plain bases promise, on a device that runs when the test says."""

import gc
import os
import threading
import time
import weakref

import numpy as np
import pytest
from third_party.manual import ManualComputeQueue, ManualDevice, ManualNative, NarrowComputeQueue

import hcq
import hcq.testing
from hcq.errors import DeviceLost, LaunchError, SignalTimeout
from hcq.queues import launch
from hcq.queues.command_queue import HWComputeQueue, hcq_command
from hcq.queues.signal import PythonSignal


class Program:
    """As much of a program as a queue looks at."""

    def __init__(self, device, name="work"):
        self.device = device
        self.name = name


@pytest.fixture(params=[ManualDevice, ManualNative])
def dev(request):
    device = request.param()
    yield device
    device.run()
    device.close()


@pytest.fixture
def short_timeout(monkeypatch):
    monkeypatch.setenv("HCQ_TIMEOUT_MS", "50")


def test_every_command_method_returns_the_queue_and_adds_one_command(dev):
    signal, queue = dev.signal_t(), dev.hw_compute_queue_t()
    prg = Program(dev)
    for index, add in enumerate(
        [
            lambda: queue.wait(signal, 1),
            lambda: queue.memory_barrier(),
            lambda: queue.timestamp(signal),
            lambda: queue.exec(prg, 64, (2, 1, 1), (4, 1, 1)),
            lambda: queue.exec(prg, 64, None, None),
            lambda: queue.exec(prg, 64, (0, 1, 1), (1, 1, 1)),
            lambda: queue.signal(signal, 2),
        ],
        start=1,
    ):
        assert add() is queue
        assert len(queue) == index
    copies = dev.hw_copy_queue_t()
    assert copies.copy(128, 64, 3) is copies and copies.copy(128, 64, 0) is copies
    assert len(copies) == 2


def test_hcq_command_records_where_the_words_begin_how_many_and_which_method():
    class Queue(ManualComputeQueue):
        @hcq_command
        def prefetch(self, address):
            self.q += ["prefetch", address]

        @hcq_command
        def nothing(self):
            pass

        @hcq_command
        def both(self, signal):
            self.prefetch(1)
            self.signal(signal, 1)

    queue, signal = Queue(), PythonSignal()
    assert queue.prefetch(7).nothing().both(signal) is queue
    assert queue.cmds_meta == ["prefetch", "nothing", "both"]
    assert queue.cmds_offset == [0, 2, 2]
    assert queue.cmds_len == [2, 0, 3]
    assert queue.q == ["prefetch", 7, "prefetch", 1, ("signal", signal, 1)]


def test_a_command_that_raises_leaves_the_queue_as_it_was(dev):
    class Queue(ManualComputeQueue):
        @hcq_command
        def half(self):
            self.q.append("half")
            raise KeyError("no")

    queue = Queue().memory_barrier()
    with pytest.raises(KeyError):
        queue.half()
    with pytest.raises(LaunchError):
        queue.exec(Program(dev), 0, (-1, 1, 1), (1, 1, 1))
    with pytest.raises(ValueError, match="2\\^64"):
        queue.signal(dev.signal_t(), 2**64)
    with pytest.raises(ValueError):
        queue.wait(dev.signal_t(), -1)
    with pytest.raises(TypeError):
        queue.wait("signal", 1)
    with pytest.raises(LaunchError):
        dev.hw_copy_queue_t().copy(0, 0, -1)
    with pytest.raises(LaunchError):
        dev.hw_copy_queue_t().copy("there", 0, 1)
    assert len(queue) == 1 and queue.q == [("barrier",)]


def test_a_subclass_needs_no_call_of_the_base_init(dev):
    class Queue(ManualComputeQueue):
        def __init__(self, extra):
            self.extra = extra

    assert len(Queue(1).memory_barrier()) == 1


def test_commands_run_in_order_and_a_queue_is_submitted_as_often_as_wanted(dev):
    prg, signal = Program(dev), dev.signal_t()
    queue = dev.hw_compute_queue_t().exec(prg, 64, (1, 1, 1), (1, 1, 1)).memory_barrier().signal(signal, 3)
    queue.submit(dev).submit(dev)
    assert signal.value == 0
    dev.run()
    assert dev.ran == [("exec", prg, 64, (1, 1, 1), (1, 1, 1)), ("barrier",)] * 2
    assert signal.value == 3


def test_a_wait_passes_when_the_signal_is_at_least_the_value(dev):
    signal, done = dev.signal_t(), dev.signal_t()
    dev.hw_compute_queue_t().wait(signal, 5).signal(done, 1).submit(dev)
    for value in (0, 4):
        signal.value = value
        dev.run()
        assert done.value == 0
    signal.value = 9
    dev.run()
    assert done.value == 1


def test_an_empty_submit_does_nothing(dev):
    dev.hw_compute_queue_t().submit(dev)
    assert dev.submits == 0


def test_updates_patch_later_submits_and_none_keeps(dev):
    prg, first, second = Program(dev), dev.signal_t(), dev.signal_t()
    queue = dev.hw_compute_queue_t().wait(first, 1).exec(prg, 64, (1, 1, 1), (2, 1, 1)).signal(first, 2)
    queue.update_wait(0, value=0).update_exec(1, (5, 1, 1)).update_signal(2, second)
    queue.submit(dev)
    dev.run()
    assert dev.ran == [("exec", prg, 64, (5, 1, 1), (2, 1, 1))]
    assert (first.value, second.value) == (0, 2)
    queue.update_exec(1, local_size=(3, 1, 1)).update_signal(2, value=7).submit(dev)
    dev.run()
    assert dev.ran[1:] == [("exec", prg, 64, (5, 1, 1), (3, 1, 1))]
    assert second.value == 7
    copies = dev.hw_copy_queue_t().copy(1, 2, 3).copy(4, 5, 0)
    copies.update_copy(0, dest=10).update_copy(0, src=20).update_copy(1, dest=6).submit(dev)
    dev.run()
    assert dev.ran[2:] == [("copy", 10, 20, 3)]


def test_a_launch_of_no_groups_can_be_given_some_later(dev):
    prg = Program(dev)
    queue = dev.hw_compute_queue_t().exec(prg, 64, (0, 1, 1), (1, 1, 1)).update_exec(0, (2, 1, 1)).submit(dev)
    dev.run()
    assert dev.ran == [("exec", prg, 64, (2, 1, 1), (1, 1, 1))]
    assert len(queue) == 1


@pytest.mark.parametrize("bound", [False, True])
def test_an_update_does_not_disturb_an_earlier_submit_that_still_runs(dev, bound):
    gate, out = dev.signal_t(), dev.signal_t()
    queue = dev.hw_compute_queue_t().wait(gate, 1).signal(out, 1)
    if bound:
        queue.bind(dev)
    queue.submit(dev)
    queue.update_wait(0, value=2).update_signal(1, value=5).submit(dev)
    gate.value = 1
    dev.run()
    assert out.value == 1
    gate.value = 2
    dev.run()
    assert out.value == 5


def test_updating_the_wrong_kind_is_a_runtime_error_and_a_missing_index_an_index_error(dev):
    signal = dev.signal_t()
    queue = dev.hw_compute_queue_t().signal(signal, 1).memory_barrier()
    for update in (queue.update_wait, queue.update_exec):
        with pytest.raises(RuntimeError, match="command 0 is signal"):
            update(0)
    with pytest.raises(RuntimeError, match="memory_barrier"):
        queue.update_signal(1, value=2)
    for index in (2, -1, 99):
        with pytest.raises(IndexError, match="2, counted from 0"):
            queue.update_signal(index, value=2)
    with pytest.raises(ValueError):
        queue.update_signal(0, value=-2)
    queue.submit(dev)
    dev.run()
    assert signal.value == 1


def test_a_bound_queue_goes_to_its_device_only_and_takes_no_more_commands(dev):
    other = ManualDevice("MANUAL:1")
    queue = dev.hw_compute_queue_t().memory_barrier()
    assert queue.bind(dev) is queue
    with pytest.raises(RuntimeError, match="bound to MANUAL"):
        queue.memory_barrier()
    with pytest.raises(RuntimeError, match="MANUAL:1"):
        queue.submit(other)
    queue.submit(dev)
    dev.run()
    assert dev.ran == [("barrier",)]
    other.close()


def test_a_queue_of_another_driver_is_refused(dev):
    class Foreign(HWComputeQueue):
        def _memory_barrier(self):
            self.q.append(0)

    with pytest.raises(TypeError, match="its own kinds"):
        Foreign().memory_barrier().submit(dev)


def test_what_a_submit_uses_lives_until_the_device_has_passed_it(dev):
    gate = dev.signal_t()
    prg, kept = Program(dev), Program(dev)
    gone = [weakref.ref(thing) for thing in (prg, kept)]
    queue = dev.hw_compute_queue_t().wait(gate, 1).exec(prg, 64, None, None).keep(kept).submit(dev)
    del queue, prg, kept
    gc.collect()
    assert all(ref() is not None for ref in gone)
    gate.value = 1
    dev.run()
    dev.ran.clear()
    dev.synchronize()
    gc.collect()
    assert all(ref() is None for ref in gone)


@pytest.mark.unchecked("the checks keep the signals that they have seen")
def test_an_updated_queue_keeps_what_the_earlier_submit_uses(dev):
    gate, old = dev.signal_t(), dev.signal_t()
    gone = weakref.ref(old)
    queue = dev.hw_compute_queue_t().wait(gate, 1).signal(old, 1).submit(dev)
    queue.update_signal(1, dev.signal_t())
    del old
    dev.rings["COMPUTE"][1] = ("signal", gone(), 1)  # as hardware: an address, no reference of the driver's
    entry = dev.rings["COMPUTE"].popleft()
    dev.rings["COMPUTE"].popleft()
    gc.collect()
    assert gone() is not None
    dev.rings["COMPUTE"].appendleft(entry)
    gate.value = 1
    dev.run()
    queue.update_signal(1, value=2)
    gc.collect()
    assert gone() is None


def test_a_full_queue_makes_the_submitter_wait_and_then_time_out_with_nothing_submitted(dev, short_timeout):
    gate = dev.signal_t()
    dev.room = 4
    dev.hw_compute_queue_t().wait(gate, 1).memory_barrier().submit(dev)
    before = list(dev.rings["COMPUTE"]), dev.submits, dev.timeline_value
    queue = dev.hw_compute_queue_t().memory_barrier().signal(gate, 2)
    with pytest.raises(SignalTimeout, match="stands at wait"):
        queue.submit(dev)
    with pytest.raises(SignalTimeout, match="full"):
        dev.enqueue(lambda signal, value: dev.hw_compute_queue_t().memory_barrier().signal(signal, value))
    assert (list(dev.rings["COMPUTE"]), dev.submits, dev.timeline_value) == before
    gate.value = 1
    dev.run()
    queue.submit(dev)
    dev.run()
    assert gate.value == 2


def test_the_thread_that_sets_a_late_signal_gets_there_while_a_submitter_waits_for_room(dev):
    gate, out = dev.signal_t(), dev.signal_t()
    dev.room = 4
    dev.hw_compute_queue_t().wait(gate, 1).memory_barrier().submit(dev)
    blocked = threading.Thread(target=dev.hw_compute_queue_t().memory_barrier().signal(out, 1).submit, args=(dev,))
    blocked.start()
    # Through the same device's other queue: its submits must not stand behind the one that waits.
    dev.enqueue(lambda signal, value: dev.hw_copy_queue_t().signal(gate, 1).signal(signal, value))
    while blocked.is_alive():
        dev.run()
    blocked.join()
    dev.run()
    assert out.value == 1


def test_a_timed_out_wait_names_the_signal_the_values_and_who_was_to_set_it(dev):
    gate, signal = dev.signal_t(), dev.signal_t()
    signal.value = 3
    with pytest.raises(SignalTimeout, match="no queue"):
        signal.wait(4, timeout=1)
    dev.hw_compute_queue_t().wait(gate, 1).signal(signal, 4).submit(dev)
    with pytest.raises(SignalTimeout) as caught:
        signal.wait(4, timeout=1)
    said = str(caught.value)
    assert repr(signal).split()[1].rstrip(",") in said and "value 4" in said and "3" in said
    assert "COMPUTE queue of MANUAL sets it to 4" in said and f"wait({gate!r}, 1)" in said
    gate.value = 1


def test_after_the_deadline_the_value_is_read_once_more():
    class Late(PythonSignal):
        def is_reached(self, value):
            # The value comes between the last look and the deadline: only one more look sees it.
            self.looks = getattr(self, "looks", 0) + 1
            reached = super().is_reached(value)
            if self.looks == 21:  # the first look after the spins; with no time left, the last
                self._set_value(value)
            return reached

    Late().wait(1, timeout=0)


def test_a_lost_device_tells_every_waiter_the_first_cause_and_its_command(dev):
    other = ManualDevice("MANUAL:1")
    signal, theirs = dev.signal_t(), dev.signal_t()
    dev.hw_compute_queue_t().wait(dev.signal_t(), 1).signal(signal, 1).submit(dev)
    other.hw_compute_queue_t().wait(signal, 1).signal(theirs, 1).signal(other.timeline_signal, 1).submit(other)
    other.timeline_value += 1
    caught = []

    def wait():
        try:
            signal.wait(1, timeout=60_000)
        except DeviceLost as error:
            caught.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    cause = ZeroDivisionError("the first")
    dev.lose(cause, "exec work")
    dev.lose(ValueError("a later one"))
    waiter.join()
    other.run()
    with pytest.raises(DeviceLost):
        theirs.wait(1, timeout=60_000)
    with pytest.raises(DeviceLost):
        dev.timeline_signal.wait(1, timeout=60_000)
    for touch in (
        dev.synchronize,
        lambda: dev.hw_compute_queue_t().memory_barrier().submit(dev),
        lambda: dev.enqueue(lambda signal, value: dev.hw_compute_queue_t().signal(signal, value)),
    ):
        with pytest.raises(DeviceLost) as error:
            touch()
        caught.append(error.value)
    assert all((error.device, error.cause, error.command) == ("MANUAL", cause, "exec work") for error in caught)
    assert len({id(error) for error in caught}) == len(caught) == 4
    # The other device reports what it dropped, and goes on.
    with pytest.raises(DeviceLost):
        other.synchronize()
    other.synchronize()
    done = other.signal_t()
    other.enqueue(
        lambda timeline, value: (
            other.hw_compute_queue_t().wait(timeline, value - 1).signal(done, 1).signal(timeline, value)
        )
    )
    other.run()
    other.synchronize()
    assert done.value == 1
    other.close()
    dev.rings["COMPUTE"].clear()
    dev.close()


def test_work_that_only_waits_is_no_failure_and_synchronize_names_the_wait(dev, short_timeout):
    gate = dev.signal_t()
    dev.hw_compute_queue_t().wait(gate, 7).memory_barrier().submit(dev)
    with pytest.raises(SignalTimeout) as caught:
        dev.synchronize()
    assert f"COMPUTE queue of MANUAL stands at wait({gate!r}, 7)" in str(caught.value)
    gate.value = 7
    dev.run()
    dev.synchronize()


def test_a_command_that_runs_too_long_loses_the_device(dev, short_timeout, monkeypatch):
    monkeypatch.setenv("HCQ_KERNEL_TIMEOUT_MS", "100")
    dev.hw_compute_queue_t().exec(Program(dev, "endless"), 64, None, None).submit(dev)
    with pytest.raises(DeviceLost, match="endless"):
        dev.synchronize()
    dev.rings["COMPUTE"].clear()


def test_a_loss_reaches_native_queues_that_wait_for_the_driver():
    dev, null = ManualNative(), hcq.Device["NULL"]
    signal, theirs = dev.signal_t(), null.signal_t()
    dev.hw_compute_queue_t().wait(dev.signal_t(), 1).signal(signal, 1).submit(dev)
    null.hw_compute_queue_t().wait(signal, 1).signal(theirs, 1).submit(null)
    cause = ZeroDivisionError("the first")
    dev.lose(cause, "exec work")
    for wait in (lambda: theirs.wait(1), null.synchronize):
        with pytest.raises(DeviceLost) as caught:
            wait()
        assert (caught.value.device, caught.value.cause, caught.value.command) == ("MANUAL", cause, "exec work")
    null.synchronize()
    dev.close()
    hcq.Device.close("NULL")


def test_a_failure_of_one_submit_reaches_the_driver_that_waits_for_it_and_it_goes_on():
    dev, null = ManualNative(), hcq.Device["NULL"]
    signal, done = null.signal_t(), dev.signal_t()
    dev.enqueue(lambda timeline, value: dev.hw_compute_queue_t().wait(signal, 1).signal(timeline, value))
    gate = null.signal_t()
    null.hw_compute_queue_t().wait(gate, 1).signal(signal, 1).submit(null)
    with hcq.testing.inject(null, "submit", error=OSError("no more")), pytest.raises((OSError, DeviceLost)):
        null.hw_copy_queue_t().signal(gate, 1).submit(null)
    deadline = time.monotonic() + 30
    while dev.rings["COMPUTE"] and time.monotonic() < deadline:  # until the null device's thread has told of it
        dev.run()
    with pytest.raises(DeviceLost, match="no more"):
        dev.synchronize()
    dev.enqueue(lambda timeline, v: dev.hw_compute_queue_t().wait(timeline, v - 1).signal(done, 1).signal(timeline, v))
    dev.run()
    dev.synchronize()
    assert done.value == 1
    dev.close()
    hcq.Device.close("NULL")


def test_values_beyond_what_the_queues_compare_are_refused():
    queue, signal = NarrowComputeQueue(), PythonSignal()
    for add in (queue.signal, queue.wait):
        with pytest.raises(ValueError, match="2\\^32"):
            add(signal, 2**32)
    queue.signal(signal, 2**32 - 1)
    with pytest.raises(ValueError):
        queue.update_signal(0, value=2**32)


def test_what_a_child_inherits_raises_at_any_touch(dev):
    signal, queue, stream = dev.signal_t(), dev.hw_compute_queue_t(), dev.stream()
    queue.signal(signal, 1)
    locks = [dev.timeline_lock, stream._lock]
    for lock in locks:
        lock.acquire()  # as another thread might at the time of the fork
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        threading.Thread(target=refusals, args=(dev, signal, queue, stream, send), daemon=True).start()
        threading.Event().wait(20)
        os._exit(1)
    os.close(send)
    for lock in locks:
        lock.release()
    with os.fdopen(receive, "rb") as pipe:
        said = pipe.read().decode().split()
    os.waitpid(pid, 0)
    assert said == ["ForkedDeviceError"] * 11


def refusals(dev, signal, queue, stream, send):
    own = ManualDevice("OWN")
    for touch in (
        lambda: dev.synchronize(),
        lambda: dev.timeline_value,
        lambda: signal.value,
        lambda: signal.wait(1),
        lambda: setattr(signal, "value", 1),
        lambda: queue.signal(signal, 2),
        lambda: queue.submit(own),
        lambda: queue.update_signal(0, value=3),
        lambda: stream.synchronize(),
        lambda: stream.wait((signal, 1)),
        lambda: stream.enqueue(lambda signal, value: None),
    ):
        try:
            touch()
            said = "nothing"
        except BaseException as error:
            said = type(error).__name__
        os.write(send, f"{said} ".encode())
    os._exit(0)


@pytest.mark.parametrize(
    ("kind", "value", "packed"),
    [
        ("i8", -128, "80"),
        ("i16", 300, "2c01"),
        ("u16", 65535, "ffff"),
        ("u32", -1, "ffffffff"),
        ("i32", 2**32 - 1, "ffffffff"),
        ("u64", 2**64 - 1, "ff" * 8),
        ("f16", 1.0, "003c"),
        ("f32", 1.1, "cdcc8c3f"),
        ("f64", 3, "0000000000000840"),
        ("f32", float("inf"), "0000807f"),
        ("boolean", True, "01"),
        ("u16", np.uint16(7), "0700"),
        ("f32", np.float32(0.5), "0000003f"),
        ("boolean", np.bool_(True), "01"),
        ("bf16", float("-inf"), "80ff"),
        ("bf16", 1 + 2**-8 + 2**-40, "813f"),  # a float32 of it would lie half way
        ("bf16", -(2**-134) * (1 + 2**-40), "0180"),
        ("f8e4m3fn", 1 + 2**-4 + 2**-40, "39"),
        ("f8e4m3fn", -(2**-1000), "80"),
        ("f8e5m2", 1 + 2**-3 - 2**-40, "3c"),
        ("f8e5m2", 1 + 2**-3 + 2**-40, "3d"),
        ("f8e4m3fn", 448, "7e"),
        ("f8e5m2", -1.5, "be"),
        ("bytes3", b"abc", "616263"),
        ("bytes8", np.array((1, 2), "u4,u4"), "0100000002000000"),
        ("bytes4", np.array([(1, 2)], "u2,u2")[0], "01000200"),
        ("bytes2", np.float16(1), "003c"),
    ],
)
def test_values_take_the_type_that_the_library_records(kind, value, packed):
    assert launch.pack_values((value,), (kind,)).hex() == packed


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("i8", 128),
        ("u8", -1),
        ("i32", 2**32),
        ("u32", -(2**31) - 1),
        ("i64", 2**63),
        ("i32", 1.0),
        ("f32", 1e39),
        ("f32", 2**24 + 1),
        ("f16", 70_000),
        ("i32", np.int64(1)),
        ("i32", np.float32(1)),
        ("f32", "1"),
        ("f64", None),
        ("bf16", "1"),
        ("bf16", 1e39),
        ("bf16", 257),
        ("f8e4m3fn", 465.0),
        ("f8e4m3fn", float("inf")),
        ("f8e5m2", 9),
        ("bytes3", b"ab"),
        ("bytes4", 5),
        ("bytes4", None),
        ("bytes4", "four"),
    ],
)
def test_values_that_do_not_fit_the_recorded_type_are_refused(kind, value):
    with pytest.raises(LaunchError, match="value 0"):
        launch.pack_values((value,), (kind,))


def test_values_without_a_recorded_type_are_32_bits_or_numpy_scalars_at_natural_alignment():
    scalars = (np.int8(1), 2, np.float64(3), np.bool_(True), np.int16(-1), -1)
    assert launch.pack_values(scalars).hex() == "010000000200000000000000000008400100ffffffffffff"
    for value in (1.5, 2**32, -(2**31) - 1, "1", None, np.complex64(1), np.str_("x"), np.datetime64(0, "s")):
        with pytest.raises(LaunchError, match="value 1"):
            launch.pack_values((0, value))


def test_a_structure_lies_at_a_multiple_of_eight():
    assert launch.pack_values((1, b"abc", 2), ("i32", "bytes3", "u8")).hex() == "010000000000000061626302"


def test_values_of_ml_dtypes_are_packed_at_their_size():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    assert launch.pack_values((ml_dtypes.bfloat16(1), ml_dtypes.float8_e4m3fn(1))).hex() == "803f38"
