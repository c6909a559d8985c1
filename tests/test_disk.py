"""DISK: files as memory to copy from and to. What a file may do to a reader, and that writing leaves no half file."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import pickle
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import traceback

import numpy
import pytest

import hcq
from hcq import Buffer, Device, HCQSignal, _native, dtypes
from hcq.errors import DeviceLost

U8 = dtypes.uint8


@pytest.fixture(autouse=True)
def closed_afterwards():
    yield
    for name in Device.opened:
        if name.startswith("DISK"):
            Device.close(name)


@pytest.fixture(params=["CLANG", "NULL"])
def device(request):
    return request.param


def descriptors(path):
    """How many descriptors of this process are open on the file."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.path.samestat(os.stat(f"/proc/self/fd/{name}"), os.stat(path))
        except OSError:
            continue
    return found


def data_of(count, seed=1):
    return numpy.random.default_rng(seed).integers(0, 256, count, dtype=numpy.uint8).tobytes()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(data_of(100_003))
    return path


def test_opening_to_read_opens_nothing_until_memory_is_asked_for_and_closes_with_the_last(file):
    name = f"DISK:{file}"
    assert Device[name] is Device[name] and descriptors(file) == 0
    one, two = (Buffer(name, 100, U8).allocate() for _ in range(2))
    assert descriptors(file) == 1
    view = one.view(10, U8, 3)
    del one
    assert descriptors(file) == 1
    two.deallocate()
    assert bytes(view.as_buffer()) == file.read_bytes()[3:13]
    del view
    assert descriptors(file) == 0


def test_reading_leaves_the_file_as_it_was(file):
    before, content = os.stat(file), file.read_bytes()
    buf = Buffer(f"DISK:{file}", len(content), U8).allocate()
    assert bytes(buf.as_buffer()) == content
    with pytest.raises(PermissionError, match="mode=rw"):
        buf.copyin(bytes(len(content)))
    after = os.stat(file)
    assert (before.st_size, before.st_mtime_ns, before.st_mode) == (after.st_size, after.st_mtime_ns, after.st_mode)
    assert file.read_bytes() == content


@pytest.mark.parametrize("offset", [0, 1, 7, 511, 512, 513, 4095, 4096, 4097])
@pytest.mark.parametrize("count", [1, 3, 511, 512, 4096, 4099, 65536, 90001])
def test_views_at_any_byte_reach_a_device_whole(file, device, offset, count):
    whole = Buffer(f"DISK:{file}", 100_003, U8)
    view = whole.view(count, U8, offset).ensure_allocated()
    dest = hcq.empty(count, U8, device)
    hcq.copy(dest, view)
    assert bytes(dest.as_buffer()) == file.read_bytes()[offset : offset + count]


def test_views_have_any_dtype_at_any_offset(file):
    whole = Buffer(f"DISK:{file}", 100_003, U8).allocate()
    for dtype in (dtypes.float32, dtypes.int16, dtypes.uint64):
        view = whole.view(5, dtype, 13)
        size = 5 * dtypes.itemsize(dtype)
        assert view.numpy().tobytes() == file.read_bytes()[13 : 13 + size]


def test_a_missing_file_is_the_systems_error_and_the_next_try_works(tmp_path):
    path = tmp_path / "late"
    buf = Buffer(f"DISK:{path}", 4, U8)
    for _ in range(2):
        with pytest.raises(FileNotFoundError) as caught:
            buf.allocate()
        assert caught.value.filename == str(path)
    assert not path.exists()
    path.write_bytes(b"here")
    assert bytes(buf.allocate().as_buffer()) == b"here"


@pytest.mark.parametrize("mode", ["", "?mode=rw"])
def test_what_is_no_file_is_refused_without_waiting(tmp_path, mode):
    folder, pipe = tmp_path / "folder", tmp_path / "pipe"
    folder.mkdir()
    os.mkfifo(pipe)
    with pytest.raises(IsADirectoryError):
        Buffer(f"DISK:{folder}{mode}", 4, U8).allocate()
    for path in (pipe, "/dev/null"):
        before = descriptors(path)
        with pytest.raises(OSError, match="any offset"):
            Buffer(f"DISK:{path}{mode}", 4, U8).allocate()
        assert descriptors(path) == before
    assert stat.S_ISFIFO(os.stat(pipe).st_mode)


