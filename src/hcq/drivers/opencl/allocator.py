"""The GPU device's allocators: shared virtual memory, so that a buffer is an address and a view is a sum.

What does not live here: how copies get into queues (the base), the copying itself (queue), and what images there are
(images).
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from hcq.drivers.opencl.images import ImageHandle, asked_for
from hcq.queues.allocator import HCQAllocator, HCQBuffer
from hcq.runtime.options import BufferOptions

if TYPE_CHECKING:
    from hcq.drivers.opencl.device import OpenCLDevice

ALIGNMENT = 64


class OpenCLAllocator(HCQAllocator):
    """Memory that the host doesn't touch: copies go through the ring and the copy queue. Threads may share one.

    `host` and `cpu_access` memory is shared with the host where the sharing is fine-grained, so that kernels reach it
    too; elsewhere it is the process's own: the queues copy from and to it. `image` memory is an image where the device
    has images: its handle is an ImageHandle, and only kernels and copies get at it.
    """

    device: OpenCLDevice
    _given_back = BufferOptions(nolru=True)

    def _alloc(self, size: int, options: BufferOptions) -> HCQBuffer:
        images = self.device.images
        if options.image is not None and images is not None:
            shape = asked_for(options.image)
            memory, address = images.make(shape, size)
            self.device.held[address] = memory
            return ImageHandle(address, size, shape, address)
        if (options.host or options.cpu_access) and not self.device.is_mapped:
            memory = (ctypes.c_ubyte * (size + ALIGNMENT - 1))()
            address = -(-ctypes.addressof(memory) // ALIGNMENT) * ALIGNMENT
        else:
            memory, address = self.device.allocate(max(size, 1), ALIGNMENT)
        self.device.held[address] = memory
        return HCQBuffer(address, size)

    def gives_image(self, options: BufferOptions) -> bool:
        """Whether memory with these options is an image, which nothing can be put around."""
        return options.image is not None and self.device.images is not None

    def free(self, opaque: HCQBuffer, size: int, options: BufferOptions | None = None) -> None:
        """As the base's; an image stays one, whatever the options are by now, and is given back where they changed."""
        # No globals: finalizers come here.
        if opaque.opaque is not (options is not None and self.gives_image(options)):
            options = self._given_back
        super().free(opaque, size, options)

    def copyin(self, dest: Any, src: Any) -> None:
        """As the base's; of an image, whole pixels from its start."""
        if isinstance(dest, ImageHandle):
            dest.check_pixels(0, memoryview(src).nbytes)
        super().copyin(dest, src)

    def copyout(self, dest: Any, src: Any) -> None:
        """As the base's; of an image, whole pixels from its start."""
        if isinstance(src, ImageHandle):
            src.check_pixels(0, memoryview(dest).nbytes)
        super().copyout(dest, src)

    def copy_from_disk(self, dest: Any, src: Any, size: int) -> None:
        """As the base's; of an image, whole pixels from its start."""
        if isinstance(dest, ImageHandle):
            dest.check_pixels(0, size)
        super().copy_from_disk(dest, src, size)

    def offset(self, buf: Any, size: int, offset: int) -> HCQBuffer:
        """The handle of a view; of an image, of whole pixels, which copies take and kernels do not."""
        if not isinstance(buf, ImageHandle):
            return HCQBuffer(buf.va_addr + offset, size)
        buf.check_pixels(offset, size)
        return ImageHandle(buf.va_addr + offset, size, buf.image, buf.start)

    def _direct(self, *memory: Any) -> bool:
        return super()._direct() and not any(isinstance(each, ImageHandle) for each in memory)

    def _within(self, device: Any, dest: Any, src: Any, size: int, stream: Any) -> None:
        for each in (dest, src):
            if isinstance(each, ImageHandle):
                each.check_pixels(0, size)
        device.enqueue_copy(dest.va_addr, src.va_addr, size, stream)  # overlapping ranges: as if read first

    def _free(self, opaque: HCQBuffer, options: BufferOptions) -> None:
        if not self.device.closed:  # else it goes when what threads queued beside the closing is over
            self.device.held.pop(opaque.va_addr, None)  # given back, unless somebody still looks at it


class MappedAllocator(OpenCLAllocator):
    """Where the host reads and writes the device's memory itself (fine-grained sharing)."""

    host_access = True

    def as_buffer(self, buf: HCQBuffer) -> memoryview:
        """The memory itself; the view keeps it. NotImplementedError for an image, which has no bytes to look at."""
        if isinstance(buf, ImageHandle):
            raise NotImplementedError("the host does not reach the memory of an image")
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
