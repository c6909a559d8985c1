"""hcq_profile: time-stamps around commands, as plain numbers.

What does not live here: traces, and bringing device clocks to the host's (hcq.profiling, which sets `sink`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MOST_PENDING = 1024


class Record(NamedTuple):
    """One timed stretch: microseconds on the device's clock, and on which kind of queue it ran."""

    device: str
    name: str
    start: float
    end: float
    is_copy: bool


sink: Callable[[Record], object] | None = None
"""Where finished records go; None: nobody asked, and programs and copies are not timed."""


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
    add(dev, start, end, desc, kind is not None and issubclass(kind, dev.hw_copy_queue_t or ()))


def add(dev: Any, start: Any, end: Any, name: str, is_copy: bool) -> None:
    """Note that `start` and `end` will carry time-stamps. The signals are let go of when they do."""
    if sink is None:
        return
    pending = dev.__dict__.setdefault("_profile_pending", [])
    pending.append((start, end, name, is_copy))
    if len(pending) >= _MOST_PENDING:
        collect(dev)


def collect(dev: Any) -> None:
    """Turn what is over into records and hand them to `sink`. Synchronize calls this; any thread may."""
    pending = dev.__dict__.get("_profile_pending")
    if not pending:
        return
    waiting = []
    taken, pending[:] = list(pending), []
    for entry in taken:
        start, end, name, is_copy = entry
        if not end.timestamp:
            waiting.append(entry)
        elif sink is not None:
            sink(Record(dev.dname, name, float(start.timestamp), float(end.timestamp), is_copy))
    pending[:0] = waiting


def _stamp(dev: Any, queue_type: type[Any] | None, queue: Any, signal: Any) -> None:
    if queue is not None:
        queue.timestamp(signal)
        return
    dev.enqueue(
        lambda timeline, value: queue_type().wait(timeline, value - 1).timestamp(signal).signal(timeline, value)  # type: ignore[misc]
    )
