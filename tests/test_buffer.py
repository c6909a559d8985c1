"""Buffer: creation, allocation, views, copies, lifetimes."""

import gc
import pickle
import sys
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest
from memory_devices import FarDevice, HostDevice, opened

import hcq
from hcq import Buffer, BufferOptions, Compiled, Device, dtypes, memory_stats
from hcq.runtime.allocator import Allocator

F32 = dtypes.float32


@pytest.fixture(params=[HostDevice, FarDevice])
def name(request):
    """A device whose memory is the host's, and one whose memory only copies reach."""
    with opened(request.param) as name:
        yield name


@pytest.fixture
def host():
    with opened(HostDevice) as name:
        yield name


@pytest.fixture
def far():
    with opened(FarDevice) as name:
        yield name


# Creation


def test_creating_a_buffer_opens_no_device_and_allocates_nothing(name):
    buf = Buffer(name, 16, F32)
    assert name not in Device.opened
    assert not hasattr(buf, "_buf") and not hasattr(buf, "allocator") and not buf.is_allocated()
    assert (buf.size, buf.nbytes, buf.dtype, buf.device, buf.offset) == (16, 64, F32, name, 0)
    assert buf.base is buf and buf._base is None and buf.options is None and buf.shape == (16,)


def test_the_device_name_is_made_canonical(name):
    assert Buffer(name.lower() + ":0", 1, F32).device == name
    assert Buffer(name.lower() + ":1", 1, F32).device == f"{name}:1"
    assert Buffer("disk:/tmp/a:0", 1, F32).device == "DISK:/tmp/a:0"
    assert Buffer("cpu", 1, F32).device == Device.canonicalize("CPU")
    assert Buffer(None, 1, F32).device == Device.DEFAULT


def test_arguments_go_by_position_and_by_keyword(name):
    options = BufferOptions(host=True)
    by_position = Buffer(name, 4, F32, None, options, None, 3, None, 0, True)
    by_keyword = Buffer(dtype=F32, size=4, device=name, options=options, lb_refcount=3, preallocate=True)
    for buf in (by_position, by_keyword):
        assert buf.is_allocated() and buf.options is options and buf.lb_refcount == 3
    for arguments, keywords in [((name, 4), {}), ((name, 4, F32), {"colour": 1}), ((name, 4, F32), {"size": 4})]:
        with pytest.raises(TypeError):
            Buffer(*arguments, **keywords)
    with pytest.raises(TypeError):
        Buffer(*[None] * 11)


@pytest.mark.parametrize("size", [-1, 2**61, 2**64, 2**100])
def test_impossible_sizes_are_refused(name, size):
    with pytest.raises(ValueError):
        Buffer(name, size, dtypes.float64)


def test_a_buffer_without_elements_can_be_made_and_never_has_memory(name):
    """Programs make one for every empty tensor, and then ask nothing of it."""
    buf = Buffer(name, 0, F32)
    assert (buf.size, buf.nbytes, buf.shape, buf.is_allocated()) == (0, 0, (0,), False)
    assert not pickle.loads(pickle.dumps(buf)).is_allocated()
    for allocate in (buf.allocate, buf.ensure_allocated, lambda: Buffer(name, 0, F32, preallocate=True)):
        with pytest.raises(ValueError, match="without elements"):
            allocate()


def test_an_empty_array_can_be_named_as_any_other():
    buf = Buffer("NPY", 0, F32, opaque=np.empty(0, np.float32))
    assert buf.is_allocated() and bytes(buf.as_buffer()) == b""
    assert memoryview(buf).nbytes == 0


@pytest.mark.parametrize("size", [1.5, "4", None])
def test_sizes_that_are_no_integers_are_refused(name, size):
    with pytest.raises(TypeError):
        Buffer(name, size, F32)


class TheirDtype:
    itemsize = 6


@pytest.mark.parametrize(
    ("dtype", "itemsize"),
    [
        (dtypes.bfloat16, 2),
        (np.dtype("f8"), 8),
        (np.float32, 4),
        (np.dtype(ml_dtypes.bfloat16), 2),
        (ml_dtypes.float8_e5m2, 1),
        (TheirDtype(), 6),
        (TheirDtype, 6),
        ("int16", 2),
        (np.dtype([("a", "i4"), ("b", "f8")]), 12),
    ],
)
def test_a_dtype_is_anything_with_an_itemsize(name, dtype, itemsize):
    assert Buffer(name, 3, dtype).nbytes == 3 * itemsize


