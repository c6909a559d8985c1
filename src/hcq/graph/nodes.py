"""What a graph is made of: one node a command, with the memory that it reads and writes.

What does not live here: recording them (recording), and what they become on a device (native, queued).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from hcq.runtime import lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.graph.packed import Packed

Span = tuple[int, int]
"""Addresses from the first up to, and without, the second."""

EVERYTHING: Span = (0, 2**64)
"""Where a command may touch anything: its arguments are not known."""


class Value(int):
    """A whole number with a name, made by `g.value(name, number)`: replays change what was recorded with it."""

    name: str

    def __new__(cls, name: str, number: int) -> Self:
        self = super().__new__(cls, number)
        self.name = name
        return self

    def __repr__(self) -> str:
        return f"{self.name}={int(self)}"


class Node:
    """One command. `index` counts from 0 in the order of recording; `device` is where it runs."""

    __slots__ = ("after", "device", "index", "kind", "line", "name", "peers", "reads", "takes", "writes")

    def __init__(
        self, device: Any, kind: str, name: str, reads: Sequence[Span] = (), writes: Sequence[Span] = ()
    ) -> None:
        self.index = -1
        self.device = device
        self.peers: tuple[Any, ...] = ()
        """Other devices whose memory it uses: it is ordered with the work queued there too."""
        self.kind = kind
        """launch, copy, signal, wait, timestamp, or host (done by the thread that replays)."""
        self.takes = "copy" if kind == "copy" else "compute"
        """Which kind of queue it goes to, on devices whose queues differ."""
        self.name = name
        self.reads = reads
        self.writes = writes
        self.after: list[Node] = []
        """What it comes after for another reason than memory: signals, and the order of an explicit queue."""
        self.line = 0
        """The user's line that recorded it (hcq.runtime.lines)."""

    @property
    def estimate(self) -> float:
        """About how long it takes, in ns."""
        return 100.0

    def __repr__(self) -> str:
        where = lines.words(self.line)
        device = self.device.dname if self.device else "the host"
        return f"<{self.index}: {self.kind} {self.name} on {device}{f', {where}' if where else ''}>"


class Launch(Node):
    """A launch. `bufs` are as they were given; or `kernargs` are what an explicit queue's exec had."""

    __slots__ = ("bufs", "groups", "handles", "items", "kernargs", "names", "program", "spans", "vals")

    def __init__(
        self,
        program: Any,
        bufs: tuple[Any, ...],
        vals: tuple[Any, ...],
        groups: tuple[Any, ...],
        items: tuple[Any, ...],
        reads: Sequence[Span],
        writes: Sequence[Span],
        kernargs: Packed | None = None,
    ) -> None:
        super().__init__(program.device, "launch", program.name, reads, writes)
        self.program = program
        self.bufs = bufs
        # As they are now: a Buffer may be deallocated and have other memory before the graph is built.
        self.handles = tuple(getattr(buf, "_buf", buf) for buf in bufs)
        self.spans = [span_of(buf) for buf in bufs]
        self.vals = vals
        self.names = {position: value.name for position, value in enumerate(vals) if isinstance(value, Value)}
        """Names that values were given, by position: values of one name change together."""
        self.groups = groups
        self.items = items
        self.kernargs = kernargs

    @property
    def estimate(self) -> float:
        known = getattr(self.program, "_estimate", None)
        return float((known(math.prod((*self.groups, *self.items))) if known else 0) or 10_000)


class Copy(Node):
    """A copy on a device's queue, between addresses; `dest` and `src` are Buffers or handles where those are known."""

    __slots__ = ("dest", "dest_at", "nbytes", "src", "src_at")

    def __init__(self, device: Any, dest_at: int, src_at: int, nbytes: int, dest: Any, src: Any, name: str) -> None:
        super().__init__(device, "copy", name, [(src_at, src_at + nbytes)], [(dest_at, dest_at + nbytes)])
        self.dest, self.src = dest, src
        self.dest_at, self.src_at = dest_at, src_at
        self.nbytes = nbytes

    @property
    def estimate(self) -> float:
        return 500 + self.nbytes / 8


class Sync(Node):
    """A signal, wait or timestamp command of an explicit queue."""

    __slots__ = ("inside", "signal", "value")

    def __init__(self, device: Any, kind: str, signal: Any, value: int, takes: str) -> None:
        super().__init__(device, kind, f"{value}" if kind != "timestamp" else "")
        self.takes = takes
        self.signal = signal
        self.value = value
        self.inside = False
        """A wait for what the graph itself sets: the order of its commands says it, since at a second replay the signal
        has the value already."""

    @property
    def estimate(self) -> float:
        return 1e6 if self.kind == "wait" and not self.inside else 100.0  # who knows how long others take


class HostCopy(Node):
    """A copy that no device's queue does: the thread that replays does it with hcq.copy."""

    __slots__ = ("dest", "src")

    def __init__(self, dest: Any, src: Any) -> None:
        super().__init__(None, "host", f"{src.device} -> {dest.device}", _span(src), _span(dest))
        self.dest, self.src = dest, src


def _span(buf: Any) -> list[Span]:
    handle = buf._buf
    at = getattr(handle, "va_addr", None)
    return [EVERYTHING] if at is None else [(at, at + buf.nbytes)]


def span_of(buf: Any) -> Span:
    """The addresses of a Buffer or handle."""
    handle = getattr(buf, "_buf", buf)
    at = handle.va_addr
    return at, at + (buf.nbytes if hasattr(buf, "nbytes") else handle.size)
