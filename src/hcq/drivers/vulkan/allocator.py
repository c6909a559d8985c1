"""The VULKAN device's allocators: memory with a device address, in place for the host where the two can share it.

What does not live here: cutting the driver's memory into allocations (native/vulkan/memory.cpp), and how copies get
into queues (the base).
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from hcq.queues.allocator import HCQAllocator, HCQBuffer

if TYPE_CHECKING:
    from hcq.drivers.vulkan.device import VulkanDevice
    from hcq.runtime.options import BufferOptions

ALIGNMENT = 256
_DEVICE, _HOST, _BOTH = range(3)


class VulkanAllocator(HCQAllocator):
    """Memory of the device's own; copies go through the ring and the copy queue. Threads may share one.

    `host` memory is the host's, page-locked, and `cpu_access` memory the device's, mapped: their `va_addr` is where the
    host sees them.
    """

    device: VulkanDevice

    def _alloc(self, size: int, options: BufferOptions) -> HCQBuffer:
        use = _HOST if options.host else _BOTH if options.cpu_access else _DEVICE
        return HCQBuffer(self.device.native.allocate(size, use), size)

    def _free(self, opaque: HCQBuffer, options: BufferOptions) -> None:
        if not self.device.closed:  # else it goes with the device, when what threads queued beside the closing is over
            self.device.native.free(opaque.va_addr)

    def _within(self, device: Any, dest: Any, src: Any, size: int, stream: Any) -> None:
        device.enqueue_copy(dest.va_addr, src.va_addr, size, stream)  # overlapping ranges: as if read first


class MappedAllocator(VulkanAllocator):
    """Where the host reads and writes the device's memory itself, at the device's addresses."""

    host_access = True

    def as_buffer(self, buf: HCQBuffer) -> memoryview:
        """The memory itself; the view keeps it, beyond the device's closing too."""
        view = (ctypes.c_ubyte * buf.size).from_address(buf.va_addr)
        view.memory = self.device.native.hold()  # type: ignore[attr-defined]
        return memoryview(view).cast("B")
