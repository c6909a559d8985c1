"""Entry: what a header says of one tensor; and the checks that entries of every format have to pass.

What does not live here: reading headers (the parsers), and reading tensors (loading).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from hcq import dtypes
from hcq.dtypes import DType
from hcq.errors import FormatError
from hcq.formats.source import Source

if TYPE_CHECKING:
    from hcq.runtime.buffer import Buffer

RAW = dtypes.uint8  # of buffers that hold bytes of a type which no dtype stands for
MOST_DIMENSIONS = 64  # NumPy's limit
MOST_COUNT = (1 << 63) - 1  # of elements or bytes that a header may speak of


class Entry:
    """One tensor in a file. Immutable by convention; threads may share it.

    `type` is the file's own name for its element type, `shape` counts elements, outermost dimension first. `dtype` and
    `buffer_shape` are what a buffer with its contents has: the same, or bytes (`uint8`) where no dtype stands for the
    type, as for blocks of quantised numbers. Its `nbytes` bytes begin at byte `offset` of `source`.
    """

    __slots__ = ("buffer_shape", "dtype", "name", "nbytes", "offset", "shape", "source", "type")

    def __init__(
        self,
        name: str,
        type: str,
        dtype: DType,
        shape: tuple[int, ...],
        source: Source,
        offset: int,
        nbytes: int,
        buffer_shape: tuple[int, ...] | None = None,
    ) -> None:
        self.name = name
        self.type = type
        self.dtype = dtype
        self.shape = shape
        self.source = source
        self.offset = offset
        self.nbytes = nbytes
        self.buffer_shape = shape if buffer_shape is None else buffer_shape

    @property
    def end(self) -> int:
        """The byte after the last one."""
        return self.offset + self.nbytes

    @property
    def is_raw(self) -> bool:
        """Whether a buffer has the bytes of this tensor, and not its elements: no dtype stands for its type."""
        return self.buffer_shape is not self.shape

    def __getitem__(self, rows: slice) -> Entry:
        """Rows `begin:end` of the outermost dimension, as an entry of their own; they are all that its load reads.

        TypeError for what is no slice, ValueError for steps, and for tensors without dimensions or without such rows.
        """
        if not isinstance(rows, slice):
            raise TypeError(f"of a tensor in a file only rows can be taken, such as entry[10:20], not {rows!r:.60}")
        if not self.buffer_shape or len(self.buffer_shape) != len(self.shape):
            raise ValueError(f"tensor {self.name!r}, {self.type} of shape {self.shape}, has no rows to take")
        if self.buffer_shape[0] != self.shape[0]:
            raise ValueError(f"tensor {self.name!r} is one row of blocks of {self.type}: load it whole")
        begin, end, step = rows.indices(self.shape[0])
        if step != 1:
            raise ValueError(f"rows are taken one after the other, without a step of {step}")
        count = max(0, end - begin)
        row = self.nbytes // self.shape[0] if self.shape[0] else 0
        shape, raw = (count, *self.shape[1:]), (count, *self.buffer_shape[1:]) if self.is_raw else None
        return Entry(self.name, self.type, self.dtype, shape, self.source, self.offset + begin * row, count * row, raw)

    def load(self, device: str | None = None, dtype: Any = None) -> Buffer:
        """An allocated buffer with this tensor, on `device` or the default; see hcq.load for `dtype`. Blocks."""
        from hcq.formats.loading import load_entries

        return load_entries([self], device, dtype)[self.name]

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        return f"<{self.name}: {shape} {self.type}, {self.nbytes} bytes from byte {self.offset} of {self.source.path}>"


def utf8(text: str, what: str) -> bytes:
    """A text as files of every format have it. ValueError, naming `what` it is, for halves of surrogate pairs."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} {text!r:.100} has half a surrogate pair at place {error.start}: "
            "the file's texts are UTF-8, which has whole characters only"
        ) from None


def check_places(source: Source, entries: Sequence[Entry], begin: int, end: int, holes: bool) -> None:
    """Entries of one file lie between bytes `begin` and `end`, apart; unless `holes` they fill that range.

    Raises FormatError naming the tensors and the place.
    """
    reached, before = begin, None
    for entry in sorted(entries, key=attrgetter("offset", "nbytes")):
        if entry.offset < begin or entry.end > end:
            reason = f"tensor {entry.name!r} has bytes {entry.offset} to {entry.end}, and the data are {begin} to {end}"
            cut = " (a truncated file?)" if entry.end > end else ""
            raise FormatError(source.path, entry.offset, reason + cut)
        if entry.offset < reached and entry.nbytes:
            other = before.name if before is not None else "the header"
            raise FormatError(source.path, entry.offset, f"tensors {other!r} and {entry.name!r} overlap")
        if entry.offset > reached and not holes:
            raise FormatError(
                source.path, reached, f"{entry.offset - reached} bytes before tensor {entry.name!r} belong to no tensor"
            )
        if entry.nbytes:
            reached, before = entry.end, entry
    if reached < end and not holes:
        raise FormatError(source.path, reached, f"{end - reached} bytes after the last tensor belong to no tensor")


def check_names(entries: Iterable[Entry]) -> Mapping[str, Entry]:
    """The entries by name. FormatError for a name that occurs twice, in one file or in several."""
    found: dict[str, Entry] = {}
    for entry in entries:
        other = found.setdefault(entry.name, entry)
        if other is not entry:
            where = "" if other.source is entry.source else f", in {other.source.path} and here"
            raise FormatError(entry.source.path, entry.offset, f"tensor {entry.name!r} occurs twice{where}")
    return found


def rows_of(shape: tuple[int, ...], nbytes: int) -> tuple[int, ...]:
    """The shape of a tensor's bytes with its rows kept apart: the last dimension in bytes, as many as a row has."""
    count = math.prod(shape[:-1])
    if not shape or not count or nbytes % count:
        return (nbytes,)
    return (*shape[:-1], nbytes // count)


def is_count(value: object) -> bool:
    """Whether `value`, read from a header, is a size or an offset that a file can have."""
    return type(value) is int and 0 <= value <= MOST_COUNT
