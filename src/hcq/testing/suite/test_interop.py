"""Other libraries' arrays: NumPy, DLPack, the buffer protocol; and the conveniences that give and take them."""

import gc

import numpy as np
import pytest

import hcq
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import I32, filled, later, live, noise, read


@promise("interop.numpy_zero_copy", "interop.array_interface")
@needs("zero_copy")
def test_asarray_is_zero_copy(dev):
    buf = filled(dev, range(6))
    array = np.asarray(buf)
    assert array.dtype == I32 and array.tolist() == list(range(6))
    array[2] = 50
    assert read(buf).tolist() == [0, 1, 50, 3, 4, 5]
    described = buf.__array_interface__
    assert described["data"][0] == array.__array_interface__["data"][0]


@promise("interop.buffer_protocol")
@needs("zero_copy")
def test_the_buffer_protocol_is_zero_copy(dev):
    buf = filled(dev, range(6))
    view = memoryview(buf)
    assert view.nbytes == 24
    view.cast("B")[0:4] = np.array([77], I32).tobytes()
    assert read(buf).tolist()[0] == 77


@promise("interop.dlpack_out")
@needs("zero_copy")
def test_dlpack_out_is_zero_copy(dev):
    buf = filled(dev, range(6))
    array = np.from_dlpack(buf)
    assert array.dtype == I32 and array.reshape(-1).tolist() == list(range(6))
    buf.copyin(np.arange(10, 16, dtype=I32))
    dev.synchronize()  # a staged copy is only queued so far
    assert array.reshape(-1).tolist() == list(range(10, 16))


@promise("interop.dlpack_unconsumed", "buffer.as_buffer_holds")
@needs("zero_copy")
def test_a_capsule_holds_the_memory_and_gives_it_back(fresh):
    buf = filled(fresh, noise(4000))
    capsule = buf.__dlpack__()
    cached = hcq.memory_stats(fresh.dname).cached_bytes
    del buf
    gc.collect()
    assert hcq.memory_stats(fresh.dname).cached_bytes == cached
    del capsule
    gc.collect()
    fresh.synchronize()
    assert hcq.memory_stats(fresh.dname).cached_bytes >= cached + 4000


@promise("interop.holds", "buffer.as_buffer_holds")
@needs("zero_copy")
@pytest.mark.parametrize("export", [np.asarray, np.from_dlpack, memoryview])
def test_an_array_over_a_buffer_keeps_its_memory(fresh, export):
    buf = filled(fresh, np.arange(1000, dtype=I32))
    array = export(buf)
    buf.deallocate()
    del buf
    gc.collect()
    others = [filled(fresh, np.zeros(1000, I32)) for _ in range(8)]
    fresh.allocator.free_cache()
    assert np.asarray(array).reshape(-1).view(I32).tolist() == list(range(1000)) and others


@promise("interop.export_waits")
@needs("queues", "async", "host_memory", "zero_copy")
@pytest.mark.parametrize("export", [np.asarray, np.from_dlpack, memoryview])
def test_export_waits_for_queued_work(fresh, export):
    source, out = filled(fresh, [42]), filled(fresh, [0])
    gate, value = fresh.signal_t(), fresh.next_timeline()
    queue = fresh.hw_copy_queue_t().wait(gate, 1).copy(out._buf.va_addr, source._buf.va_addr, 4)
    queue.signal(fresh.timeline_signal, value).submit(fresh)
    opener = later(lambda: setattr(gate, "value", 1))
    assert np.asarray(export(out)).reshape(-1).view(I32).tolist() == [42]
    opener.join()


@promise("interop.dlpack_in")
def test_array_takes_what_others_make(dev):
    class Interface:
        def __init__(self, array: np.ndarray) -> None:
            self.__array_interface__ = array.__array_interface__
            self.array = array

    class Capsule:
        def __init__(self, array: np.ndarray) -> None:
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

    array = np.arange(6, dtype=I32)
    for source in (array, Interface(array), Capsule(array), memoryview(array)):
        buf = hcq.array(source, device=dev.dname)
        assert buf.device == dev.dname and read(buf, I32).tolist() == list(range(6))
    array[0] = 9
    assert read(buf, I32).tolist()[0] == 0
    assert read(hcq.array([1.0, 2.0], dev.dname, np.dtype("f4"))).tolist() == [1.0, 2.0]


@promise("interop.array_copy_false")
@needs("host_pointers")
def test_array_shares_host_memory(dev):
    array = np.arange(6, dtype=I32)
    before = live(dev.dname)
    buf = hcq.array(array, device=dev.dname, copy=False)
    assert live(dev.dname) == before
    array[1] = 11
    assert read(buf, I32).tolist() == [0, 11, 2, 3, 4, 5]
    buf.copyin(np.zeros(6, I32))
    dev.synchronize()  # a staged copy is only queued so far
    assert not array.any()
    del array
    gc.collect()
    assert read(buf, I32).tolist() == [0] * 6


@promise("interop.empty_zeros", "buffer.numpy")
def test_empty_zeros_and_numpy(dev):
    empty = hcq.empty((2, 3), I32, dev.dname)
    assert empty.is_allocated() and empty.size == 6 and empty.fill(7).numpy().shape == (2, 3)
    assert hcq.empty(4, I32, device=dev.dname).fill(7).numpy().shape == (4,)
    zeros = hcq.zeros((3, 2), I32, dev.dname)
    assert zeros.numpy().tolist() == [[0, 0]] * 3
    array = np.arange(6, dtype=I32).reshape(2, 3)
    assert (hcq.array(array, dev.dname).numpy() == array).all()
    copy = zeros.numpy()
    copy[0, 0] = 5
    assert read(zeros).tolist() == [0] * 6


@promise("interop.numpy_launch")
@needs("computes")
def test_an_array_handed_to_a_kernel_holds_its_results(dev, kernels):
    out = np.zeros(100, I32)
    kernels.iota(out, vals=(100, 5))
    assert out.tolist() == list(range(5, 105))
    constant = np.arange(100, dtype=I32)
    kernels.add(out, constant, constant, vals=(100,))
    assert out.tolist() == list(range(0, 200, 2))
