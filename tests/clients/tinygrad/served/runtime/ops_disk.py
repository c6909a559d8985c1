"""Served as `tinygrad.runtime.ops_disk`: hcq's DISK under the names that tinygrad's callers give it.

They name a file alone, `disk:/path`, whether they are to read it or to make it: what is missing is made, what can be
written may be, and the rest is only read. A name with a `?mode=` of hcq's is taken as it is.
"""

from __future__ import annotations

import os

from hcq.drivers.disk.device import DiskDevice as HCQDiskDevice
from hcq.drivers.disk.place import CREATE, Place, parse


class DiskDevice(HCQDiskDevice):
    """hcq's device of a file, made and grown where that is needed and can be."""

    def _place(self, name: str) -> Place | None:
        place = parse(name)
        if place is None or "?mode=" in name:
            return place
        can_write = os.access(place.path, os.W_OK) or not os.path.exists(place.path)
        return place._replace(mode=CREATE) if can_write else place
