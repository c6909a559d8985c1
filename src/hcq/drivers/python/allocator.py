"""The PYTHON device's allocator: host memory that remembers which of its bytes were written."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from hcq.queues.allocator import HCQAllocator, HCQBuffer

if TYPE_CHECKING:
    from hcq.drivers.python.device import PythonDevice
    from hcq.runtime.options import BufferOptions


class PythonAllocator(HCQAllocator):
    """Memory of the host, reached at `va_addr`. Threads may share one."""

    host_access = True
    checks_bounds = True  # kernels are held to what was asked for: memory must not be wider
    device: PythonDevice

    def _alloc(self, size: int, options: BufferOptions) -> HCQBuffer:
        return HCQBuffer(self.device.blocks.add(size, id(self.device)), size)

    def _free(self, opaque: HCQBuffer, options: BufferOptions) -> None:
        self.device.blocks.remove(opaque.va_addr)

    def _direct(self, *memory: Any) -> bool:
        return True  # always: what comes through the ring's memory would count as unwritten

    def copyin(self, dest: Any, src: Any) -> None:
        """As every allocator's; what the host wrote counts as written."""
        super().copyin(dest, src)
        self.device.blocks.mark(dest.va_addr, memoryview(src).nbytes)

    def copy_from_disk(self, dest: Any, src: Any, size: int) -> None:
        super().copy_from_disk(dest, src, size)
        self.device.blocks.mark(dest.va_addr, size)

    def as_buffer(self, buf: HCQBuffer) -> memoryview:
        """The memory itself. From here on all of it counts as written: nobody sees what the holder writes."""
        self.device.blocks.mark(buf.va_addr, buf.size)
        view = (ctypes.c_ubyte * buf.size).from_address(buf.va_addr)
        view.block = self.device.blocks.at(buf.va_addr)  # type: ignore[attr-defined]  # the view keeps the memory
        return memoryview(view).cast("B")