def test_past_the_end_and_a_file_cut_short_raise(file, device):
    long = Buffer(f"DISK:{file}", 200_000, U8).allocate()
    with pytest.raises(EOFError, match="100003"):
        long.as_buffer()
    dest = hcq.empty(200_000, U8, device)
    with pytest.raises(EOFError, match="100003"):
        hcq.copy(dest, long)
    os.truncate(file, 10)
    short = long.view(8192, U8, 0).ensure_allocated()
    with pytest.raises(EOFError, match="10"):
        hcq.copy(hcq.empty(8192, U8, device), short)
    assert bytes(long.view(10, U8, 0).as_buffer()) == file.read_bytes()


def test_a_file_that_grows_is_read_as_far_as_it_has_grown(file):
    long = Buffer(f"DISK:{file}", 100_004, U8).allocate()
    with pytest.raises(EOFError):
        long.as_buffer()
    with file.open("ab") as more:
        more.write(b"!")
    assert bytes(long.as_buffer())[-1:] == b"!"


def test_a_replaced_file_is_read_anew_and_who_had_the_old_one_keeps_it(file, tmp_path):
    old = Buffer(f"DISK:{file}", 4, U8).allocate()
    first = bytes(old.as_buffer())
    other = tmp_path / "other"
    other.write_bytes(b"newer")
    other.rename(file)
    new = Buffer(f"DISK:{file}", 5, U8).allocate()
    assert bytes(new.as_buffer()) == b"newer" and bytes(old.as_buffer()) == first


def test_rw_writes_within_the_file_and_never_beyond(file, device):
    content = bytearray(file.read_bytes())
    buf = Buffer(f"DISK:{file}?mode=rw", 100_010, U8).allocate()
    view = buf.view(5000, U8, 77)
    new = data_of(5000, 2)
    hcq.copy(view, hcq.array(numpy.frombuffer(new, numpy.uint8), device))
    content[77:5077] = new
    assert file.read_bytes() == content
    with pytest.raises(ValueError, match="mode=create"):
        buf.copyin(bytes(100_010))
    assert file.read_bytes() == content


def test_rw_of_a_missing_or_read_only_file_is_the_systems_error(file):
    with pytest.raises(FileNotFoundError):
        Buffer(f"DISK:{file}-none?mode=rw", 4, U8).allocate()
    assert not os.path.exists(f"{file}-none")


def test_what_may_not_be_opened_is_the_systems_error_and_the_next_try_works():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = os.path.join(folder, "data")
        with open(path, "wb") as made:
            made.write(b"content")
        os.chmod(folder, 0o755)
        child = os.fork()
        if not child:
            status = 1
            try:
                # Root may open anything: as somebody else, who has the first of these files for reading alone.
                os.chmod(path, 0o644)
                if os.geteuid() == 0:
                    os.seteuid(65534)
                else:
                    os.chmod(path, 0o444)
                for name in (f"DISK:{path}?mode=rw", f"DISK:{path}?mode=create"):
                    with pytest.raises(PermissionError) as caught:
                        Buffer(name, 7, U8).allocate()
                    assert caught.value.filename == path
                assert bytes(Buffer(f"DISK:{path}", 7, U8).allocate().as_buffer()) == b"content"
                mine = os.geteuid()
                if mine == 65534:
                    os.seteuid(0)
                os.chmod(path, 0)
                os.seteuid(mine)
                for _ in range(2):
                    with pytest.raises(PermissionError):
                        Buffer(f"DISK:{path}", 7, U8).allocate()
                if mine == 65534:
                    os.seteuid(0)
                os.chmod(path, 0o644)
                os.seteuid(mine)
                assert bytes(Buffer(f"DISK:{path}", 7, U8).allocate().as_buffer()) == b"content"
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0


def test_create_makes_grows_and_never_shrinks(tmp_path):
    path = tmp_path / "made"
    name = f"DISK:{path}?mode=create"
    buf = Buffer(name, 10, U8)
    assert not path.exists()
    buf.allocate().copyin(b"0123456789")
    assert path.read_bytes() == b"0123456789"
    longer = Buffer(name, 12, U8).allocate()
    assert bytes(longer.as_buffer()) == b"0123456789\0\0"
    Buffer(name, 1, U8).allocate()
    assert path.stat().st_size == 12


def test_a_failed_open_leaves_nothing_behind(tmp_path):
    with pytest.raises(OSError):
        Buffer(f"DISK:{tmp_path}/huge?mode=create", 2**63 - 1, U8).allocate()
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        Buffer(f"DISK:{tmp_path}/no/folder?mode=create", 4, U8).allocate()


