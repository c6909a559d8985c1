"""Zero-copy exchange of a device's own memory, by address: DLPack's other devices, and __cuda_array_interface__.

The specifications are DLPack 1.0 and Numba's CUDA Array Interface, version 3. What does not live here: host memory
(interop), and what a device knows of an address (the driver).
"""

from __future__ import annotations

import math
from typing import Any

from hcq import dtypes
from hcq._native import Buffer, HCQBuffer, memory_keep
from hcq.runtime import dlpack
from hcq.runtime.registry import Device

_KINDS = {2: "CUDA"}  # DLPack's types of devices whose memory is taken by address
_CUDA = 2


class Borrowed(HCQBuffer):
    """Memory of somebody else's, which keeps its owner. Never freed by us."""

    owner: Any


def is_on_device(obj: Any) -> bool:
    """Whether an object is in memory of a device that is taken by address."""
    if hasattr(obj, "__dlpack_device__"):
        try:
            return int(obj.__dlpack_device__()[0]) in _KINDS
        except (BufferError, RuntimeError, ValueError):  # it can't be shared: host_array says why
            return False
    return hasattr(obj, "__cuda_array_interface__")


def borrowed(obj: Any) -> Buffer:
    """A buffer over the memory of `obj`, of its shape, on its device: after all work given to that until now.

    Raises ValueError for strided or read-only memory, BufferError for types that have no name here, DeviceUnavailable
    where that device does not open.
    """
    if hasattr(obj, "__dlpack_device__"):
        kind, number = obj.__dlpack_device__()
        name = _KINDS[int(kind)] + (f":{number}" if number else "")
        home = Device[name]  # first, so that nothing is exported to nobody
        owner, address, shape, dtype = _from_dlpack(obj)
    else:
        owner = obj
        address, shape, dtype = _from_interface(obj.__cuda_array_interface__)
        name = Device["CUDA"].home_of(address)  # type: ignore[attr-defined]
        home = Device[name]
    home.settle()  # type: ignore[attr-defined]
    size = math.prod(shape)
    if not size:
        raise ValueError(f"a buffer must have at least one element, which an array of shape {shape} has not")
    handle = Borrowed(address, size * dtypes.itemsize(dtype))
    handle.owner = owner
    made = Buffer(name, size, dtype, opaque=handle)
    if len(shape) != 1:
        made._shape = shape
    return made


def place(buf: Buffer) -> tuple[int, int] | None:
    """How DLPack names the device of an allocated buffer's memory, where others use that by address."""
    device = getattr(buf.allocator, "device", None)
    found: tuple[int, int] | None = getattr(device, "dlpack_device", None)
    return found


def settled(buf: Buffer) -> Any:
    """What keeps a buffer's memory as it is, after the work queued on its device. Blocks."""
    from hcq.runtime import watch

    if watch.active:
        watch.exported(buf)
    Device[buf.device].synchronize()
    return memory_keep(buf)


def cuda_array_interface(buf: Buffer) -> dict[str, Any]:
    """Version 3 of the CUDA array interface. Reading it waits for queued work, and keeps the memory as it is until the
    Buffer itself dies. AttributeError for memory that is not CUDA's."""
    if not buf.is_allocated() or (place(buf) or (0,))[0] != _CUDA:
        raise AttributeError(f"memory of {buf.device} is not CUDA's: it has no __cuda_array_interface__")
    described = dtypes.to_numpy(buf.dtype)
    buf._interface_export = settled(buf)
    return {
        "shape": buf.shape,
        "typestr": described.str,
        "data": (buf._buf.va_addr, False),
        "strides": None,
        "stream": None,  # all is over
        "version": 3,
    }


def _from_dlpack(obj: Any) -> tuple[Any, int, tuple[int, ...], Any]:
    owner, shape, strides, dtype, _ = dlpack.consumed(obj)
    _check(shape, strides, dtype.itemsize, owner.readonly)
    return owner, owner.address, shape, dtype


def _from_interface(said: dict[str, Any]) -> tuple[int, tuple[int, ...], Any]:
    import numpy

    address, readonly = said["data"]
    shape, dtype = tuple(said["shape"]), dtypes.of(numpy.dtype(said["typestr"]))
    _check(shape, said.get("strides"), dtype.itemsize, readonly)
    return int(address), shape, dtype


def _check(shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int, readonly: bool) -> None:
    step = itemsize
    for count, stride in zip(reversed(shape), reversed(strides or ()), strict=False):
        if count > 1 and stride != step:
            raise ValueError(
                f"strided memory (shape {shape}, strides {strides}) can't be a buffer: pass a contiguous copy"
            )
        step *= count
    if readonly:
        raise ValueError("read-only memory can't be a buffer, which kernels could write: pass a copy")
