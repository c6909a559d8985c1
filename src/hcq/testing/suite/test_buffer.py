"""Buffers: when memory comes and goes, views, copies to and from the host, zero copy, pickling."""

import gc
import io
import pickle
import threading
import weakref

import numpy as np
import pytest

import hcq
from hcq import Buffer, BufferOptions
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import BYTE, I32, empty, filled, later, live, noise, printed, read, together

REFUSED = (ValueError, TypeError, RuntimeError)  # which of them is the implementation's; never an AssertionError


# -- making and allocating --------------------------------------------------------------------------------------------


@promise("buffer.size_elements", "buffer.dtype_any")
def test_size_counts_elements_of_any_dtype(dev):
    class Strange:
        itemsize = 12

    import ml_dtypes

    for dtype, size in (
        (I32, 4),
        (np.dtype("f8"), 8),
        (Strange(), 12),
        (np.dtype(ml_dtypes.bfloat16), 2),
        (hcq.dtypes.int32, 4),
    ):
        buf = Buffer(dev.dname, 5, dtype)
        assert (buf.size, buf.nbytes, buf.dtype) == (5, 5 * size, dtype)


@promise("buffer.canonical")
def test_the_device_name_is_made_canonical(dev):
    kind = dev.dname.partition(":")[0]
    assert Buffer(f"{kind.lower()}:0", 1, I32).device == kind
    assert Buffer(dev.dname.lower(), 1, I32).device == dev.dname


@pytest.mark.core
@promise("buffer.lazy")
def test_making_a_buffer_opens_no_device(driver):
    code = """
import sys, hcq
class D: itemsize = 4
b = hcq.Buffer("NULL", 10, D()); v = b.view(5, D(), 4)
print("hcq.drivers.null" in sys.modules, b.is_allocated(), v.is_allocated())"""
    assert printed(code) == "False False False"


@promise("buffer.lazy")
def test_making_a_buffer_allocates_nothing(dev):
    before = live(dev.dname)
    buf = Buffer(dev.dname, 1 << 40, I32)
    assert live(dev.dname) == before
    assert not buf.is_allocated()


@promise("buffer.size_refused", "errors.no_assert")
@pytest.mark.parametrize("size", [0, -1, -(2**40), 1.5, "4", None])
def test_a_size_that_is_none_is_refused(dev, size):
    with pytest.raises(REFUSED):
        hcq.Buffer(dev.dname, size, I32).allocate()


@promise("buffer.allocate", "buffer.ensure", "buffer.is_allocated")
def test_allocate_and_ensure_return_self(dev):
    buf = Buffer(dev.dname, 8, I32)
    assert not buf.is_allocated() and not hasattr(buf, "_buf")
    assert buf.ensure_allocated() is buf
    assert buf.is_allocated() and hasattr(buf, "_buf")
    assert buf.ensure_allocated() is buf
    other = Buffer(dev.dname, 8, I32)
    assert other.allocate() is other and other.is_allocated()


@promise("buffer.allocate_twice")
def test_allocating_twice_is_an_error(dev):
    buf = filled(dev, [7])
    with pytest.raises(REFUSED):
        buf.allocate()
    assert read(buf).tolist() == [7]


@promise("buffer.buf_stable")
def test_buf_is_one_object(dev):
    buf = empty(dev, 8)
    first = buf._buf
    buf.copyin(bytearray(32))
    assert buf._buf is first
    buf.deallocate()
    assert not hasattr(buf, "_buf")


@promise("buffer.preallocate", "buffer.initial_value")
def test_preallocate_and_initial_value_allocate_at_once(dev):
    assert Buffer(dev.dname, 4, I32, preallocate=True).is_allocated()
    buf = Buffer(dev.dname, 3, I32, initial_value=np.array([1, 2, 3], I32).tobytes())
    assert buf.is_allocated()
    assert read(buf).tolist() == [1, 2, 3]


@promise("buffer.deallocate")
def test_deallocate_gives_back_and_may_be_repeated(fresh):
    before = live(fresh.dname)
    buf = empty(fresh, 1000)
    assert live(fresh.dname) == (before[0] + 4000, before[1] + 1)
    buf.deallocate()
    assert live(fresh.dname) == before and not buf.is_allocated()
    buf.deallocate()
    buf.allocate()
    assert buf.is_allocated()


@promise("buffer.allocator_attr")
def test_the_allocator_is_there_once_allocated(dev):
    buf = Buffer(dev.dname, 4, I32)
    assert getattr(buf, "allocator", None) is None
    assert buf.allocate().allocator is dev.allocator


