"""Allocators of DISK: an allocation is a claim on a file, held open by it. Handles are DiskBuffers.

What does not live here: the file itself (file), which file it is (place), copies by queues (device).
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import TYPE_CHECKING, Any

from hcq import _native
from hcq.drivers.disk.file import OpenFile, bytes_of
from hcq.drivers.disk.place import Place
from hcq.queues.allocator import HCQAllocator
from hcq.queues.staging import host_view
from hcq.runtime import process, watch
from hcq.runtime.allocator import Allocator

if TYPE_CHECKING:
    from hcq.drivers.disk.device import DiskDevice

BY_QUEUE = 256 << 10
"""Bytes from which a copy that the host waits for goes through the device's queue, and so to many readers at a time."""

# Guards which files are open, and how often. Finalizers of buffers take it, so perhaps within what holds it already.
_lock = threading.RLock()


class DiskBuffer:
    """Bytes `offset` to `offset + size` of an open file. Views of it share the file. Threads may share one.

    `va_addr` stands for the first of them in copies by native command queues. It is no memory, except for a segment,
    whose bytes lie there.
    """

    __slots__ = ("__weakref__", "device", "file", "offset", "segment", "size", "va_addr")

    def __init__(
        self, device: DiskDevice, file: OpenFile, offset: int, size: int, va_addr: int, segment: Segment | None = None
    ) -> None:
        self.device = device
        self.file = file
        self.offset = offset
        self.size = size
        self.va_addr = va_addr
        self.segment = segment

    @property
    def readonly(self) -> bool:
        """Whether only reading is allowed."""
        return not self.file.writable

    def readinto(self, view: memoryview, offset: int) -> int:
        """Fill `view` with the bytes from `offset` on, counted from this buffer's start; all of it, or EOFError."""
        self.file.read(view, self.offset + offset)
        return len(view)

    def read_to(self, address: int, size: int, device: Any) -> bool:
        """Read the first `size` bytes to memory of `device` that this process reaches at `address`, by our queue.

        After the work queued on both. Blocks, and raises what went wrong. False where that isn't worth it, or can't be.
        """
        if size < BY_QUEUE or self.device.inherited or self.segment is not None:
            return False
        device.check_usable()
        self.device.copy_now(address, self.va_addr, size, f"DISK -> {device.dname}", device.ordering())
        return True

    def __repr__(self) -> str:
        return f"<bytes {self.offset} to {self.offset + self.size} of {self.file.path}>"


