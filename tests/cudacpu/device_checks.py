"""Checks of the driver on the CPU: devices, contexts, peers. Run by inside.py with three devices of 9.0 and 64 MiB."""

import ctypes
import threading

from driver import HEAD, cuda, load, out, refused

U64 = ctypes.c_uint64
SIZE = ctypes.c_size_t
INT = ctypes.c_int
HANDLE = ctypes.c_void_p


def attribute(which, device=0):
    return out(INT, cuda.cuDeviceGetAttribute, which, device).value


def current():
    return out(HANDLE, cuda.cuCtxGetCurrent).value


def retain(device=0):
    return out(HANDLE, cuda.cuDevicePrimaryCtxRetain, device)


def check_there_are_as_many_devices_as_asked_for():
    assert out(INT, cuda.cuDeviceGetCount).value == 3
    assert refused(out, INT, cuda.cuDeviceGet, 3).name == "CUDA_ERROR_INVALID_DEVICE"
    assert refused(out, INT, cuda.cuDeviceGet, -1).name == "CUDA_ERROR_INVALID_DEVICE"
    total = out(SIZE, cuda.cuDeviceTotalMem_v2, 1)
    assert total.value == 64 << 20


def check_devices_are_told_apart():
    uuids, places = set(), set()
    for device in range(3):
        uuid, place = ctypes.create_string_buffer(16), ctypes.create_string_buffer(32)
        cuda.cuDeviceGetUuid_v2(uuid, device)
        cuda.cuDeviceGetPCIBusId(place, 32, device)
        assert out(INT, cuda.cuDeviceGetByPCIBusId, place).value == device
        uuids.add(uuid.raw)
        places.add(place.value)
    assert len(uuids) == len(places) == 3
    name = ctypes.create_string_buffer(64)
    cuda.cuDeviceGetName(name, 64, 0)
    assert b"CPU" in name.value


def check_attributes_are_those_of_the_capability():
    assert (attribute(75), attribute(76)) == (9, 0)
    assert (attribute(1), attribute(10), attribute(39)) == (1024, 32, 2048)  # threads of a block, a warp, a processor
    assert (attribute(8), attribute(97), attribute(81)) == (48 << 10, 227 << 10, 228 << 10)  # shared memory
    assert attribute(16) >= 1
    assert [attribute(2 + i) for i in range(6)] == [1024, 1024, 64, 2**31 - 1, 65535, 65535]
    for which in range(1, 141):
        attribute(which)
    assert refused(attribute, 0).name == "CUDA_ERROR_INVALID_VALUE"
    assert refused(attribute, 100_000).name == "CUDA_ERROR_INVALID_VALUE"


def check_a_primary_context_lives_while_it_is_retained():
    flags, active = ctypes.c_uint(), INT()

    def state():
        cuda.cuDevicePrimaryCtxGetState(1, ctypes.byref(flags), ctypes.byref(active))
        return active.value

    assert state() == 0
    first, second = retain(1), retain(1)
    assert first.value == second.value and state() == 1
    cuda.cuCtxSetCurrent(first)
    block = out(U64, cuda.cuMemAlloc_v2, SIZE(100))
    cuda.cuDevicePrimaryCtxRelease_v2(1)
    cuda.cuMemsetD8_v2(block, 1, SIZE(100))
    cuda.cuDevicePrimaryCtxRelease_v2(1)
    assert state() == 0
    assert refused(cuda.cuMemsetD8_v2, block, 1, SIZE(100)).name == "CUDA_ERROR_CONTEXT_IS_DESTROYED"
    assert refused(cuda.cuDevicePrimaryCtxRelease_v2, 1).name == "CUDA_ERROR_INVALID_CONTEXT"
    assert retain(1).value == first.value
    assert refused(cuda.cuMemsetD8_v2, block, 1, SIZE(100)).name == "CUDA_ERROR_INVALID_VALUE"  # it came back empty
    cuda.cuDevicePrimaryCtxRelease_v2(1)


def check_each_thread_has_a_stack_of_contexts():
    first = current()
    made = out(HANDLE, cuda.cuCtxCreate_v2, 0, 2)
    assert current() == made.value
    cuda.cuCtxPushCurrent_v2(HANDLE(first))
    assert out(HANDLE, cuda.cuCtxPopCurrent_v2).value == first
    assert current() == made.value
    seen = []
    thread = threading.Thread(target=lambda: seen.append(current()))
    thread.start()
    thread.join()
    assert seen == [None]
    assert out(INT, cuda.cuCtxGetDevice).value == 2
    cuda.cuCtxDestroy_v2(made)
    assert current() == first
    assert refused(cuda.cuCtxSetCurrent, made).name == "CUDA_ERROR_INVALID_CONTEXT"