@promise("buffer.identity", "buffer.weakref")
def test_identity_and_weak_references(dev):
    one, two = filled(dev, [1]), filled(dev, [1])
    assert one != two and one == one and len({one, two, one}) == 2
    died = []
    weak = weakref.ref(one, lambda _: died.append(1))
    assert weak() is one
    del one
    gc.collect()
    assert weak() is None and died == [1]


@promise("buffer.lb_refcount")
def test_ref_counts(dev):
    buf = Buffer(dev.dname, 1, I32, lb_refcount=2)
    assert buf.lb_refcount == 2
    buf.ref(3)
    assert buf.lb_refcount == 5
    buf.ref(-5)
    assert buf.lb_refcount == 0


@promise("buffer.repr")
def test_repr_tells_device_size_and_dtype(dev):
    text = repr(Buffer(dev.dname, 1234, I32))
    assert dev.dname in text and "1234" in text and "int" in text


@promise("buffer.options_type")
def test_options_are_frozen_values(driver):
    assert BufferOptions() == BufferOptions(image=None, uncached=False, cpu_access=False, host=False, nolru=False)
    assert hash(BufferOptions(host=True)) == hash(BufferOptions(host=True))
    assert BufferOptions(host=True) != BufferOptions(nolru=True)
    with pytest.raises((AttributeError, TypeError)):
        BufferOptions().host = True


@promise("buffer.options_work")
@pytest.mark.parametrize("option", ["host", "cpu_access", "uncached", "nolru"])
def test_buffers_with_options_work(dev, option):
    options = BufferOptions(**{option: True})
    buf = empty(dev, 64, BYTE, options)
    assert buf.options == options
    data = noise(64)
    buf.copyin(memoryview(data))
    assert (read(buf) == data).all()


@promise("buffer.options_kept")
def test_options_are_read_when_the_memory_is_freed(fresh):
    buf = empty(fresh, 5000)
    before = hcq.memory_stats(fresh.dname).cached_bytes
    buf.options = BufferOptions(nolru=True)
    buf.deallocate()
    assert hcq.memory_stats(fresh.dname).cached_bytes == before


@promise("buffer.options_kept", "allocator.lru_off")
def test_nolru_is_really_freed(fresh):
    before = hcq.memory_stats(fresh.dname).cached_bytes
    empty(fresh, 5000, I32, BufferOptions(nolru=True)).deallocate()
    assert hcq.memory_stats(fresh.dname).cached_bytes == before
    empty(fresh, 5000).deallocate()
    assert hcq.memory_stats(fresh.dname).cached_bytes > before


# -- views ------------------------------------------------------------------------------------------------------------


@promise("buffer.view_share")
def test_a_view_shares_memory(dev):
    root = filled(dev, range(10))
    view = root.view(3, I32, 8).ensure_allocated()
    assert (view.size, view.nbytes, view.offset, view.base, view._base) == (3, 12, 8, root, root)
    assert root.base is root and root._base is None and root.offset == 0
    assert read(view).tolist() == [2, 3, 4]
    view.copyin(np.array([20, 30, 40], I32))
    assert read(root).tolist() == [0, 1, 20, 30, 40, 5, 6, 7, 8, 9]


@promise("buffer.view_of_view", "buffer.base_constructor")
def test_a_view_of_a_view_has_the_root_as_base(dev):
    root = filled(dev, range(10))
    inner = root.view(6, I32, 8).view(2, I32, 4)
    assert inner.base is root and inner._base is root and inner.offset == 12
    assert read(inner.ensure_allocated()).tolist() == [3, 4]
    made = Buffer(dev.dname, 2, I32, base=root, offset=12)
    assert made.base is root and read(made.ensure_allocated()).tolist() == [3, 4]


@promise("buffer.view_keeps_root")
def test_a_view_keeps_its_root(dev):
    root = filled(dev, range(4))
    weak = weakref.ref(root)
    view = root.view(2, I32, 8).ensure_allocated()
    del root
    gc.collect()
    others = [filled(dev, [9, 9, 9, 9]) for _ in range(4)]
    assert weak() is view.base
    assert read(view).tolist() == [2, 3]
    assert others


