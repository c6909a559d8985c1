"""Launches and queues under abuse: values, memory and threads stay right whatever is dropped, interrupted or nested."""

from __future__ import annotations

import _thread
import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import numpy as np
import pytest

from hcq import Buffer, Device, HCQSignal, _native, dtypes
from hcq.errors import DeviceLost, ForkedDeviceError, LaunchError, SignalTimeout

ADD = "void add(int *a, int n) { a[0] += n; }"


@pytest.fixture
def dev():
    device = Device["CLANG"]
    yield device
    device.synchronize()


@pytest.fixture
def add(dev):
    return dev.program("add", ADD)


def python(text: str, timeout: float = 60, **env: str) -> subprocess.CompletedProcess[str]:
    head = "import faulthandler; faulthandler.enable()\nimport hcq\nfrom hcq import *\nfrom hcq.errors import *\n"
    return subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **env},
    )


def holds(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0 and done.stdout.endswith("fine\n"), done.stdout + done.stderr


def test_a_signal_that_only_queues_know_is_recycled_once(dev):
    other = Device["CLANG:1"]
    for _ in range(20):
        gate, middle, end = HCQSignal(), HCQSignal(), HCQSignal()
        other.hw_compute_queue_t().wait(gate, 1).signal(middle, 1).submit(other)
        dev.hw_copy_queue_t().wait(middle, 1).signal(end, 1).submit(dev)
        del middle
        time.sleep(0.012)  # the pool's thread sleeps at the signals of the queues by now
        _native.set_worker_limit(_native.worker_limit())
        other.hw_copy_queue_t().signal(HCQSignal(), 1).submit(other)  # and is woken
        gate.value = 1
        end.wait(1)
    time.sleep(0.01)
    dev.synchronize()
    other.synchronize()
    _native.run_retired()
    made = [HCQSignal() for _ in range(2000)]
    assert len({s.value_addr for s in made}) == len(made)


def test_an_array_of_a_launch_that_timed_out_lives_until_the_launch_is_over(dev, add, monkeypatch):
    monkeypatch.setenv("HCQ_TIMEOUT_MS", "30")
    for launch in (lambda a, s: add(a, vals=(1,), stream=s), lambda a, s: add.prepare(a, vals=(1,))(stream=s)):
        gate, stream = HCQSignal(), dev.stream()
        stream.wait((gate, 1))
        array = np.zeros(1, np.int32)
        alive = weakref.ref(array)
        with pytest.raises(SignalTimeout):
            launch(array, stream)
        del array
        gc.collect()
        assert alive() is not None and alive()[0] == 0
        gate.value = 1
        monkeypatch.setenv("HCQ_TIMEOUT_MS", "30000")
        stream.synchronize()
        _native.run_retired()
        assert alive() is None
        monkeypatch.setenv("HCQ_TIMEOUT_MS", "30")
    monkeypatch.setenv("HCQ_TIMEOUT_MS", "30000")


def test_a_launch_interrupted_after_its_submit_keeps_its_timeline_value(dev):
    class Interrupted(dev.hw_compute_queue_t):
        def submit(self, device):
            super().submit(device)
            _thread.interrupt_main()
            return self

    before = dev.timeline_value
    with pytest.raises(KeyboardInterrupt):
        dev.enqueue(lambda s, v: Interrupted().wait(s, v - 1).signal(s, v))
    assert dev.timeline_value == before + 1
    dev.synchronize()


def test_a_submit_that_fails_takes_no_timeline_value(dev):
    before = dev.timeline_value
    with pytest.raises(AttributeError):
        dev.enqueue(lambda s, v: object())
    with pytest.raises(LaunchError):
        dev.enqueue(lambda s, v: _raise(LaunchError("no")))
    assert dev.timeline_value == before


def _raise(error):
    raise error


def test_sequences_that_change_while_they_are_read_are_harmless(dev, add):
    buf = Buffer("CLANG", 1, dtypes.int32).allocate()

    class Size:
        def __init__(self, target):
            self.target = target

        def __index__(self):
            self.target.clear()
            return 1

    class Scalar:
        def __init__(self, target):
            self.target = target

        @property
        def dtype(self):
            self.target.clear()
            raise AttributeError

    class Array(Scalar):
        @property
        def __array_interface__(self):
            self.target.clear()
            raise AttributeError

    sizes: list[object] = []
    sizes += [Size(sizes), Size(sizes), Size(sizes)]
    add(buf, vals=(1,), global_size=sizes)
    values: list[object] = []
    values += [Scalar(values), object()]
    plain = dev.program("two", "void two(int *a, int n, int m) { a[0] += n + m; }")
    with pytest.raises(LaunchError):
        plain(buf, vals=values)
    arrays: list[object] = []
    arrays += [Array(arrays)]
    with pytest.raises(LaunchError):
        add.fill_kernargs(arrays, (1,))


def test_a_value_dropped_early_stays_failed_when_a_later_one_is_dropped_too(dev):
    gate, mine = HCQSignal(), HCQSignal()
    error = _native.fault_record("X", "command", "message", 0)
    _native.signal_fail(gate, error, 1, 2**64 - 1)
    for value in (1, 3):
        dev.hw_compute_queue_t().wait(gate, 1).signal(mine, value).submit(dev)
    for value in (1, 3):
        with pytest.raises(DeviceLost):
            mine.wait(value, timeout=2000)
    with pytest.raises(DeviceLost):
        dev.synchronize()
    dev.synchronize()


@pytest.mark.unchecked("its streams race for one buffer")
def test_streams_dropped_while_the_device_synchronizes(dev, add):
    bufs = [Buffer("CLANG", 1, dtypes.int32).allocate() for _ in range(4)]
    stop = threading.Event()
    failures = []

    def churn(buf):
        try:
            while not stop.is_set():
                stream = dev.stream()
                for _ in range(3):
                    add(buf, vals=(1,), stream=stream)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=churn, args=(b,)) for b in bufs]
    for t in threads:
        t.start()
    for _ in range(300):
        dev.synchronize()
    stop.set()
    for t in threads:
        t.join()
    assert not failures
    assert dev.synchronize() is None


