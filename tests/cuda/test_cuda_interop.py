"""Memory of CUDA devices shared with others by address."""

import gc
import weakref

import numpy as np
import pytest

import hcq


class Foreign:
    """What another library's array shows of itself."""

    def __init__(self, buf, **changed):
        self.__cuda_array_interface__ = {**buf.__cuda_array_interface__, **changed}
        self.buf = buf


class Capsule:
    def __init__(self, buf):
        self.__dlpack__, self.__dlpack_device__ = buf.__dlpack__, buf.__dlpack_device__


def filled(shape=(2, 3), device="CUDA"):
    return hcq.array(np.arange(np.prod(shape), dtype=np.float32).reshape(shape), device)


def test_the_interface_tells_address_shape_and_type(dev):
    buf = filled()
    said = buf.__cuda_array_interface__
    assert said["data"] == (buf._buf.va_addr, False) and said["version"] == 3
    assert said["shape"] == (2, 3) and said["typestr"] == "<f4" and said["strides"] is None


def test_memory_of_other_devices_has_no_cuda_interface(dev):
    assert not hasattr(hcq.array([1, 2], "NULL"), "__cuda_array_interface__")
    assert not hasattr(filled(), "__array_interface__")


def test_the_interface_keeps_the_memory_until_the_buffer_dies(dev):
    buf = filled()
    address = buf.__cuda_array_interface__["data"][0]
    buf.deallocate()
    others = [hcq.empty((2, 3), hcq.f32, "CUDA") for _ in range(4)]
    assert address not in [each._buf.va_addr for each in others]


@pytest.mark.parametrize("wrapped", [Foreign, Capsule])
def test_memory_of_others_is_taken_without_a_copy(dev, wrapped):
    source = filled()
    shared = hcq.array(wrapped(source), copy=False)
    assert shared.device == "CUDA" and shared.shape == (2, 3) and shared._buf.va_addr == source._buf.va_addr
    source.copyin(np.full((2, 3), 7, np.float32))
    dev.synchronize()
    assert (shared.numpy() == 7).all()
    held = weakref.ref(source)
    del source
    gc.collect()
    assert held() is not None or (shared.numpy() == 7).all()


def test_a_handle_of_others_memory_stands_beside_an_array_of_the_host(dev, nvrtc):
    source = 'extern "C" __global__ void put(int *out, const int *x) { out[threadIdx.x] = x[threadIdx.x]; }'
    put = dev.program("put", source)
    shared, out = hcq.array(Foreign(hcq.array(np.arange(4, dtype="i4"), "CUDA")), copy=False), np.zeros(4, "i4")
    put(out, shared._buf, local_size=(4, 1, 1), wait=True)
    assert out.tolist() == [0, 1, 2, 3]
    Lent = type("Lent", (), {"__array_interface__": out.__array_interface__})
    with pytest.raises(hcq.errors.LaunchError, match=r"got a Lent: hcq\.array takes it"):
        put(Lent(), shared._buf, local_size=(4, 1, 1))


@pytest.mark.parametrize("wrapped", [Foreign, Capsule])
def test_memory_of_others_is_copied_on_the_device(dev, wrapped):
    source = filled()
    copied = hcq.array(wrapped(source))
    assert copied.device == "CUDA" and copied._buf.va_addr != source._buf.va_addr
    assert (copied.numpy() == source.numpy()).all()
    assert (hcq.array(wrapped(source), "NULL").numpy() == source.numpy()).all()
    assert hcq.array(wrapped(source), dtype=np.float64).numpy().dtype == np.float64


def test_a_capsule_names_the_device_and_keeps_the_memory(dev, devices):
    from hcq._native import dlpack_consume

    buf = filled()
    assert tuple(buf.__dlpack_device__()) == (2, 0)
    if devices[1]:
        assert tuple(filled(device=devices[1]).__dlpack_device__()) == (2, 1)
    address = buf._buf.va_addr
    exporter, shape, strides, code, bits, lanes, kind, number = dlpack_consume(buf.__dlpack__())
    assert (shape, strides, code, bits, lanes, kind, number) == ((2, 3), (12, 4), 2, 32, 1, 2, 0)
    assert exporter.address == address
    del buf
    gc.collect()
    others = [hcq.empty((2, 3), hcq.f32, "CUDA") for _ in range(4)]
    assert address not in [each._buf.va_addr for each in others]


def test_an_export_comes_after_queued_work(dev, nvrtc):
    source = """extern "C" __global__ void late(int *o) {
      long long t = clock64() + 20000000;
      while (clock64() < t) ;
      o[0] = 5;
    }"""
    buf = hcq.zeros(1, hcq.i32, "CUDA")
    dev.program("late", source)(buf)
    shared = hcq.array(Foreign(buf), copy=False)
    assert shared.numpy()[0] == 5


def test_strided_and_read_only_memory_is_refused(dev):
    buf = filled()
    with pytest.raises(ValueError, match="strided"):
        hcq.array(Foreign(buf, strides=(4, 8)), copy=False)
    with pytest.raises(ValueError, match="read-only"):
        hcq.array(Foreign(buf, data=(buf._buf.va_addr, True)), copy=False)
    with pytest.raises(ValueError, match="no address of CUDA's"):
        hcq.array(Foreign(buf, data=(64, False)), copy=False)
    with pytest.raises(BufferError, match="can't be exported"):
        buf.__dlpack__(dl_device=(1, 0))
