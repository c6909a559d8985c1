"""Breakages of buffers, allocators, counters and what other libraries see of them."""

from __future__ import annotations

import ctypes
import mmap
import weakref
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import hcq
from hcq import Buffer, BufferOptions, HCQBuffer, LRUAllocator, MallocAllocator
from hcq.drivers.null.allocator import NullAllocator
from hcq.errors import OutOfMemory
from hcq.testing.breakages import breaks, changed, together

Context = AbstractContextManager[Any]


def prop(owner: Any, name: str, get: Any, put: Any = None) -> Context:
    """An attribute of instances that is computed: `get(before, self)`, `put(before, self, value)`."""
    before = owner.__dict__.get(name) or getattr(owner, name)
    setter = None if put is None else lambda self, value: put(before, self, value)
    return patch.object(owner, name, property(lambda self: get(before, self), setter))


def raw(buf: Any) -> bytes:
    """The bytes of a buffer as they lie there now, without waiting for anybody."""
    return ctypes.string_at(buf._buf.va_addr, buf.nbytes)


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


# -- allocators -------------------------------------------------------------------------------------------------------


@breaks("allocator.lru_reuse", "test_freed_memory_is_handed_out_again")
def nothing_is_handed_out_again() -> Context:
    def make(before: Any) -> Any:
        return lambda self, size, options=None: self._alloc(size, BufferOptions())

    return changed(LRUAllocator, "alloc", make)


@breaks("allocator.lru_options", "test_memory_of_other_options_is_not_handed_out")
def the_cache_ignores_options() -> Context:
    return together(
        changed(LRUAllocator, "alloc", lambda alloc: lambda self, size, options=None: alloc(self, size)),
        changed(LRUAllocator, "free", lambda free: lambda self, opaque, size, options=None: free(self, opaque, size)),
    )


@breaks("allocator.lru_free_cache", "test_free_cache_gives_back", "test_cached_counts_what_the_cache_keeps")
def free_cache_keeps_all() -> Context:
    return together(
        changed(LRUAllocator, "free_cache", lambda before: lambda self: None),
        changed(NullAllocator, "free_cache", lambda before: lambda self: None),
    )


@breaks(
    "allocator.lru_off",
    "test_the_cache_can_be_switched_off",
    "test_alloc_and_free_call_the_drivers",
)
def nolru_is_ignored() -> Context:
    return changed(LRUAllocator, "free", lambda free: lambda self, opaque, size, options=None: free(self, opaque, size))


@breaks("allocator.size_refused", "test_no_bytes_are_refused")
def no_bytes_are_one() -> Context:
    return changed(NullAllocator, "alloc", lambda alloc: lambda self, size, options=None: alloc(self, max(size, 1)))


@breaks("allocator.copies", "test_clients_may_call_the_allocator")
def the_allocators_copyin_does_nothing() -> Context:
    return changed(NullAllocator, "copyin", lambda before: lambda self, dest, source: None)


@breaks("allocator.offset", "test_offset_gives_a_views_opaque", "test_hcq_buffers_have_address_and_size")
def offset_ignores_the_offset() -> Context:
    return patch.object(NullAllocator, "offset", lambda self, buf, size, offset: HCQBuffer(buf.va_addr, size))


@breaks("allocator.optional", "test_what_an_allocator_lacks_it_does_not_have")
def every_allocator_has_a_transfer() -> Context:
    return patch.object(hcq.Allocator, "transfer", lambda self, *rest: None, create=True)


@breaks("allocator.lru_retry", "test_a_refusal_empties_the_cache_and_tries_once_more")
def a_refusal_is_final() -> Context:
    def make(alloc: Any) -> Any:
        def broken(self: Any, size: int, options: Any = None) -> Any:
            try:
                self._alloc(size, BufferOptions())
            except (RuntimeError, MemoryError) as error:
                raise OutOfMemory("no", asked=size) from error
            return alloc(self, size, options)

        return broken

    return changed(LRUAllocator, "alloc", make)


@breaks("allocator.oom", "test_out_of_memory_tells_what_is_held")
def out_of_memory_says_little() -> Context:
    def make(allocate: Any) -> Any:
        def broken(self: Any, opaque: Any = None) -> Any:
            try:
                return allocate(self, opaque)
            except OutOfMemory:
                raise OutOfMemory("no more memory") from None

        return broken

    return changed(Buffer, "allocate", make)


@breaks(
    "allocator.limit",
    "test_the_limit_counts_live_and_cached_and_drops_the_oldest_first",
    "test_allocating_in_a_loop_under_a_limit_never_fails",
)
def the_limit_is_ignored() -> Context:
    limits: dict[int, Any] = {}
    return prop(
        NullAllocator,
        "limit",
        lambda before, self: limits.get(id(self)),
        lambda before, self, value: limits.__setitem__(id(self), value),
    )


@breaks(
    "allocator.ordered_reuse",
    "test_memory_freed_under_queued_work_is_not_overwritten",
    "test_a_submitted_queue_may_be_dropped[False]",
)
def freed_memory_is_overwritten_at_once() -> Context:
    active = [True]

    def overwrite(address: int, size: int) -> None:
        if active:  # else the device, and its memory, may be gone
            ctypes.memset(address, 0, size)

    def make(allocate: Any) -> Any:
        def broken(self: Any, opaque: Any = None) -> Any:
            allocate(self, opaque)
            weakref.finalize(self, overwrite, self._buf.va_addr, self.nbytes)
            return self

        return broken

    @contextmanager
    def lasting() -> Any:
        with changed(Buffer, "allocate", make):
            yield
        active.clear()

    return lasting()


