"""DiskDevice: what opening DISK sets up, and what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping

from hcq.drivers.disk.allocator import DiskAllocator, ShmAllocator
from hcq.drivers.disk.place import parse
from hcq.runtime.compiled import Compiled


class DiskDevice(Compiled):
    """A file, or a segment of shared memory, under a device's name. Goes on working in a forked child.

    Threads may share one.
    """

    survives_fork = True

    def __init__(self, name: str) -> None:
        self.place = parse(name)
        allocator_t = ShmAllocator if self.place is not None and self.place.is_shm else DiskAllocator
        super().__init__(name, allocator_t(self))

    def _info(self) -> Mapping[str, object]:
        place = self.place
        if place is None:
            return {"kind": "files, to copy from and to: DISK:/path"}
        kind = "a segment of shared memory" if place.is_shm else "a file"
        return {"kind": f"{kind}, to copy from and to", "path": place.path, "mode": place.mode}
