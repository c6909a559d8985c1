"""Errors about work that does not end, or ended badly, say what every queue is at, and the user's lines where those are
known."""

import ctypes
import json
import threading

import pytest
from third_party.mini import MiniDevice

import hcq
from hcq import Buffer, Device, HCQSignal, dtypes
from hcq.errors import DeviceLost, SignalTimeout
from hcq.testing import inject

C = """
void work(int *a) { a[0] += 1; }
void other(int *a) { a[0] += 2; }
void spin(long long *p) { while (*(volatile long long *)p == 0) ; }
"""
IR = "define void @work(ptr %a) {\n ret void\n}\ndefine void @other(ptr %a) {\n ret void\n}\n"
PYTHON = 'def work(launch, a: "i32*"):\n    a[0] += 1\n\ndef other(launch, a: "i32*"):\n    a[0] += 2\n'
KINDS = {"CLANG:60": C, "LLVM:60": IR, "NULL:60": "x", "MINI": PYTHON}
NATIVE = [name for name in KINDS if name != "MINI"]


class Kit:
    """A fresh device, two programs and a buffer on it."""

    def __init__(self, name):
        if name == "MINI":
            Device.register("MINI", MiniDevice, replace=True)
        self.dev = Device[name]
        self.source = KINDS[name]
        self.work, self.other = (self.dev.program(each, self.source) for each in ("work", "other"))
        self.buf = Buffer(name, 2, dtypes.int64).allocate()

    def queue(self, program):
        return self.dev.hw_compute_queue_t().exec(program, program.fill_kernargs([self.buf]))


@pytest.fixture(params=KINDS)
def kit(request):
    yield Kit(request.param)
    Device.close(request.param)


@pytest.fixture(params=NATIVE)
def native(request):
    yield Kit(request.param)
    Device.close(request.param)


def stuck(kit):
    """work has finished; a queue stands at a wait that nothing queued ends, other behind it."""
    kit.work(kit.buf)
    kit.dev.synchronize()
    gate = kit.dev.signal_t()
    queue = kit.dev.hw_compute_queue_t().wait(gate, 3)
    queue.exec(kit.other, kit.other.fill_kernargs([kit.buf])).submit(kit.dev)
    return gate


def let_go(kit, gate):
    gate.value = 3
    kit.dev.synchronize()


@pytest.mark.parametrize("ask", ["wait", "synchronize"])
def test_a_time_out_says_what_finished_what_stands_and_what_comes_next(kit, ask, monkeypatch):
    gate = stuck(kit)
    with pytest.raises(SignalTimeout) as caught, monkeypatch.context() as short:
        short.setenv("HCQ_TIMEOUT_MS", "100")
        gate.wait(3, timeout=20) if ask == "wait" else kit.dev.synchronize()
    first, title, *lines = str(caught.value).splitlines()
    assert title == "The queues:" and "value" in first
    text = "\n".join(lines)
    assert "finished last" in text and "work" in text
    assert "stands at" in text and "nothing that is queued sets it" in text
    assert "other" in text
    let_go(kit, gate)


def test_a_time_out_names_who_is_to_set_the_signal_another_queue_stands_at(kit):
    gate = stuck(kit)
    mine = kit.dev.signal_t()
    kit.queue(kit.work).signal(mine, 8).submit(kit.dev)
    copies = kit.dev.hw_copy_queue_t().wait(mine, 8)
    copies.copy(kit.buf._buf.va_addr, kit.buf._buf.va_addr + 8, 8).submit(kit.dev)
    with pytest.raises(SignalTimeout) as caught:
        gate.wait(3, timeout=20)
    text = str(caught.value)
    assert text.count("stands at") >= 2
    assert any("is to set it" in line and "8" in line for line in text.splitlines()[1:])
    let_go(kit, gate)


def test_a_signal_that_is_only_set_to_less_is_said_so(kit):
    gate = stuck(kit)
    low = kit.dev.signal_t()
    kit.queue(kit.work).signal(low, 4).submit(kit.dev)
    kit.dev.hw_copy_queue_t().wait(low, 9).copy(kit.buf._buf.va_addr, kit.buf._buf.va_addr + 8, 8).submit(kit.dev)
    with pytest.raises(SignalTimeout, match="queued commands set it to 4 at most"):
        gate.wait(3, timeout=20)
    gate.value = 3
    low.wait(4)
    low.value = 9
    kit.dev.synchronize()


def test_the_report_is_bounded(kit):
    gate = stuck(kit)
    for _ in range(40):
        kit.queue(kit.work).submit(kit.dev)
    with pytest.raises(SignalTimeout) as caught:
        gate.wait(3, timeout=20)
    assert len(str(caught.value).splitlines()) < 60 and len(str(caught.value)) < 8000
    assert " more" in str(caught.value)
    let_go(kit, gate)


