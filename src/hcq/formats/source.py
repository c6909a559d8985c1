"""Source: a file that is being looked into, held open through the DISK device.

What does not live here: what the bytes mean (the parsers), and reading tensors onto devices (reading).
"""

from __future__ import annotations

import os

from hcq import dtypes
from hcq.drivers.disk.file import OpenFile
from hcq.errors import FormatError
from hcq.runtime.buffer import Buffer

_MOST_VIEWS = 1024  # that one system call fills: Linux's limit


class Source:
    """A file, open for reading: `path`, `size` in bytes when it was opened, `buffer`, all of it as a DISK buffer.

    It stays the same file whatever takes its name, and is closed when this and all views of `buffer` are gone. Threads
    may share one.
    """

    __slots__ = ("__weakref__", "_file", "buffer", "path", "size")

    def __init__(self, path: str) -> None:
        """Raises the operating system's own errors, as for a missing file, a directory or a pipe."""
        self.path = path
        size = os.stat(path).st_size
        # The mode is given, for a path may itself end like one.
        self.buffer = Buffer(f"DISK:{path}?mode=r", max(size, 1), dtypes.uint8, preallocate=True)
        self._file: OpenFile = self.buffer._buf.file
        self.size: int = self._file.size()

    def read(self, offset: int, count: int) -> bytes:
        """`count` bytes from `offset` on. FormatError where the file ends before."""
        if offset + count > self.size:
            reason = f"truncated: {count} bytes are expected from byte {offset} on, and the file has {self.size}"
            raise FormatError(self.path, min(offset, self.size), reason)
        data = bytearray(count)
        if count:
            self.read_into([memoryview(data)], offset)
        return bytes(data)

    def read_into(self, views: list[memoryview], offset: int) -> None:
        """Fill `views` (bytes, writable, none empty), one after the other, from `offset` on. Blocks, without the GIL.

        Short reads are continued. EOFError where the file ends before, as when it was cut short meanwhile; RuntimeError
        once the DISK device was closed.
        """
        self.buffer._check_usable()
        held = self._file.held()  # else another file could get the descriptor's number
        first = done = 0  # views[:first] are full, and views[first] has `done` bytes
        while first < len(views):
            batch = [views[first][done:], *views[first + 1 : first + _MOST_VIEWS]]
            count = os.preadv(self._file.descriptor, batch, offset)
            if not count:
                raise EOFError(f"{self.path} ends at byte {offset}, and had {self.size} bytes when it was opened")
            offset += count
            while first < len(views) and count >= len(views[first]) - done:
                count -= len(views[first]) - done
                first, done = first + 1, 0
            done += count
        del held

    def part(self, offset: int, count: int) -> Buffer:
        """A DISK buffer of `count` bytes from `offset` on."""
        return self.buffer.view(count, dtypes.uint8, offset).ensure_allocated()

    def __repr__(self) -> str:
        return f"<{self.path}, {self.size} bytes>"
