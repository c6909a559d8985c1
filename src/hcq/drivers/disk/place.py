"""What a DISK device's name says: which file or segment, and how it may be used.

What does not live here: opening it (file).
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

READ, WRITE, CREATE = "r", "rw", "create"
LOAD = "load"
"""Reading, by hcq.formats alone: under names that nobody else uses, so that it may let go of the devices."""

_SHM_DIRECTORY = "/dev/shm"
_MODE = re.compile(r"\?mode=(\w*)\Z")


class Place(NamedTuple):
    """A file: its absolute path, the mode it is used in, and whether it is a segment of shared memory."""

    path: str
    mode: str
    is_shm: bool

    @property
    def writable(self) -> bool:
        return self.mode in (WRITE, CREATE)


def parse(name: str) -> Place | None:
    """The place that a canonical device name means; None for `DISK` alone, which has none.

    A relative path is taken from the current folder. ValueError for unknown modes and names that no segment can have.
    """
    rest = name.partition(":")[2]
    mode = READ
    found = _MODE.search(rest)
    if found:
        rest, mode = rest[: found.start()], found[1]
        if mode not in (READ, WRITE, CREATE, LOAD):
            raise ValueError(
                f"{name}: there is no mode {mode!r}: ?mode=rw writes within the file, ?mode=create makes and grows it, "
                "and none, or ?mode=r, only reads"
            )
    if "\0" in rest:
        raise ValueError(f"{name!r}: a path has no null character")
    if rest.startswith("shm:"):
        segment = rest.removeprefix("shm:").lstrip("/")
        if not segment or "/" in segment or segment in (".", ".."):
            raise ValueError(f"{name}: a segment of shared memory is named by one word without '/', such as DISK:shm:a")
        return Place(os.path.join(_SHM_DIRECTORY, segment), mode, True)
    if not rest:
        return None
    return Place(os.path.abspath(rest), mode, False)
