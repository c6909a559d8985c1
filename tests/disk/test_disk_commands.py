"""DISK: reads and writes as commands of native queues, what goes wrong in them, forks and threads."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import pickle
import shutil
import subprocess
import sys
import threading

import numpy
import pytest
from disk_tools import U8, data_of, descriptors, forget_pages, whole

import hcq
from hcq import Buffer, Device, HCQSignal, _native, dtypes
from hcq.errors import DeviceLost


@pytest.mark.parametrize("offset", [0, 1, 63, 511, 513, 4095, 1_000_000])
@pytest.mark.parametrize("cold", [False, True])
def test_reads_are_commands_of_any_native_queue(big, engine, offset, cold):
    src, dest = whole(big), hcq.zeros(2_000_001, U8, "CLANG")
    for name in (src.device, "CLANG"):
        dest.fill(0)
        if cold:
            forget_pages(big)
        device, signal = Device[name], HCQSignal()
        queue = device.hw_copy_queue_t().copy(dest._buf.va_addr, src._buf.va_addr + offset, 2_000_001)
        queue.signal(signal, 1).submit(device)
        signal.wait(1)
        assert bytes(dest.as_buffer()) == big.read_bytes()[offset : offset + 2_000_001]


def test_writes_are_commands_too_and_files_are_copied_to_files(big, engine, tmp_path):
    copy = Buffer(f"DISK:{tmp_path}/copy?mode=create", 3_000_001, U8)
    hcq.copy(copy, whole(big))
    assert (tmp_path / "copy").read_bytes() == big.read_bytes()
    device, signal = Device["CLANG"], HCQSignal()
    data = hcq.array(numpy.frombuffer(data_of(3_000_001, 4), numpy.uint8), "CLANG")
    device.hw_copy_queue_t().copy(copy._buf.va_addr, data._buf.va_addr, 3_000_001).signal(signal, 1).submit(device)
    signal.wait(1)
    assert (tmp_path / "copy").read_bytes() == data.numpy().tobytes()


@pytest.mark.parametrize(("to", "from_"), [(0, 700_001), (700_001, 0)])
def test_overlapping_ranges_of_one_file_are_as_if_read_first(big, to, from_):
    content = bytearray(big.read_bytes())
    buf = whole(big, "?mode=rw")
    hcq.copy(buf.view(2_000_000, U8, to), buf.view(2_000_000, U8, from_).ensure_allocated())
    content[to : to + 2_000_000] = content[from_ : from_ + 2_000_000]
    assert big.read_bytes() == content


def test_streams_and_graphs_take_reads(big):
    src, dest = whole(big), hcq.zeros(3_000_001, U8, "CLANG")
    part, at = hcq.zeros(4096, U8, "CLANG"), src.view(4096, U8, 77).ensure_allocated()
    stream = Device["CLANG"].stream()
    hcq.copy(dest, src, stream=stream)
    stream.synchronize()
    assert bytes(dest.as_buffer()) == big.read_bytes()
    with hcq.capture(inputs={"to": dest}) as graph:
        hcq.copy(dest, src)
        hcq.copy(part, at)
    for _ in range(3):
        dest.fill(0), part.fill(0)
        graph.replay().wait()
        assert bytes(dest.as_buffer()) == big.read_bytes() and bytes(part.as_buffer()) == big.read_bytes()[77:4173]
    other = hcq.zeros(3_000_001, U8, "CLANG")
    graph.replay(to=other).wait()
    assert bytes(other.as_buffer()) == big.read_bytes()


def test_a_kernel_of_a_graph_comes_after_the_read_that_it_uses(tmp_path):
    path = tmp_path / "numbers"
    numpy.arange(1_000_000, dtype=numpy.int32).tofile(path)
    src, x = Buffer(f"DISK:{path}", 1_000_000, dtypes.int32).allocate(), hcq.empty(1_000_000, dtypes.int32, "CLANG")
    double = Device["CLANG"].program("d", "void d(int* x, int n) { for (int i = 0; i < n; ++i) x[i] *= 2; }")
    with hcq.capture() as graph:
        hcq.copy(x, src)
        double(x, vals=(1_000_000,))
    for _ in range(5):
        graph.replay()
    Device["CLANG"].synchronize()
    assert (x.numpy() == 2 * numpy.arange(1_000_000, dtype=numpy.int32)).all()


def test_traces_name_copies_from_and_to_files(big, tmp_path):
    src, dest = whole(big), hcq.zeros(3_000_001, U8, "CLANG")
    with hcq.profile() as profile:
        hcq.copy(dest, src)
        hcq.copy(Buffer(f"DISK:{tmp_path}/new?mode=create", 3_000_001, U8), dest)
        src.numpy()
        src.view(100, U8, 1).numpy()
    names = [span.name for span in profile.spans if span.kind == "copy"]
    assert sorted(names) == ["CPU -> DISK", "DISK -> CLANG", "DISK -> CPU", "DISK -> CPU"]


@pytest.mark.unchecked("for the checks, a wait that failed orders nothing")
def test_what_goes_wrong_in_a_queue_has_its_cause_and_spoils_nothing_else(big):
    src, dest = whole(big), hcq.zeros(3_000_001, U8, "CLANG")
    device = Device["CLANG"]
    stream = device.stream()
    content = big.read_bytes()
    os.truncate(big, 1000)
    hcq.copy(dest, src, stream=stream)
    with pytest.raises(DeviceLost) as caught:
        stream.synchronize()
    assert isinstance(caught.value.cause, EOFError) and str(big) in str(caught.value)
    device.synchronize()
    with hcq.capture() as graph:
        hcq.copy(dest, src)
    with pytest.raises(DeviceLost):
        graph.replay().wait()
    for name in ("CLANG", src.device):  # told once by each that waited for it
        with contextlib.suppress(DeviceLost):
            Device[name].synchronize()
        Device[name].synchronize()
    big.write_bytes(content)
    graph.replay().wait()
    hcq.copy(dest, src)
    assert bytes(dest.as_buffer()) == content
    device.synchronize()


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("most", [1, 1000, 65536])
def test_short_reads_are_continued(big, engine, most, cold):
    src, dest = whole(big), hcq.zeros(3_000_001, U8, "CLANG")
    if cold:
        forget_pages(big)
    _native.disk_disturb(40, most, 0)
    hcq.copy(dest, src)
    assert bytes(dest.as_buffer()) == big.read_bytes()
    _native.disk_disturb(5, most, 0)
    assert bytes(src.view(5000, U8, 3).as_buffer()) == big.read_bytes()[3:5003]


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("code", [errno.EINTR, errno.EAGAIN])
def test_interrupted_calls_are_repeated(big, engine, code, cold):
    src, dest = whole(big), hcq.zeros(3_000_001, U8, "CLANG")
    if cold:
        forget_pages(big)
    _native.disk_disturb(7, 2**62, code)
    hcq.copy(dest, src)
    assert bytes(dest.as_buffer()) == big.read_bytes()


@pytest.mark.parametrize("cold", [False, True])
def test_an_error_of_the_system_is_raised_as_it_is(big, engine, cold):
    src, dest = whole(big), hcq.zeros(3_000_001, U8, "CLANG")
    if cold:
        forget_pages(big)
    _native.disk_disturb(1, 2**62, errno.EIO)
    with pytest.raises(OSError) as caught:
        hcq.copy(dest, src)
    assert caught.value.errno == errno.EIO and caught.value.filename == str(big)
    hcq.copy(dest, src)
    assert bytes(dest.as_buffer()) == big.read_bytes()


@pytest.mark.parametrize("count", [1000, 3_000_000])
def test_a_full_disk_is_the_systems_error(tmp_path, count):
    buf = Buffer(f"DISK:{tmp_path}/full?mode=create", count, U8).allocate()
    _native.disk_disturb(1, 2**62, errno.ENOSPC)
    with pytest.raises(OSError) as caught:
        buf.copyin(bytes(count))
    assert caught.value.errno == errno.ENOSPC and caught.value.filename == f"{tmp_path}/full"
    buf.copyin(bytes(count))


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB, where this process may mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None or subprocess.run([mount, "-t", "tmpfs", "-o", "size=1m", "none", folder], check=False).returncode:
        pytest.skip("this process may not mount a file system")
    try:
        yield folder
    finally:
        gc.collect()
        subprocess.run(["umount", "-l", folder], check=True)  # also where a failed test keeps a file open


def test_a_file_system_that_is_full_is_the_systems_error_and_no_half_file(small_disk):
    name = f"DISK:{small_disk}/full?mode=create"
    buf, source = Buffer(name, 4 << 20, U8).allocate(), hcq.zeros(4 << 20, U8, "CLANG")  # growing takes no blocks
    source.fill(3)
    with pytest.raises(OSError) as caught:
        hcq.copy(buf, source)
    assert caught.value.errno == errno.ENOSPC
    Device["CLANG"].synchronize()
    del buf, caught  # its traceback has the buffer
    gc.collect()
    os.unlink(small_disk / "full")
    path = small_disk / "a.safetensors"
    hcq.save(path, {"a": numpy.ones(1000, numpy.uint8)})
    before = path.read_bytes()
    for suffix in ("safetensors", "gguf", "npz"):
        with pytest.raises(OSError) as caught:
            hcq.save(path.with_suffix(f".{suffix}"), {"a": numpy.ones(1 << 20, numpy.float32)})
        assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == before and os.listdir(small_disk) == ["a.safetensors"]


def test_a_copy_of_no_bytes_is_over_at_once(big, tmp_path):
    copy, device = Buffer(f"DISK:{tmp_path}/copy?mode=create", 10, U8).allocate(), Device["CLANG"]
    source, memory = whole(big), hcq.empty(10, U8, "CLANG").ensure_allocated()
    into, signal = copy._buf.va_addr, HCQSignal()
    queue = device.hw_copy_queue_t()
    queue.copy(into, memory._buf.va_addr, 0).copy(into, source._buf.va_addr, 0)
    queue.copy(memory._buf.va_addr, source._buf.va_addr, 0).signal(signal, 1).submit(device)
    signal.wait(1, timeout=20_000)


def test_the_staging_ring_takes_files(big):
    code = f"""
