"""A device through cuda-bindings' driver API, as little of it as kernels need: arrays, modules, launches, variables."""

from __future__ import annotations

import ctypes
import os
import tempfile

import numpy as np
from cuda.bindings import driver
from cuda_sources import compiled

C_TYPES = {np.dtype(each): np.ctypeslib.as_ctypes_type(each) for each in "?bBhHiIqQfd"}


def checked(answer):
    """What a call gave besides its error; CudaError where there was one."""
    error, *values = answer
    if error:
        raise CudaError(error)
    return values[0] if len(values) == 1 else tuple(values)


class CudaError(Exception):
    def __init__(self, result):
        super().__init__(driver.cuGetErrorString(result)[1].decode())
        self.result = result


class Array:
    """Memory of the device, with a shape and a dtype."""

    def __init__(self, shape, dtype):
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.size = int(np.prod(shape)) * self.dtype.itemsize
        self.address = int(checked(driver.cuMemAlloc(max(self.size, 1))))

    def set(self, values):
        values = np.ascontiguousarray(values, self.dtype)
        checked(driver.cuMemcpyHtoD(self.address, values.ctypes.data, self.size))

    def get(self):
        """A copy, once all that was launched has run."""
        values = np.empty(self.shape, self.dtype)
        checked(driver.cuMemcpyDtoH(values.ctypes.data, self.address, self.size))
        return values


class Kernel:
    def __init__(self, function):
        self.function = function

    def __call__(self, grid, block, *arguments, shared=0, cooperative=False):
        """Launches on the default stream. Python's integers are int, its floats float; NumPy's scalars as they are."""
        held = [c_value(each) for each in arguments]
        pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(each) for each in held))
        grid, block = ((each,) if isinstance(each, int) else each for each in (grid, block))
        sizes = [*grid, *(1,) * (3 - len(grid)), *block, *(1,) * (3 - len(block))]
        if cooperative:
            checked(driver.cuLaunchCooperativeKernel(self.function, *sizes, shared, 0, ctypes.addressof(pointers)))
        else:
            checked(driver.cuLaunchKernel(self.function, *sizes, shared, 0, ctypes.addressof(pointers), 0))


class Gpu:
    """The first device. Modules stay loaded; arrays live until `release`."""

    def __init__(self):
        self.architecture = 0  # that sources are compiled for
        self.modules = {}
        self.arrays = []
        checked(driver.cuInit(0))
        self.device = checked(driver.cuDeviceGet(0))
        self.context = checked(driver.cuDevicePrimaryCtxRetain(self.device))
        checked(driver.cuCtxSetCurrent(self.context))

    def array(self, values):
        made = self.empty(np.shape(values), np.asarray(values).dtype)
        made.set(values)
        return made

    def empty(self, shape, dtype):
        self.arrays.append(Array(shape, dtype))
        return self.arrays[-1]

    def zeros(self, shape, dtype):
        made = self.empty(shape, dtype)
        checked(driver.cuMemsetD8(made.address, 0, made.size))
        return made

    def kernel(self, source, name, *options, shared=0):
        """A kernel, or an instance of a template, of SOURCE.cu; `shared` is the most dynamic memory it may have."""
        module, lowered = self._module(source, options)
        function = checked(driver.cuModuleGetFunction(module, lowered.get(name, name).encode()))
        if shared:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            checked(driver.cuFuncSetAttribute(function, attribute, shared))
        return Kernel(function)

    def variable(self, source, name, dtype):
        """A variable of a module as an array of that dtype."""
        module, _ = self._module(source, ())
        address, size = checked(driver.cuModuleGetGlobal(module, name.encode()))
        found = Array.__new__(Array)
        found.dtype, found.size, found.address = np.dtype(dtype), size, int(address)
        found.shape = (size // found.dtype.itemsize,)
        return found

    def synchronize(self):
        checked(driver.cuCtxSynchronize())

    def printed(self, launch):
        """What kernels wrote to standard output while `launch` ran."""
        flush = ctypes.CDLL(None).fflush
        with tempfile.TemporaryFile() as file:
            flush(None)
            kept = os.dup(1)
            os.dup2(file.fileno(), 1)
            try:
                launch()
                self.synchronize()
                flush(None)
            finally:
                os.dup2(kept, 1)
                os.close(kept)
            file.seek(0)
            return file.read().decode()

    def release(self):
        """Frees the arrays, for the next case."""
        while self.arrays:
            checked(driver.cuMemFree(self.arrays.pop().address))

    def reset(self):
        """A context anew, after an error that stays."""
        self.modules.clear()
        self.arrays.clear()
        driver.cuDevicePrimaryCtxReset(self.device)
        driver.cuDevicePrimaryCtxRelease(self.device)
        self.context = checked(driver.cuDevicePrimaryCtxRetain(self.device))
        checked(driver.cuCtxSetCurrent(self.context))

    def _module(self, source, options):
        key = source, self.architecture, options
        if key not in self.modules:
            made = compiled(source, self.architecture, ("-lineinfo", *options))
            text = np.frombuffer(made.ptx + b"\0", np.uint8)
            module = checked(driver.cuModuleLoadData(text.ctypes.data))
            self.modules[key] = module, made.lowered
        return self.modules[key]


def c_value(value):
    if isinstance(value, Array):
        return ctypes.c_uint64(value.address)
    if isinstance(value, np.generic):
        return C_TYPES[value.dtype](value.item())
    if isinstance(value, bool):
        return ctypes.c_bool(value)
    if isinstance(value, int):
        return ctypes.c_int(value)
    if isinstance(value, float):
        return ctypes.c_float(value)
    if isinstance(value, bytes):  # a structure
        return (ctypes.c_char * len(value)).from_buffer_copy(value)
    return value  # ctypes' own
