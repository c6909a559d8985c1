"""Checks of the driver on the CPU: pools, and allocation in stream order. Run by inside.py."""

import ctypes

import numpy as np
from driver import cuda, out, refused
from held import Held

U64 = ctypes.c_uint64
SIZE = ctypes.c_size_t
MEBI = 1 << 20
THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH = 4, 5, 6, 7, 8


class Props(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("place", ctypes.c_int * 2), ("meta", U64)]
    _fields_ += [("most", SIZE), ("rest", ctypes.c_char * 56)]


class Access(ctypes.Structure):
    _fields_ = [("place", ctypes.c_int * 2), ("flags", ctypes.c_int)]


def pool(**props):
    return out(ctypes.c_void_p, cuda.cuMemPoolCreate, ctypes.byref(Props(type=1, place=(1, 0), **props)))


def get(of, which):
    value = U64()
    cuda.cuMemPoolGetAttribute(of, which, ctypes.byref(value))
    return value.value


def alloc(of, size, stream=None):
    return out(U64, cuda.cuMemAllocFromPoolAsync, SIZE(size), of, stream)


def check_memory_of_a_pool_is_used_in_stream_order():
    stream = out(ctypes.c_void_p, cuda.cuStreamCreate, 0)
    at = out(U64, cuda.cuMemAllocAsync, SIZE(4000), stream)
    cuda.cuMemsetD32Async(at, 9, SIZE(1000), stream)
    data = np.zeros(1000, np.uint32)
    cuda.cuMemcpyDtoHAsync_v2(U64(data.ctypes.data), at, SIZE(4000), stream)
    cuda.cuMemFreeAsync(at, stream)
    cuda.cuStreamSynchronize(stream)
    assert (data == 9).all()
    assert refused(cuda.cuMemFreeAsync, at, stream).name == "CUDA_ERROR_INVALID_VALUE"


def check_a_free_waits_for_its_stream():
    mine = pool()
    with Held() as stream:
        first = alloc(mine, MEBI, stream)
        cuda.cuMemFreeAsync(first, stream)
        other = alloc(mine, MEBI)  # in another stream: that memory is in use
        assert other.value != first.value
        again = alloc(mine, MEBI, stream)  # in the same one: it comes after the free
        assert again.value == first.value
    cuda.cuMemFreeAsync(again, None)
    cuda.cuMemFreeAsync(other, None)
    cuda.cuCtxSynchronize()
    assert get(mine, USED) == 0


def check_what_one_pool_gives_back_another_keeps():
    keeps, gives = pool(), pool()
    value = U64(64 * MEBI)
    cuda.cuMemPoolSetAttribute(keeps, THRESHOLD, ctypes.byref(value))
    for each in (keeps, gives):
        cuda.cuMemFreeAsync(alloc(each, 8 * MEBI), None)
    cuda.cuCtxSynchronize()
    assert get(keeps, RESERVED) == 8 * MEBI and get(gives, RESERVED) == 0


def check_the_release_threshold_says_what_stays():
    mine = pool()
    value = U64(64 * MEBI)
    cuda.cuMemPoolSetAttribute(mine, THRESHOLD, ctypes.byref(value))
    assert get(mine, THRESHOLD) == 64 * MEBI
    for kept, threshold in ((8 * MEBI, 64 * MEBI), (0, 0)):
        value.value = threshold
        cuda.cuMemPoolSetAttribute(mine, THRESHOLD, ctypes.byref(value))
        at = alloc(mine, 8 * MEBI)
        cuda.cuMemFreeAsync(at, None)
        cuda.cuStreamSynchronize(None)
        assert get(mine, USED) == 0 and get(mine, RESERVED) == kept
    assert get(mine, RESERVED_HIGH) == 8 * MEBI and get(mine, USED_HIGH) == 8 * MEBI
    cuda.cuMemPoolSetAttribute(mine, USED_HIGH, ctypes.byref(U64(0)))
    assert get(mine, USED_HIGH) == 0


def check_a_pool_is_trimmed_when_told_to():
    mine = pool()
    cuda.cuMemPoolSetAttribute(mine, THRESHOLD, ctypes.byref(U64(2**64 - 1)))
    kept = alloc(mine, 2 * MEBI)
    cuda.cuMemFreeAsync(alloc(mine, 4 * MEBI), None)
    cuda.cuStreamSynchronize(None)
    assert get(mine, RESERVED) == 6 * MEBI
    cuda.cuMemPoolTrimTo(mine, SIZE(0))
    assert get(mine, RESERVED) == 2 * MEBI  # what is in use stays
    cuda.cuMemFreeAsync(kept, None)


