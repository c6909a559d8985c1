"""Spans: the stretches of time that a profile is made of, read from native records and those of Python drivers.

What does not live here: which span follows from which (flows), and where a span is drawn (layout).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from hcq.runtime import lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hcq.queues.profile import Hop, Record

# native/core/record.hpp
DTYPE = numpy.dtype(
    [(name, "<u8") for name in ("start", "end", "submit", "signal", "value", "what", "extra")]
    + [("track", "<u4"), ("kind", "u1"), ("flags", "u1"), ("reserved", "<u2")]
)
EXEC, COPY, SIGNAL, WAIT, HOST_COPY, SUBMIT, LAUNCHES, HOST_WAIT, COMPILE, MEMORY = range(1, 11)
WAITS, COMPLETES, LABELLED, IN = 1, 2, 4, 8
LINE_SHIFT = 40  # of `submit`: the user's line above the number (native/core/packet.hpp)
NUMBERS = (1 << LINE_SHIFT) - 1
TRACKS = ("compute", "copy", "stream", "thread", "device")

QueueKey = tuple[str, Any]


class Span(NamedTuple):
    """One stretch of time. Times are ns of time.perf_counter_ns.

    kind: kernel, copy or range (hcq_profile) on a `device`; launch, submit, wait or compile on a thread of the host.
    queue: COMPUTE or DMA, with a stream's name where it was one's; of the host, the thread's name. program: kernels of
    one name and different programs differ in it. nbytes: of a copy. commands: of a launch or submit. groups, items:
    of a kernel, work-groups and work-items a group. line: "file:line" of the user's program that asked for it; empty
    where that is not known.
    """

    kind: str
    name: str
    device: str | None
    queue: str
    start: int
    end: int
    program: Any = None
    nbytes: int = 0
    commands: int = 1
    groups: int = 0
    items: int = 0
    line: str = ""


class Entry(NamedTuple):
    """A native record: the fields of DTYPE."""

    start: int
    end: int
    submit: int
    signal: int
    value: int
    what: int
    extra: int
    track: int
    kind: int
    flags: int
    reserved: int


class Row(NamedTuple):
    """One command in a queue's order, for flows: work (a span), or a wait or signal between."""

    what: str  # work, wait, signal
    time: int  # of a wait, when it was passed; of a signal, when it was set; of work, when it began
    span: int = -1
    pairs: Sequence[tuple[Any, int]] = ()  # of a wait or signal: (signal, value)
    submit: int = 0


class Memory(NamedTuple):
    """Live bytes of a device from a time (ns) on."""

    device: str
    time: int
    nbytes: int
    buffers: int


@dataclass
class Recorded:
    """Everything that one profile took in."""

    spans: list[Span] = field(default_factory=list)
    queues: dict[QueueKey, list[Row]] = field(default_factory=dict)
    devices: dict[QueueKey, str] = field(default_factory=dict)
    memory: list[Memory] = field(default_factory=list)
    submits: list[tuple[int, QueueKey, int]] = field(default_factory=list)  # span, queue, record id of its first packet
    host_copies: list[int] = field(default_factory=list)
    dropped: int = 0


def from_native(
    snapshot: tuple[bytes, Sequence[tuple[int, str, str, int]], Mapping[int, str], Sequence[str], int],
    thread_names: Mapping[int, str],
    owner_of: Callable[[int], str | None],
) -> Recorded:
    """Read a snapshot of native records. `owner_of` says which device's memory an address is of by now, or was when the
    profile began."""
    data, tracks, programs, labels, dropped = snapshot
    into = Recorded(dropped=dropped)
    entries = numpy.frombuffer(data, DTYPE)
    gone = _Gone(entries[(entries["kind"] == MEMORY) & (entries["value"] > entries["signal"])], tracks)
    reader = _Reader(into, tracks, programs, labels, thread_names, lambda at, time: gone.owner(at, time, owner_of))
    for entry in map(Entry._make, entries.tolist()):
        reader.read(entry)
    return into


class _Gone:
    """Buffers that went while the profile was on: whose an address was, at a time."""

    def __init__(self, entries: Any, tracks: Sequence[tuple[int, str, str, int]]) -> None:
        self._first, self._last, self._time = entries["signal"], entries["value"], entries["start"]
        self._devices: list[str] = [tracks[track][1] for track in entries["track"].tolist()]

    def owner(self, address: int, time: int, owner_of: Callable[[int], str | None]) -> str | None:
        """The first that went after that time and had the address; else who has it by now; else the last that went
        before, since what is queued may outlive its buffers."""
        where = numpy.flatnonzero((self._first <= address) & (address < self._last))
        later = where[self._time[where] >= time]
        if later.size:
            return self._devices[int(later[self._time[later].argmin()])]
        owner = owner_of(address)
        return owner if owner or not where.size else self._devices[int(where[self._time[where].argmax()])]