@breaks(
    "allocator.bounded_pending", "test_memory_waiting_for_work_is_bounded", "test_a_buffer_may_die_in_another_thread"
)
def buffers_live_for_ever() -> Context:
    kept: list[Any] = []

    def make(allocate: Any) -> Any:
        return lambda self, opaque=None: (kept.append(self), allocate(self, opaque))[1]

    return changed(Buffer, "allocate", make)


@breaks(
    "allocator.threads",
    "test_a_block_is_never_handed_to_two_threads",
)
def two_buffers_share_one_block() -> Context:
    last: dict[tuple[str, int], Any] = {}

    def make(allocate: Any) -> Any:
        def broken(self: Any, opaque: Any = None) -> Any:
            key = self.device, self.nbytes
            if opaque is None and key in last:
                return allocate(self, last.pop(key))
            allocate(self, opaque)
            last[key] = self._buf
            return self

        return broken

    return changed(Buffer, "allocate", make)


@breaks("allocator.malloc_aligned", "test_malloc_allocator_is_shared_and_aligned")
def host_memory_is_aligned_to_eight() -> Context:
    def make(alloc: Any) -> Any:
        def broken(self: Any, size: int, options: Any = None) -> Any:
            whole = alloc(self, size + 64)
            kept.append(whole)
            return HCQBuffer(whole.va_addr + 8, size)

        return broken

    kept: list[Any] = []
    return changed(type(MallocAllocator), "alloc", make)


@breaks("allocator.malloc_aligned", "test_buffers_are_aligned")
def buffers_are_aligned_to_eight() -> Context:
    return prop(HCQBuffer, "va_addr", lambda before, self: before.__get__(self) + 8)


@breaks("allocator.malloc_pooled", "test_many_buffers_are_few_mappings")
def a_mapping_a_buffer() -> Context:
    kept: list[Any] = []

    def make(allocate: Any) -> Any:
        def broken(self: Any, opaque: Any = None) -> Any:
            if len(kept) < 5000:
                kept.append(mmap.mmap(-1, 4096))
            return allocate(self, opaque)

        return broken

    return changed(Buffer, "allocate", make)


# -- counters ---------------------------------------------------------------------------------------------------------


@breaks(
    "stats.live",
    "test_live_counts_root_buffers_and_drops_when_they_die",
    "test_deallocate_gives_back_and_may_be_repeated",
)
def live_never_drops() -> Context:
    most: dict[Any, Any] = {}

    def make(before: Any) -> Any:
        def stats(device: Any = None) -> Any:
            found = before(device)
            bytes_, count = most.get(device, (0, 0))
            most[device] = max(bytes_, found.live_bytes), max(count, found.live_count)
            return found._replace(live_bytes=most[device][0], live_count=most[device][1])

        return stats

    return changed(hcq, "memory_stats", make)


@breaks("stats.cached", "test_cached_counts_what_the_cache_keeps", "test_nolru_is_really_freed")
def the_cache_is_not_counted() -> Context:
    def make(before: Any) -> Any:
        return lambda device=None: before(device)._replace(cached_bytes=0, cached_count=0)

    return changed(hcq, "memory_stats", make)


@breaks("stats.peak", "test_peak_keeps_the_most")
def the_peak_is_forgotten() -> Context:
    def make(before: Any) -> Any:
        def stats(device: Any = None) -> Any:
            found = before(device)
            return found._replace(peak_bytes=found.live_bytes)

        return stats

    return changed(hcq, "memory_stats", make)


@breaks("stats.shape", "test_without_a_device_all_by_name")
def counters_know_no_device_names() -> Context:
    return changed(hcq, "memory_stats", lambda before: lambda device=None: before(device) if device else {})


@breaks("stats.excluded", "test_arrays_are_not_counted", "test_opaque_may_be_another_buffers_memory")
def every_buffer_is_counted() -> Context:
    calls: list[int] = []

    def make(before: Any) -> Any:
        def stats(device: Any = None) -> Any:
            calls.append(1)
            found = before(device)
            if device is not None:
                return found._replace(live_count=found.live_count + len(calls))
            sample = before("NULL")
            return {**found, "NPY": sample._replace(live_bytes=len(calls))}

        return stats

    return changed(hcq, "memory_stats", make)


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


@breaks("buffer.opaque_alive", "test_the_callers_opaque_is_not_freed_by_us")
def the_callers_memory_is_overwritten() -> Context:
    def make(alloc: Any) -> Any:
        def broken(self: Any, size: int, options: Any = None) -> Any:
            made = alloc(self, size, options)
            if (old := given.pop(size, None)) is not None:
                ctypes.memset(old.va_addr, 0, size)
            given[size] = made
            return made

        return broken

    given: dict[int, Any] = {}

    def wreck(allocate: Any) -> Any:
        def broken(self: Any, opaque: Any = None) -> Any:
            allocate(self, opaque)
            if (old := given.pop(self.nbytes, None)) is not None:
                ctypes.memset(old.va_addr, 0, self.nbytes)
            return self

        return broken

    return together(changed(NullAllocator, "alloc", make), changed(Buffer, "allocate", wreck))
