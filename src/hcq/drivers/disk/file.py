"""OpenFile: one file that is held open, and reading and writing it at any offset by the calling thread.

It is opened by the first allocation and closed with the last (allocator). What does not live here: copies by queues
(native/disk).
"""

from __future__ import annotations

import atexit
import errno
import os
import stat
from collections.abc import Callable
from typing import Any

from hcq import _native
from hcq.drivers.disk.place import CREATE, Place
from hcq.runtime import process


class OpenFile:
    """A regular file or block device, held open. Threads may share it; a forked child may use what it inherited."""

    native: _native.DiskFile | None = None
    """What queues copy from and to; it closes the descriptor once nothing queued uses it. None once closed."""

    mapped: Callable[[], Any] | None = None
    """A weak reference to the memory that a segment is mapped at."""

    def __init__(self, place: Place, size: int) -> None:
        """Open `place`; with ?mode=create make it where it is missing, and grow it to `size` bytes.

        Raises the operating system's own errors. A failure leaves nothing behind: a file made by it is gone again.
        """
        self.path, self.writable = place.path, place.writable
        self.generation = process.generation
        descriptor, self.created = _open(place)
        if place.is_shm and self.created:
            _segments[place.path] = self.generation
        self.descriptor = descriptor
        self.users = 0
        try:
            facts = os.fstat(descriptor)
            _check_kind(place.path, facts.st_mode)
            os.set_blocking(descriptor, True)
            self.identity = facts.st_dev, facts.st_ino
            self.is_block_device = stat.S_ISBLK(facts.st_mode)
            self.native = _native.DiskFile(descriptor, place.path, place.writable)
            self.grow(place, size)
        except BaseException:
            if self.created:
                _remove(place.path)
            if self.native is None:
                os.close(descriptor)
            self.native = None
            raise

    def grow(self, place: Place, size: int) -> None:
        """With ?mode=create: make the file at least `size` bytes long."""
        if place.mode == CREATE and self.size() < size:
            os.ftruncate(self.descriptor, size)

    def is_still(self, place: Place) -> bool:
        """Whether the path leads to this file; another that took its place doesn't count."""
        return self._is_at(place.path)

    def _is_at(self, path: str) -> bool:
        try:
            facts = os.stat(path)
        except FileNotFoundError:
            return False
        return (facts.st_dev, facts.st_ino) == self.identity

    def size(self) -> int:
        """Bytes that the file has now."""
        held = self.held()
        if self.is_block_device:
            end = os.lseek(self.descriptor, 0, os.SEEK_END)
        else:
            end = os.fstat(self.descriptor).st_size
        del held
        return end

    def read(self, into: Any, offset: int) -> None:
        """Fill `into` from byte `offset` on. EOFError where the file ends before; short reads are continued."""
        held = self.held()
        done, error = _native.disk_move(self.descriptor, into, offset, False)
        del held
        if error:
            raise self._failed(error, "read", len(into), offset, done)

    def write(self, data: Any, offset: int) -> None:
        """Write `data` at byte `offset`. ValueError outside of the file, PermissionError where it is only read."""
        self.check_write(len(data), offset)
        held = self.held()
        done, error = _native.disk_move(self.descriptor, data, offset, True)
        del held
        if error:
            raise self._failed(error, "written", len(data), offset, done)

    def check_write(self, count: int, offset: int) -> None:
        """Raise what `write` would raise before it writes."""
        if not self.writable:
            raise PermissionError(errno.EACCES, _READ_ONLY, self.path)
        end = self.size()
        if offset + count > end:
            raise ValueError(f"{past_end(self.path, 'written', offset, count, end)}; ?mode=create makes it that long")

    def close(self) -> None:
        """Let go of it; may be repeated. A segment's name goes with it, in the process that made the segment."""
        native, self.native = self.native, None
        mine = self.created and _segments.get(self.path) == process.generation == self.generation
        if mine and native is not None and self._is_at(self.path):
            _remove(self.path)

    def held(self) -> _native.DiskFile:
        """What keeps the descriptor from being closed, and its number from being another file's, in the meantime."""
        native = self.native
        if native is None:
            raise RuntimeError(f"{self.path} was closed: the buffer that held it open is gone")
        return native

    def _failed(self, error: int, verb: str, count: int, offset: int, done: int) -> Exception:
        if error < 0:
            return past_end(self.path, verb, offset, count, offset + done)
        return OSError(error, os.strerror(error), self.path)

    def __repr__(self) -> str:
        return f"<{self.path}{'' if self.native is not None else ', closed'}>"


_READ_ONLY = "opened for reading; the device's name with ?mode=rw at its end writes"


def past_end(path: str, verb: str, offset: int, count: int, end: int) -> EOFError:
    """The error for bytes beyond the last one of a file."""
    return EOFError(f"{path} ends at byte {end}: {count} bytes from byte {offset} on were to be {verb}")


def _open(place: Place) -> tuple[int, bool]:
    """A descriptor, and whether the file was made for it. Opening never waits, as it would for a pipe's other end."""
    flags = os.O_CLOEXEC | os.O_NONBLOCK | (os.O_RDWR if place.writable else os.O_RDONLY)
    if place.mode == CREATE:
        mode = 0o600 if place.is_shm else 0o666
        try:
            return os.open(place.path, flags | os.O_CREAT | os.O_EXCL, mode), True
        except FileExistsError:
            pass
    try:
        return os.open(place.path, flags), False
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe that nobody reads, or a socket
            raise _no_file(place.path) from error
        raise


def _check_kind(path: str, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
        raise _no_file(path)


def _no_file(path: str) -> OSError:
    return OSError(errno.ESPIPE, "no file that can be read at any offset (a pipe, socket or terminal)", path)


def _remove(path: str) -> None:
    _segments.pop(path, None)
    try:
        os.unlink(path)
    except OSError:
        pass


# Segments of shared memory that this process made, by path, with the generation of the process: a forked child leaves
# them to its parent. Their names go with the last buffer, at the latest when the interpreter leaves.
_segments: dict[str, int] = {}


@atexit.register
def _leave() -> None:
    for path, generation in list(_segments.items()):
        if generation == process.generation:
            _remove(path)


def bytes_of(data: Any) -> memoryview:
    """A flat view of bytes over a C-contiguous buffer-protocol object; ValueError for strided memory."""
    view = memoryview(data)
    if not view.c_contiguous:
        raise ValueError("strided memory can't be copied: pass a C-contiguous one, such as numpy.ascontiguousarray(a)")
    if view.nbytes == 0:
        return memoryview(b"")
    return view if view.ndim == 1 and view.format == "B" else view.cast("B")
