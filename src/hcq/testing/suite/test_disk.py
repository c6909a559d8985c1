"""DISK: files and segments, from and to the device under test; what opening does to a file, and what a file may do."""

import errno
import os
import subprocess
import sys

import numpy as np
import pytest

import hcq
from hcq import Buffer
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import BYTE, I32, empty, filled, in_child, noise, read

SIZE = 600_001


@pytest.fixture
def path(tmp_path):
    yield tmp_path / "file"
    for name in hcq.Device.opened:
        if name.startswith("DISK"):
            hcq.Device.close(name)


@pytest.fixture
def file(path):
    path.write_bytes(noise(SIZE).tobytes())
    return path


def on_disk(path, size=SIZE, mode="", dtype=BYTE):
    return Buffer(f"DISK:{path}{mode}", size, dtype).allocate()


def is_open(path):
    found = os.stat(path)
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.path.samestat(os.stat(f"/proc/self/fd/{name}"), found):
                return True
        except OSError:
            continue
    return False


@promise("copy.from_disk")
@pytest.mark.parametrize("size", [1, 4095, 4096, 4099, 500_003])
@pytest.mark.parametrize("offset", [0, 1, 511, 4097])
def test_files_are_copied_to_the_device(dev, file, size, offset):
    dest = empty(dev, size, BYTE)
    hcq.copy(dest, on_disk(file).view(size, BYTE, offset).ensure_allocated())
    assert (read(dest) == noise(SIZE)[offset : offset + size]).all()


@promise("disk.write", "disk.create")
@pytest.mark.parametrize("size", [1, 4099, 500_003])
def test_the_device_is_copied_to_files(dev, path, size):
    data = noise(size)
    hcq.copy(Buffer(f"DISK:{path}?mode=create", size, BYTE), filled(dev, data))
    assert path.read_bytes() == data.tobytes()


@pytest.mark.core
@promise("disk.read")
def test_reading_leaves_the_file_as_it_was(driver, file):
    before, content = os.stat(file), file.read_bytes()
    buf = on_disk(file)
    assert read(buf).tobytes() == content
    with pytest.raises(PermissionError):
        buf.copyin(bytes(SIZE))
    after = os.stat(file)
    assert (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns) and file.read_bytes() == content


@pytest.mark.core
@promise("disk.views")
def test_views_begin_at_any_byte_with_any_dtype(driver, file):
    content, buf = file.read_bytes(), on_disk(file)
    for dtype, offset in (("i4", 1), ("f8", 13), ("u2", 4095)):
        view = buf.view(100, np.dtype(dtype), offset)
        assert view.numpy().tobytes() == content[offset : offset + view.nbytes]


@pytest.mark.core
@promise("disk.missing")
def test_a_missing_file_raises_and_the_next_try_works(driver, path):
    buf = Buffer(f"DISK:{path}", 4, BYTE)
    with pytest.raises(FileNotFoundError):
        buf.allocate()
    assert not path.exists()
    path.write_bytes(b"here")
    assert read(buf.allocate()).tobytes() == b"here"


@pytest.mark.core
@promise("disk.write")
def test_writing_stays_within_the_file(driver, file):
    content = bytearray(file.read_bytes())
    buf = on_disk(file, SIZE + 10, "?mode=rw")
    buf.view(1000, BYTE, 77).copyin(bytes(1000))
    content[77:1077] = bytes(1000)
    with pytest.raises((ValueError, OSError, EOFError)):
        buf.copyin(bytes(SIZE + 10))
    assert file.read_bytes() == content


@pytest.mark.core
@promise("disk.create")
def test_a_file_is_made_as_long_as_its_buffer_and_never_shortened(driver, path):
    on_disk(path, 10, "?mode=create").copyin(b"0123456789")
    assert path.read_bytes() == b"0123456789"
    assert read(on_disk(path, 12, "?mode=create")).tobytes() == b"0123456789\0\0"
    on_disk(path, 1, "?mode=create")
    assert path.stat().st_size == 12