import hcq
src = hcq.Buffer("DISK:{big}", 3000001, hcq.dtypes.uint8).allocate()
dest = hcq.empty(3000001, hcq.dtypes.uint8, "CLANG")
with hcq.profile() as profile:
    hcq.copy(dest, src)
    hcq.Device["CLANG"].synchronize()
assert [s.name for s in profile.spans if s.kind == "copy"] == ["DISK -> CLANG"] * 2
assert bytes(dest.as_buffer()) == open("{big}", "rb").read()
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "HCQ_FORCE_STAGING": "1"}, timeout=60)


def test_a_file_that_a_forked_child_inherited_is_not_among_its_devices(big):
    kept = whole(big)
    child = os.fork()
    if not child:
        code = 1
        with contextlib.suppress(BaseException), hcq.profile(), hcq.checks():
            code = 2 if kept.device in [device.dname for device in hcq.HCQCompiled.devices] else 0
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_a_forked_child_reads_on_what_it_inherited_and_what_it_opens(big):
    src, dest = whole(big), hcq.zeros(3_000_001, U8, "CLANG")
    hcq.copy(dest, src)
    content = big.read_bytes()
    child = os.fork()
    if not child:
        status = 1
        try:
            mine = hcq.empty(3_000_001, U8, "CLANG")
            hcq.copy(mine, src)
            again = hcq.empty(3_000_001, U8, "CLANG")
            hcq.copy(again, whole(big))
            status = not (bytes(mine.as_buffer()) == bytes(again.as_buffer()) == bytes(src.as_buffer()) == content)
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    hcq.copy(dest, src)