class DiskAllocator(Allocator):
    """The allocator of a file. Nothing is cached: the last free closes the file. Threads may share it."""

    host_access = True  # its queues reach the host's memory, and native queues reach files
    owns_memory = False  # what is there was there before, and stays

    device: DiskDevice

    def __init__(self, device: DiskDevice) -> None:
        super().__init__(device)
        self._file: OpenFile | None = None

    def _alloc(self, size: int, options: Any = None) -> DiskBuffer:
        """A claim on the first `size` bytes. Raises the operating system's errors where the file can't be opened."""
        place = self.device.place
        if place is None:
            raise ValueError("Device['DISK'] names no file, so it can't allocate: DISK:/path does, and DISK:shm:name")
        file = self._open(place, size)
        try:
            handle = self._claim(file, size)
        except BaseException:
            self._give_up(file)
            raise
        if watch.active:
            watch.allocated(self.device, handle, size, options)
        return handle

    def _free(self, opaque: DiskBuffer, options: Any = None) -> None:
        if watch.active:
            watch.freed(self.device, opaque)
        self._unclaim(opaque)
        self._give_up(opaque.file)

    def copyin(self, dest: DiskBuffer, src: Any) -> None:
        """Write `src`, any C-contiguous buffer, to the start of `dest`, after the work queued here. Blocks."""
        data = bytes_of(src)
        _check_size(data.nbytes, dest)
        if watch.active:
            watch.host_write(dest, 0, data.nbytes)
        dest.file.check_write(data.nbytes, dest.offset)
        device = self.device
        device.settle()
        if data.nbytes < BY_QUEUE or device.inherited:
            with device.host_copy("CPU -> DISK", data.nbytes):
                dest.file.write(data, dest.offset)
        elif dest.segment is not None:
            host_view(dest.va_addr, data.nbytes)[:] = data
        else:
            device.copy_now(dest.va_addr, _native.disk_address(data), data.nbytes, "CPU -> DISK", keep=data)

    def copyout(self, dest: Any, src: DiskBuffer) -> None:
        """Read from the start of `src` into `dest`, any writable C-contiguous buffer, after the work queued here.

        EOFError where the file ends before. Blocks.
        """
        data = bytes_of(dest)
        if data.readonly and data.nbytes:
            raise TypeError("copyout writes into its destination, and this one is read-only")
        _check_size(data.nbytes, src)
        if watch.active:
            watch.host_read(src, 0, data.nbytes)
        device = self.device
        device.settle()
        if data.nbytes < BY_QUEUE or device.inherited or src.segment is not None:
            with device.host_copy("DISK -> CPU", data.nbytes):
                src.file.read(data, src.offset)
        else:
            device.copy_now(_native.disk_address(data), src.va_addr, data.nbytes, "DISK -> CPU", keep=data)

    def copy_from_disk(self, dest: DiskBuffer, src: Any, size: int) -> None:
        """Copy between files: `size` bytes from the start of `src`, as if read first. Blocks."""
        _check_size(size, dest)
        dest.file.check_write(size, dest.offset)
        if not self.device.inherited and getattr(src, "segment", None) is None and dest.segment is None:
            self.device.copy_now(dest.va_addr, src.va_addr, size, "DISK -> DISK", src.device.ordering())
            return
        data = bytearray(size)
        src.readinto(memoryview(data), 0)
        self.copyin(dest, data)

    def transfer(self, dest: Any, src: Any, size: int, src_dev: Any, dest_dev: Any, stream: Any = None) -> None:
        """HCQAllocator.transfer, for files: one is an address like any other to native queues. Doesn't block.

        What goes wrong while reading is told by the next synchronize, of either device.
        """
        if src_dev is dest_dev:
            _check_size(size, src)
            _check_size(size, dest)
            src_dev.enqueue_copy(dest.va_addr, src.va_addr, size, stream)
        else:
            HCQAllocator.transfer(self, dest, src, size, src_dev, dest_dev, stream)  # type: ignore[arg-type]

    def check_writable(self, dest: DiskBuffer, size: int) -> None:
        """Raise what a copy of `size` bytes to the start of `dest` would raise: PermissionError, ValueError."""
        dest.file.check_write(size, dest.offset)

    def map(self, buf: Any) -> None:
        """Nothing to do: what copies here reaches all memory of this process."""

    def offset(self, buf: DiskBuffer, size: int, offset: int) -> DiskBuffer:
        """The handle of a view, at any byte."""
        return DiskBuffer(buf.device, buf.file, buf.offset + offset, size, buf.va_addr + offset, buf.segment)

    def _within(self, device: Any, dest: Any, src: Any, size: int, stream: Any) -> None:
        device.enqueue_copy(dest.va_addr, src.va_addr, size, stream)

    def _claim(self, file: OpenFile, size: int) -> DiskBuffer:
        assert file.native is not None
        return DiskBuffer(self.device, file, 0, size, file.native.claim(size))

    def _unclaim(self, handle: DiskBuffer) -> None:
        if handle.file.native is not None:
            handle.file.native.unclaim(handle.va_addr, handle.size)

    def _open(self, place: Place, size: int) -> OpenFile:
        """The file, with one more who uses it: what is open already, or opened now."""
        with _lock:
            file = self._file
            if file is not None:
                file.users += 1  # first of all: a finalizer may run in what follows, and end the last other use
                try:
                    if file.users > 1 and file.is_still(place):
                        file.grow(place, size)
                        return file
                except BaseException:
                    self._give_up(file)
                    raise
                self._give_up(file)  # the path leads elsewhere now: older buffers keep what they had
            file = OpenFile(place, size)
            file.users = 1
            self._file = file
            return file

    def _give_up(self, file: OpenFile) -> None:
        with _lock:
            file.users -= 1
            if not file.users:
                file.close()
                if self._file is file:
                    self._file = None


class Segment:
    """A segment's memory in this process. It goes when the last who uses it does, and what is queued has passed."""

    def __init__(self, descriptor: int, size: int, writable: bool) -> None:
        self.size, self.writable = size, writable
        self.address = _native.disk_map(descriptor, size, writable)

    def view(self, offset: int, size: int) -> memoryview:
        """Some of it; it stays where it is while the view lives."""
        memory = (ctypes.c_ubyte * size).from_address(self.address + offset)
        memory.segment = self  # type: ignore[attr-defined]
        view = memoryview(memory).cast("B")
        return view if self.writable else view.toreadonly()

    def __del__(self, unmap: Any = _native.disk_unmap) -> None:
        address = getattr(self, "address", 0)
        if address:
            unmap(address, self.size)


class ShmAllocator(DiskAllocator):
    """The allocator of a `shm:` segment: mapped, so that its memory can be used in place."""

    def as_buffer(self, buf: DiskBuffer) -> memoryview:
        """The segment's own memory; read-only unless the device's name says ?mode=rw or ?mode=create."""
        if buf.segment is None:
            raise ValueError("this segment's memory was given back")
        return buf.segment.view(buf.va_addr - buf.segment.address, buf.size)

    def _claim(self, file: OpenFile, size: int) -> DiskBuffer:
        end = file.size()
        if end < size:
            raise ValueError(f"{file.path} has {end} bytes, and the buffer needs {size}: ?mode=create grows it")
        segment = file.mapped() if file.mapped is not None else None
        if segment is None or segment.size < size:  # all buffers have the same memory, unless it grew
            segment = Segment(file.descriptor, end, file.writable)
            file.mapped = weakref.ref(segment)
        return DiskBuffer(self.device, file, 0, size, segment.address, segment)

    def _unclaim(self, handle: DiskBuffer) -> None:
        handle.segment = None


def _check_size(size: int, buf: Any) -> None:
    if not 0 <= size <= buf.size:
        raise ValueError(f"a copy of {size} bytes and a buffer of {buf.size}: it must fit")


def _fresh_lock() -> None:
    global _lock
    _lock = threading.RLock()


process.at_fork_in_child(_fresh_lock)  # another thread of the parent may have held it