def test_names_say_which_file_and_how():
    assert Device["DISK"].place is None
    with pytest.raises(ValueError, match="names no file"):
        Buffer("DISK", 4, U8).allocate()
    for name in ("DISK:/a?mode=w", "DISK:shm:", "DISK:shm:a/b", "DISK:/a?mode="):
        with pytest.raises(ValueError):
            Device[name]
    assert Device["DISK:/a?mode=rw?mode=r"].place.path == "/a?mode=rw"


@pytest.fixture
def segment():
    name = f"hcq-test-{os.getpid()}"
    yield name
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"/dev/shm/{name}")


def test_a_segment_is_shared_memory_in_place(segment):
    made = Buffer(f"DISK:shm:{segment}?mode=create", 4096, U8).allocate()
    other = Buffer(f"DISK:shm:{segment}", 4096, U8).allocate()
    numpy.asarray(made)[:4] = [1, 2, 3, 4]
    assert bytes(other.as_buffer())[:4] == bytes([1, 2, 3, 4])
    assert not numpy.asarray(other).flags.writeable
    with pytest.raises(ValueError, match="writable memory"):
        HCQSignal(0, memory=other.view(64, U8, 64))
    signal = HCQSignal(0, memory=made.view(64, U8, 64))
    HCQSignal(0, memory=made.view(64, U8, 64)).value = 7
    assert signal.value == 7 and bytes(other.as_buffer())[64] == 7
    with pytest.raises(ValueError, match="mode=create grows"):
        Buffer(f"DISK:shm:{segment}", 8192, U8).allocate()
    with pytest.raises(FileNotFoundError):
        Buffer(f"DISK:shm:{segment}-none", 4, U8).allocate()


def test_kernels_and_queues_work_in_a_segment(segment, device):
    made = Buffer(f"DISK:shm:{segment}?mode=create", 100_000, U8).allocate()
    data = hcq.array(numpy.frombuffer(data_of(100_000), numpy.uint8), device)
    hcq.copy(made, data)
    back = hcq.empty(100_000, U8, device)
    hcq.copy(back, made)
    assert bytes(back.as_buffer()) == data_of(100_000) == bytes(made.as_buffer())


OTHER_SIDE = """
import hcq, sys
both = hcq.Buffer("DISK:shm:" + sys.argv[1] + "?mode=rw", 4096, hcq.dtypes.uint8).allocate()
ask, answer = (hcq.HCQSignal(memory=both.view(64, hcq.dtypes.uint8, at)) for at in (0, 64))
numbers = hcq.Buffer("CLANG", 100, hcq.dtypes.uint8, preallocate=True)
device = hcq.Device["CLANG"]
for n in range(1, 101):
    # The queue waits for the other process, and answers it.
    queue = device.hw_copy_queue_t().wait(ask, n).copy(both._buf.va_addr + 1024, both._buf.va_addr + 128, 100)
    queue.signal(answer, n).submit(device)
device.synchronize()
"""


def test_two_processes_signal_each_other_through_a_segment(segment):
    both = Buffer(f"DISK:shm:{segment}?mode=create", 4096, U8).allocate()
    ask, answer = (HCQSignal(0, memory=both.view(64, U8, at)) for at in (0, 64))
    child = subprocess.Popen([sys.executable, "-c", OTHER_SIDE, segment])
    memory = numpy.asarray(both)
    for n in range(1, 101):
        memory[128:228] = n
        ask.value = n
        answer.wait(n, 30_000)
        assert (memory[1024:1124] == n).all()
    assert child.wait(30) == 0
    assert os.path.exists(f"/dev/shm/{segment}"), "it is ours, not the child's"


