"""Buffers: when memory comes and goes, views, memory of the caller, threads. What they hold: test_buffer_contents."""

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
from hcq.testing.suite.tools import BYTE, I32, empty, filled, live, noise, printed, read, together

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
@pytest.mark.parametrize("option", ["host", "cpu_access", "uncached", "nolru", "image"])
def test_buffers_with_options_work(dev, option):
    pixels = hcq.dtypes.uint8, (2, 8, 4)  # ordinary memory, where a device has no images
    options = BufferOptions(**{option: pixels if option == "image" else True})
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
