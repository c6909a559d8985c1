"""hcq_profile, and what drivers in Python record while somebody profiles: numbers.

Native devices record by themselves (native/core/record*). What does not live here: traces, and bringing device clocks
to the host's (hcq.profiling, which sets `sink`).
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from hcq.runtime import lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SUBMIT, WAIT, COMPILE = 6, 8, 9
"""Kinds of host spans for `_native.record_span` (native/core/record.hpp)."""

_MOST_PENDING = 1024  # entries of a device, from which on each further one looks which are over
_MOST_HELD = 65536  # entries of a device that waits for ever: what is more isn't recorded

Pairs = tuple[tuple[Any, int], ...]


class Record(NamedTuple):
    """One timed stretch: microseconds of the host's clock as far as dev.host_time knows it, and where it ran.

    number: of the submit in its lane; -1 where it is none of the lane's (hcq_profile). waits, sets: (signal, value)
    that came before it and after it in the queue, signals by a number. host: the host's own copy. line: the number of
    the user's line (hcq.runtime.lines).
    """

    device: str
    name: str
    start: float
    end: float
    is_copy: bool
    lane: str = ""
    number: int = -1
    waits: Pairs = ()
    sets: Pairs = ()
    program: Any = None
    nbytes: int = 0
    groups: int = 0
    items: int = 0
    host: bool = False
    line: int = 0


class Hop(NamedTuple):
    """A submit that only waits and signals."""

    device: str
    lane: str
    number: int
    waits: Pairs
    sets: Pairs


class _Pending(NamedTuple):
    start: Any
    end: Any
    record: Record


sink: Callable[[Record], object] | None = None
"""Where finished records go; None: nobody asked, and programs and copies are not timed."""

hop_sink: Callable[[Hop], object] | None = None
"""Where submits without work go, which orders pass through."""


@contextmanager
def hcq_profile(
    dev: Any, enabled: bool, desc: str, queue_type: type[Any] | None = None, queue: Any = None
) -> Iterator[tuple[Any, Any]]:
    """Time what is queued inside the block: gives the signals whose time-stamps will be its start and its end.

    With `queue`, time-stamp commands are added to it before and after what the block adds. With `queue_type`, short
    queues of that type are submitted before and after, on the device's timeline. Not `enabled`: (None, None), and
    nothing happens. Where `sink` is set, it gets a Record named `desc` once the work is over. A block that raises
    leaves no record. Doesn't block.
    """
    if not enabled:
        yield None, None
        return
    if queue is None and queue_type is None:
        raise TypeError("hcq_profile needs the queue that is being built, or the type of the queues to submit around")
    start, end = dev.signal_t(), dev.signal_t()
    _stamp(dev, queue_type, queue, start)
    yield start, end
    _stamp(dev, queue_type, queue, end)
    kind = type(queue) if queue is not None else queue_type
    is_copy = kind is not None and issubclass(kind, dev.hw_copy_queue_t or ())
    add(dev, start, end, Record(dev.dname, desc, 0.0, 0.0, is_copy))


def add(dev: Any, start: Any, end: Any, record: Record) -> None:
    """Note that `start` and `end` will carry the record's time-stamps. The signals are let go of when they do."""
    if sink is None:
        return
    pending = dev.__dict__.setdefault("_profile_pending", [])
    if len(pending) >= _MOST_HELD:
        return
    pending.append(_Pending(start, end, record))
    if len(pending) % _MOST_PENDING == 0:
        collect(dev)


def collect(dev: Any) -> None:
    """Turn what is over into records and hand them to `sink`. Synchronize calls this; any thread may."""
    pending = dev.__dict__.get("_profile_pending")
    if not pending:
        return
    waiting = []
    taken, pending[:] = list(pending), []
    for entry in taken:
        if not entry.end.timestamp:
            waiting.append(entry)
        elif sink is not None:
            is_copy = entry.record.is_copy
            start, end = (float(dev.host_time(signal.timestamp, is_copy)) for signal in (entry.start, entry.end))
            sink(entry.record._replace(start=start, end=end))
    pending[:0] = waiting


def host_copy(dev: Any, name: str, began: int, nbytes: int) -> None:
    """Note a copy that the calling thread made itself, from `began` (ns of perf_counter) until now."""
    if sink is not None:
        ended, line = time.perf_counter_ns() / 1000, lines.here()
        sink(Record(dev.dname, name, began / 1000, ended, True, nbytes=nbytes, host=True, line=line))


