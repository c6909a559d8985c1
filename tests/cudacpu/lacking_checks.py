"""What devices say and refuse that do without something. Run by inside.py with HCQ_CUDACPU_WITHOUT."""

import ctypes

from driver import cuda, out, refused
from graphs import stream, words

INT, HANDLE, U64 = ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64
MEMORY_OPERATIONS, MANAGED, REGISTERING, POOLS = (92, 93, 98, 122, 123), (88, 89, 100), (91, 99, 113), (115, 140)


def check_attributes_say_so():
    for which in MEMORY_OPERATIONS + MANAGED + REGISTERING + POOLS[:1]:
        assert out(INT, cuda.cuDeviceGetAttribute, which, 0).value == 0, which
    assert out(INT, cuda.cuDeviceGetAttribute, 41, 0).value == 1  # unified addresses: not among them


def check_calls_are_refused():
    on, memory = stream(), words()
    at = U64(memory.ctypes.data)
    assert refused(cuda.cuStreamWriteValue64_v2, on, at, U64(1), 0).name == "CUDA_ERROR_NOT_SUPPORTED"
    assert refused(cuda.cuStreamWaitValue64_v2, on, at, U64(1), 0).name == "CUDA_ERROR_NOT_SUPPORTED"
    page = ctypes.create_string_buffer(8192)
    assert refused(cuda.cuMemHostRegister_v2, page, 4096, 0).name == "CUDA_ERROR_NOT_SUPPORTED"
    assert refused(out, U64, cuda.cuMemAllocAsync, 64, on).name == "CUDA_ERROR_NOT_SUPPORTED"
    graph = out(HANDLE, cuda.cuGraphCreate, 0)
    assert refused(out, HANDLE, cuda.cuGraphInstantiateWithFlags, graph, U64(0)).name == "CUDA_ERROR_NOT_SUPPORTED"
