"""hcq.copy: how it chooses, overlapping and odd ranges, large copies."""

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_devices import FarAllocator, FarDevice, HostDevice, opened

import hcq
from hcq import Buffer, Compiled, Device, dtypes
from hcq._native import HostAllocator

MIB = 1 << 20


@pytest.fixture
def host():
    with opened(HostDevice) as name:
        yield name


@pytest.fixture
def far():
    with opened(FarDevice) as name:
        yield name


def filled(device, data):
    return Buffer(device, len(data), dtypes.uint8, initial_value=data)


@pytest.mark.parametrize("source", ["host", "host:1", "far", "far:1", "CPU", "NPY"])
@pytest.mark.parametrize("target", ["host", "host:1", "far", "far:1", "CPU", "CPU:1"])
def test_contents_get_from_any_device_to_any(host, far, source, target):
    source, target = (name.replace("host", host).replace("far", far) for name in (source, target))
    data = bytes(range(251)) * 44
    if source == "NPY":
        src = Buffer("NPY", len(data), dtypes.uint8, opaque=np.frombuffer(data, np.uint8))
    else:
        src = filled(source, data)
    dest = Buffer(target, len(data) // 11, TenElevenths())
    assert hcq.copy(dest, src) is None
    assert bytes(dest.as_buffer()) == data and bytes(src.as_buffer()) == data
    hcq.copy(dest.view(100, dtypes.uint8, 7), src.view(100, dtypes.uint8, 3))
    assert bytes(dest.as_buffer()) == data[:7] + data[3:103] + data[107:]


class TenElevenths:
    itemsize = 11


def test_sizes_in_bytes_must_be_equal(host):
    src = filled(host, bytes(16))
    hcq.copy(Buffer(host, 4, dtypes.float32), src)
    for size in (3, 5):
        with pytest.raises(ValueError, match="equal sizes"):
            hcq.copy(Buffer(host, size, dtypes.float32), src)


def test_a_copy_needs_buffers_and_something_to_copy(host):
    src = filled(host, bytes(16))
    for dest, source in [(bytearray(16), src), (src, bytes(16)), (None, None)]:
        with pytest.raises(TypeError, match="must be a Buffer"):
            hcq.copy(dest, source)
    with pytest.raises(RuntimeError, match="nothing to copy"):
        hcq.copy(src, Buffer(host, 16, dtypes.uint8))


def test_copying_into_a_read_only_array_is_refused(host):
    readonly = np.frombuffer(bytes(16), np.uint8)
    with pytest.raises(TypeError, match="read-only"):
        hcq.copy(Buffer("NPY", 16, dtypes.uint8, opaque=readonly), filled(host, bytes(16)))


@pytest.mark.parametrize("device", ["host", "far", "CPU"])
@given(data=st.data())
@settings(max_examples=40)
def test_overlapping_ranges_behave_as_if_read_first(device, data):
    with opened(HostDevice if device == "host" else FarDevice) as name:
        device = name if device != "CPU" else device
        total = data.draw(st.integers(1, 5000))
        size = data.draw(st.integers(1, total))
        src, dest = (data.draw(st.integers(0, total - size)) for _ in range(2))
        expected = np.arange(total, dtype=np.uint16).view(np.uint8)[:total].copy()
        buf = filled(device, expected.tobytes())
        hcq.copy(buf.view(size, dtypes.uint8, dest), buf.view(size, dtypes.uint8, src))
        expected[dest : dest + size] = expected[src : src + size].copy()
        assert buf.numpy().tobytes() == expected.tobytes()


class TransferAllocator(FarAllocator):
    """Copies among devices of its kind by itself, and maps memory of those that can be mapped."""

    def __init__(self, device, log, mappable):
        super().__init__(device)
        self.calls, self.mappable = log, mappable

    def transfer(self, dest, src, size, src_dev, dest_dev):
        self.calls.append(("transfer", src_dev.dname, dest_dev.dname, size))
        dest.data[dest.start : dest.start + size] = src.data[src.start : src.start + size]

    def map(self, buf):
        if not self.mappable:
            raise NotImplementedError("not here")
        self.calls.append(("map", self.device.dname))

    def copy_from_disk(self, dest, src, size):
        self.calls.append(("copy_from_disk", size))
        dest.data[dest.start : dest.start + size] = src.data[src.start : src.start + size]


class OtherAllocator(TransferAllocator):
    pass


@pytest.fixture
def log():
    return []


def device_of(allocator, log, mappable=True):
    return lambda name: _compiled(name, allocator, log, mappable)


def _compiled(name, allocator, log, mappable):
    device = Compiled(name, None)
    device.allocator = allocator(device, log, mappable)
    return device


def test_devices_of_one_kind_copy_by_transfer(log):
    with opened(device_of(TransferAllocator, log)) as name:
        src, dest = filled(name, b"abcd"), Buffer(f"{name}:1", 4, dtypes.uint8)
        hcq.copy(dest, src)
        assert log == [("transfer", name, f"{name}:1", 4)] and bytes(dest.as_buffer()) == b"abcd"


def test_devices_of_two_kinds_copy_by_mapping_where_both_can(log):
    with opened(device_of(TransferAllocator, log)) as one, opened(device_of(OtherAllocator, log)) as two:
        src, dest = filled(one, b"abcd"), Buffer(two, 4, dtypes.uint8)
        hcq.copy(dest, src)
        assert sorted(log[:2]) == sorted([("map", one), ("map", two)]) and log[2] == ("transfer", one, two, 4)
        assert bytes(dest.as_buffer()) == b"abcd"


def test_what_can_not_be_mapped_goes_through_the_host(log, host):
    with opened(device_of(TransferAllocator, log)) as one, opened(device_of(OtherAllocator, log, False)) as two:
        dest = Buffer(two, 4, dtypes.uint8)
        hcq.copy(dest, filled(one, b"abcd"))
        assert bytes(dest.as_buffer()) == b"abcd"
        hcq.copy(dest, filled(host, b"efgh"))
        assert bytes(dest.as_buffer()) == b"efgh"
        assert not [call for call in log if call[0] == "transfer"]


def test_files_are_read_by_the_destination_or_into_its_own_memory(log, host):
    """With a device that stands for DISK: only its name and its copyout matter to the choice."""
    Device.register("DISK", FarDevice, replace=True)
    try:
        with opened(device_of(TransferAllocator, log)) as reader:
            large, small = (filled("DISK:/a", bytes(range(256)) * n) for n in (16, 1))
            for src in (large, small):
                dest = Buffer(reader, src.nbytes, dtypes.uint8)
                hcq.copy(dest, src)
                assert dest.as_buffer() == src.as_buffer()
            assert log == [("copy_from_disk", 4096)]
            dest = Buffer(host, 4096, dtypes.uint8)
            seen = []
            copyout = large.allocator.copyout
            large.allocator.copyout = lambda memory, source: seen.append(memory.nbytes) or copyout(memory, source)
            hcq.copy(dest, large)
            assert dest.as_buffer() == large.as_buffer() and seen[0] == 4096
            address = np.frombuffer(dest.as_buffer(force_zero_copy=True), np.uint8).ctypes.data
            assert address == dest._buf.va_addr
    finally:
        Device.close("DISK:/a")
        Device.unregister("DISK")


def test_large_copies_between_far_devices_go_in_pieces(far, monkeypatch):
    from hcq.runtime import copy as module

    monkeypatch.setattr(module, "_PIECE", 1000)
    data = np.random.default_rng(1).integers(0, 256, 12_345, np.uint8)
    dest = Buffer(f"{far}:1", data.size, dtypes.uint8)
    hcq.copy(dest, filled(far, data.tobytes()))
    assert dest.numpy().tobytes() == data.tobytes()


# The copy engine


@pytest.mark.parametrize("size", [12 * MIB - 1, 13 * MIB, 33 * MIB + 12_345])
@pytest.mark.parametrize(("to", "frm"), [(0, 0), (1, 0), (0, 63), (4095, 17)])
def test_large_copies_are_exact_at_any_offset_and_size(size, to, frm):
    allocator = HostAllocator()
    block = allocator.alloc(size + 8192)
    memory = np.frombuffer(allocator.as_buffer(block), np.uint8)
    source = np.resize(np.arange(65_521, dtype=np.uint16).view(np.uint8), size + 64)[frm : frm + size]
    memory[:] = 170
    allocator.copyin(allocator.offset(block, size, to), source)
    assert (memory[to : to + size] == source).all()
    assert (memory[:to] == 170).all() and (memory[to + size :] == 170).all()
    out = np.zeros(size + 64, np.uint8)
    allocator.copyout(out[frm : frm + size], allocator.offset(block, size, to))
    assert (out[frm : frm + size] == source).all() and not out[:frm].any() and not out[frm + size :].any()


@pytest.mark.parametrize("distance", [1, 4096, 5 * MIB + 3, -1, -(5 * MIB + 3)])
def test_large_overlapping_copies_behave_as_if_read_first(distance):
    allocator, size = HostAllocator(), 20 * MIB
    block = allocator.alloc(size + abs(distance))
    memory = np.frombuffer(allocator.as_buffer(block), np.uint8)
    memory[:] = np.resize(np.arange(65_521, dtype=np.uint16).view(np.uint8), memory.size)
    src, dest = (0, distance) if distance > 0 else (-distance, 0)
    expected = memory[src : src + size].copy()
    allocator.copyin(allocator.offset(block, size, dest), memory[src : src + size])
    assert (memory[dest : dest + size] == expected).all()


def available_memory():
    with open("/proc/meminfo") as info:
        return next(int(line.split()[1]) * 1024 for line in info if line.startswith("MemAvailable"))


@pytest.mark.slow
@pytest.mark.gibibytes
@pytest.mark.skipif(available_memory() < 9 << 30, reason="needs 9 GiB of free memory")
@pytest.mark.parametrize("size", [(2 << 30) + 4097])
def test_copies_of_more_than_two_gigabytes(host, size):
    one, two = (Buffer(host, size, dtypes.uint8, preallocate=True) for _ in range(2))
    marks = [0, 1, (1 << 31) - 1, 1 << 31, (1 << 31) + 1, size - 1]
    memory = np.asarray(one)
    memory[:] = 3
    memory[marks] = np.arange(1, 7) * 40
    hcq.copy(two, one)
    assert np.asarray(two)[marks].tolist() == [40 * n for n in range(1, 7)]
    assert (np.asarray(two)[::4093] == memory[::4093]).all()
    hcq.copy(two.view(size - 1, dtypes.uint8, 0), two.view(size - 1, dtypes.uint8, 1))
    assert np.asarray(two)[[0, (1 << 31) - 2, (1 << 31) - 1, 1 << 31]].tolist() == [80, 120, 160, 200]
    del memory, one, two
    gc.collect()
    Device[host].allocator.free_cache()


def test_a_copy_from_a_buffer_of_a_closed_device_says_that_it_was_closed(host):
    with opened(HostDevice) as other:
        source = filled(other, b"12345678")
        Device.close(other)
        with pytest.raises(RuntimeError, match=f"{other} was closed"):
            hcq.copy(Buffer(host, 8, dtypes.uint8), source)
