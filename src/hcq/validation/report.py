"""What a check found, in words, and the error that says it.

What does not live here: finding it (model and what it is made of).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from hcq import errors

if TYPE_CHECKING:
    from hcq.validation.events import Deed


class Kind(enum.Enum):
    """The kinds of findings, each with the error that is raised for it."""

    RACE = errors.RaceError
    REUSE = errors.ReuseError
    AFTER_FREE = errors.UseAfterFreeError
    UNWRITTEN = errors.UnwrittenReadError
    BOUNDS = errors.OutOfBoundsError
    SIGNAL = errors.SignalOrderError
    DEADLOCK = errors.DeadlockError


class Finding(NamedTuple):
    """One thing that is wrong. `possible`: it rests on an access that nobody declared. `deeds`: who took part, and
    `what` it happened to, where nobody did that was seen."""

    kind: Kind
    text: str
    deeds: tuple[Deed, ...] = ()
    possible: bool = False
    what: str = ""

    @property
    def key(self) -> object:
        """The same for findings that say the same of the same lines: told once."""
        return self.kind, self.possible, self.deeds or self.what

    def error(self) -> errors.ValidationError:
        """The exception for it."""
        sites = tuple(deed.site for deed in self.deeds if deed.site is not None)
        error: errors.ValidationError = self.kind.value(self.text, sites=tuple((s.file, s.line) for s in sites))
        return error


def span(first: int, last: int, base: int, size: int) -> str:
    """Bytes `first` to `last - 1` as offsets into what begins at `base`."""
    if first == base and last == base + size:
        return f"all {size} bytes"
    return f"bytes {first - base} to {last - base - 1}"
