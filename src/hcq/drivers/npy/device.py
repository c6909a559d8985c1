"""NpyDevice and its allocator. NumPy itself is not imported: whoever has an array to give has done that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from hcq.runtime.allocator import Allocator
from hcq.runtime.compiled import Compiled
from hcq.runtime.registry import device_index

if TYPE_CHECKING:
    from collections.abc import Mapping


class NpyAllocator(Allocator):
    """Reads and writes arrays that callers bring as a buffer's `opaque`; has no memory of its own.

    Threads may share it.
    """

    def _alloc(self, size: int, options: Any = None) -> NoReturn:
        raise TypeError("NPY has no memory of its own: Buffer('NPY', size, dtype, opaque=array) names an array's")

    def _free(self, opaque: Any, options: Any = None) -> None:
        """Nothing: arrays are their owners'."""

    def copyin(self, dest: Any, src: memoryview) -> None:
        """Copy `src` into the array `dest`, which must be writable (TypeError) and of as many bytes (ValueError)."""
        target = self.as_buffer(dest)
        if target.readonly:
            raise TypeError("this array is read-only, so nothing can be copied into it")
        _check_bytes(target.nbytes, src.nbytes)
        target[:] = src

    def copyout(self, dest: memoryview, src: Any) -> None:
        """Copy the array `src` into `dest`, which must have as many bytes (ValueError)."""
        source = self.as_buffer(src)
        _check_bytes(source.nbytes, dest.nbytes)
        dest[:] = source

    def as_buffer(self, buf: Any) -> memoryview:
        """The array's own bytes, without a copy. Strided arrays and arrays of objects are refused."""
        if hasattr(buf, "reshape"):
            if not buf.flags.c_contiguous:
                raise ValueError("this array is strided: numpy.ascontiguousarray(array) gives one that can be copied")
            if buf.dtype.hasobject:
                raise TypeError(f"an array of {buf.dtype} holds references, which no device can use")
            # By way of NumPy, since the buffer protocol has no word for half of the types (bfloat16, dates).
            return memoryview(buf.reshape(-1).view("u1"))
        try:
            return memoryview(buf).cast("B")
        except TypeError as error:
            raise TypeError(
                f"opaque of an NPY buffer must be an array or another C-contiguous buffer: {error}"
            ) from None

    def offset(self, buf: Any, size: int, offset: int) -> Any:
        """The part of the array that a view covers: `size` bytes from byte `offset` on."""
        return self.as_buffer(buf)[offset : offset + size]


def _check_bytes(array: int, other: int) -> None:
    if array != other:
        raise ValueError(f"the array has {array} bytes, and the other side of the copy has {other}")


class NpyDevice(Compiled):
    """The device of NumPy arrays: nothing is ever queued on it, and it owns nothing that a fork could break."""

    survives_fork = True

    def __init__(self, device: str) -> None:
        super().__init__(device, NpyAllocator(self))

    def _info(self) -> Mapping[str, object]:
        return {"kind": "NumPy arrays, to copy from"}


def open_npy(name: str) -> NpyDevice:
    """The factory of NPY. Numbered NPY devices are all alike."""
    device_index(name)
    return NpyDevice(name)
