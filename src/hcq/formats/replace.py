"""Replacing a file at once: whoever opens its name, now or after a crash, gets the old file or the whole new one.

What does not live here: what is written.
"""

from __future__ import annotations

import os
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
    before = _permissions(path)
    # What replaces nothing gets what the system gives here (umask, lists of the folder); else nobody else sees it yet.
    descriptor, aside = _make(os.path.join(folder, f".{stem}."), 0o666 if before is None else 0o600)
    new = NewFile(descriptor)
    try:
        try:
            yield new
            mode = _permissions(path)
            mode = before if mode is None else mode
            if mode is not None:
                os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(aside, path)
        new.placed = True
    except BaseException:
        os.unlink(aside)
        raise
    _sync_folder(folder)


def _permissions(path: str) -> int | None:
    """Of the file that has this name; None where there is none."""
    try:
        return os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        return None


def _make(begin: str, mode: int) -> tuple[int, str]:
    """A new file, open for writing, whose name begins so; and its name."""
    while True:
        path = f"{begin}{os.urandom(6).hex()}.new"
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode), path
        except FileExistsError:
            continue


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
