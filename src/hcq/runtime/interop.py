"""Zero-copy exchange of host memory: hcq.array, DLPack in both directions, the array interface.

The specifications are DLPack 1.0, NumPy's array interface version 3, and PEP 3118. What does not live here: DLPack's
words (dlpack), memory of other devices (device_interop), and the exporter that keeps memory (native/memory/export.cpp).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hcq import dtypes
from hcq._native import dlpack_capsule
from hcq.runtime import device_interop
from hcq.runtime import dlpack as words
from hcq.runtime.buffer import Buffer
from hcq.runtime.registry import Device

if TYPE_CHECKING:
    import numpy

_CPU = (1, 0)  # kDLCPU, device 0
_HOST_TYPES = frozenset({1, 3, 11})  # kDLCPU, kDLCUDAHost, kDLROCMHost: memory that the host reads as its own


def array(obj: Any, device: str | None = None, dtype: Any = None, copy: bool = True) -> Buffer:
    """A buffer with the contents of `obj`, of its shape, on `device` or the default.

    `obj` is a Buffer, or anything with DLPack, the buffer protocol or the array interface, or numbers in lists. `dtype`
    converts, as NumPy does. With `copy=False` the buffer is over the memory of `obj` itself and keeps it: that needs a
    device over host memory, and memory that is contiguous, writable and of the right dtype (ValueError otherwise).
    """
    if isinstance(obj, Buffer):
        return _from_buffer(obj, device, dtype, copy)
    if device_interop.is_on_device(obj):
        return _from_buffer(device_interop.borrowed(obj), device, dtype, copy)
    source = host_array(obj, None if dtype is None else dtypes.to_numpy(dtype))
    wanted = source.dtype if dtype is None else dtypes.to_numpy(dtype)
    shown = _shown(wanted) if dtype is None else dtype
    if source.size == 0:
        raise ValueError(f"a buffer must have at least one element, which an array of shape {source.shape} has not")
    if source.dtype.hasobject:
        raise TypeError(
            f"Python objects can't be put into device memory: {type(obj).__name__} has dtype {source.dtype}"
        )
    if copy:
        import numpy

        contiguous = numpy.ascontiguousarray(source, dtype=wanted)
        made = Buffer(device, source.size, shown, initial_value=contiguous)
    else:
        if source.dtype != wanted:
            raise ValueError(f"copy=False can't convert {source.dtype} to {wanted}")
        if not source.flags.c_contiguous or not source.flags.writeable:
            raise ValueError("copy=False needs contiguous and writable memory, which kernels could write")
        made = Buffer(device, source.size, shown)
        if not shares_host_memory(made.device):
            raise ValueError(f"{made.device} has memory of its own: copy=False needs a device over host memory")
        made.allocate(source)
    if source.ndim != 1:
        made._shape = source.shape
    return made


def host_array(obj: Any, dtype: Any = None) -> numpy.ndarray[Any, Any]:
    """A NumPy array over the host memory of `obj`, without a copy where it has memory (`dtype` is for bare numbers)."""
    import numpy

    if isinstance(obj, numpy.ndarray):
        return obj
    if hasattr(obj, "__dlpack__") and not isinstance(obj, numpy.generic):
        return _from_dlpack(obj)
    try:
        view = memoryview(obj)
    except (TypeError, ValueError, BufferError):
        if hasattr(obj, "__array_interface__") or hasattr(obj, "__array__"):
            return numpy.asarray(obj)
        return numpy.asarray(obj, dtype=dtype)
    return numpy.asarray(view)


def shares_host_memory(device: str) -> bool:
    """Whether a caller's host memory can be a buffer's memory on `device`: its handles are host addresses."""
    from hcq._native import HostAllocator

    return isinstance(Device[device].allocator, HostAllocator)


def export_array(buf: Buffer) -> numpy.ndarray[Any, Any] | None:
    """A NumPy array over the buffer's own memory, after the work queued on its device; None where the host can't
    reach it. The memory is neither freed nor reused while the array lives."""
    import numpy

    exporter = buf._export()
    if exporter is None:
        return None
    whole: numpy.ndarray[Any, Any] = numpy.frombuffer(memoryview(exporter), dtype=dtypes.to_numpy(buf.dtype))
    return whole.reshape(buf.shape)


# Attached to Buffer


def dlpack_device(buf: Buffer) -> tuple[int, int]:
    """DLPack's (device type, number): (1, 0) for host memory, (2, n) for CUDA's. BufferError where others can't reach
    the memory."""
    if buf.is_allocated() and not hasattr(buf.allocator, "as_buffer"):
        if (place := device_interop.place(buf)) is not None:
            return place
        raise BufferError(f"the host can't reach memory of {buf.device}, so it can't be shared by DLPack")
    return _CPU


def dlpack(
    buf: Buffer,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """A DLPack capsule over the buffer's memory, after the work queued on its device.

    A capsule that nobody consumes gives the memory back when it dies. `copy=True` exports a private copy. BufferError
    where the memory can't be shared: the host doesn't reach it, or DLPack has no word for its dtype.
    """
    here = dlpack_device(buf)
    if dl_device is not None and tuple(dl_device) != here:
        what = "host memory" if here == _CPU else f"memory of {buf.device}"
        raise BufferError(f"this is {what}, DLPack device {here}: it can't be exported as {tuple(dl_device)}")
    try:
        known = dtypes.of(buf.dtype)
    except TypeError:
        raise BufferError(f"DLPack has no name for the dtype {buf.dtype!r}: use numpy() or as_buffer()") from None
    versioned = max_version is not None and max_version[0] >= 1
    code, bits = words.word(known)
    if here != _CPU:
        if copy:
            buf = _from_buffer(buf, None, None, True)
        place = (*here, buf._buf.va_addr)
        return dlpack_capsule(device_interop.settled(buf), buf.shape, code, bits, versioned, bool(copy), place)
    if copy:
        twin = Buffer(buf.device, buf.size, buf.dtype, preallocate=True)
        twin.copyin(buf)
        exporter = twin._export()
    else:
        exporter = buf._export()
    if exporter is None:
        raise BufferError(f"the host can't reach memory of {buf.device}, so it can't be shared by DLPack")
    if exporter.readonly and not versioned:
        raise BufferError("this memory is read-only, which consumers of DLPack before version 1.0 can't be told")
    return dlpack_capsule(exporter, buf.shape, code, bits, versioned, bool(copy))


def array_interface(buf: Buffer) -> dict[str, Any]:
    """NumPy's array interface, version 3. Reading it waits for queued work, and keeps the memory as it is until the
    Buffer itself dies, whatever is deallocated meanwhile. AttributeError where the host can't reach the memory."""
    described = dtypes.to_numpy(buf.dtype)
    if not _has_typestr(described):
        raise AttributeError(f"the array interface has no name for {buf.dtype!r}: use numpy.asarray or DLPack")
    exporter = buf._export()
    if exporter is None:
        raise AttributeError(f"the host can't reach memory of {buf.device}: use numpy()")
    buf._interface_export = exporter
    return {
        "shape": buf.shape,
        "typestr": described.str,
        "data": (exporter.address, exporter.readonly),
        "version": 3,
    }