@promise("buffer.view_bounds", "errors.no_assert")
@pytest.mark.parametrize(
    ("size", "offset"), [(11, 0), (1, 40), (10, 1), (1, -4), (3, 32), (2**62, 4), (1, 2**64), (0, 0), (-1, 8)]
)
def test_a_view_past_the_end_is_refused(dev, size, offset):
    root = Buffer(dev.dname, 10, I32)
    with pytest.raises((*REFUSED, IndexError, OverflowError)):
        root.view(size, I32, offset)


@promise("buffer.view_bounds")
def test_a_view_past_the_end_of_a_view_is_refused(dev):
    view = Buffer(dev.dname, 10, I32).view(4, I32, 8)
    assert view.view(4, I32, 0).offset == 8
    with pytest.raises((*REFUSED, IndexError)):
        view.view(5, I32, 0)
    with pytest.raises((*REFUSED, IndexError)):
        view.view(1, I32, 16)


@promise("buffer.view_any_offset")
@needs("host_memory")
def test_any_byte_offset_works(dev):
    data = noise(64)
    root = filled(dev, data)
    for offset in range(20):
        view = root.view(9, BYTE, offset).ensure_allocated()
        assert (read(view) == data[offset : offset + 9]).all()
    odd = root.view(3, I32, 5).ensure_allocated()
    assert (read(odd, BYTE) == data[5:17]).all()


@promise("buffer.view_allocates_root")
def test_allocating_a_view_allocates_the_root(dev):
    root = Buffer(dev.dname, 10, I32)
    view = root.view(2, I32, 4)
    assert view.ensure_allocated() is view
    assert root.is_allocated() and view.is_allocated()


@promise("buffer.deallocate_views")
def test_deallocating_the_root_makes_views_unallocated(dev):
    root = filled(dev, range(10))
    view = root.view(2, I32, 4).ensure_allocated()
    root.deallocate()
    assert not view.is_allocated() and not hasattr(view, "_buf")
    with pytest.raises(REFUSED):
        view.copyout(bytearray(8))


@promise("buffer.view_free")
def test_views_are_not_counted(dev):
    root = empty(dev, 1000)
    before = live(dev.dname)
    views = [root.view(10, I32, 4 * n).ensure_allocated() for n in range(50)]
    assert live(dev.dname) == before
    del views
    assert live(dev.dname) == before


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


# -- pickling ---------------------------------------------------------------------------------------------------------


@promise("buffer.pickle_contents", "buffer.pickle_unallocated")
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_contents_travel(dev, protocol):
    data = noise(1000)
    buf = filled(dev, data)
    buf.ref(3)
    buf.options = BufferOptions(nolru=True)
    lazy = Buffer(dev.dname, 10, I32, options=BufferOptions(host=True))
    copy, unallocated = pickle.loads(pickle.dumps((buf, lazy), protocol))
    assert (read(copy) == data).all() and copy is not buf
    assert (copy.device, copy.size, copy.dtype, copy.lb_refcount) == (buf.device, 1000, buf.dtype, 3)
    assert copy.options == BufferOptions(nolru=True)
    assert not unallocated.is_allocated() and unallocated.options == BufferOptions(host=True)
    copy.copyin(bytes(1000))
    assert (read(buf) == data).all()


@promise("buffer.pickle_view")
def test_a_view_travels_with_its_root(dev):
    root = filled(dev, range(10))
    one, two = root.view(3, I32, 8).ensure_allocated(), root.view(4, I32, 0).ensure_allocated()
    for order in ((one, two, root), (root, one, two)):
        got = dict(zip([id(b) for b in order], pickle.loads(pickle.dumps(order)), strict=True))
        new_one, new_two, new_root = got[id(one)], got[id(two)], got[id(root)]
        assert new_one.base is new_root and new_two.base is new_root
        assert read(new_one.ensure_allocated()).tolist() == [2, 3, 4]
        new_root.copyin(np.arange(100, 110, dtype=I32))
        assert read(new_one).tolist() == [102, 103, 104]
    assert read(root).tolist() == list(range(10))


@promise("buffer.pickle_out_of_band")
def test_contents_travel_out_of_band(dev):
    data = noise(100_000)
    buf = filled(dev, data)
    parts = []
    stream = pickle.dumps(buf, protocol=5, buffer_callback=parts.append)
    assert len(stream) < 10_000 and sum(part.raw().nbytes for part in parts) == 100_000
    for arrived in ([bytes(part.raw()) for part in parts], [bytearray(part.raw()) for part in parts]):
        copy = pickle.loads(stream, buffers=arrived)
        assert (read(copy) == data).all()
        copy.copyin(bytes(100_000))
        assert not read(copy).any()
        assert bytes(arrived[0]) == data.tobytes() or isinstance(arrived[0], bytearray)
    assert (read(buf) == data).all()


