"""Breakages of files and segments."""

from __future__ import annotations

import os
from typing import Any
from unittest.mock import patch

from hcq.drivers.disk import file
from hcq.drivers.disk.allocator import DiskAllocator, Segment
from hcq.drivers.disk.device import DiskDevice
from hcq.drivers.disk.file import OpenFile
from hcq.drivers.disk.place import CREATE
from hcq.graph.recording import Recorder
from hcq.testing.breakages import breaks, changed, together
from hcq.testing.mutants.devices import Context


@breaks("copy.from_disk", "test_files_are_copied_to_the_device[4097]", "test_views_begin_at_any_byte_with_any_dtype")
def views_of_files_begin_at_blocks() -> Context:
    return changed(
        DiskAllocator, "offset", lambda offset: lambda self, buf, size, at: offset(self, buf, size, at // 512 * 512)
    )


@breaks("disk.write", "test_the_device_is_copied_to_files")
def writing_does_nothing() -> Context:
    return patch.object(OpenFile, "write", lambda self, data, offset: None)


@breaks("disk.read", "test_reading_leaves_the_file_as_it_was", "test_a_missing_file_raises_and_the_next_try_works")
def files_are_always_made_and_written() -> Context:
    def make(place: Any) -> Any:
        return lambda self, name: (found := place(self, name)) and found._replace(mode=CREATE)

    return changed(DiskDevice, "_place", make)


@breaks("disk.write", "test_writing_stays_within_the_file")
def writing_goes_on_past_the_end() -> Context:
    def check_write(self: OpenFile, count: int, offset: int) -> None:
        os.ftruncate(self.descriptor, max(self.size(), offset + count))

    return patch.object(OpenFile, "check_write", check_write)


@breaks("disk.shm", "test_segments_are_copied_from_and_to_the_device")
def a_segment_in_place_is_a_copy() -> Context:
    return changed(Segment, "view", lambda view: lambda self, at, size: memoryview(bytearray(view(self, at, size))))


@breaks("disk.create", "test_a_file_is_made_as_long_as_its_buffer_and_never_shortened")
def files_are_cut_to_their_buffer() -> Context:
    return patch.object(OpenFile, "grow", lambda self, place, size: os.ftruncate(self.descriptor, size))


@breaks("disk.past_end", "test_reading_past_the_end_raises")
def the_end_of_a_file_is_passed_over() -> Context:
    def make(before: Any) -> Any:
        def broken(*args: Any, **options: Any) -> None:
            try:
                before(*args, **options)
            except EOFError:
                pass

        return broken

    return together(changed(OpenFile, "read", make), changed(DiskDevice, "copy_now", make))


@breaks("disk.past_end", "test_what_is_no_file_is_refused")
def anything_counts_as_a_file() -> Context:
    return patch.object(file, "_check_kind", lambda path, mode: None)


@breaks("disk.reopened", "test_a_file_is_closed_with_its_last_buffer_and_a_replaced_one_read_anew")
def a_path_leads_to_one_file_for_ever() -> Context:
    return patch.object(OpenFile, "is_still", lambda self, place: True)


@breaks("disk.same_bytes", "test_buffers_of_one_file_are_the_same_bytes_to_a_graph")
def buffers_of_a_file_begin_where_they_like() -> Context:
    def elsewhere(claim: Any) -> Any:
        def wrong(self: DiskAllocator, file: OpenFile, size: int) -> Any:
            handle = claim(self, file, size)
            handle.va_addr += 0 if file.writable else 1 << 50
            return handle

        return wrong

    return changed(DiskAllocator, "_claim", elsewhere)


@breaks("disk.same_bytes", "test_a_file_that_is_only_read_is_no_destination")
def whoever_has_a_file_may_write_it() -> Context:
    return patch.object(OpenFile, "check_write", lambda self, count, offset: None)


@breaks("disk.no_path", "test_disk_without_a_path_opens_and_allocates_nothing")
def disk_alone_has_memory() -> Context:
    def make(alloc: Any) -> Any:
        return lambda self, size, options=None: bytearray(size) if self.device.place is None else alloc(self, size)

    return changed(DiskAllocator, "_alloc", make)


@breaks("disk.failed_open", "test_a_failed_open_leaves_nothing")
def a_file_that_could_not_be_grown_stays() -> Context:
    return patch.object(file, "_remove", lambda path: None)


@breaks("disk.short", "test_short_and_interrupted_reads_are_continued")
def short_reads_are_passed_over() -> Context:
    def make(copy_now: Any) -> Any:
        return lambda self, dest, src, nbytes, *rest, **options: copy_now(
            self, dest, src, min(nbytes, 1000), *rest, **options
        )

    return changed(DiskDevice, "copy_now", make)


@breaks("disk.shm", "test_two_processes_share_a_segment_and_signal_each_other_through_it")
def segments_are_a_process_own() -> Context:
    def make(init: Any) -> Any:
        def broken(self: Any, descriptor: int, size: int, writable: bool) -> None:
            other = os.memfd_create("hcq-suite", os.MFD_CLOEXEC)
            os.ftruncate(other, size)
            init(self, other, size, writable)
            os.close(other)

        return broken

    return changed(Segment, "__init__", make)


@breaks("fork.disk", "test_files_go_on_working_in_a_child")
def files_end_with_their_process() -> Context:
    return patch.object(DiskDevice, "survives_fork", False)


@breaks("graph.disk", "test_reads_of_files_are_recorded")
def reads_are_not_recorded() -> Context:
    return patch.object(Recorder, "copy_buffers", lambda self, dest, src, stream: True)


@breaks("profile.names", "test_reads_of_files_are_traced_by_where_they_lead")
def reads_have_no_name() -> Context:
    def make(copy_now: Any) -> Any:
        return lambda self, dest, src, nbytes, name, *rest, **options: copy_now(
            self, dest, src, nbytes, "copy", *rest, **options
        )

    return changed(DiskDevice, "copy_now", make)
