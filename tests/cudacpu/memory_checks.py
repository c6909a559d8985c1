"""Checks of the driver on the CPU: memory, copies, fills, pointers. Run by inside.py."""

import ctypes
import itertools
import os

import numpy as np
from driver import cuda, error_name, out, refused

U64 = ctypes.c_uint64
SIZE = ctypes.c_size_t
HOST, DEVICE, UNIFIED = 1, 2, 4


def alloc(size):
    return out(U64, cuda.cuMemAlloc_v2, SIZE(size))


def upload(array):
    at = alloc(array.nbytes)
    cuda.cuMemcpyHtoD_v2(at, U64(array.ctypes.data), SIZE(array.nbytes))
    return at


def download(at, like):
    array = np.empty_like(like)
    cuda.cuMemcpyDtoH_v2(U64(array.ctypes.data), at, SIZE(array.nbytes))
    return array


def moved(at, by):
    return U64(at.value + by)


def free_bytes():
    free, total = SIZE(), SIZE()
    cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    return free.value


def attribute(kind, which, at):
    return out(kind, cuda.cuPointerGetAttribute, which, at).value


SIDE = [("x", SIZE), ("y", SIZE), ("z", SIZE), ("lod", SIZE), ("type", ctypes.c_int), ("host", U64), ("device", U64)]
SIDE += [("array", U64), ("reserved", U64), ("pitch", SIZE), ("height", SIZE)]
SIDES = [(f"{end}_{name}", kind) for end in ("src", "dst") for name, kind in SIDE]


class Copy(ctypes.Structure):
    _fields_ = [*SIDES, ("width", SIZE), ("rows", SIZE), ("depth", SIZE)]


def check_what_is_copied_there_comes_back():
    data = np.arange(1000, dtype=np.int32)
    assert (download(upload(data), data) == data).all()


def check_blocks_are_aligned_and_apart():
    blocks = [alloc(n) for n in (1, 3, 511, 512, 513, 100_000, 3 << 20)]
    assert all(block.value % 256 == 0 for block in blocks)
    spans = sorted((b.value, b.value + n) for b, n in zip(blocks, (1, 3, 511, 512, 513, 100_000, 3 << 20), strict=True))
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


def check_freed_memory_is_free_again():
    before = free_bytes()
    blocks = [alloc(n) for n in (1, 5000, 10 << 20)]
    assert free_bytes() <= before - (10 << 20)
    for block in blocks:
        cuda.cuMemFree_v2(block)
    assert free_bytes() == before


def check_more_than_there_is_is_refused():
    assert refused(alloc, free_bytes() + 1).name == "CUDA_ERROR_OUT_OF_MEMORY"
    assert refused(alloc, 2**63).name == "CUDA_ERROR_OUT_OF_MEMORY"
    assert refused(alloc, 0).name == "CUDA_ERROR_INVALID_VALUE"


def check_what_is_not_allocated_is_not_freed():
    block = alloc(1000)
    assert refused(cuda.cuMemFree_v2, moved(block, 8)).name == "CUDA_ERROR_INVALID_VALUE"
    cuda.cuMemFree_v2(block)
    assert refused(cuda.cuMemFree_v2, block).name == "CUDA_ERROR_INVALID_VALUE"
    cuda.cuMemFree_v2(U64(0))


def check_copies_beyond_a_block_are_refused():
    data = np.zeros(64, np.uint8)
    block = alloc(63)
    for call in (
        lambda: cuda.cuMemcpyHtoD_v2(block, U64(data.ctypes.data), SIZE(64)),
        lambda: cuda.cuMemcpyDtoH_v2(U64(data.ctypes.data), block, SIZE(64)),
        lambda: cuda.cuMemcpyDtoD_v2(block, moved(block, 1), SIZE(63)),
        lambda: cuda.cuMemcpyHtoD_v2(moved(block, -1), U64(data.ctypes.data), SIZE(1)),
        lambda: cuda.cuMemcpyHtoD_v2(U64(data.ctypes.data), U64(data.ctypes.data), SIZE(1)),
        lambda: cuda.cuMemsetD8_v2(block, 0, SIZE(64)),
        lambda: cuda.cuMemsetD32_v2(moved(block, 1), 0, SIZE(1)),
        lambda: cuda.cuMemsetD8_v2(block, 0, SIZE(2**64 - 1)),
    ):
        assert refused(call).name == "CUDA_ERROR_INVALID_VALUE"


