"""Memory as CUDA has it, beneath what the contract says of buffers."""

import ctypes

import numpy as np
import pytest

import hcq

WRITE_COMBINED = 4  # CU_MEMHOSTALLOC_WRITECOMBINED: such memory has another address on the device


@pytest.fixture
def driver(dev):
    """The driver that hcq uses, with the device's context current."""
    library = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert library.cuCtxPushCurrent_v2(context) == 0
    yield library
    library.cuCtxPopCurrent_v2(ctypes.byref(context))
    library.cuDevicePrimaryCtxRelease_v2(0)


@pytest.mark.parametrize("uncached", [False, True])
def test_host_memory_has_one_address_for_host_and_device(driver, uncached):
    options = hcq.BufferOptions(host=True, uncached=uncached)
    buf = hcq.Buffer("CUDA", 64, hcq.f32, options=options).allocate()
    host, flags, device = ctypes.c_void_p(buf._buf.va_addr), ctypes.c_uint(), ctypes.c_uint64()
    assert driver.cuMemHostGetFlags(ctypes.byref(flags), host) == 0
    assert driver.cuMemHostGetDevicePointer_v2(ctypes.byref(device), host, 0) == 0
    assert device.value == buf._buf.va_addr and not flags.value & WRITE_COMBINED


@pytest.mark.parametrize("distance", [-3, -1, 1, 3, 200])
@pytest.mark.parametrize("bound", [False, True])
def test_ranges_that_overlap_are_copied_as_if_read_first(dev, distance, bound):
    """CUDA leaves open what comes of them."""
    numbers = np.arange(5000, dtype=np.uint32)
    buf = hcq.array(numbers, "CUDA")
    start, size = 1000, 3000
    queue = dev.hw_copy_queue_t()
    queue.copy(buf._buf.va_addr + 4 * (start + distance), buf._buf.va_addr + 4 * start, 4 * size)
    value = dev.next_timeline()
    queue.signal(dev.timeline_signal, value)
    (queue.bind(dev) or queue).submit(dev) if bound else queue.submit(dev)
    dev.synchronize()
    wanted = numbers.copy()
    wanted[start + distance : start + distance + size] = numbers[start : start + size]
    assert (buf.numpy() == wanted).all()
