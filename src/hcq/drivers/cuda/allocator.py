"""The CUDA device's allocator: the device's memory from a pool, the host's page-locked.

What does not live here: calling the driver (native/cuda/memory.cpp), cuFile (files), and how copies get into queues
(the base).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from hcq.drivers.cuda import files
from hcq.queues import profile
from hcq.queues.allocator import HCQAllocator, HCQBuffer
from hcq.runtime import watch

if TYPE_CHECKING:
    from hcq.drivers.cuda.device import CUDADevice
    from hcq.runtime.options import BufferOptions

ALIGNMENT = 256
_DEVICE, _HOST, _BOTH = range(3)


class CUDAAllocator(HCQAllocator):
    """Memory of the device's own; copies go through the ring and the copy queue. Threads may share one.

    `host` memory is the host's, page-locked, and never write-combined, since that has an address of its own on the
    device; `cpu_access` memory is managed where host and device may use that at a time, else the host's. Both have one
    address for host and device.
    """

    device: CUDADevice

    def _alloc(self, size: int, options: BufferOptions) -> HCQBuffer:
        use = _HOST if options.host else _BOTH if options.cpu_access else _DEVICE
        try:
            return HCQBuffer(self.device.native.allocate(max(size, 1), use), size)
        except RuntimeError:  # not for want of memory
            self.device.raise_if_lost()
            raise

    def _free(self, opaque: HCQBuffer, options: BufferOptions) -> None:
        self.device.native.free(opaque.va_addr)

    def map(self, buf: Any) -> None:
        """Make another CUDA device's memory reachable, directly where the two are peers. NotImplementedError for memory
        that CUDA did not give out."""
        if not self.device.native.reaches(buf.va_addr):
            raise NotImplementedError(
                f"{self.device.dname} reaches memory of CUDA devices, and page-locked host memory"
            )

    def copy_from_disk(self, dest: Any, src: Any, size: int) -> None:
        """As HCQAllocator's; cuFile reads straight into the device's memory where that goes past the host (files)."""
        device = self.device
        reader = files.reader(device, src, size) if 0 <= size <= dest.size else None
        if reader is None or not device.native.on_device(dest.va_addr):
            super().copy_from_disk(dest, src, size)
            return
        if watch.active:
            watch.host_write(dest, 0, size)
        device.synchronize()
        began = time.perf_counter_ns()
        with device.at_memory():
            done, error = reader.read(device.native, dest.va_addr, size, src.offset)
        if error:
            files.give_up(src, error)
            super().copy_from_disk(dest, src, size)
            return
        if done < size:
            raise EOFError(f"{src!r} ends after {done} bytes: {size} were to be read")
        profile.host_copy(device, f"DISK -> {device.dname}", began, size)

    def _within(self, device: Any, dest: Any, src: Any, size: int, stream: Any) -> None:
        device.enqueue_copy(dest.va_addr, src.va_addr, size, stream)  # overlapping ranges: as if read first
