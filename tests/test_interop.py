"""Exchange of memory without copies: NumPy, the buffer protocol, DLPack, hcq.array, pickling."""

import copy as copying
import ctypes
import gc
import pickle
import weakref

import ml_dtypes
import numpy as np
import pytest
from memory_devices import FarDevice, HostDevice, opened

import hcq
from hcq import Buffer, BufferOptions, Device, dtypes, memory_stats
from hcq._native import dlpack_consume

F32 = dtypes.float32
NUMBERS = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.fixture(params=[HostDevice, FarDevice])
def name(request):
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


# hcq.array, hcq.empty, hcq.zeros


def test_arrays_go_in_and_come_out_with_their_shape_and_type(name):
    buf = hcq.array(NUMBERS, name)
    assert (buf.device, buf.size, buf.dtype, buf.shape) == (name, 24, F32, (2, 3, 4))
    out = buf.numpy()
    assert out.dtype == np.float32 and (out == NUMBERS).all() and out.flags.writeable
    out[:] = 0
    assert (buf.numpy() == NUMBERS).all()


@pytest.mark.parametrize(
    "dtype",
    [*dtypes.ALL, np.dtype(">i4"), np.dtype("M8[s]"), np.dtype([("a", "i4"), ("b", "f8")])],
    ids=str,
)
def test_every_type_makes_the_round_trip(name, dtype):
    source = (
        np.frombuffer(bytes(range(1, 1 + 48)), dtypes.to_numpy(dtype)) if dtype is not dtypes.bool else np.ones(5, bool)
    )
    buf = hcq.array(source, name)
    assert buf.numpy().dtype == source.dtype and buf.numpy().tobytes() == source.tobytes()
    assert np.asarray(buf).dtype == source.dtype and np.asarray(buf).tobytes() == source.tobytes()


def test_array_takes_whatever_has_memory_and_bare_numbers(name):
    from array import array as array_type

    class Interface:
        __array_interface__ = NUMBERS.__array_interface__

    class Only:
        def __dlpack__(self, **keywords):
            return NUMBERS.copy().__dlpack__(**keywords)

        def __dlpack_device__(self):
            return 1, 0

    for source in (NUMBERS, memoryview(NUMBERS), Interface(), Only(), NUMBERS.tolist()):
        assert (hcq.array(source, name).numpy() == NUMBERS).all() and hcq.array(source, name).shape == (2, 3, 4)
    assert hcq.array(array_type("h", [1, -2]), name).dtype is dtypes.int16
    assert hcq.array(b"abc", name).numpy().tolist() == [97, 98, 99]
    assert hcq.array(NUMBERS[:, ::2, 1], name).numpy().tolist() == NUMBERS[:, ::2, 1].tolist()
    assert hcq.array(5.0, name).shape == () and float(hcq.array(5.0, name).numpy()) == 5.0
    assert hcq.array([1, 2], name, dtype=dtypes.float16).numpy().tolist() == [1.0, 2.0]
    assert hcq.array(NUMBERS, name, dtype="bfloat16").numpy().dtype == ml_dtypes.bfloat16


def test_array_refuses_what_can_not_be_a_buffer(name):
    with pytest.raises(ValueError, match="at least one element"):
        hcq.array(np.zeros((3, 0)), name)
    with pytest.raises(TypeError, match="Python objects"):
        hcq.array([object()], name)


def test_a_buffer_can_be_copied_by_array(name, host):
    source = hcq.array(NUMBERS, name)
    for target in (None, host, name):
        made = hcq.array(source, target)
        assert made is not source and made.shape == (2, 3, 4) and (made.numpy() == NUMBERS).all()
        assert made.device == (target or name)
    assert hcq.array(source, dtype=dtypes.int8).numpy().dtype == np.int8
    assert hcq.array(source, copy=False) is source


def test_shared_host_memory_is_the_callers_own(host):
    memory = NUMBERS.copy()
    buf = hcq.array(memory, host, copy=False)
    memory[1, 2, 3] = 99
    assert buf.numpy()[1, 2, 3] == 99 and buf.shape == (2, 3, 4)
    buf.fill(1)
    assert (memory == 1).all()
    assert memory_stats(host).live_count == 0
    alive = weakref.ref(memory)
    del memory
    gc.collect()
    assert alive() is not None
    del buf
    assert alive() is None