@pytest.mark.parametrize("dtype", [None, 7, "nothing", object()])
def test_what_is_no_dtype_is_refused(name, dtype):
    with pytest.raises(TypeError):
        Buffer(name, 3, dtype)


def test_image_dtypes_ask_for_an_image(name):
    class ImageDType:
        itemsize = 4
        shape = (2, 4, 4)

    dtype = ImageDType()
    assert Buffer(name, 32, dtype).options == BufferOptions(image=dtype)
    options = BufferOptions(host=True)
    assert Buffer(name, 32, dtype, options=options).options is options


def test_unknown_devices_are_found_out_at_allocation():
    buf = Buffer("NOSUCHDEVICE", 4, F32)
    with pytest.raises(KeyError):
        buf.allocate()
    assert not buf.is_allocated()


# Allocation


def test_allocation_gives_one_handle_until_it_is_given_up(name):
    buf = Buffer(name, 16, F32)
    assert buf.allocate() is buf and buf.is_allocated()
    handle = buf._buf
    assert buf._buf is handle and buf.ensure_allocated() is buf and buf._buf is handle
    assert buf.allocator is Device[name].allocator
    with pytest.raises(RuntimeError, match="allocated already"):
        buf.allocate()
    assert buf._buf is handle
    buf.deallocate()
    assert not hasattr(buf, "_buf") and not hasattr(buf, "allocator")
    buf.deallocate()
    assert buf.ensure_allocated().is_allocated()


def test_an_initial_value_is_copied_in(name):
    source = bytearray(range(16))
    buf = Buffer(name, 4, F32, initial_value=source)
    source[:] = bytes(16)
    assert bytes(buf.as_buffer()) == bytes(range(16))
    with pytest.raises(ValueError):
        Buffer(name, 4, F32, initial_value=bytes(15))


def test_the_allocator_is_looked_up_when_it_is_used(far):
    class Mine(Allocator):
        def _alloc(self, size, options):
            assert options == BufferOptions()
            return f"{size} bytes"

    Device[far].allocator = Mine(Device[far])
    assert Buffer(far, 4, F32, preallocate=True)._buf == "16 bytes"


def test_a_client_can_replace_alloc_and_free_of_one_allocator(host):
    allocator, log = Device[host].allocator, []
    alloc, free = allocator.alloc, allocator.free
    allocator.alloc = lambda size, options=None: log.append(size) or alloc(size, options)
    allocator.free = lambda opaque, size, options=None: log.append(-size) or free(opaque, size, options)
    Buffer(host, 4, F32, preallocate=True)
    assert log == [16, -16]


def test_a_failed_allocation_leaves_the_buffer_unallocated(far):
    Device[far].allocator.room = 8
    buf = Buffer(far, 4, F32)
    with pytest.raises(MemoryError):
        buf.allocate()
    assert not buf.is_allocated() and memory_stats(far).live_count == 0
    Device[far].allocator.room = None
    assert buf.allocate().is_allocated()


def test_options_are_read_when_the_memory_is_freed(far):
    buf = Buffer(far, 4, F32, preallocate=True)
    log = Device[far].allocator.log
    buf.options = BufferOptions(nolru=True)
    del buf
    assert [entry[0] for entry in log] == ["alloc", "free"]


def test_buffers_of_a_closed_device_raise(name):
    buf = Buffer(name, 4, F32, preallocate=True)
    view = buf.view(2, F32, 0)
    Device.close(name)
    for use in (buf.copyin, buf.copyout):
        with pytest.raises(RuntimeError, match="closed"):
            use(bytearray(16))
    for use in (
        buf.ensure_allocated,
        buf.as_buffer,
        view.ensure_allocated,
        lambda: buf._buf,
        lambda: buf.view(1, F32, 0),
    ):
        with pytest.raises(RuntimeError, match="closed"):
            use()
    assert not buf.is_allocated() and not view.is_allocated()
    assert memory_stats(name).live_count == 0


