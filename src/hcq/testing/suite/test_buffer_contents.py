"""Reading and writing buffers: copies, and memory without a copy."""

import gc

import numpy as np
import pytest

import hcq
from hcq import Buffer
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import BYTE, I32, empty, filled, later, noise, read

REFUSED = (ValueError, TypeError, RuntimeError)  # which of them is the implementation's; never an AssertionError


# -- copies -----------------------------------------------------------------------------------------------------------


@promise("buffer.copy_roundtrip", "staging.direct")
@pytest.mark.parametrize("size", [1, 3, 63, 64, 65, 4095, 4096, 4097, 1_000_003])
def test_what_was_copied_in_comes_out(dev, size):
    data = noise(size)
    buf = filled(dev, data)
    assert (read(buf) == data).all()


@promise("buffer.copy_roundtrip", "staging.direct")
@pytest.mark.slow
def test_large_copies_are_whole(dev):
    data = noise(48 << 20)
    buf = filled(dev, data)
    assert (read(buf) == data).all()
    view = buf.view(len(data) - 7, BYTE, 5).ensure_allocated()
    assert (read(view) == data[5:-2]).all()


@promise("buffer.copyin_any")
def test_copyin_takes_any_contiguous_memory(dev):
    buf = empty(dev, 6)
    array = np.arange(6, dtype=I32)
    frozen = array.copy()
    frozen.flags.writeable = False
    for source in (
        array.tobytes(),
        bytearray(array.tobytes()),
        memoryview(array),
        array,
        array.reshape(2, 3),
        frozen,
        array.view("i2"),
    ):
        buf.copyin(bytearray(24))
        buf.copyin(source)
        assert read(buf).tolist() == list(range(6))
    for shape in ((6,), (2, 3), (1, 6, 1)):
        out = np.empty(shape, I32)
        buf.copyout(memoryview(out))
        assert out.reshape(-1).tolist() == list(range(6))


@promise("buffer.copy_count", "errors.no_assert")
@pytest.mark.parametrize("size", [0, 1, 23, 25, 48])
def test_another_byte_count_is_refused(dev, size):
    buf = filled(dev, range(6))
    for copy in (buf.copyin, buf.copyout):
        with pytest.raises(REFUSED):
            copy(memoryview(bytearray(size)))
    assert read(buf).tolist() == list(range(6))


@promise("buffer.copy_strided", "errors.no_assert")
def test_strided_memory_is_refused(dev):
    buf = filled(dev, range(6))
    strided = np.zeros(12, I32)[::2]
    turned = np.zeros((3, 2), I32).T
    for memory in (strided, turned):
        with pytest.raises((*REFUSED, BufferError)):
            buf.copyin(memoryview(memory))
        with pytest.raises((*REFUSED, BufferError)):
            buf.copyout(memoryview(memory))
    assert read(buf).tolist() == list(range(6)) and not strided.any()


@promise("buffer.copyout_readonly", "errors.no_assert")
def test_copyout_into_read_only_memory_is_refused(dev):
    buf = filled(dev, [1])
    constant = bytes(4)
    frozen = np.zeros(1, I32)
    frozen.flags.writeable = False
    for memory in (memoryview(constant), frozen, constant):
        with pytest.raises((*REFUSED, BufferError)):
            buf.copyout(memory)
    assert constant == bytes(4) and frozen[0] == 0


@promise("buffer.copy_unallocated", "errors.no_assert")
def test_copying_an_unallocated_buffer_raises(dev):
    buf = Buffer(dev.dname, 1, I32)
    with pytest.raises(REFUSED):
        buf.copyin(bytearray(4))
    with pytest.raises(REFUSED):
        buf.copyout(bytearray(4))


@promise("buffer.copyout_ordered")
@needs("computes")
def test_copyout_comes_after_queued_work(dev, kernels):
    out = filled(dev, [0])
    for n in (20_000_000, 30_000_000):
        kernels.spin(out._buf, vals=(n,))
        assert read(out).tolist() == [n]


@promise("buffer.copyin_ordered")
@needs("computes")
def test_copyin_comes_after_queued_work(dev, kernels):
    out = filled(dev, [0])
    kernels.spin(out._buf, vals=(20_000_000,))
    out.copyin(np.array([5], I32))
    assert read(out).tolist() == [5]


