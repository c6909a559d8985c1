"""Allocations as devices give them out and take them back, in the model's words; and who could write each of them.

What does not live here: which bytes of them were touched (memory), and what the runtime tells (observer).
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Any

from hcq import _native
from hcq.validation.events import READ, Deed
from hcq.validation.ranges import space_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from hcq.validation.events import Site, Work
    from hcq.validation.lanes import Book
    from hcq.validation.memory import Region
    from hcq.validation.model import Model

_DEEDS = 8  # writers of an allocation that are remembered for red zones


class Allocations:
    """Those of all devices. Callers hold the observer's lock, save in `given_back` and `writers`."""

    def __init__(self, model: Model, book: Book) -> None:
        self._model, self._book = model, book
        self._numbers = itertools.count(1)
        self._deeds: dict[int, deque[Deed]] = {}  # by number: who could write it since red zones were looked at
        self._gone: deque[tuple[Hashable, int, int, Site | None]] = deque()

    def make(
        self, device: Any, space: Hashable, first: int, last: int, name: str, site: Site | None, holder: int = 0
    ) -> int:
        """One more, and its number. `holder` is the handle, where several may have the same bytes."""
        number = next(self._numbers)
        self._model.allocate(
            number,
            space,
            first,
            last,
            f"{name} on {device.dname}",
            site,
            self._book.is_over,
            self._book.lanes(device),
            holder if not getattr(device.allocator, "owns_memory", True) else None,
        )
        return number

    def adopt(self, device: Any, space: Hashable, first: int, last: int, name: str) -> None:
        """Memory from before anybody looked: what is in it is not known."""
        self._model.share(self.make(device, space, first, last, name, None))

    def given_back(self, device: Any, handle: Any, site: Site | None) -> None:
        """From finalizers too, so perhaps in the middle of the model's own work: noted now, looked at by `end`."""
        self._gone.append((space_of(device), handle.va_addr, id(handle), site))

    def end(self) -> None:
        """End those that were given back."""
        while self._gone:
            space, address, handle, site = self._gone.popleft()
            region = self._model.memory.find(space, address)
            if region is not None and region.first == address and not _is_held(region, handle):
                self._model.free(region.number, site)
                self._deeds.pop(region.number, None)

    def find(self, handle: Any) -> Region | None:
        """The one that a handle is of, in whatever space."""
        if not hasattr(handle, "va_addr"):
            return None
        for space in list(self._model.memory.spaces()):
            region = self._model.memory.find(space, handle.va_addr)
            if region is not None and not region.is_free:
                return region
        return None

    # Who could write them, for red zones

    def note(self, work: Work, deed: Deed) -> None:
        """What `work` may write, it did."""
        for access in work.accesses:
            if access.kind != READ:
                number = access.region
                if not number:
                    region = self._model.memory.find(access.space, access.first)
                    number = region.number if region is not None else 0
                if number:
                    if number not in self._deeds:
                        self._deeds[number] = deque(maxlen=_DEEDS)
                    self._deeds[number].append(deed)

    def written(self, device: Any) -> list[int]:
        """Where those of a device lie that commands could write since red zones were looked at."""
        regions = map(self._model.memory.region, self._deeds)
        return [region.first for region in regions if region is not None and region.owner.device() is device]

    def writers(self, number: int) -> tuple[Deed, ...]:
        """Who could write one, the last ones. They are told once."""
        return tuple(self._deeds.pop(number, ()))

    def forget_writers(self, device: Any) -> None:
        """Red zones of a device were looked at: who had its memory until now is of no more use."""
        for number in list(self._deeds):
            region = self._model.memory.region(number)
            if region is None or region.owner.device() in (device, None):
                self._deeds.pop(number, None)


def _is_held(region: Region, given_back: int) -> bool:
    """Whether other buffers have the bytes of a file, of which this handle was given back."""
    if region.holders is None:
        return False
    region.holders.discard(given_back)
    return bool(region.holders - {0}) or any(
        getattr(getattr(buf, "_buf", None), "va_addr", None) == region.first for buf in _native.live_roots()
    )
