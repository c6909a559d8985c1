"""Allocators: the plain base class for drivers in Python, the caching one (native), and the shared one for host memory.

What does not live here: the cache itself and the pool of host memory (native/memory), staging (hcq.queues.allocator),
and choosing how to copy between devices (copy).
"""

from __future__ import annotations

from typing import Any

from hcq import config
from hcq._native import HostAllocator, LRUAllocator, live_buffers
from hcq.errors import HCQError, OutOfMemory
from hcq.runtime.options import BufferOptions

__all__ = ["Allocator", "BufferOptions", "HostAllocator", "LRUAllocator", "MallocAllocator"]

_HOLDERS_SHOWN = 5
_DEFAULT_OPTIONS = BufferOptions()


class Allocator:
    """Memory of one device, without caching. A driver overrides `_alloc`, `_free`, `copyin` and `copyout`.

    Probed with hasattr, so that a driver has them or not: `offset(buf, size, offset)` makes the handle of a view,
    `as_buffer(buf)` a memoryview over the memory itself, `transfer(dest, src, size, src_dev=, dest_dev=)` copies from
    another device of this kind, `copy_from_disk(dest, src, size)`, `map(buf)`. Arguments have been checked by then.
    Threads may share an allocator where the driver's own methods allow it.
    """

    device: Any = None

    def __init__(self, device: Any = None) -> None:
        if device is not None:
            self.device = device

    def alloc(self, size: int, options: BufferOptions | None = None) -> Any:
        """Memory of `size` bytes, as the driver names it. Contents are undefined.

        ValueError for sizes of 0 or less, OutOfMemory where the driver has none.
        """
        size = size.__index__()
        if size <= 0:
            raise ValueError(f"an allocation must have at least 1 byte, not {size}")
        try:
            return self._alloc(size, _DEFAULT_OPTIONS if options is None else options)
        except (MemoryError, RuntimeError) as error:
            if not means_out_of_memory(error) or isinstance(error, OutOfMemory):
                raise
            raise out_of_memory(self, size, 0, 0, 0, error) from error

    def free(self, opaque: Any, size: int, options: BufferOptions | None = None) -> None:
        """Give memory of `alloc` back; `size` and `options` are those it was asked for with. TypeError for None."""
        if opaque is None:
            raise TypeError("free() takes what alloc gave, not None")
        self._free(opaque, _DEFAULT_OPTIONS if options is None else options)

    def _alloc(self, size: int, options: BufferOptions) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no _alloc: this device can't allocate")

    def _free(self, opaque: Any, options: BufferOptions) -> None:
        """Nothing to do where the memory goes with the Python object."""

    def copyin(self, dest: Any, src: memoryview) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no copyin: this device can't be written by the host")

    def copyout(self, dest: memoryview, src: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no copyout: this device can't be read by the host")


def means_out_of_memory(error: BaseException) -> bool:
    """Whether what `_alloc` raised means that the driver has no memory: MemoryError or RuntimeError, none of ours."""
    if isinstance(error, HCQError):
        return isinstance(error, OutOfMemory)
    is_other = isinstance(error, (NotImplementedError, RecursionError))  # RuntimeErrors that say something else
    return isinstance(error, (MemoryError, RuntimeError)) and not is_other


def out_of_memory(
    allocator: Any, asked: int, live: int, cached: int, limit: int, cause: BaseException | None
) -> OutOfMemory:
    """The OutOfMemory for a refused allocation, chained to what the driver said. Holds no buffer and no frame."""
    name = device_name(allocator)
    text = f"{name}: out of memory: asked for {_bytes(asked)} with {_bytes(live)} live and {_bytes(cached)} cached"
    if limit:
        text += f", under a limit of {_bytes(limit)} (allocator.limit, HCQ_MEMORY_LIMIT)"
    if cause is not None:
        text += f": {cause}" if str(cause) else f": {type(cause).__name__}"
    holders = sorted((row for row in live_buffers() if row[0] == name), key=lambda row: -row[1])[:_HOLDERS_SHOWN]
    if holders:
        text += "; largest buffers: " + ", ".join(f"{_bytes(row[1])} ({row[2]} x {row[3]})" for row in holders)
    error = OutOfMemory(text, device=name, asked=asked, live=live, cached=cached)
    error.__cause__ = cause
    return error


def device_name(allocator: Any) -> str:
    """The name of the device an allocator is for; HOST for the shared one of host memory."""
    device = getattr(allocator, "device", None)
    return "HOST" if device is None else str(getattr(device, "dname", device))


def cache_settings() -> tuple[int, bool]:
    """What the environment says for a new LRUAllocator: its limit in bytes (0 is none), and whether it caches."""
    return config.MEMORY_LIMIT(), config.LRU()


def _bytes(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}" if count % size else f"{count // size} {unit}"
    return f"{count} bytes"


# Last, since making one asks cache_settings().
MallocAllocator = HostAllocator()
"""Host memory for devices whose programs run in this process: one instance, shared by all of them."""
