"""Buffer and its conveniences: hcq.empty, hcq.zeros, and the rare methods of the native type.

The type itself (creation, allocation, views, copies, the buffer protocol) is native/memory/buffer*.cpp; what happens
seldom is written here and attached to it: repr, numpy, fill, pickling, the array interface.
"""

from __future__ import annotations

import math
from operator import index
from typing import TYPE_CHECKING, Any

from hcq import dtypes
from hcq._native import Buffer
from hcq.runtime.later import Later
from hcq.runtime.options import BufferOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy

    from hcq.runtime import device_interop, interop, pickling
else:  # for who takes a buffer elsewhere
    interop, device_interop = Later("hcq.runtime.interop"), Later("hcq.runtime.device_interop")
    pickling = Later("hcq.runtime.pickling")

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


def empty(size: int | Sequence[int], dtype: Any, device: str | None = None) -> Buffer:
    """An allocated buffer of `size` elements (or of that shape) with undefined contents, on `device` or the default.

    Raises TypeError for a size that is neither, ValueError for shapes without elements, and what allocation raises.
    """
    try:
        shape = (index(size),) if hasattr(size, "__index__") else tuple(map(index, size))
    except TypeError:
        raise TypeError(
            f"size must be a whole number of elements, or a shape such as (2, 3), not {size!r:.70}"
        ) from None
    if any(n <= 0 for n in shape):
        raise ValueError(f"a buffer must have at least one element, which the shape {shape} has not")
    buf = Buffer(device, math.prod(shape), dtype, preallocate=True)
    if len(shape) != 1:
        buf._shape = shape
    return buf


def zeros(size: int | Sequence[int], dtype: Any, device: str | None = None) -> Buffer:
    """As `empty`, with all bytes zero."""
    buf = empty(size, dtype, device)
    exporter = buf._export()
    if exporter is None:
        buf.copyin(bytes(buf.nbytes))
    else:
        import numpy

        numpy.frombuffer(memoryview(exporter), numpy.uint8)[:] = 0
    return buf


# Attached to Buffer


def _numpy(buf: Buffer) -> numpy.ndarray[Any, Any]:
    """A NumPy array with a copy of the contents, after the work queued on the device; of the shape that hcq.array or
    hcq.empty made the buffer with, else flat. TypeError where NumPy has no such dtype."""
    import numpy

    result = numpy.empty(buf.shape, dtypes.to_numpy(buf.dtype))
    if buf.size:  # else there is no memory to copy
        buf.copyout(result)
    return result


def _fill(buf: Buffer, value: Any) -> Buffer:
    """Set every element to `value`, after the work queued on the device; returns the buffer. Blocks.

    Raises what NumPy raises for a value that the dtype can't hold, and ValueError for one it would change.
    """
    import numpy

    dtype = dtypes.to_numpy(buf.dtype)
    element = numpy.empty(1, dtype)
    element[0] = value
    if dtype.kind in "iub" and element[0] != value:
        raise ValueError(f"{value!r} can't be stored as {buf.dtype!r}: it would become {element[0]!r}")
    buf.ensure_allocated()
    target = interop.export_array(buf)
    if target is None:
        buf.copyin(numpy.full(buf.size, element[0], dtype))
    else:
        target[...] = element[0]
    return buf


def _repr(buf: Buffer) -> str:
    try:
        root, dtype = buf._base, getattr(buf.dtype, "name", None) or repr(buf.dtype)
        shape = "x".join(map(str, buf.shape))
        what = f"{buf.device} {shape} {dtype}, {buf.nbytes} bytes"
        if root is not None:
            what += f" from byte {buf.offset} of {root.nbytes}"
        return f"<{type(buf).__name__} {what}, {'allocated' if buf.is_allocated() else 'not allocated'}>"
    except (AttributeError, RuntimeError) as error:  # not initialised, or inherited through fork
        return f"<{type(buf).__name__}, unusable: {error}>"


# What native code calls


def describe_dtype(given: Any) -> tuple[Any, int, BufferOptions | None]:
    """The dtype a buffer shows for the one it was given, its itemsize, and the options it implies (for images)."""
    size = getattr(given, "itemsize", None)
    if given is None:
        raise TypeError("a buffer needs a dtype, such as hcq.dtypes.float32, and was given None")
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


for _name, _method in {
    "numpy": _numpy,
    "fill": _fill,
    "__repr__": _repr,
    "__reduce_ex__": lambda buf, protocol: pickling.reduce_buffer(buf, protocol),
    "__dlpack__": lambda buf, **asked: interop.dlpack(buf, **asked),
    "__dlpack_device__": lambda buf: interop.dlpack_device(buf),
    "__array__": lambda buf, *asked, **more: interop.as_numpy(buf, *asked, **more),
    "__array_interface__": property(lambda buf: interop.array_interface(buf)),
    "__cuda_array_interface__": property(lambda buf: device_interop.cuda_array_interface(buf)),
}.items():
    setattr(Buffer, _name, _method)
