"""DISK: opening, sizes, modes and names of files, and what the system refuses."""

from __future__ import annotations

import os
import stat
import tempfile
import traceback

import numpy
import pytest
from disk_tools import U8, data_of, descriptors

import hcq
from hcq import Buffer, Device, dtypes


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