def test_a_wrong_count_of_arguments_is_told_in_good_english_with_where_values_go(dev):
    one = dev.program("one", "void one(int *x, int n) { x[0] = n; }")
    x = Buffer("CLANG", 1, dtypes.int32).allocate()
    with pytest.raises(LaunchError, match=r"one takes 1 buffer, got 2: values go in vals=$"):
        one(x, 3)
    with pytest.raises(LaunchError, match=r"one takes 1 buffer, got 0$"):
        one(vals=(3,))
    with pytest.raises(LaunchError, match=r"one takes 1 value, got 2$"):
        one(x, vals=(3, 4))


def test_every_touch_of_inherited_objects_raises_in_a_forked_child(dev, add):
    stream, q = dev.stream(), dev.hw_compute_queue_t()
    s = HCQSignal()
    q.signal(s, 1)
    touches = {
        "stream.position": lambda: stream.position,
        "stream.wait": lambda: stream.wait(stream),
        "stream.synchronize": stream.synchronize,
        "busy": dev.busy,
        "timeline_value": lambda: dev.timeline_value,
        "set timeline_value": lambda: setattr(dev, "timeline_value", 9),
        "timeline_signal": lambda: dev.timeline_signal.value,
        "timeline_lock": lambda: dev.timeline_lock.acquire(),
        "next_timeline": dev.next_timeline,
        "stream": dev.stream,
        "submit": lambda: q.submit(dev),
        "length": lambda: len(q),
        "signal": lambda: q.signal(s, 1),
        "launch": lambda: add(vals=(1,)),
        "prepare": lambda: add.prepare(),
        "inject": lambda: dev._inject("exec", 1, 0, 0.0),
        "armed": lambda: dev._armed(1),
        "uninject": lambda: dev._uninject(1),
        "lose": lambda: dev._lose("a", "b", 0),
        "value": lambda: s.value,
        "set value": lambda: setattr(s, "value", 3),
        "wait": lambda: s.wait(0),
        "new stream waits for inherited device": lambda: Device["CLANG"].stream().wait(dev),
        "new stream waits for inherited stream": lambda: Device["CLANG"].stream().wait(stream),
        "new queue waits for inherited signal": lambda: Device["CLANG"].hw_compute_queue_t().wait(s, 1),
    }
    read, write = os.pipe()
    child = os.fork()
    if not child:
        wrong = []
        signal.alarm(20)
        for name, touch in touches.items():
            try:
                touch()
                wrong.append(f"{name}: nothing")
            except ForkedDeviceError:
                pass
            except BaseException as error:
                wrong.append(f"{name}: {error!r}")
        os.write(write, "; ".join(wrong).encode())
        os._exit(0)
    os.close(write)
    with open(read) as text:
        assert text.read() == ""
    os.waitpid(child, 0)
    q.submit(dev)
    s.wait(1)


