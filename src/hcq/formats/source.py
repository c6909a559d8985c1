"""Source: a file that is being looked into, held open through the DISK device.

What does not live here: what the bytes mean (the parsers), and reading tensors onto devices (reading).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from hcq import _native, dtypes
from hcq.drivers.disk.file import OpenFile
from hcq.drivers.disk.place import LOAD
from hcq.errors import FormatError
from hcq.runtime.buffer import Buffer
from hcq.runtime.registry import Device


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
        name = f"DISK:{path}?mode={LOAD}"
        try:
            self.buffer = Buffer(name, max(size, 1), dtypes.uint8, preallocate=True)
        finally:
            Device.let_go(name)  # it goes with the buffer
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

    def read_into(self, views: Sequence[Any], offset: int) -> None:
        """Fill `views` (exports or writable buffers) one after the other, from `offset` on. Blocks, without the GIL.

        Short reads are continued. EOFError where the file ends before, as when it was cut short meanwhile; the
        operating system's errors; RuntimeError once it was closed.
        """
        self.buffer._check_usable()
        held = self._file.held()  # else another file could get the descriptor's number
        done, error = _native.disk_scatter(self._file.descriptor, views, offset)
        del held
        if error > 0:
            raise OSError(error, os.strerror(error), self.path)
        if error:
            raise EOFError(f"{self.path} ends at byte {offset + done}, and had {self.size} bytes when it was opened")

    def part(self, offset: int, count: int) -> Buffer:
        """A DISK buffer of `count` bytes from `offset` on."""
        return self.buffer.view(count, dtypes.uint8, offset).ensure_allocated()

    def __repr__(self) -> str:
        return f"<{self.path}, {self.size} bytes>"