def test_a_segments_name_goes_with_the_last_buffer_of_who_made_it(segment):
    path = f"/dev/shm/{segment}"
    made, more = (Buffer(f"DISK:shm:{segment}?mode=create", size, U8).allocate() for size in (64, 128))
    other = Buffer(f"DISK:shm:{segment}?mode=rw", 64, U8).allocate()
    view = numpy.asarray(made)
    made.deallocate()
    assert os.path.exists(path)
    more.deallocate()
    assert os.path.exists(path), "an array over it lives"
    view[0] = 5
    assert bytes(other.as_buffer())[0] == 5
    del view
    assert not os.path.exists(path)
    assert bytes(other.as_buffer())[0] == 5
    code = (
        f"import hcq; b = hcq.Buffer('DISK:shm:{segment}?mode=create', 64, hcq.dtypes.uint8).allocate(); hcq.kept = b"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert not os.path.exists(path)


def test_a_child_leaves_the_parents_segment(segment):
    made = Buffer(f"DISK:shm:{segment}?mode=create", 64, U8).allocate()
    child = os.fork()
    if not child:
        numpy.asarray(made)[0] = 9
        made.deallocate()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.path.exists(f"/dev/shm/{segment}") and bytes(made.as_buffer())[0] == 9


# Reads and writes as commands


@pytest.fixture
def big(tmp_path):
    path = tmp_path / "big"
    path.write_bytes(data_of(3_000_001, 3))
    return path


def whole(path, mode=""):
    return Buffer(f"DISK:{path}{mode}", os.path.getsize(path), U8).allocate()


@pytest.fixture(params=["uring", "threads"])
def engine(request, monkeypatch):
    if request.param == "uring" and not _native.disk_has_uring():
        pytest.skip("this system has no io_uring for us")
    monkeypatch.setenv("HCQ_DISK_ENGINE", request.param)
    yield request.param
    _native.disk_disturb(0, 0, 0)
    monkeypatch.undo()
    _native.disk_engine("auto")


def forget_pages(path):
    """Take the file out of the system's memory, so that the engines are asked."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


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


# Large files


def test_bytes_beyond_four_gibibytes_of_a_sparse_file(tmp_path):
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(5 << 30)
        file.seek((4 << 30) + 12345)
        file.write(b"found")
    buf = Buffer(f"DISK:{path}", 5 << 30, U8).allocate()
    assert bytes(buf.view(5, U8, (4 << 30) + 12345).as_buffer()) == b"found"
    dest = hcq.empty(1 << 20, U8, "CLANG")
    hcq.copy(dest, buf.view(1 << 20, U8, (4 << 30) + 12300).ensure_allocated())
    assert bytes(dest.as_buffer())[45:50] == b"found"


@pytest.mark.gibibytes
@pytest.mark.parametrize("cold", [False, True])
def test_a_single_read_of_more_than_two_gibibytes(tmp_path, engine, cold):
    size = (2 << 30) + 5
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(size)
        for at in (0, (1 << 31) - 7, size - 5):
            file.seek(at)
            file.write(b"there")
    if cold:
        forget_pages(path)
    dest = hcq.empty(size, U8, "CLANG")
    dest.fill(1)
    hcq.copy(dest, whole(path))
    seen = numpy.asarray(dest)
    assert seen.sum(dtype=numpy.int64) == 3 * sum(b"there")
    for at in (0, (1 << 31) - 7, size - 5):
        assert seen[at : at + 5].tobytes() == b"there"


_DIRECT = pytest.mark.unchecked("red zones move memory off the places that direct reads need")


@pytest.fixture(params=[0, 1, 2, pytest.param(3, marks=_DIRECT)], ids=["cached", "plain", "deep", "direct"])
def way(request):
    _native.disk_force_way(request.param)
    yield request.param
    _native.disk_force_way(-1)


@pytest.mark.parametrize("offset", [0, 1, 3, 64, 511, 512, 513, 4095, 4096, 4097, 1_048_575, 1_048_577])
def test_all_ways_of_reading_give_the_same_bytes(tmp_path, engine, way, offset):
    path = tmp_path / "data"
    data = data_of(7_340_033, 9)  # a byte more than a multiple of every piece
    path.write_bytes(data)
    whole_file, memory = whole(path), hcq.zeros(8 << 20, U8, "CLANG")
    forget_pages(path)
    before = _native.disk_direct_pieces()
    for at in (offset % 4096, 0, 7):  # memory of the same alignment as the bytes, and of another
        for count in (7_340_033 - offset, 300_000, 2 << 20):
            dest = memory.view(count, U8, at).ensure_allocated()
            hcq.copy(dest, whole_file.view(count, U8, offset).ensure_allocated())
            assert bytes(dest.as_buffer()) == data[offset : offset + count]
            end = memory.view(16, U8, at + count)
            assert not any(end.as_buffer()), "nothing is written behind"
            memory.fill(0)
    if way == 3 and supports_direct(path):
        assert _native.disk_direct_pieces() > before


def supports_direct(path):
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


@_DIRECT
@pytest.mark.parametrize(("most", "code"), [(1000, 0), (2**62, errno.EINTR), (2**62, errno.EINVAL)])
def test_a_direct_read_that_is_short_or_refused_goes_on_by_the_page_cache(tmp_path, engine, most, code):
    path = tmp_path / "data"
    data = data_of(5_000_001, 9)
    path.write_bytes(data)
    src, dest = whole(path), hcq.zeros(5_000_001, U8, "CLANG")
    _native.disk_force_way(3)
    try:
        for _ in range(2):
            forget_pages(path)
            hcq.copy(dest, src)
            assert bytes(dest.as_buffer()) == data
            dest.fill(0)
            if supports_direct(path):
                _native.disk_disturb(1, most, code)
    finally:
        _native.disk_force_way(-1)


# What happens meanwhile


def test_a_file_cut_short_while_it_is_read_raises_or_was_read_before(tmp_path, engine):
    path = tmp_path / "data"
    size = 32 << 20
    data = numpy.frombuffer(data_of(size), numpy.uint8)
    dest = hcq.zeros(size, U8, "CLANG")
    seen = set()
    for attempt in range(12):
        data.tofile(path)
        forget_pages(path)
        src = whole(path)
        cutter = threading.Timer(attempt * 0.002, os.truncate, (path, size // 2))
        cutter.start()
        try:
            hcq.copy(dest, src)
            assert (numpy.asarray(dest) == data).all()
            seen.add("whole")
        except EOFError as error:
            assert str(path) in str(error)
            seen.add("cut")
        cutter.join()
    assert "cut" in seen


def test_a_limit_of_file_sizes_is_the_systems_error(tmp_path):
    code = f"""
import errno, resource, hcq
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
try:
    hcq.Buffer("DISK:{tmp_path}/much?mode=create", 2 << 20, hcq.dtypes.uint8).allocate()
except OSError as error:
    assert error.errno == errno.EFBIG, error
else:
    raise SystemExit("it grew")
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert not list(tmp_path.iterdir())


def test_control_c_ends_a_wait_for_a_file_and_the_memory_stays(big):
    code = f"""
import os, signal, threading
import numpy
import hcq
from hcq.drivers.disk import device
src = hcq.Buffer("DISK:{big}", 3000001, hcq.dtypes.uint8).allocate()
dest = hcq.empty(3000001, hcq.dtypes.uint8, "CLANG")
clang, gate = hcq.Device["CLANG"], hcq.HCQSignal()
value = clang.next_timeline()
clang.hw_compute_queue_t().wait(gate, 1).signal(clang.timeline_signal, value).submit(clang)
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    hcq.copy(dest, src)  # behind what the device stands at
except KeyboardInterrupt:
    pass
else:
    raise SystemExit("it did not wait")
assert len(device._left) == 1
gate.value = 1
hcq.Device[src.device].synchronize()
assert bytes(dest.as_buffer()) == open("{big}", "rb").read()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# Under the checks


def test_checks_see_files_and_find_nothing_where_all_is_well(big, tmp_path, segment):
    with hcq.checks(strict=True) as found:
        src, dest = whole(big), hcq.zeros(3_000_001, U8, "CLANG")
        hcq.copy(dest, src)
        hcq.copy(dest, src)
        made = Buffer(f"DISK:{tmp_path}/made?mode=create", 3_000_001, U8)
        hcq.copy(made, dest)
        hcq.copy(dest, made)
        both = Buffer(f"DISK:shm:{segment}?mode=create", 4096, U8).allocate()
        numpy.asarray(both)[:] = 7
        assert bytes(both.as_buffer()) == bytes([7]) * 4096 and os.path.getsize(f"/dev/shm/{segment}") == 4096
        os.truncate(big, 10)
        with pytest.raises(EOFError):
            hcq.copy(dest, src)
        hcq.copy(dest, made)
    assert not found.findings


def test_checks_find_two_writers_of_a_file(tmp_path):
    one, other = (hcq.zeros(500_000, U8, name) for name in ("CLANG", "LLVM"))
    with hcq.checks(), pytest.raises(hcq.errors.RaceError, match="made"):
        made = Buffer(f"DISK:{tmp_path}/made?mode=create", 500_000, U8).allocate()
        for source in (one, other):
            device = Device[source.device]
            queue = device.hw_copy_queue_t().copy(made._buf.va_addr, source._buf.va_addr, 500_000)
            queue.signal(HCQSignal(), 1).submit(device)
    for name in ("CLANG", "LLVM"):
        Device[name].synchronize()
