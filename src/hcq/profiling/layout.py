"""Where spans are drawn: processes and threads with ids, each span on one of them. What both file formats share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hcq.profiling.session import Profile
    from hcq.profiling.spans import Span

HOST = 1
"""The id of the host's process; devices have those after it. They are no ids of the system's."""


@dataclass
class Thread:
    """One row. `tid` is unique over all processes. Its spans don't overlap, in the order of time, by index."""

    tid: int
    name: str
    spans: list[int] = field(default_factory=list)


@dataclass
class Process:
    """The host, or one device. `counter`: (time, live bytes)."""

    pid: int
    name: str
    threads: list[Thread] = field(default_factory=list)
    counter: list[tuple[int, int]] = field(default_factory=list)


def arrange(profile: Profile) -> list[Process]:
    """The host first, then the devices by name, each with COMPUTE and DMA, and what runs beside those."""
    spans = profile.spans
    memory: dict[str, list[tuple[int, int]]] = {}
    for sample in profile.memory:
        memory.setdefault(sample.device, []).append((sample.time, sample.nbytes))
    rows: dict[str | None, dict[str, list[int]]] = {None: {}}
    for name in sorted({span.device for span in spans if span.device} | memory.keys()):
        rows[name] = {"COMPUTE": [], "DMA": []}
    for index, span in enumerate(spans):
        queue = f"{span.queue} ranges" if span.kind == "range" else span.queue
        rows[span.device].setdefault(queue, []).append(index)
    processes = []
    for pid, (device, queues) in enumerate(rows.items(), HOST):
        process = Process(pid, device or f"host (process {os.getpid()})", counter=memory.get(device or "", []))
        for name, indices in queues.items():
            # The host's spans lie inside each other where they overlap; devices' would cross.
            nested = sorted(indices, key=lambda i: (spans[i].start, -spans[i].end))
            lanes = _lanes(spans, indices) if device else [nested]
            for number, lane in enumerate(lanes, 1):
                process.threads.append(Thread(0, name if number == 1 else f"{name} {number}", lane))
        processes.append(process)
    for tid, thread in enumerate((thread for process in processes for thread in process.threads), len(processes) + 1):
        thread.tid = tid
    return processes


def _lanes(spans: Sequence[Span], indices: list[int]) -> list[list[int]]:
    """Spread spans that overlap over as many rows as are needed; one that is empty stays."""
    lanes: list[list[int]] = [[]]
    ends = [0]
    for index in sorted(indices, key=lambda i: spans[i].start):
        span = spans[index]
        free = next((lane for lane, end in enumerate(ends) if end <= span.start), len(lanes))
        if free == len(lanes):
            lanes.append([])
            ends.append(0)
        lanes[free].append(index)
        ends[free] = span.end
    return lanes


def facts(span: Span) -> dict[str, str | int]:
    """What is said of a span beside its name."""
    found: dict[str, str | int] = {}
    if span.kind == "kernel":
        found["program"] = f"{span.program}"
        found["work-groups"], found["work-items a group"] = span.groups, span.items
    if span.nbytes:
        found["bytes"] = span.nbytes
        found["GB/s"] = f"{span.nbytes / (span.end - span.start):.3g}"
    if span.commands > 1:
        found["commands"] = span.commands
    if span.line:
        found["line"] = span.line
    return found


def remarks(profile: Profile) -> dict[str, str]:
    """What is to be known of the trace as a whole: the clocks, and what is missing."""
    said = {"times": "time.perf_counter of the host"}
    for (device, is_copy), offset in sorted(profile.clocks.items()):
        queue = "DMA" if is_copy else "COMPUTE"
        said[f"clock of {device} {queue}"] = f"{offset.ahead:+.3f} us ahead, known within {offset.within:.3f} us"
    for (one, other), jitter in sorted(profile.jitter.items()):
        said[f"jitter {one} / {other}"] = f"{jitter.apart:+.3f} us apart, spread {jitter.spread:.3f} us"
    if profile.dropped:
        said["dropped"] = f"{profile.dropped} records came when the store was full (limit=, HCQ_PROFILE_RECORDS)"
    return said
