"""Forked children, and leaving the interpreter with work, waits and faults still there."""

import os
import pickle

import numpy as np
import pytest

import hcq
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import I32, address, filled, in_child, later, noise, python, read

# -- fork -------------------------------------------------------------------------------------------------------------


def refusal(touch):
    """How a child is told off: its error must be a ForkedDeviceError that names both processes."""
    parent = os.getpid()

    def child():
        try:
            touch()
        except hcq.errors.ForkedDeviceError as error:
            return str(parent) in str(error) and str(os.getpid()) in str(error)
        except BaseException as error:
            return f"{type(error).__name__}: {error}"
        return "nothing was raised"

    return in_child(child)


@promise("fork.device", "fork.parent_unharmed")
@needs("queues")
@pytest.mark.parametrize(
    "touch", ["synchronize", "compute queue", "copy queue", "launch", "alloc", "close", "timeline"]
)
def test_an_inherited_device_is_refused(dev, kernels, driver, touch):
    if touch == "launch" and "compiles" in driver.lacks:
        pytest.skip("runs no programs")
    program = kernels.nothing if touch == "launch" else None
    queue, sig = dev.hw_compute_queue_t(), dev.signal_t()
    touches = {
        "synchronize": dev.synchronize,
        "compute queue": lambda: dev.hw_compute_queue_t().signal(sig, 1).submit(dev),
        "copy queue": lambda: dev.hw_copy_queue_t().signal(sig, 1).submit(dev),
        "launch": lambda: program(),
        "alloc": lambda: dev.allocator.alloc(64),
        "close": dev.close,
        "timeline": lambda: dev.next_timeline(),
    }
    assert refusal(touches[touch]) is True
    queue.signal(sig, 1).submit(dev)
    sig.wait(1)
    dev.synchronize()


@promise("fork.buffer")
@needs("queues")
def test_an_inherited_buffer_is_refused(dev):
    data = noise(1000)
    buf = filled(dev, data)
    view = buf.view(10, np.dtype("u1"), 5).ensure_allocated()
    for touch in (
        lambda: read(buf),
        lambda: buf.copyout(memoryview(bytearray(1000))),
        lambda: buf.copyin(bytes(1000)),
        lambda: buf.as_buffer(allow_zero_copy=True),
        lambda: read(view),
        *(lambda name=name: getattr(buf, name) for name in ("size", "nbytes", "offset", "dtype", "device", "shape")),
        lambda: pickle.dumps(buf),
        lambda: hcq.copy(hcq.Buffer(dev.dname, 1000, np.dtype("u1")).allocate(), buf),
    ):
        assert refusal(touch) is True
    assert (read(buf) == data).all()


@promise("fork.queue", "fork.signal")
@needs("queues")
def test_inherited_queues_and_signals_are_refused(dev):
    sig = dev.signal_t(5)
    queue, bound = dev.hw_compute_queue_t().signal(sig, 6), dev.hw_copy_queue_t().signal(sig, 7).bind(dev)
    for touch in (
        lambda: queue.submit(dev),
        lambda: queue.signal(sig, 1),
        lambda: queue.wait(sig, 1),
        lambda: len(queue),
        lambda: queue.update_signal(0, value=2),
        lambda: bound.submit(dev),
        lambda: sig.value,
        lambda: setattr(sig, "value", 9),
        lambda: sig.wait(5),
    ):
        assert refusal(touch) is True
    assert sig.value == 5
    queue.submit(dev)
    sig.wait(6)


@promise("fork.program")
@needs("queues", "compiles")
def test_an_inherited_program_is_refused(dev, kernels):
    program = kernels.nothing
    assert refusal(lambda: program(wait=True)) is True
    assert refusal(lambda: program.fill_kernargs([])) is True
    program(wait=True)


@promise("fork.registry_empty", "fork.threads_anew")
@needs("fork")
def test_a_child_opens_the_same_device_anew(dev, driver):
    data = noise(5000)

    def child():
        mine = hcq.Device[driver.device]
        buf = filled(mine, data)
        if "queues" not in driver.lacks:
            done = mine.signal_t()
            mine.hw_copy_queue_t().signal(done, 1).submit(mine)
            done.wait(1)
        mine.synchronize()
        return mine is not dev and bool((read(buf) == data).all())

    assert in_child(child) is True
    assert hcq.Device[driver.device] is dev


