"""Patching queues between submits, before and after bind, and what bind changes: nothing but the speed."""

import gc

import pytest

from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import address, filled, read

KINDS = ("hw_compute_queue_t", "hw_copy_queue_t")
ONE = (1, 1, 1)


@pytest.fixture(params=["plain", "bound", "bound later"])
def bind(request):
    """Binds a queue: never, when it is built, or after its first patches."""

    def binder(queue, dev, moment):
        if request.param == moment:
            assert queue.bind(dev) is queue
        return queue

    return binder


# -- updates ----------------------------------------------------------------------------------------------------------


@promise("update.signal", "update.returns_self", "update.bound")
@needs("queues")
@pytest.mark.parametrize("kind", KINDS)
def test_update_signal(dev, bind, kind):
    one, two, done = dev.signal_t(), dev.signal_t(), dev.signal_t()
    queue = bind(getattr(dev, kind)().signal(one, 1).signal(done, 1), dev, "bound")

    def run(value):
        done.value = 0
        queue.submit(dev)
        done.wait(1)
        return one.value, two.value

    assert run(1) == (1, 0)
    assert queue.update_signal(0, two, 5) is queue and len(queue) == 2
    bind(queue, dev, "bound later")
    assert run(2) == (1, 5)
    queue.update_signal(0, value=6)
    assert run(3) == (1, 6)
    queue.update_signal(0, one)
    assert run(4) == (6, 6)
    queue.update_signal(0, None, None)
    assert run(5) == (6, 6)
    queue.update_signal(0, signal=two, value=9)
    assert run(6) == (6, 9)


@promise("update.wait", "update.bound")
@needs("queues", "async")
@pytest.mark.parametrize("kind", KINDS)
def test_update_wait(dev, bind, kind):
    one, two, done = dev.signal_t(), dev.signal_t(), dev.signal_t()
    queue = bind(getattr(dev, kind)().wait(one, 1).signal(done, 1), dev, "bound")

    def passes_with(first, second):
        one.value = two.value = done.value = 0
        queue.submit(dev)
        with pytest.raises(TimeoutError):
            done.wait(1, timeout=20)
        one.value, two.value = first, second
        done.wait(1)

    passes_with(1, 0)
    assert queue.update_wait(0, value=5) is queue and len(queue) == 2
    bind(queue, dev, "bound later")
    passes_with(5, 0)
    queue.update_wait(0, two)
    passes_with(0, 5)
    queue.update_wait(0, one, 2)
    passes_with(2, 0)
    queue.update_wait(0)
    passes_with(2, 0)


@promise("update.copy", "update.bound")
@needs("queues", "host_memory")
def test_update_copy(dev, bind):
    bufs = [filled(dev, [n]) for n in range(1, 5)]
    done = dev.signal_t()
    queue = bind(dev.hw_copy_queue_t().copy(address(bufs[0]), address(bufs[1]), 4).signal(done, 1), dev, "bound")

    def run():
        done.value = 0
        queue.submit(dev)
        done.wait(1)
        return [read(buf)[0] for buf in bufs]

    assert run() == [2, 2, 3, 4]
    assert queue.update_copy(0, dest=address(bufs[2])) is queue and len(queue) == 2
    bind(queue, dev, "bound later")
    assert run() == [2, 2, 2, 4]
    queue.update_copy(0, src=address(bufs[3]))
    assert run() == [2, 2, 4, 4]
    queue.update_copy(0, address(bufs[0]), address(bufs[2]))
    assert run() == [4, 2, 4, 4]
    queue.update_copy(0, None, None)
    assert run() == [4, 2, 4, 4]


@promise("update.exec", "update.bound")
@needs("queues", "computes")
def test_update_exec_switches_work_off_and_on(dev, kernels, bind):
    out, done = filled(dev, [0]), dev.signal_t()
    queue = dev.hw_compute_queue_t().exec(kernels.increment, kernels.increment.fill_kernargs([out._buf]), ONE, ONE)
    bind(queue.signal(done, 1), dev, "bound")

    def run():
        done.value = 0
        queue.submit(dev)
        done.wait(1)
        return read(out)[0]

    assert run() == 1
    assert queue.update_exec(0, (0, 1, 1), None) is queue and len(queue) == 2
    bind(queue, dev, "bound later")
    assert run() == 1
    queue.update_exec(0, ONE, ONE)
    assert run() == 2
    queue.update_exec(0, None, None)
    assert run() == 3


@promise("update.exec", "launch.grid")
@needs("queues", "computes")
def test_update_exec_changes_groups_and_items(dev, kernels, bind):
    out, done = filled(dev, [0] * 64), dev.signal_t()
    queue = dev.hw_compute_queue_t().exec(kernels.grid, kernels.grid.fill_kernargs([out._buf]), (4, 1, 1), (4, 1, 1))
    bind(queue.signal(done, 1), dev, "bound")
    for groups, items in (((4, 1, 1), (4, 1, 1)), ((2, 1, 1), None), (None, (8, 2, 1)), ((2, 2, 1), (4, 4, 1))):
        queue.update_exec(0, groups, items)
        out.copyin(bytes(256))
        dev.synchronize()  # a staged copy is only queued so far, on another queue
        done.value = 0
        queue.submit(dev)
        done.wait(1)
    assert (read(out).reshape(4, 16)[:, 0] == [1, 1001, 2001, 3001]).all()


