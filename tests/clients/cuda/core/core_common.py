"""What the examples share: a device that is current, programs compiled to PTX, arrays over its memory."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
from cuda.core import Buffer, Device, Kernel, LaunchConfig, ObjectCode, Program, ProgramOptions, Stream

BLOCK = 128


def device(which: int = 0) -> Device:
    found = Device(which)
    found.set_current()
    return found


@cache
def compiled(code: str, names: tuple[str, ...] = (), which: int = 0, **options: object) -> ObjectCode:
    settings = ProgramOptions(std="c++17", arch=f"compute_{Device(which).arch}", **options)
    return Program(code, code_type="c++", options=settings).compile("ptx", name_expressions=names)


def kernel(code: str, name: str, **options: object) -> Kernel:
    """A kernel of a program; a template's name is an expression, as `saxpy<float>`."""
    names = (name,) if "<" in name else ()
    return compiled(code, names, **options).get_kernel(name)


def lines(count: int) -> LaunchConfig:
    """One thread for each of `count` elements."""
    return LaunchConfig(grid=(count + BLOCK - 1) // BLOCK, block=BLOCK)


def view(buffer: Buffer, dtype: object) -> np.ndarray:
    """The host's sight of memory: all memory of the CPU's devices can be seen by it."""
    raw = (ctypes.c_char * buffer.size).from_address(int(buffer.handle))
    return np.frombuffer(raw, dtype)


def upload(array: np.ndarray, stream: Stream) -> Buffer:
    """The array in the device's own memory, by a copy from page-locked memory."""
    from cuda.core import LegacyPinnedMemoryResource

    staging = LegacyPinnedMemoryResource().allocate(array.nbytes)
    view(staging, array.dtype)[:] = array.ravel()
    buffer = stream.device.allocate(array.nbytes, stream=stream)
    buffer.copy_from(staging, stream=stream)
    stream.sync()
    return buffer


def download(buffer: Buffer, dtype: object, stream: Stream) -> np.ndarray:
    """A copy of a buffer of the device, by page-locked memory."""
    from cuda.core import LegacyPinnedMemoryResource

    staging = LegacyPinnedMemoryResource().allocate(buffer.size)
    buffer.copy_to(staging, stream=stream)
    stream.sync()
    return view(staging, dtype).copy()