@promise("fork.threads_anew")
@needs("fork", "computes")
def test_a_childs_own_device_computes(dev, kernels, driver):
    out = filled(dev, [0] * 1000)
    kernels.iota(out._buf, vals=(1000, 1), wait=True)
    source = kernels.source("iota")

    def child():
        mine = hcq.Device[driver.device]
        result = filled(mine, [0] * 1000)
        mine.program("iota", source)(result._buf, vals=(1000, 3))
        return read(result).tolist() == list(range(3, 1003))

    assert in_child(child) is True
    assert in_child(lambda: in_child(child)) is True  # and so does a grandchild's
    assert read(out).tolist() == list(range(1, 1001))


@promise("fork.finalizers", "fork.parent_unharmed")
@needs("queues", "async", "fork")
def test_a_child_may_drop_what_it_inherited_while_the_parent_is_at_work(fresh, driver):
    import gc

    gate, done = fresh.signal_t(), fresh.signal_t()
    box = {"bufs": [filled(fresh, noise(100)) for _ in range(20)], "signals": [fresh.signal_t() for _ in range(20)]}
    box["queue"] = fresh.hw_compute_queue_t().wait(gate, 1).signal(done, 1).bind(fresh)
    box["queue"].submit(fresh)

    def child():
        box.clear()
        gc.collect()
        mine = hcq.Device[driver.device]
        return bool((read(filled(mine, noise(100))) == noise(100)).all())

    assert in_child(child) is True
    gate.value = 1
    done.wait(1)
    assert all((read(buf) == noise(100)).all() for buf in box["bufs"])


@promise("fork.threads_anew")
@needs("queues", "async", "fork")
def test_a_fork_while_threads_launch_leaves_both_sides_well(fresh, driver):
    import threading

    stop, count = threading.Event(), fresh.signal_t()

    def work():
        n = 0
        while not stop.is_set():
            n += 1
            fresh.hw_compute_queue_t().wait(count, n - 1).signal(count, n).submit(fresh)
            buf = hcq.Buffer(fresh.dname, 100, I32).allocate()
            del buf
            count.wait(n)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(10):

            def child():
                mine = hcq.Device[driver.device]
                done = mine.signal_t()
                mine.hw_compute_queue_t().signal(done, 1).submit(mine)
                done.wait(1)
                return read(filled(mine, [1, 2])).tolist()

            assert in_child(child) == [1, 2]
    finally:
        stop.set()
        worker.join()


@pytest.mark.core
@promise("fork.npy")
def test_arrays_go_on_working_in_a_child(driver):
    buf = hcq.Buffer("NPY", 3, I32, opaque=np.array([1, 2, 3], I32))
    assert in_child(lambda: read(buf).tolist()) == [1, 2, 3]
    assert in_child(lambda: hcq.Device["NPY"].dname) == "NPY"


@promise("fork.cloexec")
@needs("queues")
def test_descriptors_are_closed_on_exec(dev):
    import fcntl

    filled(dev, noise(100))
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
            flags = fcntl.fcntl(number, fcntl.F_GETFD)
        except OSError:
            continue
        if number > 2 and ("eventfd" in target or "hcq" in target):
            assert flags & fcntl.FD_CLOEXEC, target


# -- leaving ----------------------------------------------------------------------------------------------------------

OPEN = """
import hcq, sys, threading, time
dev = hcq.Device[{device!r}]
"""


def leave(driver, code, status=3, **options):
    done = python(driver.setup + "\n" + OPEN.format(device=driver.device) + code + f"\nsys.exit({status})", **options)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


@promise("exit.queued")
@needs("queues")
def test_leaving_with_work_queued(driver):
    leave(
        driver,
        """
import numpy as np
a, b = (hcq.Buffer(dev.dname, 5_000_000, np.dtype("u1")).allocate() for _ in range(2))
for n in range(50): hcq.copy(b, a)
sigs = [dev.signal_t() for _ in range(500)]
for s in sigs: dev.hw_compute_queue_t().signal(s, 1).submit(dev); dev.hw_copy_queue_t().signal(s, 2).submit(dev)""",
    )


