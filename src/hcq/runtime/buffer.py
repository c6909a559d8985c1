"""Buffer and its conveniences: hcq.array, hcq.empty, hcq.zeros, and the rare methods of the native type.

The type itself (creation, allocation, views, copies, the buffer protocol) is native/memory/buffer*.cpp; what happens
seldom is written here and attached to it: repr, numpy, fill, pickling, the array interface.
"""

from __future__ import annotations

import math
import pickle
from typing import TYPE_CHECKING, Any

from hcq import dtypes
from hcq._native import Buffer
from hcq.runtime.options import BufferOptions
from hcq.runtime.registry import Device

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy

__all__ = ["Buffer", "BufferOptions", "empty", "zeros"]

# struct codes of the buffer protocol (PEP 3118), by the names of dtypes. The others have none.
_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
    "complex64": "Zf",
    "complex128": "Zd",
}

_NO_CONTENTS = ("DISK", "NPY")  # devices whose buffers stand for something that is elsewhere


def empty(size: int | Sequence[int], dtype: Any, device: str | None = None) -> Buffer:
    """An allocated buffer of `size` elements (or of that shape) with undefined contents, on `device` or the default.

    Raises ValueError for shapes without elements, and what allocation raises.
    """
    shape = (size.__index__(),) if hasattr(size, "__index__") else tuple(n.__index__() for n in size)
    if any(n <= 0 for n in shape):
        raise ValueError(f"a buffer must have at least one element, which the shape {shape} has not")
    buf = Buffer(device, math.prod(shape), dtype, preallocate=True)
    if len(shape) != 1:
        buf._shape = shape
    return buf


def zeros(size: int | Sequence[int], dtype: Any, device: str | None = None) -> Buffer:
    """As `empty`, with all bytes zero."""
    buf = empty(size, dtype, device)
    buf.copyin(bytes(buf.nbytes))
    return buf


# What native code calls


def describe_dtype(given: Any) -> tuple[Any, int, BufferOptions | None]:
    """The dtype a buffer shows for the one it was given, its itemsize, and the options it implies (for images)."""
    size = getattr(given, "itemsize", None)
    if not isinstance(size, int) or isinstance(size, bool):
        # A scalar class of NumPy or ml_dtypes, or a name: its dtype has the size.
        given = dtypes.of(given) if isinstance(given, str) else dtypes.to_numpy(given)
    itemsize = dtypes.itemsize(given)
    image = type(given).__name__ == "ImageDType"
    return given, itemsize, BufferOptions(image=given) if image else None


def buffer_format(dtype: Any) -> str | None:
    """The struct code of a dtype, or None where the buffer protocol has no word for it."""
    try:
        known = dtypes.of(dtype)
    except TypeError:
        return None
    return _FORMATS.get(known.name) if getattr(dtype, "isnative", True) else None


def explain_host_memory(obj: Any, method: str, writable: bool, error: BaseException | None) -> BaseException:
    """The error for an object that copyin or copyout can't take."""
    try:
        view = memoryview(obj)
    except TypeError:
        return TypeError(f"{method} needs an object with the buffer protocol (bytes, NumPy array ...), not {obj!r:.80}")
    except (ValueError, BufferError):
        return ValueError(f"{method} can't use this memory: {error}")
    if not view.c_contiguous:
        return ValueError(f"{method} needs C-contiguous memory, and this is strided: pass a contiguous copy")
    if writable and view.readonly:
        return TypeError(f"{method} writes into its destination, and this {type(obj).__name__} is read-only")
    return ValueError(f"{method} can't use this memory: {error}")
