"""Breakages of what is read from buffers and written to them: copies, zero copy, other libraries."""

from __future__ import annotations

import ctypes
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import hcq
from hcq import Buffer
from hcq.testing.breakages import breaks, changed, prop, raw

Context = AbstractContextManager[Any]


# -- copies -----------------------------------------------------------------------------------------------------------


@breaks(
    "buffer.copy_roundtrip",
    "test_what_was_copied_in_comes_out",
    "test_large_copies_are_whole",
    "test_cycles_are_collected_while_others_allocate",
    "test_a_block_is_never_handed_to_two_threads",
    "test_threads_copy_through_their_own_memory",
    "test_a_buffer_is_read_by_many_threads",
    "test_preallocate_and_initial_value_allocate_at_once",
)
def copyout_rounds_down_to_words() -> Context:
    def make(copyout: Any) -> Any:
        def broken(self: Any, dest: Any) -> None:
            copyout(self, dest)
            view = memoryview(dest).cast("B")
            view[-1] ^= 1

        return broken

    return changed(Buffer, "copyout", make)


@breaks("buffer.copyin_any", "test_copyin_takes_any_contiguous_memory")
def copyin_wants_writable_memory() -> Context:
    def make(copyin: Any) -> Any:
        def broken(self: Any, source: Any) -> None:
            if memoryview(source).readonly:
                raise TypeError("read-only")
            copyin(self, source)

        return broken

    return changed(Buffer, "copyin", make)


@breaks("buffer.copy_count", "test_another_byte_count_is_refused")
def copyin_takes_what_fits() -> Context:
    def make(copyin: Any) -> Any:
        return lambda self, source: copyin(self, bytes(source)[: self.nbytes].ljust(self.nbytes, b"\0"))

    return changed(Buffer, "copyin", make)


@breaks("buffer.copy_strided", "test_strided_memory_is_refused")
def copyin_gathers_strided_memory() -> Context:
    def make(copyin: Any) -> Any:
        return lambda self, source: copyin(self, memoryview(source).tobytes())

    return changed(Buffer, "copyin", make)


@breaks("buffer.copyout_readonly", "test_copyout_into_read_only_memory_is_refused")
def copyout_ignores_read_only_memory() -> Context:
    def make(copyout: Any) -> Any:
        return lambda self, dest: None if memoryview(dest).readonly else copyout(self, dest)

    return changed(Buffer, "copyout", make)


@breaks("buffer.copy_unallocated", "test_copying_an_unallocated_buffer_raises")
def copies_allocate() -> Context:
    return changed(Buffer, "copyin", lambda copyin: lambda self, source: copyin(self.ensure_allocated(), source))


@breaks("buffer.copyout_ordered", "test_host_copies_wait_for_queues_that_signal_the_timeline")
def copyout_does_not_wait() -> Context:
    def copyout(self: Any, dest: Any) -> None:
        memoryview(dest).cast("B")[:] = raw(self)

    return patch.object(Buffer, "copyout", copyout)


@breaks("buffer.fill", "test_fill_sets_every_element")
def fill_leaves_out_the_last() -> Context:
    def make(fill: Any) -> Any:
        return lambda self, value: (
            fill(self, value) if self.size == 1 else fill(self.view(self.size - 1, self.dtype, 0), value)
        )

    return changed(Buffer, "fill", make)


# -- zero copy --------------------------------------------------------------------------------------------------------


@breaks("buffer.as_buffer_copy", "test_as_buffer_is_a_private_copy")
def as_buffer_is_always_the_memory() -> Context:
    return changed(
        Buffer, "as_buffer", lambda before: lambda self, *rest, **options: before(self, allow_zero_copy=True)
    )


@breaks("buffer.as_buffer_zero", "test_as_buffer_with_zero_copy_is_the_memory")
def as_buffer_is_always_a_copy() -> Context:
    return changed(Buffer, "as_buffer", lambda before: lambda self, *rest, **options: before(self))


@breaks("buffer.force_zero_copy", "test_force_zero_copy_raises_where_it_cannot_be_had")
def as_buffer_is_short() -> Context:
    return changed(
        Buffer, "as_buffer", lambda before: lambda self, *rest, **options: before(self, *rest, **options)[:4]
    )


@breaks("buffer.as_buffer_holds", "test_a_zero_copy_view_keeps_its_memory[die]")
def a_zero_copy_view_holds_nothing() -> Context:
    def as_buffer(self: Any, allow_zero_copy: bool = False, force_zero_copy: bool = False) -> Any:
        return memoryview((ctypes.c_ubyte * self.nbytes).from_address(self._buf.va_addr)).cast("B")

    return patch.object(Buffer, "as_buffer", as_buffer)


@breaks("buffer.as_buffer_holds", "test_memory_comes_back_when_the_last_view_goes")
def a_zero_copy_view_holds_for_ever() -> Context:
    kept: list[Any] = []

    def make(as_buffer: Any) -> Any:
        def broken(self: Any, **options: Any) -> Any:
            kept.append(as_buffer(self, **options))
            return kept[-1]

        return broken

    return changed(Buffer, "as_buffer", make)


# -- other libraries --------------------------------------------------------------------------------------------------


def _over(buf: Any) -> Any:
    """An array over the memory that waits for nobody and holds nothing."""
    import numpy as np

    return np.frombuffer((ctypes.c_ubyte * buf.nbytes).from_address(buf._buf.va_addr), np.int32)


@breaks("interop.array_interface", "test_asarray_is_zero_copy")
def the_array_interface_is_of_a_copy() -> Context:
    return prop(Buffer, "__array_interface__", lambda before, self: self.numpy().__array_interface__)


@breaks("interop.dlpack_out", "test_dlpack_out_is_zero_copy")
def dlpack_gives_a_copy() -> Context:
    return patch.object(Buffer, "__dlpack__", lambda self, **options: self.numpy().__dlpack__())


@breaks(
    "interop.holds",
    "test_a_capsule_holds_the_memory_and_gives_it_back",
    "test_an_array_over_a_buffer_keeps_its_memory[from_dlpack]",
    "test_export_waits_for_queued_work[from_dlpack]",
)
def dlpack_holds_nothing_and_waits_for_nothing() -> Context:
    return patch.object(Buffer, "__dlpack__", lambda self, **options: _over(self).__dlpack__())


@breaks("interop.dlpack_in", "test_array_takes_what_others_make")
def array_takes_numpy_alone() -> Context:
    def make(before: Any) -> Any:
        def broken(obj: Any, *rest: Any, **options: Any) -> Any:
            if not hasattr(obj, "shape"):
                raise TypeError("not a NumPy array")
            return before(obj, *rest, **options)

        return broken

    return changed(hcq, "array", make)


@breaks("interop.array_copy_false", "test_array_shares_host_memory")
def array_always_copies() -> Context:
    return changed(hcq, "array", lambda before: lambda obj, *rest, copy=True, **options: before(obj, *rest, **options))


@breaks("interop.empty_zeros", "test_empty_zeros_and_numpy")
def zeros_are_not_zero() -> Context:
    def make(before: Any) -> Any:
        def broken(*rest: Any, **options: Any) -> Any:
            made = before(*rest, **options)
            made.fill(1)
            return made

        return broken

    return changed(hcq, "zeros", make)


@breaks("buffer.numpy", "test_empty_zeros_and_numpy")
def numpy_forgets_the_shape() -> Context:
    return changed(Buffer, "numpy", lambda before: lambda self: before(self).reshape(-1))
