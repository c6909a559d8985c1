"""Allocators of DISK: an allocation is a claim on a file, held open by it. Handles are DiskBuffers.

What does not live here: the file itself (file), which file it is (place).
"""

from __future__ import annotations

import mmap
import threading
from typing import TYPE_CHECKING, Any

from hcq.drivers.disk.file import OpenFile, bytes_of
from hcq.runtime import process
from hcq.runtime.allocator import Allocator

if TYPE_CHECKING:
    from hcq.drivers.disk.device import DiskDevice

_lock = threading.Lock()  # guards which files are open, and how often


class DiskBuffer:
    """Bytes `offset` to `offset + size` of an open file. Views of it share the file. Threads may share one."""

    __slots__ = ("__weakref__", "file", "map", "offset", "size")

    def __init__(self, file: OpenFile, offset: int, size: int, mapped: mmap.mmap | None = None) -> None:
        self.file = file
        self.offset = offset
        self.size = size
        self.map = mapped

    def readinto(self, view: memoryview, offset: int) -> int:
        """Fill `view` with the bytes from `offset` on, counted from this buffer's start; all of it, or EOFError."""
        self.file.read(view, self.offset + offset)
        return len(view)

    def __repr__(self) -> str:
        return f"<bytes {self.offset} to {self.offset + self.size} of {self.file.path}>"


class DiskAllocator(Allocator):
    """The allocator of a file. Nothing is cached: the last free closes the file. Threads may share it."""

    device: DiskDevice

    def __init__(self, device: DiskDevice) -> None:
        super().__init__(device)
        self._file: OpenFile | None = None

    def _alloc(self, size: int, options: Any = None) -> DiskBuffer:
        """A claim on the first `size` bytes. Raises the operating system's errors where the file can't be opened."""
        place = self.device.place
        if place is None:
            raise ValueError("Device['DISK'] names no file, so it can't allocate: DISK:/path does, and DISK:shm:name")
        with _lock:
            file = self._file
            if file is not None and file.users and file.is_still(place):
                file.grow(place, size)
            else:  # the first, or the path leads elsewhere now: older buffers keep what they had
                file = self._file = OpenFile(place, size)
            file.users += 1
        try:
            return self._claim(file, size)
        except BaseException:
            self._give_up(file)
            raise

    def _free(self, opaque: DiskBuffer, options: Any = None) -> None:
        opaque.map = None
        self._give_up(opaque.file)

    def copyin(self, dest: DiskBuffer, src: Any) -> None:
        """Write `src`, any C-contiguous buffer, to the start of `dest`. Blocks."""
        data = bytes_of(src)
        _check_size(data.nbytes, dest)
        dest.file.write(data, dest.offset)

    def copyout(self, dest: Any, src: DiskBuffer) -> None:
        """Read from the start of `src` into `dest`, any writable C-contiguous buffer. EOFError past the end. Blocks."""
        data = bytes_of(dest)
        if data.readonly and data.nbytes:
            raise TypeError("copyout writes into its destination, and this one is read-only")
        _check_size(data.nbytes, src)
        src.file.read(data, src.offset)

    def offset(self, buf: DiskBuffer, size: int, offset: int) -> DiskBuffer:
        """The handle of a view, at any byte."""
        return DiskBuffer(buf.file, buf.offset + offset, size, buf.map)

    def _claim(self, file: OpenFile, size: int) -> DiskBuffer:
        return DiskBuffer(file, 0, size)

    def _give_up(self, file: OpenFile) -> None:
        with _lock:
            file.users -= 1
            if not file.users:
                file.close()
                if self._file is file:
                    self._file = None


class ShmAllocator(DiskAllocator):
    """The allocator of a `shm:` segment: mapped, so that its memory can be used in place."""

    def as_buffer(self, buf: DiskBuffer) -> memoryview:
        """The segment's own memory; read-only unless the device's name says ?mode=rw or ?mode=create."""
        if buf.map is None:
            raise ValueError("this segment's memory was given back")
        return memoryview(buf.map)[buf.offset : buf.offset + buf.size]

    def _claim(self, file: OpenFile, size: int) -> DiskBuffer:
        if file.size() < size:
            raise ValueError(f"{file.path} has {file.size()} bytes, and the buffer needs {size}: ?mode=create grows it")
        access = mmap.ACCESS_WRITE if file.writable else mmap.ACCESS_READ
        return DiskBuffer(file, 0, size, mmap.mmap(file.descriptor, size, access=access))


def _check_size(size: int, buf: DiskBuffer) -> None:
    if size > buf.size:
        raise ValueError(f"a copy of {size} bytes and a buffer of {buf.size}: it must fit")


def _fresh_lock() -> None:
    global _lock
    _lock = threading.Lock()


process.at_fork_in_child(_fresh_lock)  # another thread of the parent may have held it