def check_what_pools_keep_is_given_up_before_memory_is_refused():
    first, second = pool(), pool()
    cuda.cuMemPoolSetAttribute(first, THRESHOLD, ctypes.byref(U64(2**64 - 1)))
    cuda.cuMemFreeAsync(alloc(first, 40 * MEBI), None)
    cuda.cuStreamSynchronize(None)
    assert get(first, RESERVED) == 40 * MEBI
    at = alloc(second, 40 * MEBI)
    assert get(first, RESERVED) == 0
    assert refused(alloc, second, 40 * MEBI).name == "CUDA_ERROR_OUT_OF_MEMORY"
    cuda.cuMemFree_v2(at)


def check_a_free_that_is_queued_makes_room():
    mine = pool()
    stream = out(ctypes.c_void_p, cuda.cuStreamCreate, 1)
    for _ in range(4):
        cuda.cuMemFreeAsync(alloc(mine, 40 * MEBI, stream), stream)
        cuda.cuMemFreeAsync(alloc(mine, 40 * MEBI), None)


def check_cuMemAlloc_takes_what_pools_keep():
    mine = pool()
    cuda.cuMemPoolSetAttribute(mine, THRESHOLD, ctypes.byref(U64(2**64 - 1)))
    cuda.cuMemFreeAsync(alloc(mine, 40 * MEBI), None)
    cuda.cuStreamSynchronize(None)
    cuda.cuMemFree_v2(out(U64, cuda.cuMemAlloc_v2, SIZE(40 * MEBI)))


def check_a_pool_has_a_largest_size():
    mine = pool(most=4 * MEBI)
    at = alloc(mine, 3 * MEBI)
    assert refused(alloc, mine, 2 * MEBI).name == "CUDA_ERROR_OUT_OF_MEMORY"
    cuda.cuMemFreeAsync(at, None)
    cuda.cuMemFreeAsync(alloc(mine, 2 * MEBI), None)


def check_the_pool_of_a_device_can_be_another():
    default = out(ctypes.c_void_p, cuda.cuDeviceGetDefaultMemPool, 0)
    assert out(ctypes.c_void_p, cuda.cuDeviceGetMemPool, 0).value == default.value
    mine = pool()
    cuda.cuDeviceSetMemPool(0, mine)
    at = out(U64, cuda.cuMemAllocAsync, SIZE(1000), None)
    assert out(ctypes.c_void_p, cuda.cuPointerGetAttribute, 17, at).value == mine.value
    cuda.cuMemFreeAsync(at, None)
    cuda.cuMemPoolDestroy(mine)
    assert out(ctypes.c_void_p, cuda.cuDeviceGetMemPool, 0).value == default.value
    assert refused(cuda.cuMemPoolDestroy, default).name == "CUDA_ERROR_INVALID_VALUE"
    assert refused(cuda.cuMemPoolDestroy, mine).name == "CUDA_ERROR_INVALID_VALUE"


def check_memory_outlives_its_pool():
    mine = pool()
    at = alloc(mine, 1000)
    cuda.cuMemPoolDestroy(mine)
    cuda.cuMemsetD8_v2(at, 1, SIZE(1000))
    cuda.cuMemFreeAsync(at, None)
    cuda.cuCtxSynchronize()


def check_access_is_told():
    mine = pool()
    flags, place = ctypes.c_int(), (ctypes.c_int * 2)(1, 0)
    cuda.cuMemPoolGetAccess(ctypes.byref(flags), mine, place)
    assert flags.value == 3
    none = Access((1, 0), 0)
    assert refused(cuda.cuMemPoolSetAccess, mine, ctypes.byref(none), SIZE(1)).name == "CUDA_ERROR_INVALID_DEVICE"


def check_host_pools_give_host_memory():
    mine = out(ctypes.c_void_p, cuda.cuMemPoolCreate, ctypes.byref(Props(type=1, place=(2, 0))))
    at = alloc(mine, 1000)
    assert out(ctypes.c_uint32, cuda.cuPointerGetAttribute, 2, at).value == 1
    cuda.cuMemFreeAsync(at, None)


def check_pools_of_the_host_and_of_managed_memory_are_there_from_the_beginning():
    pinned, managed, none, host = 1, 2, 0, 2
    for kind, place in ((pinned, host), (managed, none)):
        location = (ctypes.c_int * 2)(place, 0)
        pool = out(ctypes.c_void_p, cuda.cuMemGetMemPool, ctypes.byref(location), kind)
        assert pool.value == out(ctypes.c_void_p, cuda.cuMemGetDefaultMemPool, ctypes.byref(location), kind).value
        assert refused(cuda.cuMemPoolDestroy, pool).name == "CUDA_ERROR_INVALID_VALUE"
        address = out(ctypes.c_uint64, cuda.cuMemAllocFromPoolAsync, ctypes.c_size_t(64), pool, None)
        cuda.cuMemsetD32Async(address, ctypes.c_uint(5), ctypes.c_size_t(16), None)
        cuda.cuStreamSynchronize(None)
        assert (ctypes.c_uint32 * 16).from_address(address.value)[15] == 5
        cuda.cuMemFreeAsync(address, None)