def name_copies(queue: Any, name: str) -> None:
    """Say what the copies of `queue`, all of one kind and just added, are called in traces."""
    if sink is None:
        return
    label = getattr(queue, "_label", None)
    if label is not None:
        label(name)  # native
    else:
        queue.copies_are = name


class Stamps:
    """The time-stamps of one submit of a Python driver: its words with a pair of them around each exec and copy.

    `words` are those to submit instead of the queue's. Where the driver moved them away at `bind` it is None, and the
    submit is timed as a whole: `around` are the signals to stamp before and after it. `note` is called once the submit
    is made, with its number.
    """

    def __init__(self, dev: Any, queue: Any) -> None:
        self.dev, self.queue = dev, queue
        self.words: list[Any] | None = None
        self.around: tuple[Any, Any] | None = None
        self._timed: list[_Pending] = []
        if queue.binded_device is None or queue.keeps_words_bound():
            self.words = self._stamp()
        elif work := [what for what in queue.cmds_meta if what in ("exec", "copy")]:
            self.around = dev.signal_t(), dev.signal_t()
            self._timed.append(_Pending(*self.around, self._whole(work)))

    def note(self, number: int, line: int) -> None:
        """The submit was made, at that line."""
        for start, end, record in self._timed:
            add(self.dev, start, end, record._replace(number=number, line=record.line or line))
        if not self._timed and hop_sink is not None:
            pairs = [self._pairs(kind) for kind in ("wait", "signal")]
            hop_sink(Hop(self.dev.dname, self.queue.lane_name, number, *pairs))

    def _stamp(self) -> list[Any]:
        queue, dev = self.queue, self.dev
        words, at = queue.q, 0
        stamped: list[Any] = []
        waits: list[tuple[Any, int]] = []
        queue.q = stamped  # where the driver's _timestamp appends
        try:
            for index, what in enumerate(queue.cmds_meta):
                begin, length = queue.cmds_offset[index], queue.cmds_len[index]
                stamped += words[at:begin]
                at = begin + length
                if what in ("exec", "copy") and length:
                    start, end = dev.signal_t(), dev.signal_t()
                    queue._timestamp(start)
                    stamped += words[begin:at]
                    queue._timestamp(end)
                    self._timed.append(_Pending(start, end, self._record(index, what, waits)))
                    waits = []
                    continue
                stamped += words[begin:at]
                if what == "wait":
                    waits.append(_pair(queue.cmds_args[index]))
                elif what == "signal" and self._timed:
                    last = self._timed[-1]
                    sets = (*last.record.sets, _pair(queue.cmds_args[index]))
                    self._timed[-1] = last._replace(record=last.record._replace(sets=sets))
            stamped += words[at:]
        finally:
            queue.q = words
        return stamped

    def _record(self, index: int, what: str, waits: Sequence[tuple[Any, int]]) -> Record:
        queue, args = self.queue, self.queue.cmds_args[index]
        line = queue.lines.get(index, 0)
        base = Record(self.dev.dname, "", 0.0, 0.0, what == "copy", queue.lane_name, waits=tuple(waits), line=line)
        if what == "copy":
            name = queue.copies_are or f"{self.dev.dname} -> {self.dev.dname}"
            return base._replace(name=name, nbytes=args[2])
        program, _, groups, items = args
        sizes = [groups[0] * groups[1] * groups[2], items[0] * items[1] * items[2]]
        return base._replace(name=program.name, program=id(program), groups=sizes[0], items=sizes[1])

    def _whole(self, work: Sequence[str]) -> Record:
        if len(work) == 1:
            record = self._record(self.queue.cmds_meta.index(work[0]), work[0], ())
        else:
            name, is_copy = f"bound queue of {len(work)} commands", "exec" not in work
            record = Record(self.dev.dname, name, 0.0, 0.0, is_copy, self.queue.lane_name)
        return record._replace(waits=self._pairs("wait"), sets=self._pairs("signal"))

    def _pairs(self, kind: str) -> Pairs:
        queue = self.queue
        return tuple(_pair(args) for what, args in zip(queue.cmds_meta, queue.cmds_args, strict=False) if what == kind)


def _pair(args: Sequence[Any]) -> tuple[Any, int]:
    return ("python", id(args[0])), int(args[1])


def _stamp(dev: Any, queue_type: type[Any] | None, queue: Any, signal: Any) -> None:
    if queue is not None:
        queue.timestamp(signal)
        return
    dev.enqueue(
        lambda timeline, value: queue_type().wait(timeline, value - 1).timestamp(signal).signal(timeline, value)  # type: ignore[misc]
    )