def as_numpy(buf: Buffer, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray[Any, Any]:
    """What numpy.asarray(buf) gives: an array over the buffer's memory where the host reaches it, else a copy."""
    result = None if copy else export_array(buf)
    if result is None:
        if copy is False:
            raise ValueError(f"the host can't reach memory of {buf.device}: only a copy can be had")
        result = buf.numpy()
    return result if dtype is None else result.astype(dtype, copy=False)


# Helpers


def _shown(dtype: numpy.dtype[Any]) -> Any:
    """The dtype a buffer made from an array shows: ours where there is one."""
    try:
        return dtypes.of(dtype) if dtype.isnative else dtype
    except TypeError:
        return dtype


def _has_typestr(dtype: numpy.dtype[Any]) -> bool:
    """Whether the array interface has a word for this type: not for those of ml_dtypes."""
    import numpy

    try:
        return numpy.dtype(dtype.str) == dtype
    except TypeError:
        return False


def _from_buffer(source: Buffer, device: str | None, dtype: Any, copy: bool) -> Buffer:
    same = dtype is None or dtype is source.dtype or dtypes.to_numpy(dtype) == dtypes.to_numpy(source.dtype)
    target = Device.canonicalize(device) if device is not None else source.device
    if not copy:
        if not same or target != source.device:
            raise ValueError("copy=False can neither convert a buffer nor take it to another device")
        return source
    if same and target not in ("NPY",):
        from hcq.runtime.copy import copy as copy_buffer

        made = Buffer(target, source.size, source.dtype, preallocate=True)
        if source.shape != made.shape:
            made._shape = source.shape
        copy_buffer(made, source)
        return made
    return array(source.numpy(), device=target, dtype=dtype)


def _from_dlpack(obj: Any) -> numpy.ndarray[Any, Any]:
    import numpy

    where = obj.__dlpack_device__()
    if where[0] not in _HOST_TYPES:
        raise BufferError(
            f"{type(obj).__name__} lives on DLPack device {tuple(where)}, and only host memory and CUDA's are taken"
        )
    exporter, shape, strides, dtype, device_type = words.consumed(obj)
    if device_type not in _HOST_TYPES or any(step < 0 for step in strides):
        raise BufferError(f"DLPack memory of device type {device_type}, strides {strides} isn't known")
    if 0 in shape:
        return numpy.empty(shape, dtype.numpy)
    flat: numpy.ndarray[Any, Any] = numpy.frombuffer(memoryview(exporter), dtype=numpy.uint8)
    result: numpy.ndarray[Any, Any] = numpy.ndarray(shape, dtype.numpy, buffer=flat, strides=strides)
    return result