# A caller's memory


def test_a_callers_memory_is_kept_and_never_freed_or_cached(far):
    class Memory:
        size = 16

    memory = Memory()
    buf = Buffer(far, 4, F32, opaque=memory)
    alive = weakref.ref(memory)
    del memory
    gc.collect()
    assert alive() is not None and buf._buf is alive()
    assert memory_stats(far).live_count == 0
    del buf
    assert alive() is None
    assert Device[far].allocator.log == [] and Device[far].allocator.cached_count == 0


def test_host_memory_of_a_caller_is_used_in_place(host):
    memory = np.arange(4, dtype=np.float32)
    buf = Buffer(host, 4, F32, opaque=memory)
    buf.copyin(np.ones(4, np.float32))
    assert memory.tolist() == [1, 1, 1, 1]
    with pytest.raises(ValueError, match="16 bytes"):
        Buffer(host, 5, F32, opaque=memory)
    memory.flags.writeable = False
    for refused in (memory, bytes(16), 1234, np.zeros((4, 4), np.float32)[:, 0]):
        with pytest.raises((TypeError, ValueError, BufferError)):
            Buffer(host, 4, F32, opaque=refused)


@pytest.mark.parametrize("first", ["owner", "user"])
def test_memory_of_another_buffer_stays_out_of_the_cache_while_either_lives(name, first):
    owner = Buffer(name, 4, F32, initial_value=bytes(range(16)))
    user = Buffer(name, 4, F32, opaque=owner._buf)
    allocator, handle = Device[name].allocator, owner._buf
    if first == "owner":
        del owner
        survivor = user
        del user
    else:
        survivor = owner
        del user, owner
    assert memory_stats(name).live_count == (first == "user")
    assert allocator.cached_count == 0
    other = Buffer(name, 4, F32, initial_value=bytes(16))
    assert other._buf is not handle
    assert bytes(survivor.as_buffer()) == bytes(range(16))
    del survivor
    assert allocator.cached_count == 1
    assert Buffer(name, 4, F32, preallocate=True)._buf is handle


# Views


def test_a_view_of_a_view_has_the_root_as_base(name):
    root = Buffer(name, 64, dtypes.uint8, initial_value=bytes(range(64)))
    view = root.view(8, F32, 3)
    inner = view.view(5, dtypes.uint8, offset=7)
    assert inner._base is root and inner.base is root and inner.offset == 10 and view.offset == 3
    assert bytes(inner.as_buffer()) == bytes(range(10, 15))
    inner.copyin(b"abcde")
    assert bytes(root.as_buffer())[10:15] == b"abcde"


def test_views_must_lie_within_the_buffer_they_are_taken_from(name):
    root = Buffer(name, 64, dtypes.uint8)
    view = root.view(16, dtypes.uint8, 16)
    root.view(64, dtypes.uint8, 0), root.view(1, dtypes.uint8, 63), view.view(4, F32, 0)
    for size, dtype, offset in [(65, dtypes.uint8, 0), (1, dtypes.uint8, 64), (16, F32, 1), (1, F32, 2**64 - 1)]:
        with pytest.raises(ValueError):
            root.view(size, dtype, offset)
    for size, dtype, offset in [(0, F32, 0), (-1, F32, 0), (1, F32, -4)]:
        with pytest.raises(ValueError):
            root.view(size, dtype, offset)
    with pytest.raises(ValueError, match="past the end"):
        view.view(17, dtypes.uint8, 0)  # within the root, but not within the view
    with pytest.raises(ValueError, match="past the end"):
        Buffer(name, 17, dtypes.uint8, base=view, offset=0)


def test_a_view_keeps_the_root_alive_and_costs_nothing_in_the_counters(name):
    root = Buffer(name, 64, dtypes.uint8, preallocate=True)
    view = root.view(16, dtypes.uint8, 16)
    alive = weakref.ref(root)
    del root
    gc.collect()
    assert alive() is not None
    assert memory_stats(name)[:2] == (64, 1)
    del view
    assert alive() is None and memory_stats(name)[:2] == (0, 0)


