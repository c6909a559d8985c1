"""Replacing a file at once: whoever opens its name, now or after a crash, gets the old file or the whole new one.

What does not live here: what is written.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


class NewFile:
    """A file that is being written, from the start on."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.placed = False
        """Whether it has taken the name, also when what comes after that fails."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append all of `data`, bytes. Blocks, without the GIL; raises the operating system's errors."""
        view = memoryview(data)
        while len(view):
            view = view[os.write(self.descriptor, view) :]


@contextmanager
def replacing(path: str) -> Iterator[NewFile]:
    """A new file that takes the name `path` when the block ends, synced to the disk first, and its folder after.

    When the block raises, or anything else fails, what was there before stays, and the new file is gone. It has the
    permissions of the file it replaces, else those that files are made with here. A symbolic link stays one: what it
    leads to is replaced.
    """
    path = os.path.realpath(path)
    folder = os.path.dirname(path)
    stem = os.fsencode(os.path.basename(path))[:100].decode(errors="ignore")  # names have at most 255 bytes
    descriptor, aside = tempfile.mkstemp(prefix=f".{stem}.", suffix=".new", dir=folder)
    new = NewFile(descriptor)
    try:
        try:
            yield new
            os.fchmod(descriptor, _permissions(path))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(aside, path)
        new.placed = True
    except BaseException:
        os.unlink(aside)
        raise
    _sync_folder(folder)


def _permissions(path: str) -> int:
    try:
        return os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        mask = os.umask(0o077)  # there is no other way to read it; for a moment files are made for the owner alone
        os.umask(mask)
        return 0o666 & ~mask


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
