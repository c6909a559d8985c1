"""DISK: files beyond 2 and 4 GiB, and all ways of reading."""

from __future__ import annotations

import errno
import os

import numpy
import pytest
from disk_tools import U8, data_of, forget_pages, whole

import hcq
from hcq import Buffer, _native


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
