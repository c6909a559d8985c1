"""hcq.copy: between any two buffers, whatever way is best; and the staging ring below it."""

import numpy as np
import pytest

import hcq
from hcq import Buffer
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import BYTE, I32, empty, filled, later, noise, python, read

REFUSED = (ValueError, TypeError, RuntimeError)


@promise("copy.bytes_equal", "errors.no_assert")
def test_different_sizes_are_refused(dev):
    one, two = filled(dev, range(4)), filled(dev, range(5))
    with pytest.raises(REFUSED):
        hcq.copy(one, two)
    with pytest.raises(REFUSED):
        hcq.copy(two, one)
    assert read(one).tolist() == list(range(4)) and read(two).tolist() == list(range(5))
    same_bytes = empty(dev, 16, BYTE)
    hcq.copy(same_bytes, one)
    assert read(same_bytes, I32).tolist() == list(range(4))


@promise("copy.same_device")
@pytest.mark.parametrize("size", [1, 7, 64, 4095, 4097, 3_000_001])
def test_copies_within_a_device_are_whole(dev, size):
    data = noise(size)
    source, dest = filled(dev, data), empty(dev, size, BYTE)
    hcq.copy(dest, source)
    assert (read(dest) == data).all() and (read(source) == data).all()


@promise("copy.between_devices", "staging.transfer")
@needs("peers")
@pytest.mark.parametrize("size", [1, 4097, 3_000_001])
def test_copies_between_two_devices_are_whole(dev, peer, size):
    data = noise(size)
    source, there, back = filled(dev, data), empty(peer, size, BYTE), empty(dev, size, BYTE)
    hcq.copy(there, source)
    hcq.copy(back, there)
    assert (read(back) == data).all() and (read(there) == data).all()


@promise("copy.between_kinds")
@pytest.mark.parametrize("other", ["NULL", "LLVM", "CLANG"])
def test_copies_between_kinds_are_whole(dev, other):
    try:
        opened = hcq.Device[other]
    except hcq.errors.DeviceUnavailable as why:
        pytest.skip(f"{other}: {why}")
    data = noise(100_003)
    source, there, back = filled(dev, data), empty(opened, data.size, BYTE), empty(dev, data.size, BYTE)
    hcq.copy(there, source)
    hcq.copy(back, there)
    assert (read(back) == data).all()


@promise("copy.views")
@needs("host_memory")
def test_copies_between_views_are_exact(dev):
    data = noise(200)
    for size, source_at, dest_at in ((1, 0, 0), (13, 3, 5), (64, 1, 2), (129, 7, 0)):
        source, dest = filled(dev, data), filled(dev, np.zeros(200, np.uint8))
        hcq.copy(dest.view(size, BYTE, dest_at), source.view(size, BYTE, source_at))
        expected = np.zeros(200, np.uint8)
        expected[dest_at : dest_at + size] = data[source_at : source_at + size]
        assert (read(dest) == expected).all()


@promise("copy.overlap")
@needs("host_memory")
@pytest.mark.parametrize("size", [100, 5000, 400_000])
@pytest.mark.parametrize("shift", [-33, -1, 0, 1, 8, 64])
def test_overlapping_ranges_behave_as_if_read_first(dev, size, shift):
    data = noise(size + 128)
    buf = filled(dev, data)
    hcq.copy(buf.view(size, BYTE, 64 + shift), buf.view(size, BYTE, 64))
    expected = data.copy()
    expected[64 + shift : 64 + shift + size] = data[64 : 64 + size]
    assert (read(buf) == expected).all()


@promise("copy.from_npy", "npy.source")
def test_an_array_is_a_source(dev):
    data = noise(10_000)
    dest = empty(dev, 10_000, BYTE)
    hcq.copy(dest, Buffer("NPY", 10_000, BYTE, opaque=data))
    assert (read(dest) == data).all()


@promise("copy.unallocated", "errors.no_assert")
def test_an_unallocated_source_is_refused(dev):
    dest = filled(dev, [1])
    with pytest.raises(REFUSED):
        hcq.copy(dest, Buffer(dev.dname, 1, I32))
    assert read(dest).tolist() == [1]


@promise("copy.ordered")
@needs("computes", "peers")
def test_copies_follow_the_work_of_both_devices(dev, peer, kernels):
    theirs = kernels.on(peer)
    source, dest = filled(dev, [0]), filled(peer, [0])
    kernels.spin(source._buf, vals=(20_000_000,))
    theirs.spin(dest._buf, vals=(30_000_000,))  # must not land on top of the copy
    hcq.copy(dest, source)
    theirs.increment(dest._buf)
    assert read(dest).tolist() == [20_000_001]
    kernels.fill(source._buf, vals=(1, 5))
    assert read(source).tolist() == [5]


