"""Breakages of copies between buffers, and of compilers and errors."""

from __future__ import annotations

import ctypes
from typing import Any
from unittest.mock import patch

import hcq
from hcq import Compiler, HCQBuffer, errors
from hcq.drivers.null.allocator import NullAllocator, StagedNullAllocator
from hcq.errors import CompileError
from hcq.testing.breakages import breaks, changed, together
from hcq.testing.mutants.devices import Context


def _copied_by_host(dest: Any, source: Any, size: int) -> None:
    ctypes.memmove(dest._buf.va_addr, source._buf.va_addr, size)


@breaks(
    "copy.same_device",
    "test_copies_within_a_device_are_whole",
    "test_copies_between_two_devices_are_whole",
    "test_copies_between_kinds_are_whole[CLANG]",
    "test_an_array_is_a_source",
)
def copy_does_nothing() -> Context:
    return changed(hcq, "copy", lambda before: lambda dest, source, stream=None: dest.ensure_allocated())


@breaks("copy.bytes_equal", "test_different_sizes_are_refused")
def copy_takes_the_shorter() -> Context:
    def copy(dest: Any, source: Any, stream: Any = None) -> None:
        _copied_by_host(dest.ensure_allocated(), source, min(dest.nbytes, source.nbytes))

    return patch.object(hcq, "copy", copy)


@breaks("copy.views", "test_copies_between_views_are_exact")
def copies_begin_at_words() -> Context:
    def copy(dest: Any, source: Any, stream: Any = None) -> None:
        dest.ensure_allocated(), source.ensure_allocated()
        ctypes.memmove(dest._buf.va_addr // 4 * 4, source._buf.va_addr // 4 * 4, source.nbytes)

    return patch.object(hcq, "copy", copy)


@breaks("copy.overlap", "test_overlapping_ranges_behave_as_if_read_first[8-100]")
def overlapping_ranges_are_read_as_they_are_written() -> Context:
    def copy(dest: Any, source: Any, stream: Any = None) -> None:
        dest.ensure_allocated(), source.ensure_allocated()
        to = (ctypes.c_ubyte * dest.nbytes).from_address(dest._buf.va_addr)
        here = (ctypes.c_ubyte * dest.nbytes).from_address(source._buf.va_addr)
        for index in range(dest.nbytes):
            to[index] = here[index]

    return patch.object(hcq, "copy", copy)


@breaks("copy.unallocated", "test_an_unallocated_source_is_refused")
def copy_allocates_its_source() -> Context:
    return changed(hcq, "copy", lambda before: lambda dest, source: before(dest, source.ensure_allocated()))


@breaks("copy.ordered", "test_a_copy_waits_for_queues_of_both_devices")
def copy_does_not_wait() -> Context:
    def copy(dest: Any, source: Any, stream: Any = None) -> None:
        _copied_by_host(dest, source, dest.nbytes)

    return patch.object(hcq, "copy", copy)


@breaks("staging.transfer", "test_transfer_moves_both_timelines")
def transfer_moves_no_timeline() -> Context:
    def transfer(self: Any, dest: Any, source: Any, size: int, **devices: Any) -> None:
        ctypes.memmove(dest.va_addr, source.va_addr, size)

    return patch.object(NullAllocator, "transfer", transfer)


@breaks("staging.forced", "test_the_ring_gives_the_same_as_direct_copies")
def the_ring_loses_the_last_byte() -> Context:
    def make(copyin: Any) -> Any:
        return lambda self, dest, source: copyin(self, dest, bytes(source)[:-1] + b"\0")

    return changed(StagedNullAllocator, "copyin", make)


@breaks("staging.hcqbuffer", "test_hcq_buffers_have_address_and_size")
def handles_do_not_know_their_size() -> Context:
    return patch.object(HCQBuffer, "size", 0)


@breaks("staging.host_writable", "test_the_host_writes_at_the_address")
def host_writes_are_not_seen() -> Context:
    seen: dict[int, bytes] = {}

    def allocate(before: Any) -> Any:
        def broken(self: Any, opaque: Any = None) -> Any:
            before(self, opaque)
            seen[self._buf.va_addr] = bytes(self.nbytes)
            return self

        return broken

    def copyout(before: Any) -> Any:
        def broken(self: Any, dest: Any) -> None:
            memoryview(dest).cast("B")[:] = seen[self._buf.va_addr]

        return broken

    return together(changed(hcq.Buffer, "allocate", allocate), changed(hcq.Buffer, "copyout", copyout))


# -- compilers --------------------------------------------------------------------------------------------------------


@breaks("compiler.cached", "test_the_second_time_nothing_is_compiled")
def everything_is_compiled_each_time() -> Context:
    return changed(Compiler, "compile_cached", lambda before: lambda self, source: self.compile(source))


@breaks("compiler.cachekey_none", "test_without_a_key_nothing_is_kept", "test_a_failed_compile_is_not_kept")
def everything_is_kept() -> Context:
    kept: dict[Any, Any] = {}

    def compile_cached(self: Any, source: Any) -> bytes:
        if source not in kept:
            try:
                kept[source] = self.compile(source)
            except CompileError:
                kept[source] = b""
                raise
        return kept[source]  # type: ignore[no-any-return]

    return patch.object(Compiler, "compile_cached", compile_cached)


@breaks("compiler.assert_compile", "test_assert_compile_is_read_at_the_call")
def assert_compile_is_ignored() -> Context:
    return changed(Compiler, "_refuse_to_compile", lambda before: lambda self, source: None)


# -- errors -----------------------------------------------------------------------------------------------------------


@breaks("errors.hierarchy", "test_an_error_is_also_the_built_in_one[LaunchError]")
def a_launch_error_is_no_value_error() -> Context:
    class LaunchError(errors.HCQError, RuntimeError):
        pass

    return patch.object(errors, "LaunchError", LaunchError)


@breaks("errors.attributes", "test_attributes_are_keywords_and_travel[DeviceLost]")
def a_lost_device_keeps_no_cause() -> Context:
    class DeviceLost(errors.DeviceLost):
        @property
        def cause(self) -> Any:
            return None

        @cause.setter
        def cause(self, value: Any) -> None:
            pass

    return patch.object(errors, "DeviceLost", DeviceLost)


@breaks("names.public", "test_the_name_is_importable[copy]")
def copy_is_not_there() -> Context:
    return patch.object(hcq, "copy", None)


@breaks("names.version", "test_the_version_is_a_version")
def the_version_is_a_word() -> Context:
    return patch.object(hcq, "__version__", "unknown")
