"""Red zones: known bytes before and after each allocation, which nothing may write.

A device's allocator gives out the middle of what it allocates while the checks are on. What does not live here: who
could have written there (observer keeps that), and commands that say themselves that they go too far (memory).
"""

from __future__ import annotations

import ctypes
import operator
import threading
from typing import TYPE_CHECKING, Any

from hcq.runtime import watch
from hcq.runtime.allocator import LRUAllocator
from hcq.validation.report import Finding, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hcq.validation.events import Deed
    from hcq.validation.observer import Watcher

ZONE = 256
"""Bytes on each side. A multiple of what devices align buffers to."""

PATTERN = bytes((37 * at + 0xA5) & 0xFF for at in range(ZONE))

_NAMES = ("alloc", "free", "_alloc", "_free")
_PIECE = 1 << 16
_TURN = 16  # allocations that no command was given and are looked at all the same, at a synchronize
_FRESH = PATTERN * (_PIECE // ZONE)  # what is in memory that was just given out


def _never(options: Any) -> bool:
    return False


class _Guard:
    """Memory with zones, from the driver's `_alloc` to its `_free`. In between it may be freed and given out again."""

    def __init__(self, base: Any, size: int, first: int) -> None:
        self.base = base  # the handle that the driver gave
        self.size, self.first = size, first  # of the middle
        self.freed: tuple[str, tuple[Deed, ...]] | None = None  # what it was and who could write it, while it is free
        self.block = 0  # of checks, in which it was last given out

    def damage(self) -> tuple[int, int] | None:
        """(first, last + 1) of the bytes that changed, as offsets into the middle; None where all is well."""
        changed = [at - ZONE for at, byte in enumerate(_bytes(self.first - ZONE)) if byte != PATTERN[at]]
        changed += [self.size + at for at, byte in enumerate(_bytes(self.first + self.size)) if byte != PATTERN[at]]
        return (changed[0], changed[-1] + 1) if changed else None

    def is_whole(self) -> bool:
        return _bytes(self.first - ZONE) == PATTERN == _bytes(self.first + self.size)

    def fill(self) -> None:
        ctypes.memmove(self.first - ZONE, PATTERN, ZONE)
        ctypes.memmove(self.first + self.size, PATTERN, ZONE)

    def fill_inside(self) -> None:
        """Make what was never written known too."""
        for at in range(0, self.size, _PIECE):
            ctypes.memmove(self.first + at, _FRESH, min(_PIECE, self.size - at))

    def is_pristine(self, first: int, last: int) -> bool:
        """Whether bytes of the middle are as they were given out."""
        at = first
        while at < last:
            inside = (at - self.first) % _PIECE
            size = min(last - at, _PIECE - inside)
            if ctypes.string_at(at, size) != _FRESH[inside : inside + size]:
                return False
            at += size
        return True


class _Thread(threading.local):
    wanted = False  # inside of alloc, for which _alloc is to give zones


class RedZones:
    """The red zones of one device.

    They are put around what the driver's `_alloc` gives, beneath the cache: the sizes that the cache, the counters and
    the limit go by are those that were asked for. `told` gets what is found when memory is freed and given out again;
    `describe` says what an allocation is and who could write it, by its address.
    """

    def __init__(
        self,
        device: Any,
        observer: Watcher,
        told: Callable[[Finding], None],
        describe: Callable[[int], tuple[str, Iterable[Deed]]],
    ) -> None:
        self.device = device
        self._allocator = device.allocator
        self._guards: dict[int, _Guard] = {}
        self._lock = threading.RLock()  # a finalizer may free memory in the middle
        self._looking = 0
        self._block = 0  # what was given out in an earlier one is not looked at: nobody knows what happened since
        self._given = 0  # how many commands were given since all were looked at
        self._turns: list[int] = []  # addresses whose turn comes, the last one first
        self._unlooked: list[tuple[_Guard, Any]] = []  # given back while zones are looked at; with options
        self._thread = _Thread()
        # Others give out memory without zones: what the host doesn't reach, can't be given out in part, or is guarded.
        reached = getattr(self._allocator, "host_access", False) and hasattr(self._allocator, "offset")
        self._able = reached and not getattr(self._allocator, "checks_bounds", False)
        self._inner = {name: getattr(self._allocator, name) for name in _NAMES}
        self.start(observer, told, describe)

    @staticmethod
    def of(
        device: Any,
        observer: Watcher,
        told: Callable[[Finding], None],
        describe: Callable[[int], tuple[str, Iterable[Deed]]],
    ) -> RedZones:
        """The red zones of a device, on from now on. Those of an earlier time go on where memory still has them."""
        kept = getattr(device.allocator.__dict__.get("_free"), "__self__", None)
        if isinstance(kept, RedZones) and kept.device is device:
            kept.start(observer, told, describe)
            return kept
        return RedZones(device, observer, told, describe)

    @staticmethod
    def possible(device: Any) -> bool:
        """Whether one can stand before a device's allocator: it caches, so that what it gives may be filled. What files
        hold is nobody's to fill, or to make longer."""
        allocator = getattr(device, "allocator", None)
        caches = isinstance(allocator, LRUAllocator) and hasattr(allocator, "__dict__")
        return caches and getattr(allocator, "owns_memory", True)

    def start(
        self,
        observer: Watcher,
        told: Callable[[Finding], None],
        describe: Callable[[int], tuple[str, Iterable[Deed]]],
    ) -> None:
        """Give out memory with zones from now on. What was cached without is given back."""
        self._observer, self._told, self._describe = observer, told, describe
        self._on = True
        self._block += 1
        self._turns = []
        for name in _NAMES:
            setattr(self._allocator, name, getattr(self, name))
        with watch.quiet():
            getattr(self._allocator, "free_cache", lambda: None)()

    def stop(self) -> None:
        """Give out plain memory from now on. What was given out is still taken back here."""
        self._on = False
        for name in ("alloc", "free", "_alloc"):
            self._leave(name)
        if not self._guards:
            self._leave("_free")

    # What stands before the allocator's own

    def alloc(self, size: int, options: Any = None) -> Any:
        """Memory with zones, its inside filled."""
        self._thread.wanted = True
        try:
            with watch.quiet():
                handle = self._inner["alloc"](size, options)
        finally:
            self._thread.wanted = False
        guard, wanted = self._guards.get(getattr(handle, "va_addr", 0)), operator.index(size)
        if guard is not None:
            if guard.block == self._block and not guard.is_whole():  # written while it was free
                self._told(self._finding(guard))
            guard.freed, guard.block = None, self._block
            guard.fill()
            guard.fill_inside()
        watch.allocated(self.device, handle, wanted, options)
        if watch.capturing() is not None:  # which is told instead of us
            self._observer.allocated(self.device, handle, wanted, options)
        return handle

    def free(self, opaque: Any, size: int, options: Any = None) -> None:
        """Look at the zones; what is still queued may write there later, so they are looked at again."""
        guard = self._guards.get(getattr(opaque, "va_addr", 0))
        if guard is None or guard.freed is not None or not guard.size == size == getattr(opaque, "size", size):
            self._inner["free"](opaque, size, options)  # not from here, or wrong: it says so
            return
        if guard.block == self._block and not guard.is_whole():
            self._told(self._finding(guard))
            guard.fill()
        what, deeds = self._describe(guard.first)
        guard.freed = what, tuple(deeds)
        watch.freed(self.device, opaque)  # before anybody else can have it
        if watch.capturing() is not None:  # which is told instead of us
            self._observer.freed(self.device, opaque)
        with watch.quiet():
            self._inner["free"](opaque, size, options)

    def _alloc(self, size: int, *options: Any) -> Any:
        if not self._on or not self._thread.wanted:
            handle = self._inner["_alloc"](size, *options)
            if self._on and hasattr(handle, "va_addr"):
                self._observer.taken(self.device, handle.va_addr, handle.va_addr + size)
            return handle
        # An image has exactly the bytes of its pixels.
        if not self._able or (options and getattr(self._allocator, "gives_image", _never)(*options)):
            return self._inner["_alloc"](size, *options)
        base = self._inner["_alloc"](size + 2 * ZONE, *options)
        handle = self._allocator.offset(base, size, ZONE)
        guard = _Guard(base, size, handle.va_addr)
        guard.fill()
        with self._lock:
            self._guards[guard.first] = guard
        return handle

    def _free(self, opaque: Any, *options: Any) -> None:
        with self._lock:
            guard = self._guards.pop(getattr(opaque, "va_addr", 0), None)
            if guard is not None and self._looking:
                self._unlooked.append((guard, options))  # else it might be gone before it is looked at
                return
        self._give_back(opaque if guard is None else guard, options)

    # Looking

    def is_pristine(self, allocation: int, first: int, last: int) -> bool:
        """Whether bytes of the allocation at that address are as they were given out."""
        guard = self._guards.get(allocation)
        return guard is not None and guard.block == self._block and guard.is_pristine(first, last)

    def check(self, given: Sequence[int] | None = None) -> list[Finding]:
        """What was written beside allocations. It is told once.

        With `given`, the addresses of those that commands were given since the last look, a look costs what was given
        and no more: those, and some of the others in turn; all of them once commands were given a quarter as many.
        """
        found = []
        with self._lock:
            self._looking += 1
            try:
                for guard in self._due(given):
                    if guard.block == self._block and not guard.is_whole():
                        found.append(self._finding(guard))
                        guard.fill()
            finally:
                self._looking -= 1
            unlooked = []
            if not self._looking:
                unlooked, self._unlooked = self._unlooked, []
        for guard, options in unlooked:
            self._give_back(guard, options)
        return found

    # Helpers

    def _due(self, given: Sequence[int] | None) -> list[_Guard]:
        """The allocations to be looked at."""
        self._given += len(given or ())
        if given is None or 4 * self._given >= len(self._guards):
            self._given = 0
            return list(self._guards.values())
        if not self._turns:
            self._turns = [address for address, guard in self._guards.items() if guard.block == self._block]
        turn = self._turns[-_TURN:]
        del self._turns[-_TURN:]
        return [guard for address in {*given, *turn} if (guard := self._guards.get(address)) is not None]

    def _give_back(self, memory: Any, options: tuple[Any, ...]) -> None:
        if isinstance(memory, _Guard):
            address, memory = memory.first, memory.base
        else:
            address = getattr(memory, "va_addr", 0)
        if self._on:
            self._observer.returned(self.device, address)
        self._inner["_free"](memory, *options)
        if not self._on and not self._guards:
            self._leave("_free")

    def _leave(self, name: str) -> None:
        if self._allocator.__dict__.get(name) == getattr(self, name):
            delattr(self._allocator, name)

    def _finding(self, guard: _Guard) -> Finding:
        what, deeds = guard.freed if guard.freed is not None else self._describe(guard.first)
        return _finding(guard, what, tuple(deeds))


def _finding(guard: _Guard, what: str, deeds: tuple[Deed, ...]) -> Finding:
    first, last = guard.damage() or (0, 0)
    beyond = f"{first - guard.size} bytes past its end" if first >= guard.size else f"{-first} bytes before its start"
    text = f"out of bounds: something wrote {max(last - first, 1)} bytes, the first {beyond}, beside {what}"
    text += "\n  since this was last looked at it was given to:" if deeds else "\n  no command was given it since"
    return Finding(Kind.BOUNDS, "\n    ".join([text, *map(str, deeds)]), deeds, what=what)


def _bytes(address: int) -> bytes:
    return ctypes.string_at(address, ZONE)
