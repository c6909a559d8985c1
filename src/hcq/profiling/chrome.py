"""Traces as JSON, in the Trace Event Format: {"traceEvents": [...]}, which Perfetto and chrome://tracing open.

Complete events (X) for spans, flow events (s, f) between them, counters (C), metadata (M) for names. Times are in
microseconds with three decimals: nanoseconds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hcq.profiling import layout

if TYPE_CHECKING:
    from hcq.profiling.session import Profile


def encode(profile: Profile) -> bytes:
    """The whole file."""
    events = [json.dumps(event, separators=(",", ":")) for event in _events(profile)]
    said = json.dumps(layout.remarks(profile))
    text = '{"displayTimeUnit":"ns","otherData":' + said + ',"traceEvents":[\n' + ",\n".join(events) + "\n]}\n"
    return text.encode()


def _events(profile: Profile) -> Any:
    spans = profile.spans
    place: dict[int, tuple[int, int]] = {}
    for process in layout.arrange(profile):
        pid = process.pid
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": process.name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
        for thread in process.threads:
            tid = thread.tid
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": thread.name}}
            yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}
            for index in thread.spans:
                span = spans[index]
                place[index] = pid, tid
                yield {
                    "ph": "X",
                    "name": span.name,
                    "cat": span.kind,
                    "pid": pid,
                    "tid": tid,
                    "ts": span.start / 1000,
                    "dur": (span.end - span.start) / 1000,
                    "args": layout.facts(span),
                }
        for time, nbytes in process.counter:
            yield {"ph": "C", "name": "memory", "pid": pid, "ts": time / 1000, "args": {"live bytes": nbytes}}
    for number, (producer, consumer) in enumerate(profile.flows, 1):
        flow = {"name": "flow", "cat": "flow", "id": number}
        (pid, tid), begin = place[producer], spans[producer]
        # Bound to the slice that is there at that time: the last moment of the producer, the first of the consumer.
        yield {"ph": "s", **flow, "pid": pid, "tid": tid, "ts": max(begin.start, begin.end - 1) / 1000}
        pid, tid = place[consumer]
        yield {"ph": "f", "bp": "e", **flow, "pid": pid, "tid": tid, "ts": spans[consumer].start / 1000}
