"""Breakages of allocators and counters."""

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
from hcq.testing.breakages import breaks, changed, prop, together

Context = AbstractContextManager[Any]


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