def test_control_c_ends_a_wait_for_a_signal_that_never_rests(dev):
    s = HCQSignal()
    stop = threading.Event()

    def bump():
        while not stop.is_set():
            s.value += 1
            time.sleep(0.00002)

    def interrupt():
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    threads = [threading.Thread(target=bump), threading.Thread(target=interrupt)]
    for t in threads:
        t.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            s.wait(2**60, timeout=5000)
    finally:
        stop.set()
        for t in threads:
            t.join()


def test_a_command_that_hangs_loses_the_device_and_ends_every_wait():
    holds(
        python(
            """
            import os
            import numpy as np
            flag = Buffer("CLANG", 1, dtypes.int32).allocate()
            flag.copyin(bytes(4))
            dev = Device["CLANG"]
            hang = dev.program("hang", "void hang(int *p) { while (*(volatile int *)p == 0); }")
            later = HCQSignal()
            view = np.asarray(flag)
            hang(flag)
            dev.hw_compute_queue_t().signal(later, 1).submit(dev)
            for wait in dev.synchronize, lambda: later.wait(1, timeout=8000), dev.synchronize:
                try:
                    wait()
                    print("no error")
                except DeviceLost as error:
                    assert "HCQ_KERNEL_TIMEOUT_MS" in str(error), error
            dev.close()
            os.environ["HCQ_KERNEL_TIMEOUT_MS"] = os.environ["HCQ_TIMEOUT_MS"] = "30000"
            again = Device["CLANG"]
            add = again.program("add", "void add(int *a) { a[0] += 1; }")
            add(Buffer("CLANG", 1, dtypes.int32).allocate(), wait=True)
            view[0] = 1
            again.synchronize()
            print("fine")
            """,
            HCQ_KERNEL_TIMEOUT_MS="300",
            HCQ_TIMEOUT_MS="300",
        )
    )


def test_a_bound_queue_may_run_for_longer_than_one_command_may():
    holds(
        python(
            """
            dev = Device["CLANG"]
            spin = dev.program("spin", "void spin(volatile int *p) { for (int i = 0; i < 20000000; i++) *p = i; }")
            buf = Buffer("CLANG", 1, dtypes.int32).allocate()
            spin(buf, wait=True)
            q = dev.hw_compute_queue_t()
            args = spin.fill_kernargs([buf._buf])
            for _ in range(40):
                q.exec(spin, args)
            q.bind(dev)
            q.submit(dev)
            dev.synchronize()
            print("fine")
            """,
            HCQ_KERNEL_TIMEOUT_MS="600",
        )
    )


def test_a_queue_limit_of_one_segment_or_less_still_works():
    for limit in "1024", "65536", "131072":
        holds(
            python(
                """
                dev = Device["CLANG"]
                add = dev.program("add", "void add(int *a) { a[0] += 1; }")
                buf = Buffer("CLANG", 1, dtypes.int32).allocate()
                buf.copyin(bytes(4))
                for _ in range(5000): add(buf)
                dev.synchronize()
                assert bytes(buf.as_buffer()) == (5000).to_bytes(4, "little")
                s, q = HCQSignal(), dev.hw_compute_queue_t()
                for i in range(100000): q.signal(s, i)
                try:
                    q.submit(dev)
                except LaunchError as error:
                    assert "HCQ_QUEUE_LIMIT" in str(error)
                    print("fine")
                """,
                HCQ_QUEUE_LIMIT=limit,
            )
        )


def test_memory_running_out_while_a_queue_is_built_is_a_memory_error():
    holds(
        python(
            """
            import resource
            dev = Device["CLANG"]
            s, q = HCQSignal(), dev.hw_compute_queue_t()
            add = q.memory_barrier
            used = int(open("/proc/self/statm").read().split()[0]) * 4096
            resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20), resource.getrlimit(resource.RLIMIT_AS)[1]))
            try:
                for _ in range(10_000_000): add()
            except MemoryError:
                pass
            else:
                raise SystemExit("no MemoryError")
            try:
                q.submit(dev)
            except (MemoryError, LaunchError):
                pass
            del q
            dev.hw_compute_queue_t().signal(s, 1).submit(dev)
            s.wait(1)
            print("fine")
            """,
            HCQ_QUEUE_LIMIT=str(1 << 40),
        )
    )


def test_a_signal_in_a_buffer_keeps_the_memory(dev):
    buf = Buffer("CLANG", 64, dtypes.uint8).allocate()
    s = HCQSignal(5, memory=buf)
    buf.deallocate()
    others = [Buffer("CLANG", 64, dtypes.uint8).allocate() for _ in range(4)]
    for other in others:
        other.copyin(bytes(64))
    assert s.value == 5


