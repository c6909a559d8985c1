"""What the host reads and writes itself: told before it waits for the device, and looked at after that wait.

What does not live here: what is wrong with an access (model).
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from hcq.validation.events import READ, Deed

if TYPE_CHECKING:
    from hcq.validation.events import Access, Site
    from hcq.validation.model import Model
    from hcq.validation.ranges import Ranges
    from hcq.validation.report import Finding


class _Thread(threading.local):
    def __init__(self) -> None:
        self.told: list[tuple[Any, Access, bool, Deed]] = []
        """The device, and whether the host does it itself or queues on its behalf."""


class HostAccesses:
    """Each thread's. They say which memory is meant and keep nothing of it: it may go before they are looked at."""

    def __init__(self, model: Model, ranges: Ranges) -> None:
        self._model, self._ranges = model, ranges
        self._thread = _Thread()

    def tell(self, device: Any, buf: Any, offset: int, nbytes: int, kind: int, site: Site | None) -> None:
        """An access to come, to `nbytes` from byte `offset` of a Buffer or handle of a device."""
        access = self._ranges.of_buffer(device, buf, kind, f"memory {'read' if kind == READ else 'written'}")
        if access is not None:
            first = access.first + offset
            direct = getattr(device.allocator, "_direct", lambda: True)()
            deed = Deed("copyout" if kind == READ else "copyin", "the host", site)
            access = access._replace(first=first, last=first + nbytes)
            self._thread.told.append((weakref.ref(device), access, direct, deed))

    def drop(self) -> None:
        """The wait before them has failed: those of this thread are not done."""
        self._thread.told = []

    def look(self) -> list[Finding]:
        """What is wrong with those of this thread that were told of, and are done now."""
        told, self._thread.told = self._thread.told, []
        found: list[Finding] = []
        for device, access, direct, deed in told:
            known = device()
            if known is None or known.closed or known.lost is not None:
                continue  # and raised
            if direct:
                found += self._model.touch(access, deed)
            elif access.kind == READ:  # through the ring: the copies are submits of their own
                finding = self._model.memory.unwritten(access, self._model.memory.region(access.region), deed)
                found += [finding] if finding is not None else []
        return found
