"""Counters of memory by device: hcq.memory_stats. What does not live here: who counts (native/memory)."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple, overload

from hcq._native import live_stats, lru_allocators
from hcq.runtime.allocator import device_name
from hcq.runtime.registry import Device


class MemoryStats(NamedTuple):
    """Memory of one device. Live: root buffers that we allocated. Cached: freed and kept for reuse."""

    live_bytes: int = 0
    live_count: int = 0
    cached_bytes: int = 0
    cached_count: int = 0
    peak_bytes: int = 0


@overload
def memory_stats(device: str) -> MemoryStats: ...
@overload
def memory_stats(device: None = None) -> dict[str, MemoryStats]: ...
def memory_stats(device: str | None = None) -> MemoryStats | dict[str, MemoryStats]:
    """Live, cached and peak bytes and counts of one device, or of all that have had buffers, by name.

    Live counts root buffers whose memory we allocated, until the Buffer dies or is deallocated: not views, not DISK and
    NPY, not memory a caller brought. Peak is the highest live bytes so far. Cached memory of the shared host allocator
    is shown under HOST. Doesn't open devices; any thread. UnknownDevice for a name that no device has.
    """
    cached: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for allocator in lru_allocators():
        row = cached[device_name(allocator)]
        row[0] += allocator.cached_bytes
        row[1] += allocator.cached_count
    live = live_stats()
    if device is not None:
        name = Device.canonicalize(device)
        if name != "HOST" and name not in live and name not in cached:
            Device.check_known(name)
        return _stats(live, cached, name)
    names = {*live, *(name for name, row in cached.items() if row[1])}
    return {name: _stats(live, cached, name) for name in sorted(names)}


def _stats(live: dict[str, tuple[int, int, int]], cached: dict[str, list[int]], name: str) -> MemoryStats:
    live_bytes, live_count, peak = live.get(name, (0, 0, 0))
    cached_bytes, cached_count = cached.get(name, [0, 0])
    return MemoryStats(live_bytes, live_count, cached_bytes, cached_count, peak)
