"""The timeline of Python drivers: values in order, none lost, none early, and the wrap at 32 bits."""

import asyncio
import threading

import pytest
from third_party.manual import ManualDevice, ManualNative, ManualStrict32

import hcq
from hcq.errors import DeviceLost, SignalTimeout
from hcq.queues.device import HCQCompiled


@pytest.fixture(params=[ManualDevice, ManualStrict32, ManualNative])
def dev(request):
    device = request.param()
    yield device
    device.run()
    device.close()


def work(dev, kind="hw_compute_queue_t"):
    return dev.enqueue(lambda signal, value: getattr(dev, kind)().wait(signal, value - 1).signal(signal, value))


def test_the_next_value_is_counted_from_1_and_idle_is_value_minus_1(dev):
    assert dev.timeline_value == 1 and dev.timeline_signal.value >= dev.timeline_value - 1
    assert work(dev) == (dev.timeline_signal, 1)
    assert dev.timeline_value == 2 and dev.timeline_signal.value < dev.timeline_value - 1
    dev.run()
    assert dev.timeline_signal.value >= dev.timeline_value - 1


def test_reserving_a_value_is_atomic(dev):
    taken = []

    def reserve():
        for _ in range(500):
            taken.append(dev.next_timeline())

    threads = [threading.Thread(target=reserve) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(1, 2001))
    dev.timeline_signal.value = 2000