def test_sharing_is_refused_where_it_would_be_a_copy(host, far):
    readonly = NUMBERS.copy()
    readonly.flags.writeable = False
    for source, device, dtype in [
        (NUMBERS[:, :, ::2], host, None),
        (readonly, host, None),
        (NUMBERS.copy(), host, dtypes.int8),
        (NUMBERS.copy(), far, None),
    ]:
        with pytest.raises(ValueError, match="copy=False"):
            hcq.array(source, device, dtype=dtype, copy=False)


def test_empty_and_zeros_are_allocated_and_have_a_shape(name):
    for made in (hcq.empty((3, 4), F32, name), hcq.zeros((3, 4), F32, name)):
        assert made.is_allocated() and made.shape == (3, 4) and made.numpy().shape == (3, 4)
    hcq.empty(64, dtypes.uint8, name).copyin(b"\xff" * 64)
    assert hcq.zeros(np.int64(64), dtypes.uint8, name).numpy().tolist() == [0] * 64
    for wrong in (0, -1, (3, 0), (-2, -2)):
        with pytest.raises(ValueError):
            hcq.empty(wrong, F32, name)


def test_fill_sets_every_element(name):
    buf = hcq.empty((3, 4), dtypes.int16, name)
    assert buf.fill(-7) is buf and (buf.numpy() == -7).all()
    buf.view(2, dtypes.int16, 4).ensure_allocated().fill(5)
    assert buf.numpy().reshape(-1).tolist() == [-7, -7, 5, 5] + [-7] * 8
    for value in (40000, 1.5, "x", None):
        with pytest.raises((ValueError, OverflowError, TypeError)):
            buf.fill(value)
    assert hcq.empty(3, dtypes.bfloat16, name).fill(1.5).numpy().tolist() == [1.5] * 3
    assert Buffer(name, 3, F32).fill(2).numpy().tolist() == [2, 2, 2]


# NumPy and the buffer protocol


def test_numpy_arrays_over_host_buffers_share_their_memory(host):
    buf = hcq.array(NUMBERS, host)
    shared = np.asarray(buf)
    assert shared.shape == (2, 3, 4) and shared.dtype == np.float32
    shared[0, 0, 0] = -1
    assert buf.numpy()[0, 0, 0] == -1
    assert np.asarray(buf.view(2, F32, 4)).tolist() == [1, 2]
    half = hcq.array(np.ones(3, ml_dtypes.bfloat16), host)
    np.asarray(half)[1] = 2
    assert half.numpy().tolist() == [1, 2, 1]
    assert np.array(buf, dtype=np.int32).dtype == np.int32


def test_an_array_keeps_the_memory_and_gives_it_back(host):
    allocator = Device[host].allocator
    for consume in (
        np.asarray,
        memoryview,
        np.from_dlpack,
        lambda b: np.asarray(b)[1:],
        lambda b: (b.__array_interface__, b),
        lambda b: b.__dlpack__(),
    ):
        buf = hcq.array(NUMBERS, host)
        address, result = buf._buf.va_addr, consume(buf)
        buf.deallocate()
        other = hcq.array(NUMBERS, host)
        assert other._buf.va_addr != address and allocator.cached_count == 0
        del buf, result, other
        gc.collect()
        assert allocator.cached_count == 2 and memory_stats(host).live_count == 0
        allocator.free_cache()


def test_the_buffer_protocol_tells_type_and_shape(host):
    view = memoryview(hcq.array(NUMBERS, host))
    assert (view.format, view.shape, view.strides, view.readonly) == ("f", (2, 3, 4), (48, 16, 4), False)
    assert view.tolist() == NUMBERS.tolist()
    with pytest.raises(BufferError):
        memoryview(hcq.array(np.ones(2, ml_dtypes.bfloat16), host))
    assert ctypes.c_float.from_buffer(hcq.array(NUMBERS, host), 8).value == 2


def test_the_array_interface_names_the_memory(host):
    buf = hcq.array(NUMBERS, host)
    interface = buf.__array_interface__
    assert interface == {"shape": (2, 3, 4), "typestr": "<f4", "data": (buf._buf.va_addr, False), "version": 3}


def test_memory_the_host_does_not_reach_is_copied_or_refused(far):
    buf = hcq.array(NUMBERS, far)
    assert (np.asarray(buf) == NUMBERS).all()
    for refused in (memoryview, np.from_dlpack, lambda b: b.__array_interface__, lambda b: np.asarray(b, copy=False)):
        with pytest.raises((BufferError, AttributeError, ValueError), match=r"can't reach|copy"):
            refused(buf)


