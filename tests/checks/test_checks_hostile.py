"""Programs that hcq.checks() was not written against: right ones, of which nothing may be said, and wrong ones."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import textwrap
import threading
import warnings

import pytest
from third_party.manual import ManualDevice, ManualNative
from third_party.mini import MiniDevice

import hcq
from hcq import Device, errors
from hcq.validation import redzones

SOURCE = """
void fill(float *out, int n, float v) { for (int i = 0; i < n; i++) out[i] = v; }
void slow(float *out, int n, float v) {
  for (volatile int i = 0; i < 3000000; i++) {}
  for (int i = 0; i < n; i++) out[i] = v;
}
void add(float *out, const float *a, const float *b, int n) { for (int i = 0; i < n; i++) out[i] = a[i] + b[i]; }
void past(float *out, int first, int count) { for (int i = 0; i < count; i++) out[first + i] = 7; }
"""
N = 64
ONE = ((1, 1, 1), (1, 1, 1))


@pytest.fixture
def dev():
    return Device["CLANG"]


@pytest.fixture
def k(dev):
    class Kernels:
        fill, slow, add, past = (dev.program(name, SOURCE) for name in ("fill", "slow", "add", "past"))

    return Kernels


@pytest.fixture
def strict():
    """Checks under which the test runs, and by which nothing may be found, nor be possible."""
    with warnings.catch_warnings(), hcq.checks(strict=True) as checks:
        warnings.simplefilter("error", errors.ValidationWarning)
        yield checks
        for name in ("CLANG", "CLANG:1"):
            Device[name].synchronize()
    assert not checks.findings and not checks.possible


def floats(n=N, device="CLANG"):
    return hcq.empty(n, hcq.dtypes.float32, device)


# Right programs


def test_memory_freed_under_a_streams_work_is_given_out_again(dev, k, strict):
    stream = dev.stream()
    for i in range(20):
        a = floats(4096)
        (k.slow if i % 5 == 0 else k.fill)(a, vals=(4096, float(i)), stream=stream)
        del a
        b = floats(4096)
        k.fill(b, vals=(4096, 77.0))
        assert (b.numpy() == 77).all()
        del b


def test_streams_and_buffers_that_come_and_go_in_many_threads(dev, k, strict):
    failed = []

    def run(i):
        try:
            stream, a, out = dev.stream(), floats(), floats()
            for j in range(40):
                k.fill(a, vals=(N, float(i)), stream=stream)
                k.add(out, a, a, vals=(N,), stream=stream)
                if j % 10 == 0:
                    stream.synchronize()
                    assert out.numpy()[0] == 2 * i
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_consumer_may_be_submitted_before_its_producer(dev, k, strict):
    a, b, signal = floats(), floats(), dev.signal_t()
    kernargs = k.fill.fill_kernargs((a._buf,), (N, 1.0))
    copy = dev.hw_copy_queue_t().wait(signal, 1).copy(b._buf.va_addr, a._buf.va_addr, 4 * N).signal(signal, 2)
    copy.submit(dev)
    dev.hw_compute_queue_t().exec(k.fill, kernargs, *ONE).signal(signal, 1).submit(dev)
    signal.wait(2)
    assert b.numpy()[0] == 1


def test_the_host_and_a_queue_take_turns_on_one_signal(dev, k, strict):
    a, signal = floats(), dev.signal_t()
    kernargs = k.fill.fill_kernargs((a._buf,), (N, 1.0))
    for i in range(20):
        queue = dev.hw_compute_queue_t().wait(signal, 2 * i + 1).exec(k.fill, kernargs, *ONE)
        queue.signal(signal, 2 * i + 2).submit(dev)
    for i in range(20):
        signal.value = 2 * i + 1
        signal.wait(2 * i + 2)


def test_a_graph_writes_what_nobody_wrote_before(dev, k, strict):
    a, b, c, out = (floats() for _ in range(4))
    k.fill(a, vals=(N, 1.0))
    with hcq.capture() as graph:
        k.add(b, a, a, vals=(N,))
        k.add(c, a, a, vals=(N,))
        k.add(out, b, c, vals=(N,))
    for i in range(1, 6):
        graph.replay()
        k.fill(a, vals=(N, float(i + 1)))
        assert out.numpy()[0] == 4 * i


def test_a_driver_in_python_copies_to_and_fro(strict):
    Device.register("HOSTILE", MiniDevice)
    try:
        a, b = floats(device="HOSTILE"), floats(device="HOSTILE:1")
        a.copyin(bytes(4 * N))
        for _ in range(20):
            hcq.copy(b, a)
            hcq.copy(a, b)
        assert not a.numpy().any()
    finally:
        for name in ("HOSTILE", "HOSTILE:1"):
            Device.close(name)
        Device.unregister("HOSTILE")


def test_zones_of_an_earlier_block_take_no_turns_from_those_of_this_one(dev, monkeypatch):
    with hcq.checks():
        earlier = [floats().ensure_allocated() for _ in range(200)]
        dev.synchronize()  # some of them have had their turn then
    seen, whole = [], redzones._Guard.is_whole
    with hcq.checks():
        kept = floats().ensure_allocated()
        monkeypatch.setattr(redzones._Guard, "is_whole", lambda guard: seen.append(guard.first) or whole(guard))
        dev.synchronize()
        assert kept._buf.va_addr in seen
        monkeypatch.undo()
    del earlier


def test_memory_that_a_garbage_collection_frees_in_the_middle_of_a_look_at_red_zones(dev, monkeypatch):
    with hcq.checks() as checks:
        kept, looked = floats(), threading.Event()
        whole = redzones._Guard.is_whole

        def is_whole(guard):
            if not looked.is_set():
                looked.set()
                cycle = [floats()]
                cycle.append(cycle)
                del cycle
                gc.collect()
            return whole(guard)

        monkeypatch.setattr(redzones._Guard, "is_whole", is_whole)
        done = threading.Thread(target=dev.synchronize, daemon=True)
        done.start()
        done.join(20)
        assert not done.is_alive() and looked.is_set()
        del kept
    assert not checks.findings


def test_devices_without_queues_allocate_and_copy(strict):
    from memory_devices import HostDevice

    Device.register("PLAINHOST", HostDevice)
    try:
        a = floats(device="PLAINHOST").ensure_allocated()
        a.copyin(bytes(4 * N))
        assert not a.numpy().any()
    finally:
        Device.close("PLAINHOST")
        Device.unregister("PLAINHOST")


# Wrong ones


def test_who_wrote_beside_a_buffer_is_named_though_another_device_was_synchronized_first(dev, k):
    with pytest.raises(errors.OutOfBoundsError, match=r"on CLANG.*(.|\n)*kernel past"), hcq.checks():
        a = floats()
        k.past(a, vals=(N, 1))
        Device["CLANG:1"].synchronize()
        dev.synchronize()


# What the checks leave as it was


def test_the_checks_keep_no_memory_and_change_no_figure(dev, strict):
    before = hcq.memory_stats("CLANG")
    a = floats()
    a.copyin(bytes(4 * N))
    b = floats(2 * N)
    b.fill(1)
    a.copyout(bytearray(4 * N))
    now = hcq.memory_stats("CLANG")
    assert (now.live_bytes - before.live_bytes, now.live_count - before.live_count) == (12 * N, 2)
    del a, b
    after = hcq.memory_stats("CLANG")
    assert after[:2] == before[:2] and after.cached_bytes - before.cached_bytes in (0, 4 * N, 8 * N, 12 * N)


def test_memory_from_the_cache_has_the_same_handle(dev, strict):
    allocator = dev.allocator
    handle = allocator.alloc(1000)
    allocator.free(handle, 1000)
    assert allocator.alloc(1000) is handle
    allocator.free(handle, 1000)
    with pytest.raises(ValueError, match="free already"):
        allocator.free(handle, 1000)


def test_a_limit_counts_what_was_asked_for_and_red_zones_go_on(dev, k):
    device = Device["CLANG:1"]
    past, allocator = device.program("past", SOURCE), device.allocator
    with hcq.checks():
        allocator.limit = allocator.live_bytes + 4 * N
        try:
            a = floats(device="CLANG:1").ensure_allocated()
            with pytest.raises(errors.OutOfMemory):
                floats(1, device="CLANG:1").ensure_allocated()
            past(a, vals=(N, 1))
            with pytest.raises(errors.OutOfBoundsError, match="kernel past"):
                device.synchronize()
            del a
            assert floats(device="CLANG:1").ensure_allocated()  # the cached one goes first, or is it
        finally:
            allocator.limit = None


def test_memory_that_a_driver_gave_by_itself_is_nobodys_freed_memory(dev, strict):
    kept = [floats(1000) for _ in range(8)]
    del kept
    dev.allocator.free_cache()
    taken = [dev.allocator._alloc(4000, hcq.BufferOptions()) for _ in range(8)]
    out = floats(1000)
    for handle in taken:
        ctypes.memset(handle.va_addr, 0, 4000)
        dev.hw_copy_queue_t().copy(out._buf.va_addr, handle.va_addr, 4000).submit(dev)
        dev.synchronize()
    for handle in taken:
        dev.allocator._free(handle, hcq.BufferOptions())


def test_threads_hand_memory_to_each_other(dev, k, strict):
    failed = []

    def work():
        try:
            for i in range(150):
                a, b = floats(2048), floats(2048)
                k.fill(a, vals=(2048, float(i)))
                hcq.copy(b, a)
                del a
                assert b.numpy()[7] == i
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_the_first_work_of_a_device_that_nobody_was_told_of_is_not_taken_for_done(strict):
    device = ManualDevice()
    try:
        for kind in ("hw_compute_queue_t", "hw_copy_queue_t", "hw_compute_queue_t"):
            device.enqueue(lambda s, v, kind=kind: getattr(device, kind)().wait(s, v - 1).signal(s, v))
        device.run()
        device.synchronize()
    finally:
        device.close()


def test_what_an_earlier_block_left_is_not_this_ones(dev, k):
    with hcq.checks():
        a = floats()
        k.fill(a, vals=(N, 1.0))
    ctypes.memset(a._buf.va_addr + 4 * N, 1, 8)
    with hcq.checks() as checks:
        dev.synchronize()
        del a
    assert not checks.findings


def test_a_read_that_failed_is_no_access(k, monkeypatch):
    device = Device["CLANG:3"]
    fill = device.program("fill", SOURCE)
    a = floats(device="CLANG:3")
    with hcq.checks() as checks:
        gate = device.signal_t()
        fill(a, vals=(N, 1.0))
        device.hw_compute_queue_t().wait(gate, 1).exec(fill, fill.fill_kernargs((a,), (N, 1.0))).submit(device)
        with monkeypatch.context() as short:
            short.setenv("HCQ_TIMEOUT_MS", "20")
            with pytest.raises(errors.SignalTimeout):
                a.copyout(bytearray(4 * N))
        gate.value = 1
        device.synchronize()
        with hcq.testing.inject(device, "exec", error=OSError("gone")):
            fill(a, vals=(N, 1.0))
            with pytest.raises(errors.DeviceLost):
                a.copyout(bytearray(4 * N))
        Device.close("CLANG:3")
        Device["CLANG:3"].synchronize()
    assert not checks.findings
    Device.close("CLANG:3")


def test_a_report_of_what_stands_tells_the_checks_nothing(k, monkeypatch):
    """It looks at the signals of drivers in Python: the read that runs out is no read yet, and a race with nothing."""
    other, device = ManualNative(), Device["CLANG:3"]
    fill, a, gate = device.program("fill", SOURCE), floats(device="CLANG:3"), device.signal_t()
    other.hw_copy_queue_t().signal(other.signal_t(), 1).submit(other)
    other.run()  # its report says what finished last
    try:
        with hcq.checks() as checks, monkeypatch.context() as short:
            fill(a, vals=(N, 1.0))
            device.hw_compute_queue_t().wait(gate, 1).exec(fill, fill.fill_kernargs((a,), (N, 1.0))).submit(device)
            short.setenv("HCQ_TIMEOUT_MS", "20")
            short.setattr("hcq.queues.report._IDLE", 1000)  # whatever devices earlier tests opened
            with pytest.raises(errors.SignalTimeout, match="COPY queue of MANUAL"):
                a.copyout(bytearray(4 * N))
            short.undo()
            gate.value = 1
            device.synchronize()
        assert not checks.findings
    finally:
        gate.value = 1
        other.close()
        Device.close("CLANG:3")


# At the end of the program


def run(code, mode, timeout=60):
    env = {**os.environ, "HCQ_CHECK": mode, "HCQ_DEVICE": "CLANG"}
    program = "import hcq\n" + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=timeout, check=False
    )


@pytest.mark.parametrize(("mode", "status"), [("1", 0), ("strict", 1)])
def test_what_is_found_only_at_the_end_is_printed(mode, status):
    program = """
        import ctypes
        kept = [hcq.empty(4, hcq.dtypes.float32)]
        ctypes.memset(kept[0]._buf.va_addr, 1, {size})
        print("done")
    """
    done = run(program.format(size=17), mode)
    assert done.returncode == status and done.stdout == "done\n"
    assert "out of bounds: something wrote 1 bytes" in done.stderr and "Traceback" not in done.stderr
    mended = run(program.format(size=16), mode)
    assert (mended.returncode, mended.stdout, mended.stderr) == (0, "done\n", "")


def test_daemon_threads_that_never_stop_launching_do_not_hold_up_the_end():
    done = run(
        """
        import threading, time
        dev = hcq.Device["CLANG"]
        put = dev.program("put", "void put(int *a) { a[0] = 1; }")
        bufs = [hcq.empty(1, hcq.dtypes.int32) for _ in range(4)]
        def forever(buf):
            while True:
                put(buf)
                bytes(buf.as_buffer())
        for buf in bufs:
            threading.Thread(target=forever, args=(buf,), daemon=True).start()
        time.sleep(0.2)
        print("fine")
        """,
        "1",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")