@promise("buffer.copyin_ordered", "buffer.copyout_ordered")
@needs("queues", "async", "host_memory")
def test_host_copies_wait_for_queues_that_signal_the_timeline(fresh):
    """Also without kernels: a copy that stands behind a wait, under a value of the timeline, is work queued."""
    source, out = filled(fresh, [42]), filled(fresh, [0])
    gate, value = fresh.signal_t(), fresh.next_timeline()
    queue = fresh.hw_copy_queue_t().wait(gate, 1).copy(out._buf.va_addr, source._buf.va_addr, 4)
    queue.signal(fresh.timeline_signal, value).submit(fresh)
    opener = later(lambda: setattr(gate, "value", 1))
    assert read(out).tolist() == [42]
    opener.join()
    gate, value = fresh.signal_t(), fresh.next_timeline()
    queue = fresh.hw_copy_queue_t().wait(gate, 1).copy(out._buf.va_addr, source._buf.va_addr, 4)
    queue.signal(fresh.timeline_signal, value).submit(fresh)
    opener = later(lambda: setattr(gate, "value", 1))
    out.copyin(np.array([7], I32))
    opener.join()
    assert read(out).tolist() == [7]


# -- zero copy --------------------------------------------------------------------------------------------------------


@promise("buffer.as_buffer_copy")
def test_as_buffer_is_a_private_copy(dev):
    buf = filled(dev, [1, 2])
    copy = buf.as_buffer()
    assert bytes(copy) == np.array([1, 2], I32).tobytes()
    copy[0:1] = b"\xff"
    assert read(buf).tolist() == [1, 2]
    buf.copyin(np.array([3, 4], I32))
    assert bytes(copy)[4:] == np.array([2], I32).tobytes()


@promise("buffer.as_buffer_zero", "buffer.force_zero_copy")
@needs("zero_copy")
def test_as_buffer_with_zero_copy_is_the_memory(dev):
    buf = filled(dev, [1, 2])
    for view in (buf.as_buffer(allow_zero_copy=True), buf.as_buffer(force_zero_copy=True)):
        assert view.nbytes == 8
        view[0:4] = np.array([9], I32).tobytes()
        assert read(buf).tolist() == [9, 2]
        buf.copyin(np.array([1, 2], I32))
        dev.synchronize()  # a staged copy is only queued so far
        assert bytes(view) == np.array([1, 2], I32).tobytes()


@promise("buffer.force_zero_copy")
def test_force_zero_copy_raises_where_it_cannot_be_had(dev):
    buf = filled(dev, [1, 2])
    if hasattr(dev.allocator, "as_buffer"):
        assert buf.as_buffer(force_zero_copy=True).nbytes == 8
    else:
        with pytest.raises(REFUSED):
            buf.as_buffer(force_zero_copy=True)


@promise("buffer.as_buffer_holds")
@needs("zero_copy")
@pytest.mark.parametrize("drop", ["die", "deallocate"])
def test_a_zero_copy_view_keeps_its_memory(fresh, drop):
    data = noise(4096)
    buf = filled(fresh, data)
    view = buf.as_buffer(allow_zero_copy=True)
    if drop == "deallocate":
        buf.deallocate()
    del buf
    gc.collect()
    others = [filled(fresh, np.zeros(4096, np.uint8)) for _ in range(20)]
    fresh.allocator.free_cache()
    others += [filled(fresh, np.zeros(4096, np.uint8)) for _ in range(20)]
    assert bytes(view) == data.tobytes()
    assert others


@promise("buffer.as_buffer_holds")
@needs("zero_copy")
def test_memory_comes_back_when_the_last_view_goes(fresh):
    buf = filled(fresh, noise(40_000))
    view = buf.as_buffer(allow_zero_copy=True)
    part = view[100:200]
    buf.deallocate()
    del view
    gc.collect()
    before = hcq.memory_stats(fresh.dname).cached_bytes
    assert len(bytes(part)) == 100
    del part, buf
    gc.collect()
    fresh.synchronize()
    assert hcq.memory_stats(fresh.dname).cached_bytes >= before + 40_000
