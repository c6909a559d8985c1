"""profile: recording from a beginning to an end, and what is made of it.

What does not live here: reading records (spans), who follows whom (flows), clocks, and the formats that are written.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Self

from hcq import _native, config
from hcq.profiling import clocks, flows
from hcq.profiling import spans as model
from hcq.queues import profile as feed
from hcq.queues import settling
from hcq.queues.device import HCQCompiled
from hcq.runtime import process, watch

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from hcq.profiling.table import Table

SUFFIXES = (".json", ".pftrace")

LEAST = 1024
"""The least limit: each thread or queue that records takes room in pieces, of a quarter of it at most."""


class Profile:
    """What `hcq.profile()` gives: records from `__enter__` to `__exit__`; then `spans`, `table()`, `plot()`, `save()`.

    It holds numbers and names, no buffer and no device. Profiles may nest and overlap, each takes in what ended after
    its own beginning; one is entered once. Threads may share one that has ended.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, limit: int | None = None) -> None:
        self.path = None if path is None else check_path(path)
        self._limit = config.PROFILE_RECORDS() if limit is None else limit
        if self._limit < LEAST:
            what = config.PROFILE_RECORDS.name if limit is None else "limit"
            raise ValueError(f"{what}={self._limit}: expected {LEAST} or more records to keep")
        self._state = "new"
        self._generation = process.generation
        self._records: list[feed.Record] = []
        self._hops: list[feed.Hop] = []
        self._recorded = model.Recorded()
        self._flows: list[tuple[int, int]] | None = None
        self._estimates: dict[str, tuple[float, float]] = {}
        self.began = self.ended = 0
        self.clocks: dict[tuple[str, bool], clocks.Offset] = {}
        self.jitter: dict[tuple[str, str], clocks.Jitter] = {}

    # Recording

    def __enter__(self) -> Self:
        """Begin to record. RuntimeError for a profile that was entered before."""
        if self._state != "new":
            raise RuntimeError("this profile was used: make another with hcq.profile()")
        self._state = "recording"
        self._generation = process.generation
        self.began = time.perf_counter_ns()
        _native.record_begin(self._limit)
        self._before = _native.live_stats()
        self._ranges = _native.live_ranges()
        with _lock:
            _active.append(self)
            feed.sink, feed.hop_sink = _take_record, _take_hop
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End: wait until the devices are idle or stand at waits, and write the file, where there is a path.

        Raises what failed devices and errors of the block leave for synchronize to raise: nothing of it here. OSError
        where the file can't be written, unless the block raised.
        """
        if not self.stop() or self.path is None:
            return
        try:
            self.save(self.path)
        except OSError:
            if error is None:
                raise

    def stop(self) -> bool:
        """End recording; False where it had ended, or in a child forked meanwhile. Blocks while devices work."""
        if self._state != "recording" or self._generation != process.generation:
            return False
        self._state = "ended"
        try:
            devices = settling.settled(feed.collect)
        finally:  # Control-C, while a device goes on working
            snapshot = _native.record_snapshot(self.began)
            self.ended = time.perf_counter_ns()
            with _lock:
                _active.remove(self)
                if not _active:
                    feed.sink = feed.hop_sink = None
                    for dev in HCQCompiled.devices:
                        dev.__dict__.pop("_profile_pending", None)
            _native.record_end()
        names = {
            # Files are UTF-8, and threads may be called anything.
            thread.native_id: thread.name.encode(errors="backslashreplace").decode()
            for thread in threading.enumerate()
            if thread.native_id is not None
        }
        recorded = self._recorded = model.from_native(snapshot, names, _owners(_native.live_ranges(), self._ranges))
        if watch.capturing() is None:  # else the samples would be recorded by the capture
            used = {span.device for span in recorded.spans} | {record.device for record in self._records}
            idle = sorted(
                filter(_is_idle, devices), key=lambda dev: dev.dname not in used
            )  # those first: few are paired
            with watch.quiet():
                self.clocks = clocks.measure(idle)
                self.jitter = clocks.pairwise(idle, self.clocks)
        offsets = {key: offset.ahead for key, offset in self.clocks.items()}
        model.add_python(recorded, self._records, self._hops, offsets)
        self._records, self._hops = [], []
        for device, (nbytes, count, _) in self._before.items():
            recorded.memory.append(model.Memory(device, self.began, nbytes, count))
        recorded.memory.sort(key=lambda sample: sample.time)
        return True

    # What was recorded

    @property
    def spans(self) -> tuple[model.Span, ...]:
        """Everything that took time, in no order: kernels, copies, and launch, submit, wait, compile on the host."""
        return tuple(self._ended().spans)

    @property
    def flows(self) -> list[tuple[int, int]]:
        """(producer, consumer) as indices of `spans`: across queues, from the host to devices, by host copies."""
        recorded = self._ended()
        if self._flows is None:
            self._flows = flows.find(recorded)
        return self._flows

    @property
    def memory(self) -> tuple[model.Memory, ...]:
        """Live bytes of the devices, each time they changed, in the order of time."""
        return tuple(self._ended().memory)

    @property
    def dropped(self) -> int:
        """Records that came when the store was full (HCQ_PROFILE_RECORDS, or `limit`): the last ones are missing."""
        return self._ended().dropped

    def estimate(self, kernel: str, flops: float = 0, nbytes: float = 0) -> Self:
        """Say what one launch of the kernels of this name computes and moves, for GFLOP/s and GB/s in `table`.

        Once the profile has ended, ValueError for a name that none of its kernels has; before, any name is taken.
        """
        if self._state == "ended":
            known = {span.name for span in self._ended().spans if span.kind == "kernel"}
            if kernel not in known:
                raise ValueError(f"no kernel {kernel!r} was recorded: there is {', '.join(sorted(known)) or 'none'}")
        self._estimates[kernel] = (flops, nbytes)
        return self

    def table(self) -> Table:
        """Sums by kernel, and by kind of copy, the longest first; printed, it is a table."""
        from hcq.profiling.table import make

        return make(self._ended().spans, self._estimates, self.dropped)

    def plot(self, path: str | os.PathLike[str]) -> str:
        """Write a picture of the timeline, an SVG, for a report; returns the path. ValueError for another suffix."""
        from hcq.profiling.plot import write

        self._ended()
        return write(self, os.fspath(path))

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write the trace by the suffix of `path`, .json or .pftrace; returns the path that was written.

        Without the package perfetto (hcq[perfetto]) a .pftrace becomes a .json beside it, with a warning.
        """
        from hcq.profiling.files import write

        self._ended()
        self.path = write(self, check_path(path))
        return self.path

    def _ended(self) -> model.Recorded:
        if self._generation != process.generation:
            raise process.forked(self._generation, "this profile")
        if self._state != "ended":
            raise RuntimeError("this profile has not ended: what it recorded is there after the with block")
        return self._recorded

    def __repr__(self) -> str:
        return f"<Profile {self._state}, {len(self._recorded.spans)} spans{f', {self.path}' if self.path else ''}>"