def check_fills_of_every_width():
    for bits, value, kind in ((8, 0xA5, np.uint8), (16, 0xA55A, np.uint16), (32, 0xDEADBEEF, np.uint32)):
        data = np.zeros(33, kind)
        block = upload(data)
        getattr(cuda, f"cuMemsetD{bits}_v2")(block, value, SIZE(32))
        assert (download(block, data) == np.array([value] * 32 + [0], kind)).all()


def check_fills_of_a_plane_leave_what_is_between():
    data = np.zeros((5, 16), np.uint16)
    block = upload(data)
    cuda.cuMemsetD2D16_v2(moved(block, 4), SIZE(32), 7, SIZE(3), SIZE(4))
    expected = data.copy()
    expected[:4, 2:5] = 7
    assert (download(block, data) == expected).all()


def check_copies_of_a_box():
    source = np.arange(6 * 5 * 7, dtype=np.uint8).reshape(6, 5, 7)
    block = upload(np.zeros(4 * 8 * 10, np.uint8))
    copy = Copy(src_x=1, src_y=2, src_z=3, src_type=HOST, src_host=source.ctypes.data, src_pitch=7, src_height=5)
    copy.dst_x, copy.dst_y, copy.dst_z, copy.dst_type, copy.dst_device = 4, 3, 1, DEVICE, block
    copy.dst_pitch, copy.dst_height = 10, 8
    copy.width, copy.rows, copy.depth = 5, 3, 2
    cuda.cuMemcpy3D_v2(ctypes.byref(copy))
    expected = np.zeros((4, 8, 10), np.uint8)
    expected[1:3, 3:6, 4:9] = source[3:5, 2:5, 1:6]
    assert (download(block, expected) == expected).all()
    copy.depth = 4  # the source ends before
    copy.src_type, copy.src_device = DEVICE, block
    assert refused(cuda.cuMemcpy3D_v2, ctypes.byref(copy)).name == "CUDA_ERROR_INVALID_VALUE"


def check_rows_apart_are_copied_to_rows_that_lie_together():
    source = np.arange(4 * 16, dtype=np.uint8).reshape(4, 16)
    block = upload(np.zeros(4 * 8, np.uint8))
    copy = Copy(src_type=HOST, src_host=source.ctypes.data, src_pitch=16, src_height=4, width=8, rows=4, depth=1)
    copy.dst_type, copy.dst_device, copy.dst_pitch, copy.dst_height = DEVICE, block, 8, 4
    cuda.cuMemcpy3D_v2(ctypes.byref(copy))
    assert (download(block, source[:, :8].copy()) == source[:, :8]).all()


def check_a_pitch_is_asked_for_and_kept():
    pitch = SIZE()
    block = out(U64, cuda.cuMemAllocPitch_v2, ctypes.byref(pitch), SIZE(100), SIZE(3), 4)
    assert pitch.value >= 100 and pitch.value % 256 == 0
    cuda.cuMemsetD8_v2(block, 1, SIZE(pitch.value * 3))


def check_pageable_memory_may_change_after_an_asynchronous_copy():
    stream = out(ctypes.c_void_p, cuda.cuStreamCreate, 1)
    go = ctypes.c_uint32(0)
    cuda.cuMemHostRegister_v2(ctypes.byref(go), SIZE(4), 0)
    data = np.full(1000, 5, np.uint8)
    block = alloc(1000)
    try:
        cuda.cuStreamWaitValue32_v2(stream, U64(ctypes.addressof(go)), 1, 1)
        cuda.cuMemcpyHtoDAsync_v2(block, U64(data.ctypes.data), SIZE(1000), stream)
        data[:] = 6
    finally:
        go.value = 1
        cuda.cuStreamSynchronize(stream)
    assert (download(block, data) == 5).all()
    cuda.cuMemHostUnregister(ctypes.byref(go))


