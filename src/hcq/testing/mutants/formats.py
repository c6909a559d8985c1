"""Breakages of loading and saving files of tensors."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from hcq.formats import archive, entry, gguf, gguf_head, reading, safetensors, saving
from hcq.formats.replace import NewFile
from hcq.testing.breakages import breaks, changed, together
from hcq.testing.mutants.devices import Context

if TYPE_CHECKING:
    from collections.abc import Iterator


@breaks("formats.load", "test_tensors_of_a_file_are_on_the_device[safetensors]")
def tensors_are_read_from_where_the_header_begins() -> Context:
    def shifted(fill: Any) -> Any:
        def wrong(wanted: Any, threads: int, done: Any) -> None:
            for found, _ in wanted:
                found.offset -= 8
            fill(wanted, threads, done)

        return wrong

    return changed(reading, "fill", shifted)


@breaks("formats.load", "test_blocks_of_gguf_are_on_the_device_as_bytes")
def dimensions_of_gguf_are_not_turned_round() -> Context:
    return changed(gguf, "_description", lambda before: lambda head: (d := before(head))[:2] + (d[2][::-1],) + d[3:])


@breaks("formats.names", "test_only_tensors_asked_for_are_loaded")
def everything_is_loaded() -> Context:
    return patch.object(archive, "_part", lambda found, names: found)


@breaks("formats.save", "test_buffers_are_saved_after_the_work_queued")
def files_end_a_byte_early() -> Context:
    return changed(saving, "_pieces", lambda pieces: lambda tensor: (piece[:-1] for piece in pieces(tensor)))


@breaks("formats.gguf", "test_floats_and_blocks_are_saved_as_gguf")
def numbers_of_gguf_have_four_bytes_more() -> Context:
    def longer(value: Any) -> Any:
        return lambda key, said, nesting: (found := value(key, said, nesting))[:1] + (found[1] + bytes(4),)

    return changed(gguf_head, "_value", longer)


@breaks("formats.save", "test_a_save_that_fails_leaves_the_old_file")
def files_are_written_in_place() -> Context:
    @contextmanager
    def in_place(path: str) -> Iterator[NewFile]:
        with open(path, "wb", buffering=0) as file:
            yield NewFile(file.fileno())

    def unchecked(name: str, given: Any) -> Any:
        return saving._Tensor(name, given.dtype, given.shape, given.nbytes, given)

    return together(patch.object(saving, "replacing", in_place), patch.object(saving, "_tensor", unchecked))


@breaks("formats.checked", "test_damaged_files_are_refused_before_anything_is_allocated[truncated]")
def places_are_not_checked() -> Context:
    return patch.object(safetensors, "check_places", lambda *arguments, **named: None)


@breaks("formats.checked", "test_damaged_files_are_refused_before_anything_is_allocated[overlapping]")
def tensors_may_overlap() -> Context:
    def sizes_only(source: Any, entries: Any, begin: int, end: int, holes: bool) -> None:
        for found in entries:
            entry.check_places(source, [found], begin, end, holes=True)

    return patch.object(safetensors, "check_places", sizes_only)