class _Reader:
    def __init__(
        self,
        into: Recorded,
        tracks: Sequence[tuple[int, str, str, int]],
        programs: Mapping[int, str],
        labels: Sequence[str],
        thread_names: Mapping[int, str],
        owner_of: Callable[[int, int], str | None],
    ) -> None:
        self.into, self.programs, self.labels, self.owner_of = into, programs, labels, owner_of
        self.devices = [device for _, device, _, _ in tracks]
        self.keys: list[QueueKey] = [("native", number) for _, _, _, number in tracks]
        self.names = [self._name(track, thread_names) for track in tracks]
        self.last_end: dict[int, int] = {}

    def _name(self, track: tuple[int, str, str, int], thread_names: Mapping[int, str]) -> str:
        kind, device, name, number = track
        if TRACKS[kind] == "thread":
            return thread_names.get(number, f"thread {number}")
        return "DMA" if TRACKS[kind] == "copy" else name.removeprefix(device).strip() if kind == 2 else "COMPUTE"

    def read(self, entry: Entry) -> None:
        start, end, submit, signal, value, what, extra, track, kind, flags, _ = entry
        into = self.into
        submit, line = submit & NUMBERS, lines.words(submit >> LINE_SHIFT)
        if kind in (EXEC, COPY):
            # One queue's commands follow each other: no span begins before the one ahead of it has ended.
            start = max(start, self.last_end.get(track, 0))
            end = self.last_end[track] = max(end, start + 1)
            number = len(into.spans)
            rows = self._rows(track)
            if flags & WAITS:
                rows.append(Row("wait", start, pairs=((("native", signal), value - 1),)))
            rows.append(Row("work", start, number, submit=submit))
            if flags & COMPLETES:
                rows.append(Row("signal", end, pairs=((("native", signal), value),)))
            device, queue = self.devices[track], self.names[track]
            if kind == EXEC:
                name = self.programs.get(what, f"program {what}")
                sizes = extra >> 16, extra & 0xFFFF
                span = Span("kernel", name, device, queue, start, end, what, 0, 1, *sizes, line)
            else:
                if flags & LABELLED:
                    name = self.labels[extra]
                elif flags & (WAITS | COMPLETES):
                    name = f"{device} -> {device}"
                else:
                    source, dest = self.owner_of(value, start), self.owner_of(signal, start)
                    name = f"{source or 'CPU'} -> {dest or 'CPU'}"
                queue = "DMA" if queue == "COMPUTE" else queue
                span = Span("copy", name, device, queue, start, end, nbytes=what, line=line)
            into.spans.append(span)
        elif kind in (SIGNAL, WAIT):
            pairs = ((("native", signal), value),)
            self._rows(track).append(Row("signal" if kind == SIGNAL else "wait", start, pairs=pairs))
        elif kind == HOST_COPY:
            device = self.devices[track]
            name = f"CPU -> {device}" if flags & IN else f"{device} -> CPU"
            into.host_copies.append(len(into.spans))
            into.spans.append(Span("copy", name, device, "DMA", start, max(end, start + 1), nbytes=what))
        elif kind == MEMORY:
            into.memory.append(Memory(self.devices[track], start, what, extra))
        else:
            self._host(entry, submit, line)

    def _host(self, entry: Entry, submit: int, line: str) -> None:
        into, thread, count = self.into, self.names[entry.track], 1
        kind, what, extra = entry.kind, entry.what, entry.extra
        label = self.labels[extra] if entry.flags & LABELLED else ""
        if kind in (SUBMIT, LAUNCHES) and submit:
            into.submits.append((len(into.spans), ("native", what), submit))
            count = 1 if label else extra
        if kind == LAUNCHES:
            word, label = "launch", f"{count} launches" if count > 1 else "launch"
        elif kind == SUBMIT:
            word, label = "submit", label or f"submit of {count} command{'s' * (count > 1)}"
        elif kind == HOST_WAIT:
            word = "wait"
            label = label or (
                f"wait for signal #{entry.signal} to reach {entry.value}" if entry.signal else "wait for work"
            )
        else:
            word = "compile"
        end = max(entry.end, entry.start + 1)
        into.spans.append(Span(word, label, None, thread, entry.start, end, commands=count, line=line))

    def _rows(self, track: int) -> list[Row]:
        key = self.keys[track]
        rows = self.into.queues.get(key)
        if rows is None:
            rows = self.into.queues[key] = []
            self.into.devices[key] = self.devices[track]
        return rows


def add_python(
    into: Recorded, records: Iterable[Record], hops: Iterable[Hop], offsets: Mapping[tuple[str, bool], float]
) -> None:
    """Add what Python drivers recorded. `offsets`: microseconds that a device's times are ahead of the host's, by
    (device, whether of the copy queue)."""
    queues: dict[QueueKey, list[tuple[int, list[Row]]]] = {}
    for record in records:
        shift = offsets.get((record.device, record.is_copy), 0.0)
        start, end = round((record.start - shift) * 1000), round((record.end - shift) * 1000)
        end = max(end, start + 1)
        if record.host:
            into.host_copies.append(len(into.spans))
        kind = "range" if record.number < 0 and not record.host else "copy" if record.is_copy else "kernel"
        queue = "DMA" if record.is_copy else "COMPUTE"
        span = Span(
            kind,
            record.name,
            record.device,
            queue,
            start,
            end,
            None if kind != "kernel" else record.program,
            nbytes=record.nbytes,
            groups=record.groups,
            items=record.items,
            line=lines.words(record.line),
        )
        if record.number >= 0:
            rows = [
                Row("wait", start, pairs=record.waits),
                Row("work", start, len(into.spans), submit=record.number),
                Row("signal", end, pairs=record.sets),
            ]
            key = ("python", (record.device, record.lane))
            queues.setdefault(key, []).append((record.number, rows))
            into.devices[key] = record.device
        into.spans.append(span)
    for hop in hops:
        key = ("python", (hop.device, hop.lane))
        rows = [Row("wait", 0, pairs=hop.waits), Row("signal", 0, pairs=hop.sets)]
        queues.setdefault(key, []).append((hop.number, rows))
        into.devices[key] = hop.device
    for key, parts in queues.items():
        parts.sort(key=lambda part: part[0])
        into.queues[key] = [row for _, rows in parts for row in rows]
