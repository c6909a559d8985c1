"""Filling buffers from files: which bytes are read in which order, by which threads.

All is read in the order of the disk: large tensors one after the other, each by many readers (hcq.copy); small ones
that lie beside each other together, into the memory of each. What does not live here: which tensors, and allocating
their buffers (loading).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from hcq.formats.entry import Entry
from hcq.formats.source import Source
from hcq.queues import profile
from hcq.queues.staging import host_view
from hcq.runtime import watch
from hcq.runtime.copy import copy
from hcq.runtime.registry import Device

if TYPE_CHECKING:
    from hcq.runtime.buffer import Buffer

_LARGE = 2 << 20  # bytes from which a tensor is read by itself, by the DISK device's engines
_PIECE = 8 << 20  # bytes that a thread reads at once
_MOST_VIEWS = 1000  # tensors that a piece fills
_MOST_GAP = 4096  # bytes between tensors that are rather read and dropped than passed over
_ALONE = 4 << 20  # bytes up to which a second thread isn't worth its start

Done = Callable[[int], None]  # told of bytes that were read, by any thread


class Sized(Protocol):
    """Some of the work of a load."""

    @property
    def nbytes(self) -> int: ...


_Work = TypeVar("_Work", bound=Sized)


class _Piece(NamedTuple):
    """Neighbouring bytes of a file, from `offset` on, and the memory they belong to."""

    source: Source
    offset: int
    views: list[Any]
    nbytes: int


def fill(wanted: Sequence[tuple[Entry, Buffer]], threads: int, done: Done) -> None:
    """Read each entry into its buffer, which has as many bytes. Blocks.

    Raises EOFError for a file that was cut short, and the operating system's errors.
    """
    together: list[tuple[Entry, Any]] = []
    for entry, buf in sorted(wanted, key=_place):
        memory = _memory(buf) if entry.nbytes < _LARGE else None
        if memory is not None:
            together.append((entry, memory))
            continue
        _fill_together(together, buf.device, threads, done)
        together = []
        copy(buf, entry.source.part(entry.offset, entry.nbytes))
        done(entry.nbytes)
    if together:
        _fill_together(together, buf.device, threads, done)


def _place(pair: tuple[Entry, Buffer]) -> tuple[str, int]:
    return pair[0].source.path, pair[0].offset


def _fill_together(ordered: Sequence[tuple[Entry, Any]], device: str, threads: int, done: Done) -> None:
    """Small neighbours, in the order of the disk, into memory of `device`."""
    began = time.perf_counter_ns()
    run_all(list(_pieces(ordered)), _read, threads, done)
    if profile.sink is not None and ordered:
        profile.host_copy(Device[device], f"DISK -> {device}", began, sum(entry.nbytes for entry, _ in ordered))


def run_all(work: Sequence[_Work], task: Callable[[_Work], None], threads: int, done: Done) -> None:
    """Do `task` for all of `work`, begun in order, on this thread and others; the first exception ends it."""
    waiting = iter(work)
    lock = threading.Lock()  # guards `waiting`
    failures: list[BaseException] = []

    def work_off() -> None:
        try:
            while not failures:
                with lock:
                    piece = next(waiting, None)
                if piece is None:
                    return
                task(piece)
                done(piece.nbytes)
        except BaseException as error:  # the caller raises it
            failures.append(error)

    small = sum(piece.nbytes for piece in work) <= _ALONE
    others = [
        threading.Thread(target=work_off, daemon=True) for _ in range(0 if small else min(threads, len(work)) - 1)
    ]
    for other in others:
        other.start()
    work_off()
    for other in others:
        other.join()
    if failures:
        raise failures[0]


def _read(piece: _Piece) -> None:
    piece.source.read_into(piece.views, piece.offset)


def _memory(buf: Buffer) -> Any:
    """The buffer's own memory, where the host can write it, else None."""
    if watch.active and getattr(buf.allocator, "host_access", False):
        # An export waits for the device, and whoever checks looks at all memory then: once a tensor would be too often.
        # This memory is new, so that no queued work has it.
        watch.host_write(buf, 0, buf.nbytes)
        return host_view(buf._buf.va_addr, buf.nbytes)
    exporter = buf._export()
    return None if exporter is None or exporter.readonly else exporter


def _pieces(ordered: Iterable[tuple[Entry, Any]]) -> Iterable[_Piece]:
    dropped = memoryview(bytearray(_MOST_GAP))  # where bytes between tensors go; that threads overlap there is no harm
    source, begin, end = None, 0, 0
    views: list[Any] = []
    for entry, memory in ordered:
        gap = entry.offset - end
        if (
            entry.source is not source
            or not 0 <= gap <= _MOST_GAP
            or len(views) >= _MOST_VIEWS
            or end - begin >= _PIECE
        ):
            if source is not None and views:
                yield _Piece(source, begin, views, end - begin)
            source, begin, end, views, gap = entry.source, entry.offset, entry.offset, [], 0
        if gap:
            views.append(dropped[:gap])
            end += gap
        if entry.nbytes <= _PIECE - (end - begin):
            views.append(memory)
            end += entry.nbytes
            continue
        at, memory = 0, memoryview(memory)
        while at < entry.nbytes:
            part = memory[at : at + _PIECE - min(end - begin, _PIECE - 1)]
            views.append(part)
            at += len(part)
            end += len(part)
            if end - begin >= _PIECE and at < entry.nbytes:
                yield _Piece(source, begin, views, end - begin)
                begin, views = end, []
    if source is not None and views:
        yield _Piece(source, begin, views, end - begin)
