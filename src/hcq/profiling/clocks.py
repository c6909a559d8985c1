"""Clocks: how far each device's time-stamps are from the host's, and two devices' from each other's.

Samples are taken on idle devices, interleaved over them, and their medians are used: one sample that was interrupted
says nothing. What does not live here: reading a time-stamp on the host's clock, which is dev.host_time.
"""

from __future__ import annotations

import time
from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_SAMPLES = 15
_PAIR_SAMPLES = 9
_MOST_PAIRED = 8  # devices of which each pair is sampled
_DEADLINE_MS = 200.0  # a device that doesn't answer in this time is not idle: its samples are left out


class Offset(NamedTuple):
    """Microseconds that a device's time-stamps are ahead of the host's clock; `within`: how well that is known."""

    ahead: float
    within: float


class Jitter(NamedTuple):
    """Microseconds between the clocks of two devices after alignment; `spread`: the median deviation of the samples."""

    apart: float
    spread: float


def measure(devices: Iterable[Any]) -> dict[tuple[str, bool], Offset]:
    """The offsets of idle devices, by (name, whether of the copy queue). What can't be sampled is left out. Blocks."""
    samples: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    lanes = [
        (dev, kind, is_copy)
        for dev in devices
        for kind, is_copy in ((dev.hw_compute_queue_t, False), (dev.hw_copy_queue_t, True))
        if kind is not None
    ]
    for _ in range(_SAMPLES):
        for dev, kind, is_copy in list(lanes):
            sample = _sample(dev, kind, is_copy)
            if sample is None:
                lanes.remove((dev, kind, is_copy))
            else:
                samples.setdefault((dev.dname, is_copy), []).append(sample)
    offsets = {}
    for key, taken in samples.items():
        ahead, width = median(a for a, _ in taken), median(w for _, w in taken)
        # Less than the sampling can tell is nothing: the clock is the host's.
        offsets[key] = Offset(0.0 if abs(ahead) <= width else ahead, width / 2)
    return offsets


def pairwise(devices: Iterable[Any], offsets: dict[tuple[str, bool], Offset]) -> dict[tuple[str, str], Jitter]:
    """How far each pair of devices is apart on the host's clock, as two that wait for each other see it. Blocks."""
    known = [dev for dev in devices if (dev.dname, False) in offsets][:_MOST_PAIRED]
    found = {}
    for one, other in combinations(known, 2):
        if one.signal_t is not other.signal_t:
            continue  # neither's queues can wait for the other's signals
        there, back = [], []
        for _ in range(_PAIR_SAMPLES):
            times = _round_trip(one, other)
            if times is None:
                break
            first, second, third = (
                t - offsets[dev.dname, False].ahead for t, dev in zip(times, (one, other, one), strict=True)
            )
            there.append(second - first)
            back.append(third - second)
        if len(back) == _PAIR_SAMPLES:
            # The way takes as long in both directions: what is left of the difference is the clocks'.
            apart = (median(there) - median(back)) / 2
            spread = median(abs((a - b) / 2 - apart) for a, b in zip(there, back, strict=True))
            found[one.dname, other.dname] = Jitter(apart, spread)
    return found


def _sample(dev: Any, kind: Any, is_copy: bool) -> tuple[float, float] | None:
    """(microseconds ahead, width of the interval the stamp was taken in), or None where the device doesn't answer."""
    stamp, done = dev.signal_t(), dev.signal_t()
    try:
        queue = kind().timestamp(stamp).signal(done, 1)
        before = time.perf_counter_ns()
        queue.submit(dev)
        done.wait(1, _DEADLINE_MS)
        after = time.perf_counter_ns()
    except Exception:
        return None
    seen = float(dev.host_time(stamp.timestamp, is_copy))
    return seen - (before + after) / 2000, (after - before) / 1000


def _round_trip(one: Any, other: Any) -> tuple[float, float, float] | None:
    stamps = [one.signal_t(), other.signal_t(), one.signal_t()]
    there, back, done = one.signal_t(), one.signal_t(), one.signal_t()
    try:
        one.hw_compute_queue_t().timestamp(stamps[0]).signal(there, 1).submit(one)
        other.hw_compute_queue_t().wait(there, 1).timestamp(stamps[1]).signal(back, 1).submit(other)
        one.hw_compute_queue_t().wait(back, 1).timestamp(stamps[2]).signal(done, 1).submit(one)
        done.wait(1, _DEADLINE_MS)
    except Exception:
        there.value = back.value = 1  # no queue is left standing at our waits
        return None
    first, second, third = (
        float(dev.host_time(stamp.timestamp, False)) for dev, stamp in zip((one, other, one), stamps, strict=True)
    )
    return first, second, third