def test_unallocated_buffers_can_not_be_exported(host):
    buf = Buffer(host, 4, F32)
    for use in (memoryview, np.from_dlpack, lambda b: b.numpy(), lambda b: b.__array_interface__):
        with pytest.raises(RuntimeError, match="not allocated"):
            use(buf)


# DLPack


def test_numpy_reads_a_buffer_by_dlpack_without_a_copy(host):
    buf = hcq.array(NUMBERS, host)
    assert buf.__dlpack_device__() == (1, 0)
    shared = np.from_dlpack(buf)
    assert shared.shape == (2, 3, 4) and (shared == NUMBERS).all() and shared.ctypes.data == buf._buf.va_addr
    copied = np.from_dlpack(buf, copy=True)
    assert copied.ctypes.data != buf._buf.va_addr and (copied == NUMBERS).all()
    assert np.from_dlpack(buf.view(2, F32, 8)).tolist() == [2, 3]


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (2, 0)])
def test_capsules_are_versioned_when_the_consumer_knows_versions(host, version):
    buf = hcq.array(NUMBERS, host)
    capsule = buf.__dlpack__(max_version=version)
    versioned = version is not None and version[0] >= 1
    assert f'"{"dltensor_versioned" if versioned else "dltensor"}"' in repr(capsule)
    exporter, shape, strides, code, bits, lanes, *where = dlpack_consume(capsule)
    assert (shape, strides, code, bits, lanes, where) == ((2, 3, 4), (48, 16, 4), 2, 32, 1, [1, 0])
    assert exporter.address == buf._buf.va_addr and exporter.nbytes == 96
    with pytest.raises(BufferError, match="consumed"):
        dlpack_consume(capsule)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_type_travels_by_dlpack(host, dtype):
    class Foreign:
        def __init__(self, buf):
            self.buf = buf

        def __dlpack__(self):  # a producer from before versions
            return self.buf.__dlpack__()

        def __dlpack_device__(self):
            return self.buf.__dlpack_device__()

    source = np.ones(5, dtypes.to_numpy(dtype))
    made = hcq.array(Foreign(hcq.array(source, host)), host)
    assert made.dtype is dtype and made.numpy().tobytes() == source.tobytes()


def test_dlpack_memory_of_others_is_given_back(host):
    source = NUMBERS.copy()
    alive = weakref.ref(source)
    buf = hcq.array(Wrapped(source), host, copy=False)
    del source
    gc.collect()
    assert alive() is not None and (buf.numpy() == NUMBERS).all()
    del buf
    gc.collect()
    assert alive() is None


class Wrapped:
    def __init__(self, array):
        self.capsule, self.device = array.__dlpack__(max_version=(1, 0)), array.__dlpack_device__()

    def __dlpack__(self, **keywords):
        return self.capsule

    def __dlpack_device__(self):
        return self.device


def test_read_only_memory_says_so_in_dlpack(host):
    readonly = NUMBERS.copy()
    readonly.flags.writeable = False
    exporter, *_ = dlpack_consume(readonly.__dlpack__(max_version=(1, 0)))
    assert exporter.readonly
    buf = Buffer("NPY", 24, F32, opaque=readonly)
    assert not np.from_dlpack(buf).flags.writeable and not np.asarray(buf).flags.writeable
    with pytest.raises(BufferError, match="read-only"):
        buf.__dlpack__()


def test_dlpack_refuses_other_devices_and_types_it_has_no_word_for(host):
    buf = hcq.array(NUMBERS, host)
    buf.__dlpack__(dl_device=(1, 0))
    with pytest.raises(BufferError, match="host memory"):
        buf.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="no name"):
        hcq.array(np.array(["2020-01-01"], "M8[s]"), host).__dlpack__()

    class Elsewhere:
        def __dlpack_device__(self):
            return 8, 1  # Metal

        def __dlpack__(self, **keywords):
            raise AssertionError("is never asked")

    with pytest.raises(BufferError, match="only host memory"):
        hcq.array(Elsewhere(), host)


def test_empty_dlpack_tensors_are_understood(host):
    with pytest.raises(ValueError, match="at least one element"):
        hcq.array(Wrapped(np.zeros((3, 0), np.float32)), host)
    assert hcq.array(Wrapped(NUMBERS.T), host).numpy().tolist() == NUMBERS.T.tolist()


