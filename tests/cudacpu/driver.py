"""The CUDA driver API by ctypes, for checks of the driver on the CPU. Not for processes that have another one."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

HEAD = """.version 8.0
.target sm_80
.address_size 64
"""


class CudaError(Exception):
    """A call that didn't succeed; `name` is the CUresult's."""

    def __init__(self, call: str, code: int, name: str, log: str = "") -> None:
        super().__init__(f"{call}: {name} ({code}) {log}")
        self.code, self.name, self.log = code, name, log


class _Library:
    """cuda.cuInit(0) calls; what isn't CUDA_SUCCESS raises CudaError."""

    def __init__(self) -> None:
        self.raw = ctypes.CDLL("libcuda.so.1")

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.raw, name)

        def call(*arguments: Any) -> None:
            code = function(*arguments)
            if code:
                raise CudaError(name, code, error_name(code))

        return call


cuda: Any = _Library()


def error_name(code: int) -> str:
    text = ctypes.c_char_p()
    cuda.raw.cuGetErrorName(code, ctypes.byref(text))
    return (text.value or b"unknown").decode()


def out(kind: Any, call: Any, *arguments: Any) -> Any:
    """Calls with a new `kind` as the first argument, and gives what was put into it."""
    made = kind()
    call(ctypes.byref(made), *arguments)
    return made


def fresh() -> None:
    """The device 0 as new, and its context current."""
    cuda.cuInit(0)
    while not cuda.raw.cuDevicePrimaryCtxRelease_v2(0):  # until the last of those before has let go of it
        pass
    context = out(ctypes.c_void_p, cuda.cuDevicePrimaryCtxRetain, 0)
    cuda.cuCtxSetCurrent(context)


def load(ptx: str, log: int = 4096) -> ctypes.c_void_p:
    """A module; CudaError.log has the compiler's."""
    buffer = ctypes.create_string_buffer(log)
    options = (ctypes.c_int * 2)(5, 6)
    values = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), log)
    module = ctypes.c_void_p()
    code = cuda.raw.cuModuleLoadDataEx(ctypes.byref(module), ptx.encode(), 2, options, values)
    if code:
        raise CudaError("cuModuleLoadDataEx", code, error_name(code), buffer.value.decode())
    return module


def function(module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
    return out(ctypes.c_void_p, cuda.cuModuleGetFunction, module, name.encode())


def kernel(ptx: str, name: str = "k") -> ctypes.c_void_p:
    """A kernel of a module of its own."""
    return function(load(ptx if ptx.lstrip().startswith(".version") else HEAD + ptx), name)


def c(argument: Any) -> Any:
    """As C has it: an array is its address, an int 32 bits, a float 32 bits; ctypes stay as they are."""
    if isinstance(argument, np.ndarray):
        return ctypes.c_uint64(argument.ctypes.data)
    if isinstance(argument, float):
        return ctypes.c_float(argument)
    return ctypes.c_int32(argument) if isinstance(argument, int) else argument


def shape(sizes: Any) -> tuple[int, int, int]:
    x, y, z = (*((sizes,) if isinstance(sizes, int) else sizes), 1, 1)[:3]
    return x, y, z


def launch(
    made: ctypes.c_void_p, grid: Any, block: Any, *arguments: Any, shared: int = 0, cooperative: bool = False
) -> None:
    """Launches on the default stream. Host arrays may be arguments: generic addresses are the host's."""
    values = [c(each) for each in arguments]
    pointers = (ctypes.c_void_p * max(len(values), 1))(*map(ctypes.addressof, values))
    if cooperative:
        cuda.cuLaunchCooperativeKernel(made, *shape(grid), *shape(block), shared, None, pointers)
    else:
        cuda.cuLaunchKernel(made, *shape(grid), *shape(block), shared, None, pointers, None)


def run(made: ctypes.c_void_p, grid: Any, block: Any, *arguments: Any, **options: Any) -> None:
    """Launches and waits."""
    launch(made, grid, block, *arguments, **options)
    cuda.cuCtxSynchronize()


def refused(call: Any, *arguments: Any, **options: Any) -> CudaError:
    """The error of a call that must fail."""
    try:
        call(*arguments, **options)
    except CudaError as error:
        return error
    raise AssertionError(f"{call} succeeded")
