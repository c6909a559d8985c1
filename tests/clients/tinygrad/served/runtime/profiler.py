"""What tinygrad's profiler is told with PROFILE=1: hcq's time-stamps of the AMD stand-in, in tinygrad's records.

tinygrad's graph adds its own records to `raw_prof_records` and `dep_prof_records` of a device; its ProfileLogger writes
the file. What does not live here: who is timed (ops_amd). A module of hcq's client: tinygrad has none of this name.
"""

from __future__ import annotations

import atexit
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any

from tinygrad.helpers import ProfileLogger, memsize_to_str

QUEUES = ("COMPUTE", "DMA")
MOST_PENDING = 1024

graphs: weakref.WeakSet[Any] = weakref.WeakSet()
"""tinygrad's graphs, which keep the time-stamps of their last replay until the next one."""

_profilers: list[Profiler] = []


class Profiler:
    """The records of one device, until it is closed or the interpreter ends: then ProfileLogger has them."""

    def __init__(self, device: Any) -> None:
        self.name = device.dname
        self.device = weakref.ref(device)
        self.logger: Any = ProfileLogger()
        self.pending: deque[tuple[Any, Any, str, bool, Any]] = deque()
        device.raw_prof_records, device.dep_prof_records = [], []
        _profilers.append(self)

    def add(self, start: Any, end: Any, name: str, is_copy: bool, size: int = 0) -> None:
        """The time-stamps of these signals will be those of `name`."""
        self.pending.append((start, end, name, is_copy, _speed(size)))
        if len(self.pending) > MOST_PENDING:
            self.collect()

    def add_host(self, start: float, end: float, name: str, size: int) -> None:
        """A copy that a host thread made, in microseconds of the same clock."""
        self.records().append((start, end, name, True, _speed(size)))

    def records(self) -> list[Any]:
        records: list[Any] = getattr(self.device(), "raw_prof_records", [])
        return records

    def collect(self) -> None:
        """What is over becomes records, in the order in which it was queued."""
        while self.pending and self.pending[0][1].timestamp:
            start, end, *rest = self.pending.popleft()
            self.records().append((start.timestamp, end.timestamp, *rest))

    def finish(self) -> None:
        """Wait for what is queued, and hand all records to tinygrad's logger. The last of these writes the file."""
        device, logger, self.logger = self.device(), self.logger, None
        _profilers.remove(self)
        if device is None:
            return
        device.synchronize()
        self.collect()
        for start, end, name, is_copy, args in device.raw_prof_records:
            logger.add_event(name, float(start), float(end), self.name, QUEUES[is_copy], args)
        for _, before_end, before, was_copy, start, _, after, is_copy in device.dep_prof_records:
            hop = (before.dname, QUEUES[was_copy], after.dname, QUEUES[is_copy])
            logger.deps.append((float(before_end), float(start), *hop))
        device.raw_prof_records, device.dep_prof_records = [], []


@contextmanager
def timed_copy(device: Any, name: str, size: int) -> Iterator[None]:
    """Time a copy that the calling thread makes, where `device` is profiled."""
    device.synchronize()  # the copy waits for what is queued: that is not its own time
    start = perf_counter_ns()
    yield
    device.profiler.add_host(start / 1000, perf_counter_ns() / 1000, name, size)


@atexit.register
def _leave() -> None:
    for profiler in _profilers:
        device = profiler.device()
        if device is not None:
            device.synchronize()
    for graph in list(graphs):
        if graph.kickoff_value:
            graph.collect_timestamps()  # for all its devices, so before any of them is finished
    for profiler in list(_profilers):
        profiler.finish()


def _speed(size: int) -> Any:
    return {"Size": memsize_to_str(size), "GB/S": lambda took: f"{size / 1e3 / took:.2f}"} if size else None
