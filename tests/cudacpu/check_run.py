"""Launches kernels of a file of PTX on hcq.cudacpu; tells what became of each, as JSON: (result, log, memory).

Run in a process of its own, with HCQ_CUDACPU_CHECK=1 for the checks: `python check_run.py FILE` reads a list of
[kernel, threads, dynamic shared memory, more] from standard input. Every kernel gets the address of 256 bytes of
memory (zeros), and with `freed` that of memory that was freed. Errors stay until the context is reset, as here.
"""

import ctypes
import json
import os
import sys
import tempfile
from pathlib import Path

import hcq.cudacpu

PTX = Path(sys.argv[1])


def main():
    with tempfile.NamedTemporaryFile("r") as log:
        json.dump(list(answers(log)), sys.stdout)


def answers(log):
    os.environ["CUDA_LOG_FILE"] = log.name
    hcq.cudacpu.install()
    cuda = ctypes.CDLL("libcuda.so.1")
    assert cuda.cuInit(0) == 0
    for kernel, threads, shared, more in json.load(sys.stdin):
        context, module, function, memory = (ctypes.c_void_p() for _ in range(4))
        assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert cuda.cuCtxSetCurrent(context) == 0
        result = cuda.cuModuleLoadData(ctypes.byref(module), PTX.read_bytes() + b"\0")
        assert result == 0, (result, log.read())
        assert cuda.cuModuleGetFunction(ctypes.byref(function), module, kernel.encode()) == 0
        assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(256)) == 0
        assert cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(0), ctypes.c_size_t(256)) == 0
        if "freed" in more:
            assert cuda.cuMemFree_v2(memory) == 0
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
        log.read()
        assert cuda.cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, shared, None, arguments, None) == 0
        result = cuda.cuCtxSynchronize()
        values = []
        if not result and "freed" not in more:
            copied = (ctypes.c_uint32 * 64)()
            assert cuda.cuMemcpyDtoH_v2(copied, memory, ctypes.c_size_t(256)) == 0
            values = list(copied)
        yield result, log.read(), values
        cuda.cuDevicePrimaryCtxReset_v2(0)
        cuda.cuDevicePrimaryCtxRelease_v2(0)


main()