@promise("exit.queued")
@needs("queues", "computes")
def test_leaving_with_a_program_running(driver, kernels):
    source = kernels.source("spin")
    leave(
        driver,
        f"""
import numpy as np
out = hcq.Buffer(dev.dname, 1, np.dtype("i4")).allocate()
spin = dev.program("spin", {source!r})
for _ in range(10): spin(out._buf, vals=(20_000_000,))""",
    )


@promise("exit.stuck")
@needs("queues", "async")
@pytest.mark.slow
def test_leaving_with_a_queue_that_stands(driver):
    leave(
        driver,
        """
gate, value = dev.signal_t(), dev.next_timeline()
dev.hw_compute_queue_t().wait(gate, 1).signal(dev.timeline_signal, value).submit(dev)
bound = dev.hw_copy_queue_t().wait(gate, 1).bind(dev)
bound.submit(dev)""",
        timeout=30,
    )


@promise("exit.lost", "fault.finalizers")
@needs("queues", "inject", "compiles")
def test_leaving_with_a_lost_device(driver, kernels):
    source = kernels.source("nothing")
    leave(
        driver,
        f"""
from hcq.testing import inject
import numpy as np
bufs = [hcq.Buffer(dev.dname, 100, np.dtype("u1")).allocate() for _ in range(5)]
program = dev.program("nothing", {source!r})
with inject(dev, "exec"):
    program()
    try: dev.synchronize()
    except hcq.errors.DeviceLost: pass""",
    )


@promise("exit.fault_not_raised")
@needs("queues", "inject", "compiles")
def test_leaving_with_a_fault_nobody_asked_for(driver, kernels):
    source = kernels.source("nothing")
    leave(
        driver,
        f"""
from hcq.testing import inject
program = dev.program("nothing", {source!r})
injection = inject(dev, "exec"); injection.__enter__()
program()
time.sleep(0.05)""",
    )


@promise("exit.threads")
@needs("queues", "async")
@pytest.mark.slow
def test_leaving_while_threads_wait(driver):
    leave(
        driver,
        """
sig = dev.signal_t()
def wait():
    try: sig.wait(1, timeout=60_000)
    except BaseException: pass
for _ in range(3): threading.Thread(target=wait, daemon=True).start()
time.sleep(0.1)""",
        timeout=30,
    )


@promise("exit.daemon_free")
@needs("queues")
def test_finalizers_at_exit_are_silent(driver):
    leave(
        driver,
        """
import numpy as np, gc, builtins
class Node: pass
nodes = []
for n in range(50):
    node = Node(); node.me = node
    node.buf = hcq.Buffer(dev.dname, 100, np.dtype("u1")).allocate()
    node.view = node.buf.view(10, np.dtype("u1"), 3).ensure_allocated()
    node.sig, node.queue = dev.signal_t(), dev.hw_compute_queue_t()
    node.queue.signal(node.sig, 1).submit(dev)
    nodes.append(node)
builtins.kept = nodes
gc.disable()
class Late:
    def __del__(self, dev=dev, buf=nodes[0].buf): buf.deallocate()
late = Late()
class Last:  # when nothing can be imported any more
    def __del__(self, sig=nodes[0].sig): sig.value, sig.timestamp
nodes[0].sig.timestamp
builtins.last = Last()""",
    )


@promise("exit.queued")
@needs("queues", "fork")
def test_a_forked_child_leaves_in_the_ordinary_way(driver):
    leave(
        driver,
        f"""
import os, numpy as np
buf = hcq.Buffer(dev.dname, 100, np.dtype("u1")).allocate()
if os.fork() == 0:
    mine = hcq.Device[{driver.device!r}]
    own = hcq.Buffer(mine.dname, 100, np.dtype("u1")).allocate()
    sys.exit(3)
_, status = os.wait()
assert os.waitstatus_to_exitcode(status) == 3""",
    )


@promise("fork.parent_unharmed", "fork.signal")
@needs("queues", "async")
def test_a_parent_that_waits_while_it_forks_goes_on(fresh):
    import threading

    sig = fresh.signal_t()
    waited = []
    thread = threading.Thread(target=lambda: (sig.wait(1, timeout=20_000), waited.append(1)))
    thread.start()
    assert in_child(lambda: 5) == 5
    later(lambda: setattr(sig, "value", 1)).join()
    thread.join(20)
    assert waited == [1]
    assert address(filled(fresh, [1])) > 0
