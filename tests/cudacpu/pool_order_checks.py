"""Memory of pools and the kernels that use it. Run by test_memory.py, with and without the checks."""

from __future__ import annotations

import ctypes
import os

import numpy as np
from driver import cuda, kernel, out, refused
from graphs import STEP, at, device_words, step, stream, wait


def check_memory_may_be_freed_before_those_who_use_it_have_run():
    made, on, kept = kernel(STEP), stream(), device_words()
    gate = device_words()
    wait(on, gate, 0, 1)
    for size in (64, 128, 32):  # queued behind the gate, each freed before the host waits for anything
        address = out(ctypes.c_uint64, cuda.cuMemAllocAsync, ctypes.c_size_t(size), on)
        memory = np.ctypeslib.as_array((ctypes.c_uint32 * (size // 4)).from_address(address.value))
        cuda.cuMemsetD32Async(address, ctypes.c_uint(1), ctypes.c_size_t(size // 4), on)
        step(made, on, memory, 3, 4, index=size // 4 - 1)
        cuda.cuMemcpyAsync(at(kept), at(memory, size // 4 - 1), ctypes.c_size_t(4), on)
        cuda.cuMemFreeAsync(address, on)
    gate[0] = 1
    cuda.cuStreamSynchronize(on)
    assert kept[0] == 7


def check_a_kernel_after_the_free_is_told_of_where_that_is_checked():
    made, on = kernel(STEP), stream()
    address = out(ctypes.c_uint64, cuda.cuMemAllocAsync, ctypes.c_size_t(64), on)
    memory = np.ctypeslib.as_array((ctypes.c_uint32 * 16).from_address(address.value))
    cuda.cuMemFreeAsync(address, on)
    step(made, on, memory, 1, 1)
    if os.environ.get("HCQ_CUDACPU_CHECK") == "1":
        assert refused(cuda.cuStreamSynchronize, on).name == "CUDA_ERROR_ILLEGAL_ADDRESS"
