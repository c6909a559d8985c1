"""What the model of the checks is told: commands of queues, what they touch, and where in the user's program they were
made. Plain values; nothing here knows a device.

What does not live here: what follows from them (model), and making them of real launches and queues (observer).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable

READ, WRITE, UNKNOWN = 1, 2, 4
"""What is done to a range. UNKNOWN: nobody said, so that a conflict with it is only possible."""

KINDS: dict[str | None, int] = {"r": READ, "w": WRITE, "rw": READ | WRITE, None: UNKNOWN}
"""The same, by the words of `prg.accesses`."""

HOST = "the host"
"""The agent that all Python threads are together: what one of them waited for, all of them know."""


class Site(NamedTuple):
    """A line of the user's program."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f", in {self.function}" if self.function else "")


class Access(NamedTuple):
    """Bytes `first` to `last - 1` of an address space, and what is done to them. `what` names the argument.

    `region` is the number of the allocation that was meant, where that is known: kernargs may have been filled long
    before they are used, and another allocation may be at their addresses by then. 0: whichever is there.
    """

    space: Hashable
    first: int
    last: int
    kind: int
    what: str = ""
    region: int = 0


class Wait(NamedTuple):
    """The queue goes on once `signal` is at least `value`."""

    signal: Hashable
    value: int


class Set(NamedTuple):
    """The queue sets `signal` to `value` after all before."""

    signal: Hashable
    value: int


class Work(NamedTuple):
    """A kernel or a copy: `name` says which, in words. A copy (`moves`) reads its first access and writes its second;
    with one access, the other side is memory that nobody keeps book of."""

    name: str
    accesses: tuple[Access, ...] = ()
    moves: bool = False


class Link(NamedTuple):
    """A piece of a timeline: wait for `signal` to be `value - 1`, do the work, set it to `value`.

    Threads that launch at the same time may be heard of in another order than they queued: values say which it was.
    """

    signal: Hashable
    value: int
    work: Work


Command = Wait | Set | Work | Link


class Deed(NamedTuple):
    """Something that was done, for messages: what, by whom, and the line that asked for it."""

    name: str
    where: str
    site: Site | None = None

    def __str__(self) -> str:
        return f"{self.name} on {self.where}" + (f"\n      {self.site}" if self.site else "")