def test_a_lost_device_says_what_its_queues_were_at(native):
    kit = native
    gate = kit.dev.signal_t()
    kit.work(kit.buf)
    kit.dev.synchronize()
    with inject(kit.dev, "exec", error=OSError("the cause")):
        kit.dev.hw_compute_queue_t().wait(gate, 1).submit(kit.dev)  # so that all are queued when it fails
        kit.other(kit.buf)
        kit.work(kit.buf)
        gate.value = 1
        with pytest.raises(DeviceLost) as caught:
            kit.dev.synchronize()
    error = caught.value
    first, title, *lines = str(error).splitlines()
    assert first == f"{kit.dev.dname} is lost: other failed: the cause" and title == "The queues, just before:"
    assert error.report == "\n".join(lines)
    own = error.report[error.report.index(f"{kit.dev.dname} compute queue") :].splitlines()
    assert "finished last: work (command #1" in own[1]
    assert own[2].startswith("    runs: other (command #3") or own[2].startswith("    begins: other (command #3")
    assert "next: work (command #4" in own[3]


def test_a_lost_device_of_a_driver_in_python_says_what_its_queues_were_at():
    kit = Kit("MINI")
    try:
        kit.work(kit.buf)
        kit.dev.synchronize()
        gate = kit.dev.signal_t()
        kit.dev.hw_copy_queue_t().wait(gate, 1).signal(kit.dev.signal_t(), 1).submit(kit.dev)
        boom = kit.dev.program("boom", 'def boom(launch, a: "i32*"):\n    raise OSError("the cause")\n')
        boom(kit.buf)
        with pytest.raises(DeviceLost, match="the cause") as caught:
            kit.dev.synchronize()
        report = caught.value.report
        assert "runs: exec of boom (command" in report and "finished last: exec of work (command" in report
        assert "stands at" in report
    finally:
        Device.close("MINI")


def test_a_queue_of_a_driver_in_python_is_told_of_by_commands():
    kit = Kit("MINI")
    try:
        gate, fill = kit.dev.signal_t(), [kit.work.fill_kernargs([kit.buf]) for _ in range(3)]
        queue = kit.dev.hw_compute_queue_t().exec(kit.work, fill[0]).wait(gate, 1).exec(kit.other, fill[1])
        queue.exec(kit.work, fill[2]).submit(kit.dev)
        with pytest.raises(SignalTimeout) as caught:
            gate.wait(1, timeout=20)
        gate.value = 1
        kit.dev.synchronize()
        told = str(caught.value).splitlines()
        _, finished, state, coming = told[next(i for i, line in enumerate(told) if "queue of MINI:" in line) :][:4]
        assert finished.strip().startswith("finished last: exec of work (command 0 of submit")
        assert state.strip().startswith("stands at: wait for") and "(command 1 of submit" in state
        assert coming.strip().startswith("next: exec of other (command 2 of submit")
        assert ", exec of work (command 3 of submit" in coming
    finally:
        Device.close("MINI")


def test_a_submit_that_fails_says_so_too(native):
    native.work(native.buf)
    native.dev.synchronize()
    with inject(native.dev, "submit", error=OSError("no")), pytest.raises(DeviceLost) as caught:
        native.other(native.buf)
    assert "finished last: work" in caught.value.report


def test_a_kernel_that_runs_too_long_is_what_the_report_says_runs(monkeypatch):
    kit = Kit("CLANG:60")
    spin = kit.dev.program("spin", C)
    flag = ctypes.c_int64.from_address(kit.buf._buf.va_addr)
    flag.value = 0
    kit.work(hcq.zeros(2, dtypes.int64, "CLANG:60"))
    kit.dev.synchronize()
    monkeypatch.setenv("HCQ_KERNEL_TIMEOUT_MS", "100")
    spin(kit.buf)
    kit.work(kit.buf)
    try:
        with pytest.raises(DeviceLost, match="spin failed") as caught:
            kit.dev.synchronize()
    finally:
        flag.value = 1
        Device.close("CLANG:60")
    lines = caught.value.report.splitlines()
    assert "finished last: work (command #1" in lines[1]
    assert "runs: spin (command #2" in lines[2] and "next: work (command #3" in lines[3]