def test_a_prepared_launch_keeps_the_memory_of_its_buffers(dev, add):
    buf = Buffer("CLANG", 16, dtypes.int32).allocate()
    view = Buffer("CLANG", 16, dtypes.int32).allocate().view(4, dtypes.int32, 16).allocate()
    prepared = [add.prepare(buf, vals=(1,)), add.prepare(view, vals=(1,))]
    buf.deallocate()
    view.base.deallocate()
    others = [Buffer("CLANG", 16, dtypes.int32).allocate() for _ in range(8)]
    for other in others:
        other.copyin(bytes(64))
    for launch in prepared:
        launch(wait=True)
    assert [bytes(other.as_buffer()) for other in others] == [bytes(64)] * 8


def test_a_loop_that_goes_with_tasks_pending_leaves_no_descriptor():
    def count():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    async def start(signal):
        asyncio.get_running_loop().create_task(signal.reached(1)).set_name("pending")
        await asyncio.sleep(0.01)

    before = count()
    for _ in range(5):
        signal, loop = HCQSignal(), asyncio.new_event_loop()
        loop.set_exception_handler(lambda *_: None)
        loop.run_until_complete(start(signal))
        loop.close()
        del loop
    assert count() <= before
    signal.value = 1


def test_leaving_with_daemon_threads_at_work_is_quiet():
    done = python(
        """
        import threading, time
        dev = Device["CLANG"]
        add = dev.program("add", "void add(int *a) { a[0] += 1; }")
        buf, never = Buffer("CLANG", 1, dtypes.int32).allocate(), HCQSignal()
        stream = dev.stream().wait((never, 1))
        def forever(work):
            while True:
                work()
        works = [
            lambda: add(buf), lambda: add(buf, wait=True), dev.synchronize, lambda: never.wait(1),
            lambda: add(buf, stream=stream, wait=True), lambda: bytes(buf.as_buffer()), lambda: dev.stream(),
        ]
        for work in works:
            threading.Thread(target=forever, args=(work,), daemon=True).start()
        time.sleep(0.3)
        print("fine")
        """,
        HCQ_TIMEOUT_MS="100000",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")


@pytest.mark.unchecked("its streams race for one buffer")
def test_ten_thousand_streams_come_and_go(dev, add):
    buf = Buffer("CLANG", 1, dtypes.int32).allocate()
    buf.copyin(bytes(4))
    for _ in range(10_000):
        add(buf, vals=(1,), stream=dev.stream().wait(dev))
        if _ % 64 == 0:
            dev.synchronize()
    dev.synchronize()
    _native.run_retired()
    assert len(_native.queues()) < 100


def test_a_subinterpreter_is_refused_and_the_main_one_goes_on():
    holds(
        python(
            """
            import sys
            dev = Device["CLANG"]
            if sys.version_info < (3, 12):
                import _xxsubinterpreters as interpreters
                other = interpreters.create()
                try:
                    interpreters.run_string(other, "import hcq\\nhcq.HCQSignal()")
                    print("no error")
                except interpreters.RunFailedError as error:
                    assert "main interpreter" in str(error), error
                interpreters.destroy(other)
            s = HCQSignal()
            dev.hw_compute_queue_t().signal(s, 1).submit(dev)
            s.wait(1)
            print("fine")
            """
        )
    )


@pytest.mark.parametrize("dtype", ["O", ">i4"])
def test_arrays_that_kernels_cannot_read_are_refused(dtype: str) -> None:
    dev = Device["CLANG"]
    touch = dev.program("touch", "void touch(char *x) { x[0] = 1; }")
    array = np.array([1, 2]).astype(dtype)
    with pytest.raises(LaunchError, match="array 0"):
        touch(array)
    assert list(array) == [1, 2]


def test_kernargs_at_a_null_address_are_refused() -> None:
    dev = Device["CLANG"]
    touch = dev.program("touch", "void touch(char *x) { x[0] = 1; }")
    with pytest.raises(ValueError, match="kernargs_ptr"):
        touch.fill_kernargs([Buffer("CLANG", 4, dtypes.uint8).allocate()], kernargs_ptr=0)


def test_a_native_queue_has_a_repr_that_helps() -> None:
    dev = Device["CLANG"]
    queue = dev.hw_compute_queue_t().memory_barrier()
    assert repr(queue).endswith("Queue: 1 commands>")
    assert repr(queue.bind(dev)).endswith("Queue: 1 commands, bound to CLANG>")