def check_pointers_tell_what_they_are():
    block = alloc(1000)
    host = out(ctypes.c_void_p, cuda.cuMemHostAlloc, SIZE(100), 0)
    managed = out(U64, cuda.cuMemAllocManaged, SIZE(100), 1)
    inner = moved(block, 500)
    assert attribute(ctypes.c_uint32, 2, inner) == DEVICE
    assert attribute(U64, 11, inner) == block.value and attribute(SIZE, 12, inner) == 1000
    assert attribute(ctypes.c_int, 9, inner) == 0
    assert attribute(U64, 3, inner) == inner.value
    assert attribute(ctypes.c_void_p, 1, inner) == out(ctypes.c_void_p, cuda.cuCtxGetCurrent).value
    assert attribute(ctypes.c_uint32, 2, host) == HOST and attribute(U64, 4, host) == host.value
    assert attribute(ctypes.c_bool, 8, managed) and not attribute(ctypes.c_bool, 8, block)
    assert attribute(U64, 7, block) != attribute(U64, 7, managed)
    assert refused(attribute, U64, 4, block).name == "CUDA_ERROR_INVALID_VALUE"
    unknown = U64(np.zeros(8).ctypes.data)
    assert refused(attribute, ctypes.c_uint32, 2, unknown).name == "CUDA_ERROR_INVALID_VALUE"
    kind, ordinal = ctypes.c_uint32(9), ctypes.c_int(9)
    outs = (ctypes.c_void_p * 2)(ctypes.addressof(kind), ctypes.addressof(ordinal))
    cuda.cuPointerGetAttributes(2, (ctypes.c_int * 2)(2, 9), outs, unknown)
    assert (kind.value, ordinal.value) == (0, -2)
    base, size = U64(), SIZE()
    cuda.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), inner)
    assert (base.value, size.value) == (block.value, 1000)


def check_host_memory_is_registered_once():
    data = np.zeros(10_000, np.uint8)
    at = U64(data.ctypes.data)
    cuda.cuMemHostRegister_v2(at, SIZE(5000), 0)
    again = refused(cuda.cuMemHostRegister_v2, moved(at, 4999), SIZE(10), 0)
    assert again.name == "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"
    assert out(U64, cuda.cuMemHostGetDevicePointer_v2, at, 0).value == at.value
    cuda.cuMemHostUnregister(at)
    assert refused(cuda.cuMemHostUnregister, at).name == "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"


def check_a_batch_of_copies_is_one_of_each():
    class How(ctypes.Structure):
        _fields_ = [
            ("order", ctypes.c_int),
            ("src", ctypes.c_int * 2),
            ("dst", ctypes.c_int * 2),
            ("flags", ctypes.c_uint),
        ]

    stream = out(ctypes.c_void_p, cuda.cuStreamCreate, 0)
    sources = [np.full(n, n, np.uint8) for n in (3, 5, 7)]
    blocks = [alloc(n) for n in (3, 5, 7)]
    sizes = (SIZE * 3)(3, 5, 7)
    dsts, srcs = (U64 * 3)(*(b.value for b in blocks)), (U64 * 3)(*(s.ctypes.data for s in sources))
    how, first = How(order=1), SIZE(0)
    arguments = (dsts, srcs, sizes, SIZE(3), ctypes.byref(how), ctypes.byref(first), SIZE(1))
    cuda.cuMemcpyBatchAsync_v2(*arguments, stream)
    cuda.cuStreamSynchronize(stream)
    assert all((download(b, s) == s).all() for b, s in zip(blocks, sources, strict=True))
    assert refused(cuda.cuMemcpyBatchAsync_v2, *arguments, None).name == "CUDA_ERROR_INVALID_VALUE"
    sizes[1], failed = 6, SIZE()
    assert cuda.raw.cuMemcpyBatchAsync(*arguments, ctypes.byref(failed), stream) == 1 and failed.value == 1


