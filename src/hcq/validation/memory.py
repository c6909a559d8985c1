"""Allocations, and who touched which bytes of them when: races, reuse, use after free, reads of what nobody wrote.

What does not live here: who comes after whom (clocks are given), and reading what is in the memory (red zones).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from hcq.validation.events import READ, UNKNOWN, WRITE
from hcq.validation.intervals import Intervals
from hcq.validation.report import Finding, Kind, span

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from hcq.validation.clocks import Clock
    from hcq.validation.events import Access, Deed, Site

_KEPT_FREE = 4096  # freed regions remembered for messages
_first, _last = attrgetter("first"), attrgetter("last")


class Region:
    """One allocation, from when it was made until its memory is another's.

    `written` are the bytes that something wrote; None where the host may write unseen, so that nobody can tell.
    """

    def __init__(self, number: int, space: Hashable, first: int, last: int, name: str, made: Site | None) -> None:
        self.number, self.space, self.first, self.last, self.name, self.made = number, space, first, last, name, made
        self.freed: Site | None = None
        self.owner: Any = None  # the caller's
        self.is_free = False
        self.written: Intervals | None = Intervals()
        self.holders: set[int] | None = None
        """Of the bytes of a file, whose buffers all have the same addresses: which handles are known."""

    def part(self, first: int, last: int) -> Region | None:
        """Bytes of it that are nothing else by now; None where there are none."""
        if first >= last:
            return None
        part = Region(self.number, self.space, first, last, self.name, self.made)
        part.is_free, part.freed, part.written, part.owner = True, self.freed, None, self.owner
        return part

    def __str__(self) -> str:
        text = self.name + (f", allocated at {self.made}" if self.made else "")
        if self.is_free:
            text += f", freed at {self.freed}" if self.freed else ", freed"
        return text


class Record(NamedTuple):
    """An access that was made: by which agent, at which time of its clock, for which deed."""

    access: Access
    agent: Hashable
    time: int
    deed: Deed
    region: Region | None


class _History:
    """The accesses to one stretch of memory that something later could still be in conflict with."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last
        self.records: list[Record] = []


class Memory:
    """All address spaces. Regions that are live never overlap, nor do histories."""

    def __init__(self, is_pristine: Callable[[Region, Access], bool] = lambda region, access: True) -> None:
        """`is_pristine` may look at the memory itself: whether none of these bytes changed since the allocation."""
        self.is_pristine = is_pristine
        self._regions: dict[Hashable, list[Region]] = {}  # by address; freed ones until their memory is another's
        self._by_number: dict[int, Region] = {}
        self._histories: dict[Hashable, list[_History]] = {}

    # Allocations

    def allocate(
        self,
        number: int,
        space: Hashable,
        first: int,
        last: int,
        name: str,
        made: Site | None,
        is_over: Callable[[Record], bool],
        holder: int | None = None,
    ) -> Region:
        """An allocation. What `is_over` says to have ended, as the allocator knows, conflicts with nothing any more.

        Of a file's bytes, which have a `holder`, there is one, however many buffers have them.
        """
        if holder is not None:
            same = self.find(space, first)
            if same is not None and same.holders is not None and not same.is_free:
                same.last = max(same.last, last)
                same.holders.add(holder)
                self._by_number[number] = same
                return same
        self.forget(space, first, last)
        region = Region(number, space, first, last, name, made)
        region.holders = None if holder is None else {holder}
        insort(self._regions.setdefault(space, []), region, key=_first)
        self._by_number[number] = region
        histories = self._histories.get(space, [])
        low, high = _overlapping(histories, first, last)
        for history in histories[low:high]:
            history.records = [record for record in history.records if not is_over(record)]
        return region

    def forget(self, space: Hashable, first: int, last: int) -> None:
        """Whatever these bytes were, they are it no longer."""
        known = self._regions.get(space, [])
        low, high = _overlapping(known, first, last)
        rest = []
        for before in known[low:high]:
            if before.is_free:  # what is left of it on both sides stays so; the end of a live one was not told of
                rest += [part for part in (before.part(before.first, first), before.part(last, before.last)) if part]
            before.is_free = True
            self._by_number.pop(before.number, None)
        known[low:high] = rest

    def forget_of(self, owner: object) -> None:
        """The allocations of an owner that is gone: their memory may be anybody's."""
        for space, known in self._regions.items():
            for region in [region for region in known if region.owner is owner]:
                self.forget(space, region.first, region.last)

    def free(self, number: int, freed: Site | None) -> None:
        """The end of an allocation. Its memory may be handed out again."""
        region = self._by_number.get(number)
        if region is not None:
            region.is_free, region.freed = True, freed

    def region(self, number: int) -> Region | None:
        """An allocation by its number, while its memory is not another's."""
        return self._by_number.get(number)

    def spaces(self) -> list[Hashable]:
        """The address spaces in which there are allocations."""
        return list(self._regions)

    def find(self, space: Hashable, address: int) -> Region | None:
        """The allocation, free or not, that an address is in."""
        known = self._regions.get(space, [])
        at = bisect_right(known, address, key=_first) - 1
        return known[at] if at >= 0 and address < known[at].last else None

    def resolve(self, access: Access, deed: Deed) -> tuple[Region | None, Finding | None]:
        """The allocation that an access of something about to be queued means, and what is wrong with that."""
        region = self._by_number.get(access.region)
        if region is not None and not region.is_free and region.first <= access.first and access.last <= region.last:
            return region, None
        region = self.find(access.space, access.first)
        if access.region and (region is None or region.number != access.region):
            now = f"; its memory is now {region}" if region is not None else ""
            text = f"{access.what} of {deed}\n  is memory that was freed since it was given{now}"
            return region, Finding(Kind.AFTER_FREE, f"use after free: {text}", (deed,))
        if region is None:
            return None, None
        if region.is_free:
            text = f"use after free: {access.what} of {deed}\n  is {region}"
            return region, Finding(Kind.AFTER_FREE, text, (deed,))
        if access.last > region.last and region.holders is None:  # how far a file goes, it says itself
            text = (
                f"out of bounds: {access.what} of {deed}\n  reaches {access.last - region.last} bytes past the end of "
                f"{region}"
            )
            return region, Finding(Kind.BOUNDS, text, (deed,))
        return region, None

    # Accesses

    def touch(
        self, access: Access, region: Region | None, agent: Hashable, clock: Clock, floor: Clock, deed: Deed
    ) -> list[Finding]:
        """Note an access by `agent`, whose clock is `clock`, and tell what earlier ones it is in conflict with.

        Everything that comes from now on is after `floor`: what is before that needs no remembering.
        """
        if access.first >= access.last:
            return []
        history = self._history(access.space, access.first, access.last)
        found, kept = [], []
        new = Record(access, agent, clock.get(agent, 0), deed, region)
        for record in history.records:
            if floor.get(record.agent, 0) >= record.time:
                continue
            ordered = clock.get(record.agent, 0) >= record.time
            if not (ordered and _replaces(new, record)):
                kept.append(record)
            if not ordered and (finding := _conflict(record, new)) is not None:
                found.append(finding)
        kept.append(new)
        history.records = kept
        return found

    def unwritten(self, access: Access, region: Region | None, deed: Deed) -> Finding | None:
        """What is wrong with reading these bytes, as to whether anything ever wrote them."""
        if region is None or region.written is None or access.first >= access.last:
            return None
        if region.written.covers(access.first, access.last):
            return None
        if not self.is_pristine(region, access):  # written unseen: by the host, at the address
            region.written = None
            return None
        some = bool(region.written.within(access.first, access.last))
        which = span(access.first, access.last, region.first, region.last - region.first)
        never = "in part never written" if some else "never written"
        text = f"unwritten read: {access.what} of {deed}\n  is {which} of {region}: {never}"
        return Finding(Kind.UNWRITTEN, text, (deed,), possible=some)

    def write(self, region: Region | None, first: int, last: int) -> None:
        """Note that bytes have contents from now on."""
        if region is not None and region.written is not None:
            region.written.add(first, last)

    def move(self, src: Access, source: Region | None, dest: Access, region: Region | None) -> None:
        """Note a copy: what was never written stays so."""
        if source is None or source.written is None:
            self.write(region, dest.first, dest.last)
            return
        for first, last in source.written.within(src.first, src.last):
            self.write(region, dest.first + first - src.first, dest.first + last - src.first)

    def _history(self, space: Hashable, first: int, last: int) -> _History:
        histories = self._histories.setdefault(space, [])
        low, high = _overlapping(histories, first, last)
        if high - low == 1 and histories[low].first <= first and last <= histories[low].last:
            return histories[low]
        joined = _History(first, last)
        for history in histories[low:high]:
            joined.first, joined.last = min(joined.first, history.first), max(joined.last, history.last)
            joined.records += history.records
        histories[low:high] = [joined]
        return joined


