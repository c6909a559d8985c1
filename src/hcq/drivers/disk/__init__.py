"""The DISK device: files and `shm:` segments as memory to copy from and to.

`Buffer("DISK:/path", size, dtype)` is the start of that file, its views are any part of it. It runs nothing. What does
not live here: what is in the files (hcq.formats).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hcq.drivers.disk.device import DiskDevice


def open_disk(name: str) -> DiskDevice:
    """The factory of DISK: `DISK:/path`, `DISK:/path?mode=rw`, `DISK:/path?mode=create`, `DISK:shm:name`.

    Opens no file: the first allocation does. ValueError for a mode there isn't.
    """
    from hcq.drivers.disk.device import DiskDevice

    return DiskDevice(name)