def test_opening_and_reading_in_a_loop_leaks_nothing(big):
    dest = hcq.empty(3_000_001, U8, "CLANG")

    def once():
        src = whole(big)
        hcq.copy(dest, src)
        name = src.device
        del src
        Device.close(name)

    once()
    before = len(os.listdir("/proc/self/fd")), threading.active_count(), _native.disk_files(), _native.disk_threads()
    for _ in range(50):
        once()
    assert before == (
        len(os.listdir("/proc/self/fd")),
        threading.active_count(),
        _native.disk_files(),
        _native.disk_threads(),
    )


def test_a_buffer_may_go_while_its_read_is_queued(big):
    src, dest = whole(big), hcq.zeros(3_000_001, U8, "CLANG")
    device, gate, done = Device["CLANG"], HCQSignal(), HCQSignal()
    queue = device.hw_copy_queue_t().wait(gate, 1).copy(dest._buf.va_addr, src._buf.va_addr, 3_000_001)
    queue.signal(done, 1).submit(device)
    name = src.device
    del src
    Device.close(name)
    gate.value = 1
    done.wait(1)
    assert bytes(dest.as_buffer()) == big.read_bytes()
    assert descriptors(big) == 0


def test_addresses_of_files_are_no_memory(big):
    src = whole(big, "?mode=rw")
    with pytest.raises(ValueError, match="writable memory"):
        HCQSignal(0, memory=src.view(64, U8, 0).ensure_allocated())
    with pytest.raises((hcq.errors.LaunchError, TypeError)):
        Device["CLANG"].program("f", "void f(char* x) { x[0] = 1; }")(src)


def test_pickled_buffers_name_their_file(file):
    buf = Buffer(f"DISK:{file}", 1000, U8).allocate()
    copy, part = pickle.loads(pickle.dumps((buf, buf.view(10, U8, 7)), protocol=5))
    assert copy.device == buf.device and bytes(copy.as_buffer()) == file.read_bytes()[:1000]
    assert bytes(part.as_buffer()) == file.read_bytes()[7:17] and part.base is copy


def test_threads_may_open_read_and_drop_one_file(big):
    content, wrong = big.read_bytes(), []

    def work(seed):
        rng = numpy.random.default_rng(seed)
        dest = hcq.empty(400_000, U8, "CLANG" if seed % 2 else "LLVM")
        for _ in range(25):
            at = int(rng.integers(0, 2_600_000))
            buf = whole(big)
            hcq.copy(dest, buf.view(400_000, U8, at).ensure_allocated())
            if bytes(dest.as_buffer()) != content[at : at + 400_000]:
                wrong.append((seed, at))
            if bytes(buf.view(100, U8, at).as_buffer()) != content[at : at + 100]:
                wrong.append((seed, at, "small"))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and descriptors(big) == 0


def test_a_lost_destination_says_so(big):
    src, dest = whole(big), hcq.empty(3_000_001, U8, "NULL")
    with hcq.testing.inject(Device["NULL"], "copy"):
        hcq.copy(dest.view(10, U8, 0), dest.view(10, U8, 100).ensure_allocated())
    with pytest.raises(DeviceLost):
        hcq.copy(dest, src)
    Device.close("NULL")
    hcq.copy(hcq.empty(3_000_001, U8, "NULL"), src)
