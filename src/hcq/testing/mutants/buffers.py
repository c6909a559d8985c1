"""Breakages of buffers: what they say of themselves, their views, their pickles. Their bytes: contents."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import hcq
from hcq import Buffer, BufferOptions, HCQBuffer
from hcq.testing.breakages import breaks, changed, prop, raw, together

Context = AbstractContextManager[Any]


# -- making and allocating --------------------------------------------------------------------------------------------


@breaks("buffer.size_elements", "test_size_counts_elements_of_any_dtype")
def elements_have_four_bytes() -> Context:
    return prop(Buffer, "nbytes", lambda before, self: self.size * 4)


@breaks("buffer.canonical", "test_the_device_name_is_made_canonical")
def device_names_stay_as_given() -> Context:
    return prop(Buffer, "device", lambda before, self: before.__get__(self).lower())


@breaks("buffer.lazy", "test_making_a_buffer_opens_no_device")
def making_a_buffer_opens_its_device() -> Context:
    return patch.object(hcq, "Buffer", lambda device, *rest: (hcq.Device[device], Buffer(device, *rest))[1])


@breaks("buffer.lazy", "test_making_a_buffer_allocates_nothing", "test_allocate_and_ensure_return_self")
def buffers_claim_to_be_allocated() -> Context:
    return changed(Buffer, "is_allocated", lambda before: lambda self: True)


@breaks("buffer.preallocate", "test_preallocate_and_initial_value_allocate_at_once")
def buffers_claim_not_to_be_allocated() -> Context:
    return changed(Buffer, "is_allocated", lambda before: lambda self: False)


@breaks("buffer.size_refused", "test_a_size_that_is_none_is_refused[0]")
def no_elements_are_one() -> Context:
    return patch.object(hcq, "Buffer", lambda device, size, dtype: Buffer(device, size or 1, dtype))


@breaks("buffer.ensure", "test_allocate_and_ensure_return_self", "test_allocating_a_view_allocates_the_root")
def ensure_allocated_gives_nothing() -> Context:
    return changed(Buffer, "ensure_allocated", lambda before: lambda self: None)


@breaks("buffer.allocate_twice", "test_allocating_twice_is_an_error")
def allocating_twice_is_allowed() -> Context:
    return changed(Buffer, "allocate", lambda before: lambda self, opaque=None: self.ensure_allocated())


@breaks("buffer.buf_stable", "test_buf_is_one_object")
def handles_are_made_at_each_look() -> Context:
    def get(before: Any, self: Any) -> Any:
        handle = before.__get__(self)
        return HCQBuffer(handle.va_addr, handle.size)

    return prop(Buffer, "_buf", get)


@breaks(
    "buffer.deallocate",
    "test_deallocate_gives_back_and_may_be_repeated",
    "test_deallocating_the_root_makes_views_unallocated",
)
def deallocate_does_nothing() -> Context:
    return changed(Buffer, "deallocate", lambda before: lambda self: None)


@breaks("buffer.allocator_attr", "test_the_allocator_is_there_once_allocated")
def the_allocator_is_hidden() -> Context:
    return prop(Buffer, "allocator", lambda before, self: None)


@breaks("buffer.identity", "test_identity_and_weak_references")
def buffers_are_equal_by_size() -> Context:
    return patch.object(Buffer, "__eq__", lambda self, other: self.size == other.size)


@breaks("buffer.lb_refcount", "test_ref_counts", "test_contents_travel")
def ref_counts_nothing() -> Context:
    return changed(Buffer, "ref", lambda before: lambda self, count: None)


@breaks("buffer.repr", "test_repr_tells_device_size_and_dtype")
def a_buffers_repr_says_nothing() -> Context:
    return patch.object(Buffer, "__repr__", lambda self: "<Buffer>")


@breaks("buffer.options_type", "test_options_are_frozen_values")
def options_are_equal_by_identity() -> Context:
    return patch.object(BufferOptions, "__eq__", lambda self, other: self is other)


@breaks("buffer.options_work", "test_buffers_with_options_work")
def options_are_forgotten() -> Context:
    return prop(Buffer, "options", lambda before, self: None)


@breaks("buffer.options_kept", "test_options_are_read_when_the_memory_is_freed")
def options_cannot_be_changed() -> Context:
    return prop(Buffer, "options", lambda before, self: before.__get__(self), lambda before, self, value: None)


# -- views ------------------------------------------------------------------------------------------------------------


@breaks("buffer.view_share", "test_a_view_shares_memory")
def a_view_is_a_copy() -> Context:
    def view(self: Any, size: int, dtype: Any, offset: int) -> Any:
        data = raw(self.ensure_allocated())[offset : offset + size * dtype.itemsize]
        return Buffer(self.device, size, dtype, initial_value=data)

    return patch.object(Buffer, "view", view)


@breaks("buffer.view_any_offset", "test_any_byte_offset_works", "test_copies_between_views_are_exact")
def views_begin_at_words() -> Context:
    return changed(Buffer, "view", lambda view: lambda self, size, dtype, at: view(self, size, dtype, at // 4 * 4))


@breaks("buffer.view_bounds", "test_a_view_past_the_end_is_refused[11-0]")
def a_view_past_the_end_is_cut() -> Context:
    def make(view: Any) -> Any:
        return lambda self, size, dtype, at: view(self, min(size, (self.nbytes - at) // dtype.itemsize), dtype, at)

    return changed(Buffer, "view", make)


@breaks("buffer.view_bounds", "test_a_view_past_the_end_of_a_view_is_refused")
def views_are_bounded_by_the_root() -> Context:
    def make(view: Any) -> Any:
        return lambda self, size, dtype, at: view(self.base, size, dtype, self.offset + at)

    return changed(Buffer, "view", make)


@breaks("buffer.view_of_view", "test_a_view_of_a_view_has_the_root_as_base")
def offsets_are_not_summed() -> Context:
    return changed(Buffer, "view", lambda view: lambda self, size, dtype, at: view(self.base, size, dtype, at))


@breaks("buffer.view_keeps_root", "test_a_view_keeps_its_root")
def a_view_has_no_base() -> Context:
    return prop(Buffer, "base", lambda before, self: None)


@breaks("buffer.view_free", "test_views_are_not_counted")
def views_are_counted() -> Context:
    views: list[Any] = []

    def make(view: Any) -> Any:
        return lambda self, *rest: (views.append(1), view(self, *rest))[1]

    def count(before: Any) -> Any:
        def stats(device: Any = None) -> Any:
            found = before(device)
            return found._replace(live_count=found.live_count + len(views))

        return stats

    return together(changed(Buffer, "view", make), changed(hcq, "memory_stats", count))


# -- pickling ---------------------------------------------------------------------------------------------------------


@breaks(
    "buffer.pickle_contents",
    "test_contents_travel",
    "test_a_pickle_in_a_file_is_read_back",
    "test_contents_travel_out_of_band",
    "test_npy_buffers_carry_their_array",
)
def contents_do_not_travel() -> Context:
    def reduce(self: Any, protocol: int) -> Any:
        return Buffer, (self.device, self.size, self.dtype)

    return patch.object(Buffer, "__reduce_ex__", reduce)


@breaks("buffer.pickle_view", "test_a_view_travels_with_its_root")
def views_travel_alone() -> Context:
    def reduce(self: Any, protocol: int) -> Any:
        return _rebuilt, (self.device, self.size, self.dtype, bytes(self.as_buffer()))

    return patch.object(Buffer, "__reduce_ex__", reduce)


@breaks("buffer.pickle_out_of_band", "test_contents_travel_out_of_band")
def contents_travel_in_band() -> Context:
    return changed(Buffer, "__reduce_ex__", lambda before: lambda self, protocol: before(self, min(protocol, 4)))


@breaks("buffer.pickle_waits", "test_pickling_waits_for_queued_work")
def pickling_does_not_wait() -> Context:
    def reduce(self: Any, protocol: int) -> Any:
        return _rebuilt, (self.device, self.size, self.dtype, raw(self))

    return patch.object(Buffer, "__reduce_ex__", reduce)


def _rebuilt(device: str, size: int, dtype: Any, contents: bytes) -> Any:
    return Buffer(device, size, dtype, initial_value=contents)