def test_allocating_a_view_allocates_its_root(name):
    root = Buffer(name, 64, dtypes.uint8)
    view = root.view(16, dtypes.uint8, 16)
    assert not view.is_allocated()
    assert view.ensure_allocated() is view and view.is_allocated() and root.is_allocated()
    assert view.allocator is root.allocator


def test_views_become_unallocated_with_their_root(name):
    root = Buffer(name, 64, dtypes.uint8, preallocate=True)
    views = [root.view(16, dtypes.uint8, at).ensure_allocated() for at in (0, 16, 32)]
    del views[1]
    root.deallocate()
    assert not any(view.is_allocated() or hasattr(view, "_buf") for view in views)
    root.allocate()
    views[1].ensure_allocated().copyin(b"x" * 16)
    assert bytes(root.as_buffer())[32:48] == b"x" * 16


def test_views_need_the_same_device_and_a_buffer(name):
    root = Buffer(name, 64, dtypes.uint8)
    with pytest.raises(ValueError, match="memory of a buffer on"):
        Buffer(name + ":1", 4, dtypes.uint8, base=root)
    with pytest.raises(TypeError):
        Buffer(name, 4, dtypes.uint8, base=bytearray(64))
    with pytest.raises(ValueError, match="offset needs a base"):
        Buffer(name, 4, dtypes.uint8, offset=4)
    with pytest.raises(ValueError, match="root's memory"):
        Buffer(name, 4, dtypes.uint8, base=root, initial_value=b"abcd")
    with pytest.raises(ValueError, match="root's memory"):
        root.view(4, dtypes.uint8, 0).allocate(bytearray(4))


def test_devices_without_views_say_so():
    class Plain(Allocator):
        def _alloc(self, size, options):
            return object()

    with opened(lambda name: Compiled(name, Plain())) as name:
        root = Buffer(name, 64, dtypes.uint8)
        with pytest.raises(ValueError, match="no views"):
            root.view(4, dtypes.uint8, 0).ensure_allocated()


# Identity


def test_equality_and_hash_are_identity_and_weak_references_work(name):
    one, other = Buffer(name, 4, F32), Buffer(name, 4, F32)
    assert one != other and one == one and len({one, other, one}) == 2
    gone = []
    weakref.finalize(one, gone.append, 1)
    reference = weakref.ref(one)
    assert reference() is one
    del one
    assert reference() is None and gone == [1]


def test_the_reference_count_of_clients_is_one_for_a_root_and_its_views(name):
    root = Buffer(name, 64, dtypes.uint8, lb_refcount=2)
    view = root.view(4, dtypes.uint8, 0)
    assert view.ref(3) is view and root.lb_refcount == view.lb_refcount == root._lb_refcount == 5
    root.ref(-5)
    assert view.lb_refcount == 0


def test_subclasses_have_attributes_and_constructors_of_their_own(name):
    class Named(Buffer):
        def __init__(self, label, n):
            super().__init__(name, n, F32, preallocate=True)
            self.label = label

        def __repr__(self):
            return self.label

    buf = Named("weights", 4)
    assert repr(buf) == "weights" and buf.is_allocated() and type(buf.view(1, F32, 0)) is Buffer
    buf.cycle = [buf]
    assert memory_stats(name).live_count == 1
    del buf
    gc.collect()
    assert memory_stats(name).live_count == 0

    class Forgetful(Buffer):
        def __init__(self):
            pass

    with pytest.raises(RuntimeError, match="super"):
        Forgetful().allocate()
    assert "unusable" in repr(Forgetful())
    with pytest.raises(RuntimeError, match="twice"):
        Buffer.__init__(Buffer(name, 4, F32), name, 4, F32)


def test_repr_says_what_it_is(name):
    buf = Buffer(name, 4, F32)
    assert repr(buf) == f"<Buffer {name} 4 float32, 16 bytes, not allocated>"
    buf.allocate()
    assert repr(buf.view(2, np.dtype("u1"), 3)) == f"<Buffer {name} 2 uint8, 2 bytes from byte 3 of 16, allocated>"


# Copies


