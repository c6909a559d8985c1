"""hcq.load: tensors of a file onto a device.

What does not live here: which reads that takes (reading), other element types (convert), headers (archive).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hcq.dtypes import DType
from hcq.formats import archive, convert, reading
from hcq.formats.entry import Entry
from hcq.formats.npy import HostEntry
from hcq.formats.progress import progress_of
from hcq.runtime import watch
from hcq.runtime.buffer import Buffer
from hcq.runtime.registry import Device

_MOST_THREADS = 4  # that read; more gain nothing where the page cache or one disk is the limit


class Tensors(dict[str, Buffer]):
    """Loaded tensors by name, in the order of the file: buffers of their shape and dtype.

    A dict of the caller's own: a tensor taken out is freed when nothing else uses it. `metadata` is what the file says
    beside tensors; `types` and `shapes` are, by name, its own word for each tensor's type, such as 'BF16' or 'Q4_K',
    and the shape in elements, which a buffer of raw bytes doesn't have.
    """

    def __init__(self, buffers: dict[str, Buffer], metadata: dict[str, Any], entries: Iterable[Entry]) -> None:
        super().__init__(buffers)
        self.metadata = metadata
        self.types: dict[str, str] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for entry in entries:  # not kept: they hold their files open
            self.types[entry.name], self.shapes[entry.name] = entry.type, entry.shape

    def __repr__(self) -> str:
        return f"<{len(self)} tensors, {sum(buf.nbytes for buf in self.values())} bytes>"


def load(
    path: str | os.PathLike[str],
    device: str | None = None,
    names: str | Iterable[str] | None = None,
    *,
    dtype: Any = None,
    progress: bool | None = None,
) -> Any:
    """Read tensors from a file onto `device`, or the default device: `Tensors`, a dict of name -> Buffer.

    `path` is a safetensors file, an index over several (`*.safetensors.index.json`), a GGUF file, .npz, or .npy, which
    has one array without a name and gives its Buffer. Contents tell them apart, not suffixes.

    `names` are the tensors wanted: a name, a pattern such as `"encoder.*"`, or several of either. Only they are read,
    and of an index only their files are opened. Buffers have the tensors' shapes and dtypes; types that no dtype stands
    for, as GGUF's blocks of quantised numbers, are bytes (`uint8`), row by row. `dtype`, float32, float16 or bfloat16,
    is the type that floating tensors and those blocks are to have instead. `progress` shows a bar on standard error;
    by default on long loads when that is a terminal.

    Blocks; reads on several threads. Each tensor is an allocation of its own. Raises FormatError for a file that is
    damaged or none of these, before anything is allocated; the operating system's errors; EOFError for a file that is
    cut short meanwhile; KeyError for names that aren't there; ValueError for blocks that can't become `dtype`.
    """
    found = archive.open(path, names)
    loaded = found.load(device, dtype=dtype, progress=progress)
    return loaded[""] if found.format == "npy" and loaded else loaded


def load_entries(
    entries: Sequence[Entry],
    device: str | None,
    dtype: Any = None,
    metadata: dict[str, Any] | None = None,
    progress: bool | None = None,
) -> Tensors:
    """The tensors of `entries`, whose names differ, on `device`; see `load`."""
    if (
        watch.active and watch.capturing() is not None
    ):  # else some of the reads would be commands of the graph, and the rest be done now
        raise RuntimeError("hcq.load inside hcq.capture: nothing runs while recording; do it before or after the block")
    device = Device.canonicalize(device)
    if device.partition(":")[0] == "DISK":
        raise ValueError(f"tensors can't be loaded onto {device}: every buffer there begins at the file's first byte")
    other: dict[str, Entry] = {}
    if dtype is not None:
        dtype = convert.target(dtype)
        other = {entry.name: entry for entry in convert.converted(entries, dtype)}
    buffers = {entry.name: _allocate(entry, device, dtype if entry.name in other else None) for entry in entries}
    plain: list[tuple[Entry, Buffer]] = []
    on_host: list[_OnHost] = []
    for entry, buf in zip(entries, buffers.values(), strict=True):
        if isinstance(entry, HostEntry):
            if entry.nbytes and entry.name not in other:
                on_host.append(_OnHost(entry, buf, entry.nbytes))
        elif entry.nbytes and entry.name not in other:
            plain.append((entry, buf))
    with progress_of(sum(entry.nbytes for entry in entries), progress) as done:
        reading.fill(plain, _MOST_THREADS, done)
        reading.run_all(on_host, _read_on_host, _MOST_THREADS, done)
        for each in sorted(other.values(), key=lambda entry: (entry.source.path, entry.offset)):
            if each.nbytes:
                convert.convert(each, buffers[each.name])
                done(each.nbytes)
    return Tensors(buffers, metadata or {}, entries)


def _allocate(entry: Entry, device: str, other: DType | None) -> Buffer:
    shape, dtype = (entry.buffer_shape, entry.dtype) if other is None else (entry.shape, other)
    # No elements, no memory. `empty` would check the shape once more.
    buf = Buffer(device, math.prod(shape), dtype, preallocate=entry.nbytes > 0)
    buf._shape = shape
    return buf


class _OnHost(NamedTuple):
    """An array that the host has to unpack or turn round, and where it goes."""

    entry: HostEntry
    buf: Buffer
    nbytes: int


def _read_on_host(work: _OnHost) -> None:
    entry, buf = work.entry, work.buf
    exporter = buf._export()
    if exporter is not None:
        entry.read_into(memoryview(exporter))
        return
    data = bytearray(entry.nbytes)
    entry.read_into(memoryview(data))
    buf.copyin(data)