def test_streams_and_bound_queues_and_replays_are_in_the_report(native):
    kit = native
    with hcq.capture() as g:
        kit.work(kit.buf)
        kit.other(kit.buf)
    gate = HCQSignal()
    stream = kit.dev.stream().wait((gate, 2))
    kit.work(kit.buf, stream=stream)
    bound = kit.queue(kit.other).bind(kit.dev)
    kit.dev.hw_compute_queue_t().wait(gate, 1).submit(kit.dev)
    bound.submit(kit.dev)
    replay = g.replay()
    with pytest.raises(SignalTimeout) as caught:
        replay.wait(timeout=30)
    text = str(caught.value)
    assert f"{kit.dev.dname} stream 1:" in text and f"{kit.dev.dname} compute queue:" in text
    assert "other (command 0 of submit #2)" in text
    here = [line for line in text.splitlines() if "work (command 0 of submit #3" in line]
    assert here and "test_reports.py:" in here[0]  # where it was recorded
    gate.value = 2
    kit.dev.synchronize()


def test_a_graph_on_queues_in_python_is_in_the_report():
    kit = Kit("MINI")
    try:
        gate = stuck(kit)
        with hcq.capture() as g:
            kit.work(kit.buf)
        replay = g.replay()
        with pytest.raises(SignalTimeout, match=r"next: .*exec of work \(command \d+ of submit"):
            replay.wait(timeout=30)
        let_go(kit, gate)
        replay.wait()
    finally:
        Device.close("MINI")


def test_lines_are_in_the_report_under_checks_and_only_there(native, monkeypatch):
    kit = native
    for checked in (False, True):
        gate = HCQSignal()
        with hcq.checks() if checked else inject(kit.dev, "exec", nth=10**6):
            stream = kit.dev.stream().wait((gate, 1))
            kit.work(kit.buf, stream=stream)
            with pytest.raises(SignalTimeout) as caught:
                gate.wait(1, timeout=20)
            queues = str(caught.value).partition("The queues:")[2]
            own = [line for line in queues.splitlines() if "next: work (command #2" in line]
            assert len(own) == 1 and ("test_reports.py:" in own[0]) is checked
            gate.value = 1
            stream.synchronize()


def test_launches_of_two_lines_from_two_functions_are_told_apart(native, tmp_path):
    kit = native

    def one():
        kit.work(kit.buf)

    def two():
        kit.work(kit.buf)

    with hcq.profile() as p:
        for _ in range(100):
            one()
            two()
        thread = threading.Thread(target=one)
        thread.start()
        thread.join()
    lines = [span.line for span in p.spans if span.kind == "kernel"]
    first, second = one.__code__.co_firstlineno + 1, two.__code__.co_firstlineno + 1
    numbers = [int(line.rpartition(":")[2]) for line in lines]
    assert numbers == [first, second] * 100 + [first]


def test_traces_say_the_line_of_each_kernel_and_copy(kit, tmp_path):
    with hcq.capture() as g:
        kit.other(kit.buf)
    recorded = g.nodes[0].line
    with hcq.profile(str(tmp_path / "t.json")) as p:
        kit.work(kit.buf)
        hcq.copy(Buffer(kit.dev.dname, 2, dtypes.int64).allocate(), kit.buf)
        kit.queue(kit.work).submit(kit.dev)
        g.replay().wait()
        kit.dev.synchronize()
    assert recorded
    own = [span for span in p.spans if span.device == kit.dev.dname and span.kind in ("kernel", "copy")]
    assert len(own) == 4 and all("test_reports.py:" in span.line for span in own)
    assert [span.line for span in own if span.name == "other"] == [hcq.runtime.lines.words(recorded)]
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    shown = [event["args"].get("line") for event in events if event["ph"] == "X" and event.get("cat") == "kernel"]
    assert len(shown) == 3 and all("test_reports.py:" in line for line in shown)


def test_pictures_and_saved_graphs_say_where_commands_were_recorded(native, tmp_path):
    with hcq.capture() as g:
        native.work(native.buf)
    line = hcq.runtime.lines.words(g.nodes[0].line)
    assert "test_reports.py:" in line and line in repr(g.nodes[0])
    assert line in g.draw() and line in g.draw(dot=True)
    if native.dev.dname.startswith("NULL"):
        return
    from hcq.graph.saved import SavedGraph

    g.save(tmp_path / "g.zip")
    assert SavedGraph(tmp_path / "g.zip").commands[0]["line"] == line


def test_a_frame_is_not_kept_by_its_line(native):
    import weakref

    class Held:
        pass

    def launch():
        held = Held()
        native.work(native.buf)
        return weakref.ref(held)

    with hcq.profile():
        ref = launch()
        assert ref() is None


def test_replays_streams_and_prepared_launches_say_what_they_are(kit):
    with hcq.capture() as g:
        kit.work(kit.buf)
    replay = g.replay()
    replay.wait()
    name = kit.dev.dname
    assert repr(replay) == f"<Replay on {name}, over>"
    stream = kit.dev.stream()
    kit.work(kit.buf, stream=stream)
    stream.synchronize()
    assert name in repr(stream) and "1 given" in repr(stream)
    if name != "MINI":
        assert f"of work on {name}" in repr(kit.work.prepare(kit.buf))
