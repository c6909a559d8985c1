"""Red zones: known bytes before and after each allocation, which nothing may write.

A device's allocator gives out the middle of what it allocates while the checks are on. What does not live here: who
could have written there (observer keeps that), and commands that say themselves that they go too far (memory).
"""

from __future__ import annotations

import ctypes
import operator
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from hcq.queues import settling
from hcq.runtime import watch
from hcq.validation.report import Finding, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hcq.validation.events import Deed

ZONE = 256
"""Bytes on each side. A multiple of what devices align buffers to."""

PATTERN = bytes((37 * at + 0xA5) & 0xFF for at in range(ZONE))

_PIECE = 1 << 16
_HOLD = 256 << 20  # bytes freed while a device works that are held to be looked at later; more is looked at at once
_FRESH = PATTERN * (_PIECE // ZONE)  # what is in memory that was just given out


class _Guard(NamedTuple):
    base: Any  # the handle that the allocator gave
    size: int  # of the middle
    first: int

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


class RedZones:
    """The red zones of one device.

    `observer` hears of allocations inside captures too; `told` gets what is found when memory is freed; `describe` says
    what an allocation is and who could write it, by its address.
    """

    def __init__(
        self,
        device: Any,
        observer: watch.Observer,
        told: Callable[[Finding], None],
        describe: Callable[[int], tuple[str, Iterable[Deed]]],
    ) -> None:
        self.device = device
        self._observer = observer
        self._allocator = device.allocator
        self._told, self._describe = told, describe
        self._guards: dict[int, _Guard] = {}
        self._freed: list[tuple[_Guard, Any, str, tuple[Deed, ...]]] = []  # while the device had work; with options
        self._held = 0  # bytes of these
        self._lock = threading.RLock()  # a finalizer may free memory in the middle
        self._on = True
        self._alloc, self._free = self._allocator.alloc, self._allocator.free
        self._allocator.alloc, self._allocator.free = self.alloc, self.free

    @staticmethod
    def possible(device: Any) -> bool:
        """Whether a device's memory can have red zones: the host reaches it, and it can be given out in part."""
        allocator = getattr(device, "allocator", None)
        able = getattr(allocator, "host_access", False) and hasattr(allocator, "offset")
        return bool(able) and hasattr(allocator, "__dict__")

    def alloc(self, size: int, options: Any = None) -> Any:
        """Stands before the allocator's own. Under a limit on memory there are no red zones, which would count too."""
        wanted = operator.index(size)
        if self._freed and not settling.has_work(self.device):
            for finding in self._check_freed():
                self._told(finding)
        if wanted <= 0 or not self._on or self._allocator.limit is not None:
            return self._alloc(size, options)
        with watch.quiet():
            base = self._alloc(wanted + 2 * ZONE, options)
            handle = self._allocator.offset(base, wanted, ZONE)
        guard = _Guard(base, wanted, handle.va_addr)
        guard.fill()
        guard.fill_inside()
        with self._lock:
            self._guards[guard.first] = guard
        watch.allocated(self.device, handle, wanted, options)
        if watch.capturing() is not None:  # which is told instead of us
            self._observer.allocated(self.device, handle, wanted, options)
        return handle

    def free(self, opaque: Any, size: int, options: Any = None) -> None:
        """Stands before the allocator's own."""
        address = getattr(opaque, "va_addr", 0)
        with self._lock:
            guard = self._guards.get(address)
            if guard is not None and guard.size == size and getattr(opaque, "size", size) == size:
                del self._guards[address]
            else:
                guard = None
        if guard is None:
            self._free(opaque, size, options)
            return
        whole = guard.is_whole()
        if not whole:
            self._told(self._finding(guard))
        elif self._on and self._held + size <= _HOLD and settling.has_work(self.device):
            # What was queued may still write beside it, so it is held until that is over, to be looked at then.
            what, deeds = self._describe(guard.first)
            with self._lock:
                self._held += size
                self._freed.append((guard, options, what, tuple(deeds)))
            self._tell_freed(opaque)
            return
        self._tell_freed(opaque)
        self._give_back(guard, options)
        if not self._on:
            self._leave()

    def _tell_freed(self, opaque: Any) -> None:
        watch.freed(self.device, opaque)
        if watch.capturing() is not None:  # which is told instead of us
            self._observer.freed(self.device, opaque)

    def is_pristine(self, allocation: int, first: int, last: int) -> bool:
        """Whether bytes of the allocation at that address are as they were given out."""
        guard = self._guards.get(allocation)
        return guard is not None and guard.is_pristine(first, last)

    def check(self) -> list[Finding]:
        """What was written beside allocations. It is told once."""
        with self._lock:
            broken = [guard for guard in list(self._guards.values()) if not guard.is_whole()]
        found = []
        for guard in broken:
            found.append(self._finding(guard))
            guard.fill()
        return found + self._check_freed()

    def _check_freed(self) -> list[Finding]:
        with self._lock:
            held, self._freed, self._held = self._freed, [], 0
        found = []
        for guard, options, what, deeds in held:
            if not guard.is_whole():
                found.append(_finding(guard, what, deeds))
            self._give_back(guard, options)
        return found

    def _give_back(self, guard: _Guard, options: Any) -> None:
        with watch.quiet():
            self._free(guard.base, guard.size + 2 * ZONE, options)

    def stop(self) -> None:
        """Give out plain memory from now on. What was given out is still taken back here."""
        self._on = False
        self._check_freed()
        self._leave()

    def _leave(self) -> None:
        if not self._guards:
            for name in ("alloc", "free"):
                if self._allocator.__dict__.get(name) == getattr(self, name):
                    del self._allocator.__dict__[name]

    def _finding(self, guard: _Guard) -> Finding:
        what, deeds = self._describe(guard.first)
        return _finding(guard, what, tuple(deeds))


def _finding(guard: _Guard, what: str, deeds: tuple[Deed, ...]) -> Finding:
    first, last = guard.damage() or (0, 0)
    beyond = f"{first - guard.size} bytes past its end" if first >= guard.size else f"{-first} bytes before its start"
    text = f"out of bounds: something wrote {max(last - first, 1)} bytes, the first {beyond}, beside {what}"
    text += "\n  since this was last looked at it was given to:" if deeds else "\n  no command was given it since"
    return Finding(Kind.BOUNDS, "\n    ".join([text, *map(str, deeds)]), deeds)


def _bytes(address: int) -> bytes:
    return ctypes.string_at(address, ZONE)