# Pickling


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_contents_and_description_survive_pickling(name, protocol):
    buf = hcq.array(NUMBERS, name)
    buf.options = BufferOptions(cpu_access=True)
    buf.ref(4)
    back = pickle.loads(pickle.dumps(buf, protocol))
    assert back is not buf and (back.numpy() == NUMBERS).all()
    for attribute in ("device", "size", "dtype", "shape", "options", "lb_refcount"):
        assert getattr(back, attribute) == getattr(buf, attribute)
    back.fill(0)
    assert (buf.numpy() == NUMBERS).all()


def test_contents_travel_out_of_band_without_a_second_copy(host):
    buf = hcq.array(NUMBERS, host)
    buffers = []
    data = pickle.dumps(buf, 5, buffer_callback=buffers.append)
    assert len(data) < 400 and len(buffers) == 1
    with buffers[0].raw() as raw:
        assert np.frombuffer(raw, np.uint8).ctypes.data == buf._buf.va_addr
    back = pickle.loads(data, buffers=[bytes(buffers[0])])  # as it may arrive: read-only
    assert (back.numpy() == NUMBERS).all()
    back.copyin(bytes(96))
    back.as_buffer(force_zero_copy=True)[0] = 1
    assert memory_stats(host).live_count == 2
    buf.deallocate()
    assert bytes(buffers[0]) == NUMBERS.tobytes()


def test_views_stay_views_of_one_root_within_a_pickle(name):
    root = hcq.array(np.arange(16, dtype=np.uint8), name)
    views = [root.view(4, dtypes.uint8, 4), root.view(8, dtypes.uint8, 8).view(2, dtypes.uint16, 2)]
    one, other, again = pickle.loads(pickle.dumps([*views, root]))
    assert one.base is other.base is again and again._base is None and (one.offset, other.offset) == (4, 10)
    assert one.ensure_allocated().numpy().tolist() == [4, 5, 6, 7] and other.dtype is dtypes.uint16
    again.fill(1)
    assert one.numpy().tolist() == [1] * 4
    assert pickle.loads(pickle.dumps(views[0])).base.size == 16


def test_unallocated_stays_unallocated(name):
    root = Buffer(name, 4, F32, lb_refcount=2, options=BufferOptions(nolru=True))
    view = root.view(2, F32, 8)
    back, back_view = pickle.loads(pickle.dumps((root, view)))
    assert not back.is_allocated() and not back_view.is_allocated()
    assert (back.lb_refcount, back.options, back_view.base) == (2, BufferOptions(nolru=True), back)


def test_npy_buffers_carry_their_array():
    buf = Buffer("NPY", 24, F32, opaque=NUMBERS)
    back = pickle.loads(pickle.dumps(buf))
    assert back.device == "NPY" and (np.asarray(back._buf) == NUMBERS).all()


class Named(Buffer):
    def __init__(self, *arguments, label="", **keywords):
        super().__init__(*arguments, **keywords)
        self.label = label


def test_subclasses_travel_with_their_attributes(name):
    buf = Named(name, 4, dtypes.uint8, initial_value=b"abcd", label="weights")
    back = pickle.loads(pickle.dumps(buf))
    assert type(back) is Named and back.label == "weights" and bytes(back.as_buffer()) == b"abcd"


def test_copies_of_the_copy_module_have_memory_of_their_own(name):
    buf = hcq.array(NUMBERS, name)
    for twin in (copying.copy(buf), copying.deepcopy(buf)):
        assert (twin.numpy() == NUMBERS).all() and twin._buf is not buf._buf


@pytest.mark.parametrize(
    "use",
    [
        np.asarray,
        memoryview,
        np.from_dlpack,
        pickle.dumps,
        lambda buf: buf.as_buffer(force_zero_copy=True),
        lambda buf: buf.as_buffer(),
        lambda buf: buf.__array_interface__,
        lambda buf: buf.numpy(),
        lambda buf: buf.copyin(bytes(96)),
        lambda buf: buf.fill(1),
    ],
)
def test_host_access_waits_for_queued_work_first(use):
    class Waiting(HostDevice):
        waits = 0

        def synchronize(self):
            super().synchronize()
            self.waits += 1

    with opened(Waiting) as name:
        buf = hcq.array(NUMBERS, name)
        before = Device[name].waits
        use(buf)
        assert Device[name].waits > before