def profile(path: str | os.PathLike[str] | None = None, limit: int | None = None) -> Profile:
    """Record every kernel and copy, and what the host does meanwhile: `with hcq.profile("trace.json") as p: ...`.

    `path`: where the trace goes at the end, by its suffix as JSON (.json) or Perfetto's protobuf (.pftrace); without
    one nothing is written until `p.save(path)`. `limit`: how many records are kept at most, 1024 or more, else
    HCQ_PROFILE_RECORDS; later ones are counted and dropped. Each thread or queue that records takes room in pieces of
    64 records to a quarter of the limit, so a part of the last pieces stays empty. Raises ValueError for another suffix
    or a smaller limit, FileNotFoundError for a folder that is not there, before anything runs. The block's end waits
    for queued work, but neither for a queue that stands at a wait nor on behalf of an error: those are for synchronize.
    """
    if path is not None:
        _check_folder(check_path(path))
    return Profile(path, limit)


def check_path(path: str | os.PathLike[str]) -> str:
    """The path as text; ValueError where its suffix names no kind of trace."""
    text = os.fspath(path)
    if os.path.splitext(text)[1].lower() not in SUFFIXES:
        raise ValueError(f"{text!r}: the suffix says what kind of trace is written, and must be .json or .pftrace")
    return text


def _check_folder(path: str) -> None:
    folder, name = os.path.split(path)
    if folder and not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, f"there is no folder {folder!r} to write {name} into", path)


# What devices do

_FILES = 1 << 63
"""Addresses from here on stand for bytes of files (native/core/file_copy.hpp)."""

_lock = threading.Lock()
_active: list[Profile] = []


def _take_record(record: feed.Record) -> None:
    for active in tuple(_active):
        if record.end * 1000 >= active.began or not record.host:
            active._records.append(record)


def _take_hop(hop: feed.Hop) -> None:
    for active in tuple(_active):
        active._hops.append(hop)


def _is_idle(dev: Any) -> bool:
    return not settling.has_work(dev) and not dev.lost and not dev.closed


def _owners(*lists: list[tuple[int, int, str]]) -> Callable[[int], str | None]:
    """Which device's memory an address is of, by the buffers of the first list that knows."""
    tables = [(sorted(ranges), sorted(start for start, _, _ in ranges)) for ranges in lists]

    def owner_of(address: int) -> str | None:
        if address >= _FILES:
            return "DISK"
        for ranges, starts in tables:
            at = bisect_right(starts, address) - 1
            if at >= 0 and address < ranges[at][1]:
                return ranges[at][2]
        return None

    return owner_of


def _enter_child() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it
    _active.clear()
    feed.sink = feed.hop_sink = None


process.at_fork_in_child(_enter_child)