def _overlapping(sorted_ranges: list[Region] | list[_History], first: int, last: int) -> tuple[int, int]:
    low: int = bisect_right(sorted_ranges, first, key=_last)
    high: int = bisect_left(sorted_ranges, last, key=_first)
    return low, max(low, high)


def _replaces(new: Record, old: Record) -> bool:
    """Whether whatever conflicts with the old access, which is before the new one, conflicts with the new one too."""
    covered = new.access.first <= old.access.first and old.access.last <= new.access.last
    if not covered or new.region is not old.region:
        return False
    return bool(new.access.kind & WRITE) or (new.access.kind == old.access.kind and new.agent == old.agent)


def _conflict(old: Record, new: Record) -> Finding | None:
    first, last = max(old.access.first, new.access.first), min(old.access.last, new.access.last)
    kinds = old.access.kind | new.access.kind
    if first >= last or kinds == READ:
        return None
    possible = bool(kinds & UNKNOWN)  # one side was never declared
    region = new.region if new.region is not None else old.region
    which = "the same memory"
    if region is not None:
        which = f"{span(first, last, region.first, region.last - region.first)} of {region}"
    sides = f"{_side(old)}\n  and {_side(new)}"
    if old.region is not new.region and old.region is not None and new.region is not None:
        # Which of them is queued first says nothing of which was allocated first.
        before, region = sorted((old.region, new.region), key=lambda each: each.number)
        which = f"{span(first, last, region.first, region.last - region.first)} of {region}"
        text = f"reuse: {which} was handed out again while work on what it was before, {before}, is queued:\n  {sides}"
        return Finding(Kind.REUSE, text, (old.deed, new.deed), possible)
    hint = "nothing orders them: let one wait for a signal that is set after the other"
    text = f"race: two accesses to {which}:\n  {sides}\n  {hint}"
    return Finding(Kind.RACE, text, (old.deed, new.deed), possible)


def _side(record: Record) -> str:
    kind = record.access.kind
    verb = "may read or write" if kind & UNKNOWN else "reads and writes" if kind == READ | WRITE else "writes"
    verb = "reads" if kind == READ else verb
    what = f" ({record.access.what})" if record.access.what else ""
    return f"{verb} it{what}: {record.deed}"
