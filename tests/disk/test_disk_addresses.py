"""DISK: equal bytes of files have equal addresses, whoever opened them; and what checks and graphs make of that."""

from __future__ import annotations

import contextlib
import gc
import os
import threading

import numpy
import pytest
from disk_tools import U8, descriptors, whole

import hcq
from hcq import Buffer, Device, HCQSignal, _native
from hcq.drivers.disk import allocator
from hcq.errors import DeviceLost


def test_addresses_are_given_out_and_back_at_any_size(tmp_path):
    files = []
    for number in range(40):
        (tmp_path / str(number)).write_bytes(b"")
        descriptor = os.open(tmp_path / str(number), os.O_RDONLY)
        files.append(_native.DiskFile(descriptor, str(tmp_path / str(number)), False))
    rng = numpy.random.default_rng(5)
    held = []
    for _ in range(3000):
        if held and rng.random() < 0.45:
            which, at, size = held.pop(int(rng.integers(len(held))))
            files[which].unclaim(at, size)
            continue
        which, size = int(rng.integers(40)), int(rng.integers(1, 2 ** int(rng.integers(1, 61))))
        try:
            at = files[which].claim(size)
        except ValueError:
            continue  # full, for such a size
        assert at >= 2**63 and at + size < 2**64
        for file, other, length in held:
            assert (file == which and at == other) or at + size <= other or other + length <= at
            assert file != which or at == other or min(size, length) > 0
        held.append((which, at, size))
    for which, at, size in held:
        files[which].unclaim(at, size)
    _native.run_retired()
    assert files[0].claim(2**62) >= 2**63


def test_all_buffers_of_a_file_have_its_bytes_at_the_same_addresses(file, tmp_path):
    first = Buffer(f"DISK:{file}", 10, U8).allocate()
    again = Buffer(f"DISK:{file}", 100_003, U8).allocate()
    os.link(file, tmp_path / "other name")
    write = Buffer(f"DISK:{tmp_path}/other name?mode=rw", 5000, U8).allocate()
    assert first._buf.va_addr == again._buf.va_addr == write._buf.va_addr
    assert (
        again.view(10, U8, 77).ensure_allocated()._buf.va_addr == write.view(3, U8, 77).ensure_allocated()._buf.va_addr
    )
    copy = tmp_path / "copy"
    copy.write_bytes(file.read_bytes())
    other = Buffer(f"DISK:{copy}", 10, U8).allocate()
    assert abs(other._buf.va_addr - first._buf.va_addr) >= 100_003
    content = file.read_bytes()
    dest = hcq.empty(100_003, U8, "CLANG")
    del first, write  # the others' claims stay
    hcq.copy(dest, again)
    assert bytes(dest.as_buffer()) == content
    queue = Device["CLANG"].hw_copy_queue_t().copy(dest._buf.va_addr, other._buf.va_addr, 11)  # further than claimed
    done = HCQSignal()
    queue.signal(done, 1).submit(Device["CLANG"])
    with pytest.raises(DeviceLost, match="given back"):
        done.wait(1)
    with contextlib.suppress(DeviceLost):
        Device["CLANG"].synchronize()


def test_all_buffers_of_a_segment_have_the_same_memory(segment):
    one = Buffer(f"DISK:shm:{segment}?mode=create", 10_000, U8).allocate()
    two = Buffer(f"DISK:shm:{segment}?mode=create", 100, U8).allocate()
    assert one._buf.va_addr == two._buf.va_addr
    three = Buffer(f"DISK:shm:{segment}?mode=create", 20_000, U8).allocate()  # grows it
    numpy.asarray(three)[:100] = 9
    del one
    assert bytes(two.as_buffer()) == bytes([9]) * 100


def test_a_graph_orders_what_it_does_to_one_file_through_two_buffers(tmp_path):
    path, count = tmp_path / "between", 3_000_000
    path.write_bytes(bytes(count))
    write = Buffer(f"DISK:{path}?mode=rw", count, U8).allocate()
    read = Buffer(f"DISK:{path}", count, U8).allocate()
    src, dest = hcq.zeros(count, U8, "CLANG"), hcq.zeros(count, U8, "CLANG")
    with hcq.capture() as graph:
        hcq.copy(write, src)
        hcq.copy(dest, read)
    assert graph.nodes[1].reads[0] == graph.nodes[0].writes[0]
    for value in range(1, 6):
        src.fill(value)
        graph.replay().wait()
        assert bytes(dest.as_buffer()) == bytes([value]) * count