def test_work_of_many_threads_and_both_queues_sets_the_values_in_order(dev):
    def launch(kind):
        for _ in range(50):
            work(dev, kind)

    threads = [
        threading.Thread(target=launch, args=(kind,))
        for kind in ("hw_compute_queue_t", "hw_copy_queue_t")
        for _ in "12"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    dev.run()
    dev.synchronize()
    assert [value for signal, value in dev.signalled if signal is dev.timeline_signal] == list(range(1, 201))


def test_a_value_is_reserved_before_the_submit(dev):
    seen = []
    dev.after_submit = lambda: seen.append(dev.timeline_value)
    work(dev)
    assert seen == [2]


def test_a_submit_that_fails_gives_its_value_back(dev):
    work(dev)
    dev.refuse = OSError("the doorbell fell off")
    with pytest.raises(OSError, match="doorbell"):
        work(dev)
    dev.refuse = None
    assert dev.timeline_value == 2
    assert work(dev)[1] == 2
    dev.run()
    dev.synchronize()


def test_control_c_in_the_middle_of_a_submit_leaves_no_value_unsignalled(dev):
    # Once before the commands were handed over, once after.
    dev.refuse = KeyboardInterrupt()
    calls = []

    def interrupt():
        dev.refuse = None
        if not calls:
            calls.append(1)
            raise KeyboardInterrupt

    submit = dev.hw_compute_queue_t._submit

    def once(queue, device):
        device.refuse, refuse = None, device.refuse
        if refuse is not None:
            raise refuse
        return submit(queue, device)

    dev.hw_compute_queue_t = type("Queue", (dev.hw_compute_queue_t,), {"_submit": once})
    with pytest.raises(KeyboardInterrupt):
        work(dev)
    dev.after_submit = interrupt
    with pytest.raises(KeyboardInterrupt):
        work(dev)
    dev.run()
    dev.synchronize()
    assert dev.timeline_signal.value == dev.timeline_value - 1
    assert dev.position() is None
    work(dev)
    dev.run()
    dev.synchronize()


def test_a_finalizer_that_synchronizes_in_the_middle_of_a_submit_does_not_wait_for_it(dev, monkeypatch):
    monkeypatch.setenv("HCQ_TIMEOUT_MS", "2000")
    dev.after_submit = dev.synchronize  # the commands are there, but nobody runs them yet
    work(dev)
    dev.after_submit = lambda: None
    dev.run()
    dev.synchronize()


def test_clients_may_raise_the_value_themselves(dev):
    queue = dev.hw_compute_queue_t().wait(dev.timeline_signal, dev.timeline_value - 1)
    queue.signal(dev.timeline_signal, dev.timeline_value).submit(dev)
    dev.timeline_value += 1
    assert work(dev)[1] == 2
    dev.run()
    dev.synchronize()
    assert dev.timeline_signal.value == 2


def test_synchronize_waits_for_submits_that_do_not_touch_the_timeline(dev, monkeypatch):
    monkeypatch.setenv("HCQ_TIMEOUT_MS", "30")
    gate = dev.signal_t()
    dev.hw_copy_queue_t().wait(gate, 1).submit(dev)
    with pytest.raises(SignalTimeout):
        dev.synchronize()
    gate.value = 1
    dev.run()
    dev.synchronize()


def test_a_position_is_passed_when_all_queues_have_passed_it(dev):
    assert dev.position() is None and dev.passed(None)
    gates = [dev.signal_t(), dev.signal_t()]
    dev.hw_compute_queue_t().wait(gates[0], 1).submit(dev)
    dev.hw_copy_queue_t().wait(gates[1], 1).submit(dev)
    position = dev.position()
    later = dev.signal_t()
    gates[0].value = 1
    dev.run()
    assert not dev.passed(position)
    gates[1].value = 1
    dev.run()
    dev.hw_compute_queue_t().wait(later, 1).submit(dev)
    assert dev.passed(position) and not dev.passed(dev.position())
    later.value = 1
    dev.run()


def test_a_lost_device_has_passed_everything_and_has_no_position():
    dev = ManualDevice()
    dev.hw_compute_queue_t().wait(dev.signal_t(), 1).submit(dev)
    position = dev.position()
    dev.lose("it broke")
    assert dev.passed(position)
    with pytest.raises(DeviceLost):
        dev.position()
    dev.close()
    dev.close()
    assert dev not in HCQCompiled.devices


def test_past_31_bits_a_synchronize_moves_to_a_fresh_signal_and_old_pairs_stay_satisfied():
    dev = ManualStrict32()
    dev.timeline_value = 2**31
    dev.timeline_signal.value = 2**31 - 1
    old = [work(dev), work(dev, "hw_copy_queue_t"), work(dev)]
    assert [value for _, value in old] == [2**31, 2**31 + 1, 2**31 + 2]
    dev.run()
    dev.synchronize()
    assert dev.timeline_value == 1 and dev.timeline_signal is not old[0][0]
    assert dev.timeline_signal.value == 0
    for kind in ("hw_compute_queue_t", "hw_copy_queue_t"):
        queue = getattr(dev, kind)()
        for signal, value in old:
            signal.wait(value, timeout=0)
            queue.wait(signal, value)  # a queue built before the wrap may be submitted after it
        queue.submit(dev)
    assert work(dev)[1] == 1 and work(dev, "hw_copy_queue_t")[1] == 2
    dev.run()
    dev.synchronize()
    assert dev.timeline_value == 3
    dev.close()


def test_the_private_numbers_of_a_queue_wrap_too():
    dev = ManualStrict32()
    work(dev)
    dev.run()
    lane = dev.lanes[0]
    lane.submitted = 2**31 + 5
    lane.signal.value = 2**31 + 5
    gate = dev.signal_t()
    dev.hw_compute_queue_t().wait(gate, 1).submit(dev)
    before = dev.position()
    gate.value = 1
    dev.run()
    dev.synchronize()
    assert dev.lanes[0].submitted == 0 and dev.passed(before)
    work(dev)
    assert dev.position()[0][1] == 1
    dev.run()
    dev.synchronize()
    dev.close()


def test_no_value_past_32_bits_is_given_out_though_nobody_synchronizes():
    dev = ManualStrict32()
    dev.timeline_value = 2**32 - 2**16
    dev.timeline_signal.value = dev.timeline_value - 1
    assert work(dev)[1] == 1
    dev.run()
    dev.close()


def test_64_bit_queues_never_change_their_signal():
    dev = ManualDevice()
    dev.timeline_value = 2**40
    dev.timeline_signal.value = 2**40 - 1
    signal, value = work(dev)
    dev.run()
    dev.synchronize()
    assert (dev.timeline_signal, value, dev.timeline_value) == (signal, 2**40, 2**40 + 1)
    dev.close()


def test_idle_can_be_awaited_and_other_tasks_run_meanwhile(dev):
    gate = dev.signal_t()
    dev.hw_compute_queue_t().wait(gate, 1).submit(dev)
    order = []

    async def run_it():
        await asyncio.sleep(0.01)
        order.append("set")
        gate.value = 1
        dev.run()

    async def main():
        task = asyncio.create_task(run_it())
        await dev.idle()
        order.append("idle")
        await task
        await gate.reached(1)

    asyncio.run(main())
    assert order == ["set", "idle"]


def test_awaiting_what_a_lost_device_was_to_set_raises():
    dev = ManualDevice()
    signal, _ = dev.signal_t(), dev.hw_compute_queue_t()
    dev.hw_compute_queue_t().wait(dev.signal_t(), 1).signal(signal, 1).submit(dev)

    async def main():
        task = asyncio.create_task(signal.reached(1))
        await asyncio.sleep(0)
        dev.lose("it broke")
        await task

    with pytest.raises(DeviceLost, match="it broke"):
        asyncio.run(main())
    dev.close()


def test_streams_are_ordered_within_and_start_after_the_work_before(dev):
    before = work(dev)
    first, second = dev.stream(), dev.stream()
    out, gate = [dev.signal_t() for _ in range(3)], dev.signal_t()

    def put(stream, kind, mark, *waits):
        def build(signal, value):
            queue = getattr(dev, kind)().wait(signal, value - 1)
            for pair in waits:
                queue.wait(*pair)
            return queue.signal(mark, 1).signal(signal, value)

        return stream.enqueue(build)

    put(first, "hw_copy_queue_t", out[0], (gate, 1))
    put(first, "hw_compute_queue_t", out[1])
    # The compute queue stands at the first stream's copy; what needs the copy queue alone would wait behind it.
    dev.run()
    assert before[0].value == before[1]
    assert [signal.value for signal in out] == [0, 0, 0]
    second.wait(first)
    put(second, "hw_copy_queue_t", out[2])
    gate.value = 1
    dev.run()
    assert [signal.value for signal in out] == [1, 1, 1]
    first.synchronize()
    second.synchronize()
    dev.synchronize()


def test_work_of_one_stream_runs_while_another_waits(dev):
    gate, done = dev.signal_t(), dev.signal_t()
    slow, quick = dev.stream(), dev.stream()
    slow.enqueue(lambda signal, value: dev.hw_copy_queue_t().wait(gate, 1).signal(signal, value))
    quick.enqueue(lambda signal, value: dev.hw_compute_queue_t().signal(done, 1).signal(signal, value))
    dev.run()
    assert done.value == 1
    gate.value = 1
    dev.run()
    dev.synchronize()


@pytest.mark.parametrize("kind", ["hw_compute_queue_t", "hw_copy_queue_t"])
def test_awaiting_an_idle_native_device_does_not_block_the_loop_that_its_work_waits_for(kind):
    dev = hcq.Device["NULL"]

    async def main():
        gate, later = dev.signal_t(), dev.signal_t()
        getattr(dev, kind)().wait(gate, 1).submit(dev)  # sets nothing that anybody knows of

        async def set_it():
            await asyncio.sleep(0.01)
            gate.value = 1
            getattr(dev, kind)().wait(later, 1).submit(dev)  # queued after idle() was called: not waited for

        task = asyncio.create_task(set_it())
        await dev.idle()
        assert gate.value == 1
        await task
        later.value = 1
        await dev.idle()

    asyncio.run(main())


def test_memory_freed_beside_a_submit_that_fails_does_not_wait_for_ever(dev):
    taken = []
    dev.refuse = OSError("the doorbell fell off")
    submit = dev.hw_compute_queue_t._submit
    dev.hw_compute_queue_t = type(
        "Queue",
        (dev.hw_compute_queue_t,),
        {"_submit": lambda queue, device: (taken.append(elsewhere(device.position)), submit(queue, device))[1]},
    )
    with pytest.raises(OSError):
        dev.hw_compute_queue_t().memory_barrier().submit(dev)
    dev.refuse = None
    assert taken[0] and dev.passed(taken[0])


def elsewhere(function):
    """What `function` returns in another thread."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def test_a_submit_that_meets_a_device_just_lost_is_told_so(dev, monkeypatch):
    signal, check, looks = dev.signal_t(), dev.check_usable, []

    def lose_after_the_first_look():
        check()
        if not looks:
            looks.append(1)
            dev.lose("it broke")

    dev.check_usable = lose_after_the_first_look
    with pytest.raises(DeviceLost):
        dev.hw_compute_queue_t().signal(signal, 1).submit(dev)
    assert not dev.rings["COMPUTE"]


def test_idle_is_awaited_on_a_device_with_streams():
    dev = hcq.Device["CLANG"]
    spin = dev.program("spin", "void spin(int *a) { for (volatile int i = 0; i < 2000000; i++) {} a[0] += 1; }")
    a, b, stream = hcq.zeros(1, hcq.dtypes.int32, "CLANG"), hcq.zeros(1, hcq.dtypes.int32, "CLANG"), dev.stream()
    spin(a)
    spin(b, stream=stream)
    asyncio.run(dev.idle())
    assert a.numpy()[0] == b.numpy()[0] == 1