def check_a_context_takes_its_memory_with_it():
    before = free_bytes()
    made = out(ctypes.c_void_p, cuda.cuCtxCreate_v2, 0, 0)
    block = alloc(1 << 20)
    cuda.cuCtxDestroy_v2(made)
    assert free_bytes() == before
    assert refused(cuda.cuMemFree_v2, block).name == "CUDA_ERROR_INVALID_VALUE"


def check_hints_about_managed_memory_are_told_again():
    class Place(ctypes.Structure):
        _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]

    at = out(U64, cuda.cuMemAllocManaged, SIZE(4096), 1)
    where = ctypes.c_int()

    def ask(which):
        cuda.cuMemRangeGetAttribute(ctypes.byref(where), SIZE(4), which, at, SIZE(4096))
        return where.value

    assert (ask(1), ask(2), ask(4)) == (0, -2, -2)
    cuda.cuMemAdvise(at, SIZE(4096), 1, 0)
    cuda.cuMemAdvise_v2(at, SIZE(4096), 3, Place(2, 0))
    cuda.cuMemPrefetchAsync_v2(at, SIZE(4096), Place(1, 0), 0, None)
    assert (ask(1), ask(2), ask(4)) == (1, -1, 0)
    block = alloc(64)
    assert refused(cuda.cuMemAdvise, block, SIZE(64), 1, 0).name == "CUDA_ERROR_INVALID_VALUE"
    assert refused(cuda.cuMemAdvise_v2, at, SIZE(64), 3, Place(1, 99)).name == "CUDA_ERROR_INVALID_DEVICE"


def check_memory_is_mapped_where_addresses_were_reserved():
    class Prop(ctypes.Structure):
        _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("place", ctypes.c_int * 2), ("meta", U64)]
        _fields_ += [("flags", U64)]

    class Access(ctypes.Structure):
        _fields_ = [("place", ctypes.c_int * 2), ("flags", ctypes.c_int)]

    prop = Prop(type=1, handles=1, place=(1, 0))
    unit = out(SIZE, cuda.cuMemGetAllocationGranularity, ctypes.byref(prop), 0).value
    before = free_bytes()
    space = out(U64, cuda.cuMemAddressReserve, SIZE(2 * unit), SIZE(0), U64(0), U64(0))
    memory = out(U64, cuda.cuMemCreate, SIZE(unit), ctypes.byref(prop), U64(0))
    assert free_bytes() == before - unit
    for half in (0, unit):  # the same memory twice
        cuda.cuMemMap(moved(space, half), SIZE(unit), SIZE(0), memory, U64(0))
    again = refused(cuda.cuMemMap, space, SIZE(unit), SIZE(0), memory, U64(0))
    assert again.name == "CUDA_ERROR_INVALID_VALUE"
    cuda.cuMemSetAccess(space, SIZE(2 * unit), ctypes.byref(Access((1, 0), 3)), SIZE(1))
    cuda.cuMemsetD32_v2(space, 77, SIZE(16))
    assert (download(moved(space, unit), np.zeros(16, np.uint32)) == 77).all()
    handle = ctypes.c_int()
    cuda.cuMemExportToShareableHandle(ctypes.byref(handle), memory, 1, U64(0))
    other = out(U64, cuda.cuMemImportFromShareableHandle, ctypes.c_void_p(handle.value), 1)
    cuda.cuMemRelease(other)
    cuda.cuMemRelease(memory)
    assert refused(cuda.cuMemRelease, memory).name == "CUDA_ERROR_INVALID_VALUE"
    assert free_bytes() == before - unit  # it is mapped
    assert refused(cuda.cuMemAddressFree, space, SIZE(2 * unit)).name == "CUDA_ERROR_INVALID_VALUE"
    cuda.cuMemUnmap(space, SIZE(2 * unit))
    cuda.cuMemAddressFree(space, SIZE(2 * unit))
    assert free_bytes() == before
    os.close(handle.value)


def check_guard_pages_stand_around_a_slab():
    block = alloc(8 << 20)
    pid = os.fork()
    if pid == 0:  # the child reads one byte past the slab, and is ended for it
        ctypes.string_at(block.value + (8 << 20), 1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), status
    assert error_name(0) == "CUDA_SUCCESS"
