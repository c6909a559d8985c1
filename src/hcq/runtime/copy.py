"""hcq.copy: the one place that chooses how bytes get from one buffer to another.

Clients that choose by themselves find the same pieces: `allocator.transfer`, `copy_from_disk`, `map`, `as_buffer`,
`copyin` and `copyout`. What does not live here: any of these (allocators), and copies of host memory by several threads
(native/memory/copy_engine.cpp).
"""

from __future__ import annotations

from typing import Any

from hcq._native import Buffer
from hcq.runtime import watch
from hcq.runtime.registry import Device

_FROM_DISK = 4096  # bytes from which a device's own way of reading files is worth its set-up
_PIECE = 64 << 20  # bytes that go through the host at once


def copy(dest: Buffer, src: Buffer, stream: Any = None) -> None:
    """Copy the contents of `src` to `dest`, buffers of equal size in bytes, on any devices.

    Ordered after all work queued on both, and later work on both comes after it. Overlapping ranges behave as if `src`
    were read first. `dest` is allocated where it isn't. With `stream`, a copy that a device's queues do is ordered with
    that stream instead. May return before the copy is done where queues do it; blocks where the host does. A copy from
    or to a file is waited for, and raises what goes wrong with it; with a stream, the next synchronize does.

    Raises ValueError for different sizes, RuntimeError for an unallocated source, and what the devices raise.
    """
    for buf, what in ((dest, "destination"), (src, "source")):
        if not isinstance(buf, Buffer):
            raise TypeError(f"the {what} of a copy must be a Buffer, not {type(buf).__name__}")
    if dest.nbytes != src.nbytes:
        raise ValueError(f"a copy needs equal sizes: the source has {src.nbytes} bytes, the destination {dest.nbytes}")
    if not src.is_allocated():
        src._check_usable()  # a closed device says so
        raise RuntimeError(f"the source of the copy, on {src.device}, is not allocated: there is nothing to copy")
    dest.ensure_allocated()
    files = [buf.device.partition(":")[0] == "DISK" for buf in (dest, src)]
    if files[0] and hasattr(dest.allocator, "check_writable"):  # now, also where the copy is only queued
        dest.allocator.check_writable(dest._buf, dest.nbytes)
    if _same_place(dest, src) or (watch.active and watch.copy_buffers(dest, src, stream)):
        return
    if any(files) and stream is None:
        # The host waits, so that what goes wrong with a file is raised here.
        if not (files[1] and _from_disk(dest, src)):
            _through_host(dest, src)
        return
    allocator = src.allocator
    if allocator is dest.allocator and hasattr(allocator, "transfer"):  # one device: what follows would choose the same
        device = _device(src)
        order = {} if stream is None else {"stream": stream}
        allocator.transfer(dest._buf, src._buf, src.nbytes, src_dev=device, dest_dev=device, **order)
        return
    if not _on_devices(dest, src, stream):
        _through_host(dest, src)


def _same_place(dest: Buffer, src: Buffer) -> bool:
    return dest.base is src.base and dest.offset == src.offset


def _from_disk(dest: Buffer, src: Buffer) -> bool:
    """A file straight into memory: by the destination's own reader, or into its memory where the host reaches that."""
    if src.nbytes >= _FROM_DISK and hasattr(dest.allocator, "copy_from_disk"):
        dest.allocator.copy_from_disk(dest._buf, src._buf, src.nbytes)
        return True
    exporter = dest._export()
    if exporter is None:
        return False
    src.copyout(exporter)
    return True


def _on_devices(dest: Buffer, src: Buffer, stream: Any) -> bool:
    """A copy by the devices' own queues: between devices of one kind, or where each can map the other's memory."""
    to, here = dest.allocator, src.allocator
    if not hasattr(to, "transfer") or not hasattr(here, "transfer"):
        return False
    devices = {"src_dev": _device(src), "dest_dev": _device(dest)}
    if stream is not None:
        devices["stream"] = stream
    of_file = "DISK" in (dest.device.partition(":")[0], src.device.partition(":")[0])
    if of_file and _device(dest).signal_t is not _device(src).signal_t:  # queues of drivers in Python don't reach files
        return False
    if not _one_kind(dest, src) and not map_both(dest, src):
        return False
    try:
        to.transfer(dest._buf, src._buf, src.nbytes, **devices)
    except NotImplementedError:  # devices of one kind that don't reach each other's memory: nothing was queued
        return False
    return True


def map_both(dest: Buffer, src: Buffer) -> bool:
    """Make each buffer's memory reachable for the other's device; False where one of them can't reach it."""
    to, here = dest.allocator, src.allocator
    if not hasattr(to, "map") or not hasattr(here, "map"):
        return False
    try:
        here.map(dest._buf)
        to.map(src._buf)
    except (ValueError, NotImplementedError):
        return False
    return True


def _one_kind(dest: Buffer, src: Buffer) -> bool:
    same_name = dest.device.partition(":")[0] == src.device.partition(":")[0]
    return same_name or type(dest.allocator) is type(src.allocator)


def _device(buf: Buffer) -> Any:
    device = getattr(buf.allocator, "device", None)
    return Device[buf.device] if device is None else device


def _through_host(dest: Buffer, src: Buffer) -> None:
    """A copy by the host: directly where it reaches the memory of one of the two, else in pieces through its own."""
    if src.device.partition(":")[0] != "NPY":
        exporter = dest._export()
        if exporter is not None and not exporter.readonly:
            src.copyout(exporter)
            return
    exporter = src._export()
    if exporter is not None:
        dest.copyin(exporter)
        return
    if src.nbytes <= _PIECE or dest.base is src.base or not _has_views(dest) or not _has_views(src):
        dest.copyin(src.as_buffer())
        return
    staging = bytearray(_PIECE)
    for at in range(0, src.nbytes, _PIECE):
        piece = memoryview(staging)[: min(_PIECE, src.nbytes - at)]
        _bytes_at(src, at, len(piece)).copyout(piece)
        _bytes_at(dest, at, len(piece)).copyin(piece)


def _has_views(buf: Buffer) -> bool:
    return hasattr(buf.allocator, "offset")


def _bytes_at(buf: Buffer, at: int, count: int) -> Buffer:
    from hcq import dtypes

    return buf.view(count, dtypes.uint8, at).ensure_allocated()