@promise("update.wrong_kind", "errors.no_assert")
@needs("queues")
def test_the_wrong_kind_of_command_is_refused(dev):
    sig, buf = dev.signal_t(), filled(dev, [1])
    queue = dev.hw_copy_queue_t().signal(sig, 1).wait(sig, 1).copy(address(buf), address(buf), 0).timestamp(sig)
    for index, update in ((1, queue.update_signal), (2, queue.update_signal), (3, queue.update_signal)):
        with pytest.raises(RuntimeError):
            update(index, sig, 1)
    for index in (0, 2, 3):
        with pytest.raises(RuntimeError):
            queue.update_wait(index, sig, 1)
    for index in (0, 1, 3):
        with pytest.raises(RuntimeError):
            queue.update_copy(index, 1, 1)
    computing = dev.hw_compute_queue_t().signal(sig, 1)
    with pytest.raises(RuntimeError):
        computing.update_exec(0, ONE, ONE)


@promise("update.index", "errors.no_assert")
@needs("queues")
@pytest.mark.parametrize("index", [2, 100, -1, -3, 2**40])
def test_an_index_out_of_range_is_refused(dev, index):
    sig = dev.signal_t()
    queue = dev.hw_copy_queue_t().signal(sig, 1).wait(sig, 1)
    for update in (queue.update_signal, queue.update_wait, queue.update_copy):
        with pytest.raises(IndexError):
            update(index)


@promise("update.in_flight")
@needs("queues", "async", "host_memory")
@pytest.mark.parametrize("bound", [False, True])
def test_an_update_does_not_disturb_an_earlier_submit(dev, bound):
    source, outs = filled(dev, [42]), [filled(dev, [0]) for _ in range(8)]
    gate, done = dev.signal_t(), dev.signal_t()
    queue = dev.hw_copy_queue_t().wait(gate, 1).copy(address(outs[0]), address(source), 4).signal(done, 1)
    if bound:
        queue.bind(dev)
    for n, out in enumerate(outs[:-1]):
        queue.update_copy(1, dest=address(out)).update_signal(2, value=n + 1).submit(dev)
    queue.update_copy(1, dest=address(outs[-1])).update_signal(2, value=99)  # patched, and not submitted
    assert done.value == 0
    gate.value = 1
    done.wait(7)
    assert [int(read_now(out)) for out in outs] == [42] * 7 + [0]
    assert done.value == 7


def read_now(buf):
    return read(buf)[0]


@promise("update.in_flight", "update.wait")
@needs("queues", "async")
@pytest.mark.parametrize("bound", [False, True])
def test_an_updated_wait_leaves_the_one_that_is_waiting(dev, bound):
    gates, done = [dev.signal_t() for _ in range(3)], dev.signal_t()
    queue = dev.hw_compute_queue_t().wait(gates[0], 1).signal(done, 1)
    if bound:
        queue.bind(dev)
    for n, gate in enumerate(gates):
        queue.update_wait(0, gate).update_signal(1, value=n + 1).submit(dev)
    gates[2].value = 1
    with pytest.raises(TimeoutError):
        done.wait(1, timeout=20)
    gates[0].value = 1
    done.wait(1)
    with pytest.raises(TimeoutError):
        done.wait(2, timeout=20)
    gates[1].value = 1
    done.wait(3)


# -- bind -------------------------------------------------------------------------------------------------------------


@promise("bind.works", "bind.returns_self", "bind.many_submits")
@needs("queues", "computes")
def test_a_bound_queue_does_the_same(dev, kernels):
    out, done = filled(dev, [0]), dev.signal_t()
    queue = dev.hw_compute_queue_t()
    for _ in range(10):
        queue.exec(kernels.increment, kernels.increment.fill_kernargs([out._buf]), ONE, ONE)
    assert queue.bind(dev) is queue and len(queue) == 10
    for _ in range(100):
        queue.submit(dev)
    dev.hw_compute_queue_t().signal(done, 1).submit(dev)
    done.wait(1)
    assert read(out).tolist() == [1000]


@promise("bind.works", "bind.many_submits")
@needs("queues", "host_memory")
def test_a_bound_queue_of_copies_is_submitted_while_earlier_submits_wait(dev):
    bufs, gate, done = [filled(dev, [n]) for n in range(4)], dev.signal_t(), dev.signal_t()
    queue = dev.hw_copy_queue_t().wait(gate, 1)
    for dest, source in ((3, 0), (0, 1), (1, 2), (2, 3)):  # the first three, rotated by one
        queue.copy(address(bufs[dest]), address(bufs[source]), 4)
    queue.bind(dev)
    for _ in range(8):
        queue.submit(dev)
    dev.hw_copy_queue_t().signal(done, 1).submit(dev)
    gate.value = 1
    done.wait(1)
    assert [int(read(buf)[0]) for buf in bufs[:3]] == [2, 0, 1]


@promise("bind.dropped")
@needs("queues", "async", "host_memory")
def test_a_bound_queue_may_be_dropped_while_it_runs(dev):
    source, out = filled(dev, [42]), filled(dev, [0])
    gate, done = dev.signal_t(), dev.signal_t()
    queue = dev.hw_copy_queue_t().wait(gate, 1).copy(address(out), address(source), 4).signal(done, 1).bind(dev)
    queue.submit(dev)
    queue.submit(dev)
    del queue
    gc.collect()
    others = [dev.hw_copy_queue_t().wait(gate, 9).copy(address(source), address(out), 4).bind(dev) for _ in range(50)]
    gate.value = 1
    done.wait(1)
    dev.hw_copy_queue_t().signal(done, 2).submit(dev)
    done.wait(2)
    assert read(out).tolist() == [42] and len(others) == 50
