"""The GPU device's allocators: shared virtual memory, so that a buffer is an address and a view is a sum.

What does not live here: how copies get into queues (the base), and the copying itself (queue).
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from hcq.queues.allocator import HCQAllocator, HCQBuffer

if TYPE_CHECKING:
    from hcq.drivers.opencl.device import OpenCLDevice
    from hcq.runtime.options import BufferOptions

ALIGNMENT = 64


class OpenCLAllocator(HCQAllocator):
    """Memory that the host doesn't touch: copies go through the ring and the copy queue. Threads may share one.

    `host` and `cpu_access` memory is shared with the host where the sharing is fine-grained, so that kernels reach it
    too; elsewhere it is the process's own: the queues copy from and to it.
    """

    device: OpenCLDevice

    def _alloc(self, size: int, options: BufferOptions) -> HCQBuffer:
        if (options.host or options.cpu_access) and not self.device.is_mapped:
            memory: Any = (ctypes.c_ubyte * (size + ALIGNMENT - 1))()
            address = -(-ctypes.addressof(memory) // ALIGNMENT) * ALIGNMENT
        else:
            memory, address = self.device.allocate(max(size, 1), ALIGNMENT)
        self.device.held[address] = memory
        return HCQBuffer(address, size)

    def _within(self, device: Any, dest: Any, src: Any, size: int, stream: Any) -> None:
        device.enqueue_copy(dest.va_addr, src.va_addr, size, stream)  # overlapping ranges: as if read first

    def _free(self, opaque: HCQBuffer, options: BufferOptions) -> None:
        self.device.held.pop(opaque.va_addr, None)  # given back, unless somebody still looks at it


class MappedAllocator(OpenCLAllocator):
    """Where the host reads and writes the device's memory itself (fine-grained sharing)."""

    host_access = True

    def as_buffer(self, buf: HCQBuffer) -> memoryview:
        """The memory itself; the view keeps it."""
        view = (ctypes.c_ubyte * buf.size).from_address(buf.va_addr)
        view.memory = self._holder(buf.va_addr)  # type: ignore[attr-defined]
        return memoryview(view).cast("B")

    def _holder(self, address: int) -> Any:
        held = self.device.held
        exact = held.get(address)
        if exact is not None:
            return exact
        below = max((start for start in list(held) if start <= address), default=None)  # a view's memory
        return None if below is None else held.get(below)
