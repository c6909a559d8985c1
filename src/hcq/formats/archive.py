"""Archive: what is in a file of tensors, or in an index over several, looked at without reading the tensors.

What does not live here: headers (the parsers), and getting tensors onto devices (loading).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hcq.errors import FormatError
from hcq.formats import gguf, index, npy, safetensors
from hcq.formats.entry import Entry, check_names
from hcq.formats.selection import missing, select
from hcq.formats.source import Source

if TYPE_CHECKING:
    from hcq.formats.loading import Tensors


class Archive(Mapping[str, Entry]):
    """The tensors of a file by name: what each is, and loading some of them. Threads may share one.

    `format` is 'safetensors', 'gguf', 'npy' or 'npz', `metadata` what the file says beside tensors. Nothing was read
    but headers. The files stay open while this or an entry of it lives: what is loaded later is from the same files,
    whatever has taken their names.
    """

    def __init__(self, path: str, format: str, entries: Iterable[Entry], metadata: dict[str, Any]) -> None:
        self.path = path
        self.format = format
        self.metadata = metadata
        self._entries = check_names(entries)

    def __getitem__(self, name: str) -> Entry:
        if name not in self._entries:
            raise missing(name, self._entries, self.path)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def load(
        self,
        device: str | None = None,
        names: str | Iterable[str] | None = None,
        *,
        dtype: Any = None,
        progress: bool | None = None,
    ) -> Tensors:
        """Tensors on `device`, as hcq.load gives them."""
        from hcq.formats.loading import load_entries

        wanted = [self._entries[name] for name in select(names, self._entries, self.path)]
        return load_entries(wanted, device, dtype, metadata=self.metadata, progress=progress)

    def __repr__(self) -> str:
        return (
            f"<{self.path}, {self.format}: {len(self)} tensors, {sum(entry.nbytes for entry in self.values())} bytes>"
        )


def open(path: str | os.PathLike[str], names: str | Iterable[str] | None = None) -> Archive:
    """Look into a safetensors file, an index over several, a GGUF file, .npy or .npz; which it is, its contents say.
    A part of a GGUF file that was split (`NAME-00001-of-00003.gguf`) stands for all of it.

    With `names`, as hcq.load takes them, only those tensors are in it, and of an index only their files are opened.
    Headers are read and checked, tensors are not. Blocks. Raises FormatError for a file that is damaged or none of
    these, the operating system's errors, and KeyError for names that aren't there.
    """
    path = os.path.abspath(os.fsdecode(path))
    source = Source(path)
    begin = source.read(0, min(8, source.size))
    metadata: dict[str, Any] = {}
    entries: Iterable[Entry]
    if begin.startswith(gguf.MAGIC):
        format, (entries, metadata) = "gguf", _open_gguf(source)
    elif begin.startswith(npy.MAGIC):
        format, entries = "npy", [npy.parse(source)]
    elif begin.startswith(npy.ZIP_MAGIC):
        format, entries = "npz", npy.parse_zip(source)
    elif begin.lstrip().startswith(b"{") and b"\0" not in begin:  # a length has zeros in its upper bytes
        return _open_index(source, names)
    elif len(begin) < 8:
        raise FormatError(path, None, f"truncated: {source.size} bytes are no file of tensors")
    else:
        format, (entries, metadata) = "safetensors", safetensors.parse(source)
    archive = Archive(path, format, entries, metadata)
    return archive if names is None else _part(archive, names)


def _open_gguf(source: Source) -> tuple[list[Entry], dict[str, Any]]:
    """A GGUF file, or all parts of one that was split: the entries of all, the metadata of the one that is opened."""
    entries, metadata = gguf.parse(source)
    for path in gguf.other_parts(source.path, metadata):
        entries += gguf.parse(Source(path))[0]
    expected = metadata.get(gguf.TENSORS_OF_ALL, len(entries))
    if gguf.PARTS in metadata and expected != len(entries):
        raise FormatError(source.path, None, f"all parts together have {len(entries)} tensors instead of {expected}")
    return entries, metadata


def _open_index(source: Source, names: str | Iterable[str] | None) -> Archive:
    files, metadata = index.parse(source)
    wanted = select(names, files, source.path)
    found: dict[str, Entry] = {}
    for file in dict.fromkeys(files[name] for name in wanted):
        found.update((entry.name, entry) for entry in _shard(source, file) if files.get(entry.name) == file)
    lacking = next((name for name in wanted if name not in found), None)
    if lacking is not None:
        raise FormatError(source.path, None, f"tensor {lacking!r} is not in {files[lacking]}, where it should be")
    return Archive(source.path, "safetensors", [found[name] for name in wanted], metadata)


def _shard(index: Source, file: str) -> list[Entry]:
    try:
        entries, _ = safetensors.parse(Source(file))
    except FileNotFoundError as error:
        error.add_note(f"{index.path} names it")
        raise
    check_names(entries)
    return entries


def _part(archive: Archive, names: str | Iterable[str]) -> Archive:
    wanted = select(names, archive, archive.path)
    return Archive(archive.path, archive.format, [archive[name] for name in wanted], archive.metadata)
