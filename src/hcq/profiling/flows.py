"""Flows: which work a span waited for, found from the waits and signals that the queues ran.

What a queue's next command depends on is the work before it and, for each wait, what came before the command that set
that signal - passed on through submits that have no work of their own.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hcq.profiling.spans import QueueKey, Recorded, Row

_ROWS = 256  # commands without work that are looked at for one piece of work
_DEEPEST = 64  # submits without work that a dependency is followed through
_LOOKED = 64  # commands that set the same signal among which the one that was waited for is looked for


def find(recorded: Recorded) -> list[tuple[int, int]]:
    """(producer, consumer) as numbers of spans: across queues, from submits to their first work, and by host copies."""
    search = _Search(recorded)
    flows: dict[tuple[int, int], None] = {}
    for key, rows in recorded.queues.items():
        before = -1
        for at, row in enumerate(rows):
            if row.what == "work":
                for producer in search.producers(key, at):
                    flows[producer, row.span] = None
                # One hardware queue, drawn on two rows: a copy between kernels.
                if before >= 0 and recorded.spans[before].queue != recorded.spans[row.span].queue:
                    flows[before, row.span] = None
                before = row.span
    for flow in [*_submits(recorded), *_host_copies(recorded)]:
        flows[flow] = None
    return list(flows)


class _Search:
    def __init__(self, recorded: Recorded) -> None:
        self.queues = recorded.queues
        self.seen: set[tuple[QueueKey, int]] = set()  # rows that a search has been at
        self.owner: dict[int, QueueKey] = {}
        # (signal) -> sorted (value, time, queue number, position)
        self.setters: dict[Any, list[tuple[int, int, int, int]]] = {}
        self.keys = list(recorded.queues)
        for number, key in enumerate(self.keys):
            for at, row in enumerate(recorded.queues[key]):
                if row.what == "work":
                    self.owner[row.span] = key
                elif row.what == "signal":
                    for signal, value in row.pairs:
                        self.setters.setdefault(signal, []).append((value, row.time, number, at))
        for entries in self.setters.values():
            entries.sort()

    def producers(self, key: QueueKey, at: int) -> set[int]:
        """The spans of other queues that the work at this position of a queue waited for."""
        found: set[int] = set()
        self.seen.clear()
        rows = self.queues[key]
        for back in range(at - 1, max(at - _ROWS, 0) - 1, -1):
            row = rows[back]
            if row.what == "work":
                break
            if row.what == "wait":
                self._follow(row, key, found, 0)
        return {span for span in found if self.owner[span] != key}

    def _follow(self, wait: Row, key: QueueKey, found: set[int], depth: int) -> None:
        for signal, value in wait.pairs:
            setter = self._setter(signal, value, wait.time) if value > 0 and depth <= _DEEPEST else None
            if setter is None:
                continue
            other, at = setter
            if other == key and depth == 0:
                continue  # its own queue runs in order
            rows = self.queues[other]
            for back in range(at, max(at - _ROWS, 0) - 1, -1):
                row = rows[back]
                if (other, back) in self.seen or len(self.seen) >= _ROWS:
                    break  # what stands before it was found already
                self.seen.add((other, back))
                if row.what == "work":
                    found.add(row.span)
                    break
                if row.what == "wait":
                    self._follow(row, other, found, depth + 1)

    def _setter(self, signal: Any, value: int, time: int) -> tuple[QueueKey, int] | None:
        """The command that set the signal to the value waited for, before the wait was passed. Unknown times are 0."""
        entries = self.setters.get(signal, ())
        best = None
        begin = bisect_left(entries, (value,))
        for at in range(begin, min(begin + _LOOKED, len(entries))):
            entry = entries[at]
            if best is not None and entry[0] != best[0]:
                break
            if not time or entry[1] <= time:
                best = entry
        return None if best is None else (self.keys[best[2]], best[3])


def _submits(recorded: Recorded) -> list[tuple[int, int]]:
    first: dict[tuple[QueueKey, int], int] = {}
    for key, rows in recorded.queues.items():
        for row in rows:
            if row.what == "work":
                first.setdefault((key, row.submit), row.span)
    flows = []
    for span, key, submit in recorded.submits:
        commands = range(min(recorded.spans[span].commands, _DEEPEST))
        of_queue = (first.get((key, submit + ahead)) for ahead in commands)
        work = next((work for work in of_queue if work is not None), None)
        if work is not None:
            flows.append((span, work))
    return flows


def _host_copies(recorded: Recorded) -> list[tuple[int, int]]:
    """A copy that the host does comes after all work of the device, and before what is queued next."""
    if not recorded.host_copies:
        return []
    spans = recorded.spans
    work: dict[str, list[tuple[list[int], list[int]]]] = {}
    for key, rows in recorded.queues.items():
        numbers = [row.span for row in rows if row.what == "work"]
        if numbers:
            work.setdefault(recorded.devices[key], []).append((numbers, [spans[n].start for n in numbers]))
    flows = []
    for copy in recorded.host_copies:
        span = spans[copy]
        for numbers, starts in work.get(span.device or "", ()):
            at = bisect_left(starts, span.start)
            if at and spans[numbers[at - 1]].end <= span.start:
                flows.append((numbers[at - 1], copy))
            if at < len(starts) and starts[at] >= span.end:
                flows.append((copy, numbers[at]))
    return flows