def check_without_a_context_there_is_nothing_to_work_in():
    seen = []

    def ask():
        seen.append(refused(out, U64, cuda.cuMemAlloc_v2, SIZE(8)).name)
        seen.append(refused(cuda.cuCtxPopCurrent_v2, None).name)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert seen == ["CUDA_ERROR_INVALID_CONTEXT"] * 2


def check_limits_are_kept():
    assert out(SIZE, cuda.cuCtxGetLimit, 0).value == 1024
    cuda.cuCtxSetLimit(1, SIZE(1 << 22))
    assert out(SIZE, cuda.cuCtxGetLimit, 1).value == 1 << 22
    assert refused(cuda.cuCtxSetLimit, 99, SIZE(1)).name == "CUDA_ERROR_INVALID_VALUE"


def check_each_device_has_its_own_memory():
    other = retain(1)
    cuda.cuCtxPushCurrent_v2(other)
    block = out(U64, cuda.cuMemAlloc_v2, SIZE(60 << 20))
    assert refused(out, U64, cuda.cuMemAlloc_v2, SIZE(60 << 20)).name == "CUDA_ERROR_OUT_OF_MEMORY"
    assert out(INT, cuda.cuPointerGetAttribute, 9, block).value == 1
    cuda.cuCtxPopCurrent_v2(None)
    cuda.cuMemFree_v2(out(U64, cuda.cuMemAlloc_v2, SIZE(60 << 20)))
    cuda.cuDevicePrimaryCtxRelease_v2(1)


def check_peers():
    assert out(INT, cuda.cuDeviceCanAccessPeer, 0, 1).value == 1
    assert out(INT, cuda.cuDeviceCanAccessPeer, 1, 1).value == 0
    other = retain(1)
    cuda.cuCtxEnablePeerAccess(other, 0)
    assert refused(cuda.cuCtxEnablePeerAccess, other, 0).name == "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"
    here = out(U64, cuda.cuMemAlloc_v2, SIZE(1000))
    cuda.cuMemsetD8_v2(here, 3, SIZE(1000))
    cuda.cuCtxPushCurrent_v2(other)
    there = out(U64, cuda.cuMemAlloc_v2, SIZE(1000))
    cuda.cuCtxPopCurrent_v2(None)
    cuda.cuMemcpyPeer(there, other, here, HANDLE(current()), SIZE(1000))
    assert ctypes.string_at(there.value, 1000) == b"\3" * 1000
    cuda.cuCtxDisablePeerAccess(other)
    assert refused(cuda.cuCtxDisablePeerAccess, other).name == "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED"
    cuda.cuDevicePrimaryCtxRelease_v2(1)


def check_an_error_is_of_one_context():
    made = out(HANDLE, cuda.cuCtxCreate_v2, 0, 1)
    from driver import HEAD, kernel, launch

    launch(kernel(HEAD + ".visible .entry k() { trap; ret; }"), 1, 1)
    assert refused(cuda.cuCtxSynchronize).name == "CUDA_ERROR_LAUNCH_FAILED"
    cuda.cuCtxPopCurrent_v2(None)
    cuda.cuCtxSynchronize()
    cuda.cuCtxPushCurrent_v2(made)
    cuda.cuCtxDestroy_v2(made)


def check_what_there_is_not_is_refused_and_said_so_once():
    said = out(ctypes.c_uint, cuda.cuLogsCurrent, 0)
    for _ in range(2):
        assert refused(cuda.cuTexObjectCreate, None, None, None, None).name == "CUDA_ERROR_NOT_SUPPORTED"
    size, text = SIZE(1000), ctypes.create_string_buffer(1000)
    cuda.cuLogsDumpToMemory(ctypes.byref(said), text, ctypes.byref(size), 0)
    assert text.value.decode() == "cuTexObjectCreate: CUDA on the CPU has no textures and surfaces\n"
    assert size.value == len(text.value)


def check_variables_that_are_more_than_a_device_s_memory_are_refused_before_they_are_made():
    for text in (
        ".global .b8 x[17179869184];",
        ".global .b8 x[17179869184] = {1};",
        ".global .b8 x[40000000], y[40000000];",
    ):
        error = refused(load, HEAD + text)
        assert error.name == "CUDA_ERROR_OUT_OF_MEMORY", text
        assert "bytes, the device 67108864 (see HCQ_CUDACPU_MEMORY)" in error.log
    load(HEAD + ".global .b8 x[40000000];")