def test_what_is_only_read_is_refused_before_a_copy_is_queued(file):
    read = Buffer(f"DISK:{file}", 100_003, U8).allocate()
    write = Buffer(f"DISK:{file}?mode=rw", 100_003, U8).allocate()  # it has the same addresses
    src, content = hcq.zeros(100_003, U8, "CLANG"), file.read_bytes()
    stream = Device["CLANG"].stream()
    with pytest.raises(PermissionError, match="mode=rw"):
        hcq.copy(read, src, stream=stream)
    with hcq.capture(), pytest.raises(PermissionError, match="mode=rw"):
        hcq.copy(read, src)
    assert file.read_bytes() == content
    hcq.copy(write, src, stream=stream)
    stream.synchronize()
    assert file.read_bytes() == bytes(100_003)


def test_a_finalizer_may_give_a_file_back_while_another_is_opened(tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / name).write_bytes(bytes(1000))

    class Cycle:
        pass

    inner = allocator.OpenFile

    def collecting(*arguments):
        gc.collect()
        return inner(*arguments)

    cycle = Cycle()
    cycle.itself, cycle.buffer = cycle, Buffer(f"DISK:{tmp_path}/a", 1000, U8).allocate()
    monkeypatch.setattr(allocator, "OpenFile", collecting)
    del cycle
    opened = []
    thread = threading.Thread(
        target=lambda: opened.append(Buffer(f"DISK:{tmp_path}/b", 1000, U8).allocate()), daemon=True
    )
    thread.start()
    thread.join(20)
    assert opened and not descriptors(tmp_path / "a")


@pytest.mark.unchecked("it turns the checks on by itself")
def test_checks_find_two_writers_of_a_file_through_two_buffers(tmp_path):
    (tmp_path / "made").write_bytes(bytes(500_000))
    os.link(tmp_path / "made", tmp_path / "same")
    sources = [hcq.zeros(500_000, U8, name) for name in ("CLANG", "LLVM")]
    with hcq.checks(), pytest.raises(hcq.errors.RaceError):
        files = [Buffer(f"DISK:{tmp_path}/{name}?mode=rw", 500_000, U8).allocate() for name in ("made", "same")]
        for file, source in zip(files, sources, strict=True):
            device = Device[source.device]
            queue = device.hw_copy_queue_t().copy(file._buf.va_addr, source._buf.va_addr, 500_000)
            queue.signal(HCQSignal(), 1).submit(device)
    for name in ("CLANG", "LLVM"):
        Device[name].synchronize()


@pytest.mark.unchecked("it turns the checks on by itself")
def test_checks_find_nothing_where_buffers_of_a_file_come_and_go(big, segment):
    early = Buffer(f"DISK:{big}", 100, U8).allocate()  # before anybody looks, and shorter
    whole_early = whole(big)
    with hcq.checks(strict=True) as found:
        dest, small = hcq.zeros(3_000_001, U8, "CLANG"), hcq.zeros(100, U8, "CLANG")
        hcq.copy(small, early)
        hcq.copy(dest, whole_early)
        one, two = Buffer(f"DISK:{big}?mode=rw", 200, U8).allocate(), whole(big, "?mode=rw")
        hcq.copy(one, hcq.zeros(200, U8, "CLANG"))
        del one, early
        hcq.copy(dest, two)
        hcq.copy(two, dest)
        del two
        hcq.copy(dest, whole_early)
        del whole_early
        hcq.copy(dest, whole(big))
        first = Buffer(f"DISK:shm:{segment}?mode=create", 4096, U8).allocate()
        second = Buffer(f"DISK:shm:{segment}?mode=create", 4096, U8).allocate()
        hcq.copy(first, dest.view(4096, U8, 0).ensure_allocated())
        del first
        hcq.copy(dest.view(4096, U8, 0).ensure_allocated(), second)
        Device["CLANG"].synchronize()
    assert not found.findings