@promise("disk.past_end")
@pytest.mark.parametrize("size", [100, SIZE])
def test_reading_past_the_end_raises(dev, file, size):
    buf = on_disk(file, SIZE + 1).view(size, BYTE, SIZE + 1 - size).ensure_allocated()
    with pytest.raises((EOFError, OSError)):
        read(buf)
    with pytest.raises((EOFError, OSError)):
        hcq.copy(empty(dev, size, BYTE), buf)
    whole = on_disk(file)
    os.truncate(file, SIZE - size // 2)
    with pytest.raises((EOFError, OSError)):
        hcq.copy(empty(dev, SIZE, BYTE), whole)


@pytest.mark.core
@promise("disk.past_end")
def test_what_is_no_file_is_refused(driver, path):
    os.mkfifo(path)
    for name in (path.parent, path):
        with pytest.raises(OSError):
            Buffer(f"DISK:{name}", 4, BYTE).allocate()


@pytest.mark.core
@promise("disk.reopened")
def test_a_file_is_closed_with_its_last_buffer_and_a_replaced_one_read_anew(driver, file):
    old, more = on_disk(file), on_disk(file)
    del more
    assert is_open(file)
    other = file.parent / "other"
    other.write_bytes(b"newer")
    other.replace(file)
    assert read(on_disk(file, 5)).tobytes() == b"newer"
    assert read(old).tobytes() == noise(SIZE).tobytes()
    old.deallocate()
    assert not is_open(file)


@pytest.mark.core
@promise("disk.no_path")
def test_disk_without_a_path_opens_and_allocates_nothing(driver):
    assert hcq.Device["DISK"].dname == "DISK"
    with pytest.raises((ValueError, TypeError, RuntimeError, OSError)):
        Buffer("DISK", 4, BYTE).allocate()


@pytest.mark.core
@promise("disk.failed_open")
def test_a_failed_open_leaves_nothing(driver, path):
    before = set(os.listdir("/proc/self/fd"))
    for size, mode in ((2**63 - 1, "?mode=create"), (4, ""), (4, "?mode=rw")):
        with pytest.raises(OSError):
            Buffer(f"DISK:{path}{mode}", size, BYTE).allocate()
    assert not list(path.parent.iterdir()) and set(os.listdir("/proc/self/fd")) == before


@promise("disk.short")
@pytest.mark.parametrize(("most", "code"), [(1000, 0), (2**62, errno.EINTR)])
def test_short_and_interrupted_reads_are_continued(dev, file, most, code):
    dest, buf = empty(dev, SIZE, BYTE), on_disk(file)
    hcq._native.disk_disturb(9, most, code)
    try:
        hcq.copy(dest, buf)
        hcq._native.disk_disturb(9, most, code)
        assert read(buf).tobytes() == file.read_bytes()
    finally:
        hcq._native.disk_disturb(0, 0, 0)
    assert read(dest).tobytes() == file.read_bytes()


@pytest.fixture
def segment():
    name = f"hcq-suite-{os.getpid()}"
    yield name
    for opened in hcq.Device.opened:
        if opened.startswith("DISK:shm:"):
            hcq.Device.close(opened)
    if os.path.exists(f"/dev/shm/{name}"):
        os.unlink(f"/dev/shm/{name}")


OTHER_SIDE = """
import hcq, sys
both = hcq.Buffer("DISK:shm:" + sys.argv[1] + "?mode=rw", 192, hcq.dtypes.uint8).allocate()
ask, answer = (hcq.HCQSignal(memory=both.view(64, hcq.dtypes.uint8, at)) for at in (0, 64))
for n in range(1, 6):
    ask.wait(n, 20_000)
    number = both.view(1, hcq.dtypes.int32, 128)
    number.copyin(bytes([n * 2, 0, 0, 0]))
    answer.value = n
"""


@pytest.mark.core
@promise("disk.shm")
def test_two_processes_share_a_segment_and_signal_each_other_through_it(driver, segment):
    both = Buffer(f"DISK:shm:{segment}?mode=create", 192, BYTE).allocate()
    ask, answer = (hcq.HCQSignal(0, memory=both.view(64, BYTE, at)) for at in (0, 64))
    child = subprocess.Popen([sys.executable, "-c", OTHER_SIDE, segment])
    try:
        for n in range(1, 6):
            ask.value = n
            answer.wait(n, 20_000)
            assert read(both.view(1, I32, 128)).tolist() == [n * 2]
        assert child.wait(20) == 0
    finally:
        child.kill()
        child.wait()


@promise("disk.shm")
def test_segments_are_copied_from_and_to_the_device(dev, segment):
    data = noise(10_000)
    both, back = Buffer(f"DISK:shm:{segment}?mode=create", 10_000, BYTE).allocate(), empty(dev, 10_000, BYTE)
    hcq.copy(both, filled(dev, data))
    hcq.copy(back, both)
    assert (read(back) == data).all() and (np.asarray(both) == data).all()


@pytest.mark.core
@promise("fork.disk")
def test_files_go_on_working_in_a_child(driver, file):
    buf = on_disk(file)
    assert in_child(lambda: read(buf).tobytes() == noise(SIZE).tobytes()) is True
    assert in_child(lambda: read(on_disk(file, 5)).tolist()) == noise(SIZE)[:5].tolist()


@promise("graph.disk")
@needs("queues", "host_memory")
def test_reads_of_files_are_recorded(dev, file):
    buf, dest = on_disk(file), filled(dev, np.zeros(SIZE, BYTE))
    with hcq.capture() as graph:
        hcq.copy(dest, buf)
    assert not read(dest).any()
    for seed in (0, 1):
        file.write_bytes(noise(SIZE, seed).tobytes())
        graph.replay().wait()
        assert (read(dest) == noise(SIZE, seed)).all()


@promise("profile.names")
@needs("queues")
def test_reads_of_files_are_traced_by_where_they_lead(dev, file):
    buf, dest = on_disk(file), empty(dev, SIZE, BYTE)
    with hcq.profile() as p:
        hcq.copy(dest, buf)
        dev.synchronize()
    assert {span.name for span in p.spans if span.kind == "copy"} == {f"DISK -> {dev.dname}"}


@promise("disk.same_bytes")
def test_buffers_of_one_file_are_the_same_bytes_to_a_graph(dev, file):
    write, again = on_disk(file, mode="?mode=rw"), on_disk(file)
    assert write._buf.va_addr == again._buf.va_addr
    source, dest = filled(dev, noise(SIZE, 1)), empty(dev, SIZE, BYTE)
    with hcq.capture() as graph:
        hcq.copy(write, source)
        hcq.copy(dest, again)
    graph.replay().wait()
    assert (read(dest) == noise(SIZE, 1)).all()


@promise("disk.same_bytes")
def test_a_file_that_is_only_read_is_no_destination(dev, file):
    dest, other, source = on_disk(file), on_disk(file, mode="?mode=rw"), filled(dev, noise(SIZE, 1))
    with pytest.raises(PermissionError):
        hcq.copy(dest, source)
    with hcq.capture(), pytest.raises(PermissionError):
        hcq.copy(dest, source)
    assert (read(other) == noise(SIZE)).all()