@promise("copy.ordered", "staging.transfer")
@needs("queues", "async", "host_memory", "peers")
def test_a_copy_waits_for_queues_of_both_devices(fresh, fresh_peer):
    """What the one device, then the other, does to its buffer behind a gate counts before the copy."""
    for late in (fresh, fresh_peer):
        source, dest, seven = filled(fresh, [1]), filled(fresh_peer, [2]), filled(late, [7])
        target = source if late is fresh else dest
        gate, value = late.signal_t(), late.next_timeline()
        queue = late.hw_copy_queue_t().wait(gate, 1).copy(target._buf.va_addr, seven._buf.va_addr, 4)
        queue.signal(late.timeline_signal, value).submit(late)
        opener = later(lambda gate=gate: setattr(gate, "value", 1))
        hcq.copy(dest, source)
        opener.join()
        assert read(dest).tolist() == ([7] if late is fresh else [1])


@promise("staging.transfer")
@needs("queues", "peers")
def test_transfer_moves_both_timelines(fresh, fresh_peer):
    if not hasattr(fresh.allocator, "transfer"):
        pytest.skip("the allocator has no transfer")
    source, dest = filled(fresh, noise(5000)), empty(fresh_peer, 5000, BYTE)
    before = fresh.timeline_value, fresh_peer.timeline_value
    try:
        fresh.allocator.transfer(dest._buf, source._buf, 5000, src_dev=fresh, dest_dev=fresh_peer)
    except NotImplementedError as why:  # hcq.copy goes through the host then
        pytest.skip(str(why))
    assert fresh.timeline_value > before[0] and fresh_peer.timeline_value > before[1]
    assert (read(dest) == noise(5000)).all()


@promise("copy.large")
@needs("native")
@pytest.mark.slow
@pytest.mark.gibibytes
@pytest.mark.timeout(300)
def test_two_gibibytes_are_whole(fresh):
    size = (2 << 30) + 4099
    spots = [0, 1, size // 2, (1 << 31) - 1, 1 << 31, (1 << 31) + 1, size - 4097, size - 1]
    source, dest = empty(fresh, size, BYTE), empty(fresh, size, BYTE)
    for spot in spots:
        for buf, value in ((source, bytes([spot % 251 + 1])), (dest, b"\0")):
            buf.view(1, BYTE, spot).ensure_allocated().copyin(value)
    hcq.copy(dest, source)
    for spot in spots:
        assert read(dest.view(1, BYTE, spot).ensure_allocated()).tolist() == [spot % 251 + 1]
    fresh.synchronize()
    del source, dest, buf
    fresh.allocator.free_cache()


@promise("copy.zero_bytes", "queue.copy_zero")
@needs("queues", "host_memory")
def test_a_copy_of_no_bytes_is_nothing(dev):
    buf = filled(dev, [1, 2])
    done = dev.signal_t()
    queue = dev.hw_copy_queue_t().copy(buf._buf.va_addr + 4, buf._buf.va_addr, 0).signal(done, 1)
    assert len(queue) == 2
    queue.submit(dev)
    done.wait(1)
    assert read(buf).tolist() == [1, 2]


# -- staging ----------------------------------------------------------------------------------------------------------


@promise("staging.forced", "staging.caller_free")
@needs("queues")
@pytest.mark.slow
def test_the_ring_gives_the_same_as_direct_copies(driver):
    code = f"""
{driver.setup}
import numpy as np, hcq
from hcq.testing.suite.tools import *
dev = hcq.Device[{driver.device!r}]
for size in (1, 4097, (2 << 20) - 1, (2 << 20) + 1, 9_000_001):
    data = noise(size)
    buf = empty(dev, size, BYTE)
    scratch = bytearray(data.tobytes())
    buf.copyin(scratch)
    scratch[:] = bytes(size)         # the caller's memory is free again
    assert (read(buf) == data).all(), size
    view = buf.view(size, BYTE, 0).ensure_allocated()
    for n in range(100):
        view.copyin(noise(size, n)) if size < 5000 else None
    assert size >= 5000 or (read(buf) == noise(size, 99)).all()
    other = empty(dev, size, BYTE)
    hcq.copy(other, buf)
    assert (read(other) == read(buf)).all()
print(dev.timeline_value > 1)"""
    done = python(code, env={"HCQ_FORCE_STAGING": "1"})
    assert (done.stdout.strip(), done.stderr) == ("True", "")


@promise("staging.offset", "staging.hcqbuffer")
@needs("queues")
def test_hcq_buffers_have_address_and_size(dev):
    buf = empty(dev, 100, BYTE)
    assert isinstance(buf._buf, hcq.HCQBuffer) and buf._buf.size == 100 and buf._buf.va_addr > 0
    part = dev.allocator.offset(buf._buf, 30, 7)
    assert (part.va_addr, part.size) == (buf._buf.va_addr + 7, 30)
    made = hcq.HCQBuffer(4096, 12)
    assert (made.va_addr, made.size) == (4096, 12)


@promise("staging.host_writable")
@needs("queues")
@pytest.mark.parametrize("option", ["host", "cpu_access"])
def test_the_host_writes_at_the_address(dev, option):
    import ctypes

    buf = empty(dev, 4, I32, hcq.BufferOptions(**{option: True}))
    words = (ctypes.c_int32 * 4).from_address(buf._buf.va_addr)
    words[:] = [1, 2, 3, 4]
    assert read(buf).tolist() == [1, 2, 3, 4]