@promise("buffer.pickle_waits")
@needs("queues", "async", "host_memory")
def test_pickling_waits_for_queued_work(fresh):
    source, out = filled(fresh, [42]), filled(fresh, [0])
    gate, value = fresh.signal_t(), fresh.next_timeline()
    queue = fresh.hw_copy_queue_t().wait(gate, 1).copy(out._buf.va_addr, source._buf.va_addr, 4)
    queue.signal(fresh.timeline_signal, value).submit(fresh)
    opener = later(lambda: setattr(gate, "value", 1))
    assert read(pickle.loads(pickle.dumps(out))).tolist() == [42]
    opener.join()


@pytest.mark.core
@promise("buffer.pickle_npy", "npy.source")
def test_npy_buffers_carry_their_array(driver):
    array = np.arange(12, dtype=I32)
    buf = Buffer("NPY", 12, I32, opaque=array)
    assert read(buf).tolist() == list(range(12))
    copy = pickle.loads(pickle.dumps(buf))
    array[0] = 99
    assert copy.device == "NPY" and read(copy).tolist() == list(range(12))


# -- memory of the caller ---------------------------------------------------------------------------------------------


@promise("buffer.opaque_alive")
def test_the_callers_opaque_is_not_freed_by_us(fresh):
    opaque = fresh.allocator.alloc(4000)
    fresh.allocator.copyin(opaque, memoryview(noise(4000)))
    before = hcq.memory_stats(fresh.dname)
    buf = Buffer(fresh.dname, 4000, BYTE, opaque=opaque)
    assert buf.is_allocated() and (read(buf) == noise(4000)).all()
    del buf
    gc.collect()
    assert hcq.memory_stats(fresh.dname).cached_bytes == before.cached_bytes
    others = [filled(fresh, np.zeros(4000, np.uint8)) for _ in range(8)]
    out = bytearray(4000)
    fresh.allocator.copyout(memoryview(out), opaque)
    assert out == noise(4000).tobytes() and others
    fresh.allocator.free(opaque, 4000)


@promise("buffer.opaque_buf", "buffer.opaque_alive", "stats.excluded")
def test_opaque_may_be_another_buffers_memory(fresh):
    data = noise(4000)
    owner = filled(fresh, data)
    counted = live(fresh.dname)
    guest = Buffer(fresh.dname, 4000, BYTE, opaque=owner._buf)
    assert live(fresh.dname) == counted
    cached = hcq.memory_stats(fresh.dname).cached_bytes
    del owner
    gc.collect()
    assert hcq.memory_stats(fresh.dname).cached_bytes == cached
    others = [filled(fresh, np.zeros(4000, np.uint8)) for _ in range(8)]
    assert (read(guest) == data).all() and others
    del guest
    gc.collect()
    fresh.synchronize()
    assert hcq.memory_stats(fresh.dname).cached_bytes == cached + 4000


# -- threads and collection -------------------------------------------------------------------------------------------


@promise("buffer.gc", "allocator.threads")
def test_cycles_are_collected_while_others_allocate(dev):
    def churn(seed: int) -> None:
        for n in range(200):
            buf = filled(dev, np.full(64, seed * 1000 + n, I32))
            cycle = [buf]
            cycle.append(cycle)
            if n % 20 == 0:
                gc.collect()
            assert (read(buf) == seed * 1000 + n).all()

    together(*[lambda seed=seed: churn(seed) for seed in range(4)])


@promise("buffer.gc")
def test_a_buffer_may_die_in_another_thread(dev):
    before = live(dev.dname)
    box = [filled(dev, [1])]
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    assert live(dev.dname) == before


@promise("buffer.fill")
def test_fill_sets_every_element(dev):
    for size in (1, 7, 1000):
        buf = filled(dev, [5] * size)
        buf.fill(-3)
        assert read(buf).tolist() == [-3] * size
    floats = hcq.empty(5, np.dtype("f4"), dev.dname)
    floats.fill(1.5)
    assert read(floats).tolist() == [1.5] * 5


@promise("buffer.pickle_contents")
def test_a_pickle_in_a_file_is_read_back(dev):
    file = io.BytesIO()
    pickle.dump({"weights": filled(dev, [1, 2, 3])}, file)
    file.seek(0)
    assert read(pickle.load(file)["weights"]).tolist() == [1, 2, 3]
