"""The watch point: what is submitted and touched is told of, once, before it is queued and after."""

import os
import sys
import threading
from pathlib import Path

import pytest

import hcq
from hcq import Device, dtypes
from hcq.errors import LaunchError
from hcq.runtime import watch

sys.path.insert(0, str(Path(__file__).parents[1] / "third_party"))

ADD = {
    "CLANG": "void add(int* out, const int* a, int n) { out[0] = a[0] + n; }",
    "WATCHED": 'def add(launch, out: "i32*", a: "i32*", n: "i32"):\n    out[0] = a[0] + n\n',
}


@pytest.fixture(scope="module", params=["CLANG", "WATCHED"])
def device(request):
    if request.param == "WATCHED":
        from mini import MiniDevice

        Device.register("WATCHED", MiniDevice, replace=True)
    yield Device[request.param]
    if request.param == "WATCHED":
        Device.close("WATCHED")


@pytest.fixture
def add(device):
    return device.program("add", ADD[device.dname])


def pair(device):
    bufs = [hcq.empty(1, dtypes.int32, device.dname) for _ in range(2)]
    for buf in bufs:
        buf.fill(1)
    return bufs


class Log(watch.Observer):
    """Keeps (event, *arguments)."""

    take = ()

    def __init__(self):
        self.events = []
        for name in [name for name in vars(watch.Observer) if not name.startswith("_")]:
            setattr(self, name, lambda *args, name=name: self.note(name, args))

    def note(self, name, args):
        self.events.append((name, *args))
        return name in self.take

    def names(self):
        return [event[0] for event in self.events]

    def args(self, name):
        return [event[1:] for event in self.events if event[0] == name]


@pytest.fixture
def log():
    log = Log()
    watch.observe(log)
    yield log
    watch.forget(log)


@pytest.mark.parametrize("prepared", [False, True])
def test_a_launch_is_told_once_before_and_once_after_with_its_timeline_value(device, add, log, prepared):
    out, a = pair(device)
    value = device.timeline_value
    if prepared:
        add.prepare(out, a, vals=(3,))()
    else:
        add(out, a, vals=(3,))
    assert log.args("launch") == [(device, add, (out, a), (3,), (1, 1, 1), (1, 1, 1), None, False)]
    [(dev, prg, bufs, vals, groups, items, signal, reached)] = log.args("launched")
    assert (dev, prg, bufs, vals, groups, items) == (device, add, (out, a), (3,), (1, 1, 1), (1, 1, 1))
    assert signal is device.timeline_signal and reached == value
    assert "submit" not in log.names()


def test_what_is_refused_is_not_told(device, add, log):
    with pytest.raises(LaunchError):
        add(vals=(1, 2, 3))
    assert "launch" not in log.names()


def test_what_an_observer_takes_over_is_not_queued(device, add, log):
    out, a = pair(device)
    log.take = ("launch", "submit", "copy_buffers", "transfer")
    value = device.timeline_value
    add(out, a, vals=(3,))
    hcq.copy(out, a)
    sig = device.signal_t()
    device.hw_compute_queue_t().signal(sig, 1).submit(device)
    device.synchronize()
    assert (device.timeline_value, sig.value, out.numpy()[0]) == (value, 0, 1)


def test_what_an_observer_raises_stops_the_launch(device, add, log):
    out, a = pair(device)

    def refuse(*args):
        raise RuntimeError("not this one")

    log.launch = refuse
    with pytest.raises(RuntimeError, match="not this one"):
        add(out, a, vals=(3,))
    del log.launch
    assert out.numpy()[0] == 1


def test_submits_are_told_with_their_commands(device, add, log):
    out, a = pair(device)
    sig, stamp = device.signal_t(), device.signal_t()
    kernargs = add.fill_kernargs([out, a], (4,))
    queue = device.hw_compute_queue_t().wait(sig, 0).memory_barrier().exec(add, kernargs, (1, 1, 1), (1, 1, 1))
    queue.timestamp(stamp).signal(sig, 5).submit(device)
    assert log.args("submit") == log.args("submitted") == [(device, queue)]
    assert watch.commands(queue) == [
        ("wait", sig, 0),
        ("memory_barrier",),
        ("exec", add, kernargs, (1, 1, 1), (1, 1, 1)),
        ("timestamp", stamp),
        ("signal", sig, 5),
    ]
    copies = device.hw_copy_queue_t().copy(out._buf.va_addr, a._buf.va_addr, 4)
    assert watch.commands(copies) == [("copy", out._buf.va_addr, a._buf.va_addr, 4)]


def test_accesses_of_the_host_waits_and_memory_are_told(device, add, log):
    out = hcq.Buffer(device.dname, 4, dtypes.int32, preallocate=True)
    handle = out._buf
    assert (device, handle, 16) in [event[:3] for event in log.args("allocated")]
    out.copyin(bytes(16))
    assert (out, 0, 16) in log.args("host_write")
    out.copyout(bytearray(16))
    assert (out, 0, 16) in log.args("host_read")
    device.allocator.copyin(handle, bytes(16))
    assert (handle, 0, 16) in log.args("host_write")
    memoryview(out).release()
    assert log.args("exported")[0] == (out,)
    sig = device.signal_t()
    sig.value = 3
    sig.wait(2)
    for name, value in {"set_signal": 3, "wait": 2, "waited": 2}.items():
        assert (sig, value) in log.args(name)
    log.events.clear()
    device.synchronize()
    assert log.args("synchronize") == log.args("synchronized") == [(device,)]
    del out
    assert (device, handle) in log.args("freed")


def test_a_capture_is_told_of_its_own_thread_alone_and_observers_of_the_others(device, add, log):
    out, a = pair(device)
    mine = Log()
    mine.take = ("launch",)
    watch.begin_capture(mine)
    try:
        add(out, a, vals=(3,))
        thread = threading.Thread(target=lambda: add(out, a, vals=(7,)))
        thread.start()
        thread.join()
        with pytest.raises(RuntimeError, match="nest"):
            watch.begin_capture(mine)
    finally:
        watch.end_capture()
    assert [event[3] for event in mine.args("launch")] == [(3,)]
    assert [event[3] for event in log.args("launch")] == [(7,)]
    assert out.numpy()[0] == 8


@pytest.mark.unchecked("the checks are an observer")
def test_nobody_is_told_inside_quiet(device, add, log):
    out, a = pair(device)
    log.events.clear()
    with watch.quiet():
        add(out, a, vals=(3,))
        device.synchronize()
    # The queues' own threads, of a driver in Python, are not inside.
    assert set(log.names()) <= {"set_signal"}


@pytest.mark.unchecked("the checks are an observer")
def test_nothing_is_watched_once_all_have_gone():
    assert watch.active == 0


@pytest.mark.unchecked("the checks are an observer")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_keeps_observers_and_forgets_captures_of_other_threads(log):
    begun, leave = threading.Event(), threading.Event()

    def captures():
        watch.begin_capture(Log())
        begun.set()
        leave.wait(30)
        watch.end_capture()

    thread = threading.Thread(target=captures)
    thread.start()
    try:
        assert begun.wait(30)
        child = os.fork()
        if not child:
            os._exit(0 if watch.active == watch.OBSERVED and watch.observers == (log,) else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        leave.set()
        thread.join()