@pytest.mark.parametrize(
    "source",
    [
        bytes(range(24)),
        bytearray(range(24)),
        memoryview(bytes(range(24))).cast("B", (2, 3, 4)),
        np.frombuffer(bytes(range(24)), np.uint8).reshape(4, 6),
        np.frombuffer(bytes(range(24)), ml_dtypes.bfloat16),
        np.frombuffer(bytes(range(24)), "M8[s]"),
    ],
)
def test_copyin_takes_contiguous_memory_of_any_shape_and_type(name, source):
    buf = Buffer(name, 6, F32, preallocate=True)
    assert buf.copyin(source) is buf
    out = bytearray(24)
    assert buf.copyout(out) is out
    assert out == bytes(range(24))


def test_copyout_takes_writable_contiguous_memory(name):
    buf = Buffer(name, 6, F32, initial_value=np.arange(6, dtype=np.float32))
    for target in (np.empty((2, 3), np.float32), np.empty(6, np.float32)):
        assert buf.copyout(target).reshape(-1).tolist() == [0, 1, 2, 3, 4, 5]
    half = np.empty(12, ml_dtypes.bfloat16)
    assert buf.copyout(half).tobytes() == np.arange(6, dtype=np.float32).tobytes()
    for readonly in (bytes(24), memoryview(bytes(24)), np.broadcast_to(np.float32(1), 6)):
        with pytest.raises((TypeError, ValueError), match=r"read-only|strided"):
            buf.copyout(readonly)


@pytest.mark.parametrize(
    "wrong", [np.zeros(12, np.float32)[::2], np.zeros((3, 2), np.float32).T, memoryview(bytes(48))[::2]]
)
def test_strided_memory_is_refused(name, wrong):
    buf = Buffer(name, 6, F32, preallocate=True)
    with pytest.raises(ValueError, match="strided"):
        buf.copyin(wrong)
    with pytest.raises((TypeError, ValueError)):
        buf.copyout(wrong)


def test_copies_check_the_byte_count_and_that_there_is_memory(name):
    buf = Buffer(name, 6, F32, preallocate=True)
    for count in (0, 23, 25):
        with pytest.raises(ValueError, match="24 bytes"):
            buf.copyin(bytes(count))
        with pytest.raises(ValueError, match="24 bytes"):
            buf.copyout(bytearray(count))
    with pytest.raises(TypeError, match="buffer protocol"):
        buf.copyin(3)
    empty = Buffer(name, 6, F32)
    for use in (lambda: empty.copyin(bytes(24)), lambda: empty.copyout(bytearray(24)), empty.as_buffer):
        with pytest.raises(RuntimeError, match="not allocated"):
            use()
    assert not empty.is_allocated()


def test_a_buffer_can_be_copied_in(host):
    source = Buffer(host, 6, F32, initial_value=bytes(range(24)))
    assert bytes(Buffer(host, 24, dtypes.uint8, initial_value=source).as_buffer()) == bytes(range(24))


def test_as_buffer_gives_a_private_copy_unless_asked(name):
    buf = Buffer(name, 4, dtypes.uint8, initial_value=b"abcd")
    private = buf.as_buffer()
    private[0] = ord("x")
    assert bytes(buf.as_buffer()) == b"abcd"
    assert (private.format, private.ndim, private.readonly) == ("B", 1, False)


def test_forced_zero_copy_raises_where_the_host_does_not_reach(far):
    buf = Buffer(far, 4, dtypes.uint8, initial_value=b"abcd")
    assert bytes(buf.as_buffer(allow_zero_copy=True)) == b"abcd"
    with pytest.raises(ValueError, match="can't reach"):
        buf.as_buffer(force_zero_copy=True)


def test_memory_under_a_zero_copy_view_is_neither_freed_nor_reused(host):
    allocator = Device[host].allocator
    buf = Buffer(host, 16, dtypes.uint8, initial_value=b"a" * 16)
    view = buf.view(4, dtypes.uint8, 8).as_buffer(force_zero_copy=True)
    view[0] = ord("b")
    assert bytes(buf.as_buffer())[8:12] == b"baaa"
    buf.deallocate()
    assert memory_stats(host)[:2] == (0, 0)
    others = [Buffer(host, 16, dtypes.uint8, initial_value=b"c" * 16) for _ in range(3)]
    assert bytes(view) == b"baaa" and allocator.cached_count == 0
    sub = view[1:]
    del view, buf
    assert bytes(sub) == b"aaa" and allocator.cached_count == 0
    sub.release()
    assert allocator.cached_count == 1
    del others


def test_zero_copy_views_survive_the_closing_of_their_device(host):
    buf = Buffer(host, 1 << 20, dtypes.uint8, initial_value=b"a" * (1 << 20))
    view = buf.as_buffer(force_zero_copy=True)
    Device.close(host)
    assert bytes(view) == b"a" * (1 << 20)


# Many of them, and many threads


def test_nothing_is_left_behind(name):
    dtype, options = np.dtype("i4"), BufferOptions(host=True)

    def round_trip():
        buf = Buffer(name, 16, dtype, options=options, preallocate=True)
        view = buf.view(4, dtype, 16).ensure_allocated()
        view.copyin(bytes(16))
        buf.copyout(bytearray(64))
        buf.as_buffer(allow_zero_copy=True).release()
        for wrong in (
            lambda: buf.view(99, dtype, 0),
            lambda: buf.copyin(b""),
            lambda: Buffer(name, 0, dtype),
            buf.allocate,
        ):
            try:
                wrong()
            except (ValueError, RuntimeError):
                pass
        Buffer(name, 4, dtype, opaque=buf._buf)
        Buffer(name, 16, dtype, base=buf, lb_refcount=1).deallocate()

    round_trip()
    counted = (dtype, options, None, name, Buffer(name, 1, dtype).device, Device[name], Device[name].allocator, Buffer)
    before = [sys.getrefcount(thing) for thing in counted]
    for _ in range(500):
        round_trip()
    gc.collect()
    grown = {repr(thing): sys.getrefcount(thing) - count for thing, count in zip(counted, before, strict=True)}
    assert all(abs(difference) < 250 for difference in grown.values()), grown
    assert memory_stats(name)[:2] == (0, 0)
    assert Device[name].allocator.live_bytes == 0


def test_a_block_is_never_handed_to_two_threads(name):
    problems = []

    def work(number):
        pattern = bytes([number]) * 256
        for turn in range(300):
            buf = Buffer(name, 256, dtypes.uint8, initial_value=pattern)
            others = [Buffer(name, 64 * (1 + turn % 3), dtypes.uint8, preallocate=True) for _ in range(turn % 4)]
            if bytes(buf.as_buffer()) != pattern:
                problems.append(number)
            del others

    threads = [threading.Thread(target=work, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert memory_stats(name)[:2] == (0, 0)


def test_garbage_collected_in_one_thread_while_another_allocates_is_safe(name):
    class Cyclic(Buffer):
        pass

    stop = threading.Event()

    def collect():
        while not stop.is_set():
            for _ in range(20):
                buf = Cyclic(name, 64, dtypes.uint8, preallocate=True)
                buf.me = buf
            gc.collect()

    collector = threading.Thread(target=collect)
    collector.start()
    try:
        for turn in range(2000):
            pattern = bytes([turn % 256]) * 64
            buf = Buffer(name, 64, dtypes.uint8, initial_value=pattern)
            assert bytes(buf.as_buffer()) == pattern
    finally:
        stop.set()
        collector.join()
    del buf
    gc.collect()
    assert memory_stats(name)[:2] == (0, 0)


def test_two_threads_allocating_one_buffer_leave_one_allocation(far):
    for _ in range(50):
        buf = Buffer(far, 64, dtypes.uint8)
        threads = [threading.Thread(target=buf.ensure_allocated) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert memory_stats(far).live_count == 1
        del buf, threads, thread
    assert memory_stats(far).live_count == 0 and Device[far].allocator.live_bytes == 0


@pytest.mark.parametrize("size", ["8", 1.5, (2, 1.5), None, ["a"]])
def test_a_size_that_is_neither_a_count_nor_a_shape_is_refused(host, size):
    with pytest.raises(TypeError, match="size must be a whole number of elements, or a shape"):
        hcq.empty(size, "float32", host)


def test_options_are_buffer_options(host):
    with pytest.raises(TypeError, match=r"options must be an hcq.BufferOptions or None, not int"):
        Buffer(host, 8, dtypes.uint8, options=5)
