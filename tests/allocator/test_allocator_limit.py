"""Allocators: what is refused, and what is given back for it; limits."""

import gc
import threading
import weakref
from collections import OrderedDict, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_devices import FarAllocator, Handle, kinds

from hcq import (
    Buffer,
    BufferOptions,
    LRUAllocator,
    dtypes,
)
from hcq.errors import CompileError, DeviceLost, OutOfMemory

HOST = BufferOptions(host=True)
NOLRU = BufferOptions(nolru=True)


# Refusals


def test_when_the_driver_has_no_memory_the_cache_is_emptied_and_it_is_asked_again(far):
    far.room = 100
    for error in (MemoryError, RuntimeError):
        far.free(far.alloc(64), 64)
        allocate = FarAllocator._alloc

        def refusing(size, options, error=error, allocate=allocate):
            try:
                return allocate(far, size, options)
            except MemoryError as refused:
                raise error(str(refused)) from None

        far._alloc = refusing
        block = far.alloc(90)
        assert far.used == 90 and far.cached_count == 0
        far.free(block, 90)
        far.free_cache()
        del far._alloc


def test_a_driver_that_refuses_twice_is_out_of_memory(far):
    far.room = 100
    name = far.device.dname
    kept = [Buffer(name, n, dtypes.uint8, preallocate=True) for n in (10, 40, 20)]
    far.free(far.alloc(8), 8)
    far.log.clear()
    with pytest.raises(OutOfMemory) as caught:
        far.alloc(64)
    error = caught.value
    assert isinstance(error, MemoryError) and isinstance(error, RuntimeError)
    assert (error.device, error.asked, error.live, error.cached) == (name, 64, 70, 0)
    assert isinstance(error.__cause__, MemoryError) and "no room for 64" in str(error)
    text = str(error)
    assert text.index("40 bytes (40 x dtypes.uint8)") < text.index("20 bytes") < text.index("10 bytes (10 x")
    assert kinds(far) == ["alloc", "free", "alloc"]
    assert far.live_bytes == 70
    del kept


def test_with_nothing_to_give_back_the_driver_is_asked_once(far):
    far.room = 10
    with pytest.raises(OutOfMemory):
        far.alloc(64)
    assert kinds(far) == ["alloc"]


def test_the_error_holds_no_memory(far):
    far.room = 100
    seen = []

    def refusing(size, options):
        block = Handle(bytearray(1))
        seen.append(weakref.ref(block))
        raise MemoryError("none")

    far._alloc = refusing
    with pytest.raises(OutOfMemory) as caught:
        far.alloc(64)
    gc.collect()
    assert seen[0]() is None, "the frames of the driver's refusal live on in the error"
    del caught


@pytest.mark.parametrize("error", [DeviceLost("lost"), CompileError("no"), ValueError("bad options"), KeyError("k")])
def test_other_errors_of_the_driver_pass_through(far, error):
    def failing(size, options):
        raise error

    far.free(far.alloc(8), 8)
    far._alloc = failing
    with pytest.raises(type(error)) as caught:
        far.alloc(64)
    assert caught.value is error and far.cached_count == 1 and far.live_bytes == 0


def test_the_drivers_own_out_of_memory_is_kept(far):
    error = OutOfMemory("mine", device="X", asked=1)

    def failing(size, options):
        raise error

    far._alloc = failing
    with pytest.raises(OutOfMemory) as caught:
        far.alloc(64)
    assert caught.value is error


# The limit


def test_cached_blocks_go_oldest_first_before_a_request_is_refused(far):
    far.limit = 100
    blocks = [far.alloc(size) for size in (10, 20, 30, 40)]
    for block, size in zip(blocks, (10, 20, 30, 40), strict=True):
        far.free(block, size)
    far.log.clear()
    far.alloc(25)
    assert [entry[:2] for entry in far.log] == [("free", 10), ("free", 20), ("alloc", 25)]
    assert far.alloc(40) is blocks[3]
    with pytest.raises(OutOfMemory, match="limit of 100 bytes") as caught:
        far.alloc(36)
    assert caught.value.asked == 36 and caught.value.live == 65
    far.limit = None
    far.alloc(1000)


def test_a_request_above_the_limit_empties_nothing(far):
    far.limit = 100
    far.free(far.alloc(50), 50)
    with pytest.raises(OutOfMemory):
        far.alloc(101)
    assert far.cached_count == 1


def test_limits_are_bytes_or_none(far):
    assert far.limit is None
    far.limit = 0
    assert far.limit is None
    for wrong in (-1, 1.5, "many"):
        with pytest.raises((ValueError, TypeError)):
            far.limit = wrong
    far.limit = 4096
    assert far.limit == 4096


def test_two_threads_do_not_pass_one_limit_together():
    class Slow(LRUAllocator):
        def _alloc(self, size, options):
            barrier.wait(10)  # both are inside at once, or the second was refused
            return bytearray(size)

        def _free(self, opaque, options):
            pass

    allocator = Slow()
    allocator.limit = 100
    barrier = threading.Barrier(2)
    results = []

    def ask():
        try:
            results.append(allocator.alloc(60))
        except OutOfMemory as error:
            results.append(error)
            barrier.wait(10)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(type(result).__name__ for result in results) == ["OutOfMemory", "bytearray"]


class Model:
    """What the cache should do, in plain Python."""

    def __init__(self, limit):
        self.limit, self.live = limit, 0
        self.cache, self.order = defaultdict(list), OrderedDict()

    def alloc(self, size, options):
        """'hit' with the block, or 'new' with the blocks dropped before, or 'refused'."""
        if self.cache[size, options]:
            block = self.cache[size, options].pop()
            del self.order[block]
            self.live += size
            return "hit", block
        dropped = []
        if self.limit and size > self.limit:
            return "refused", dropped
        while self.limit and self.live + sum(n for n, _ in self.order.values()) + size > self.limit:
            if not self.order:
                return "refused", dropped
            block, key = self.order.popitem(last=False)
            self.cache[key].remove(block)
            dropped.append(block)
        self.live += size
        return "new", dropped

    def free(self, block, size, options):
        self.live -= size
        if options != NOLRU:
            self.cache[size, options].append(block)
            self.order[block] = (size, options)


@given(
    st.sampled_from([None, 64, 200]),
    st.lists(
        st.tuples(
            st.sampled_from(["alloc", "free", "empty"]),
            st.integers(1, 12),
            st.sampled_from([BufferOptions(), HOST, NOLRU]),
            st.integers(0, 2**20),
        ),
        max_size=120,
    ),
)
def test_the_cache_does_what_its_model_does(limit, steps):
    freed = []

    class Counted(LRUAllocator):
        made = 0

        def _alloc(self, size, options):
            self.made += 1
            return self.made, size, options

        def _free(self, opaque, options):
            assert opaque[2] == options
            freed.append(opaque)

    allocator, model, live = Counted(), Model(limit), []
    allocator.limit = limit
    for action, size, options, choice in steps:
        size *= 8
        freed.clear()
        if action == "alloc":
            outcome, detail = model.alloc(size, options)
            if outcome == "refused":
                with pytest.raises(OutOfMemory):
                    allocator.alloc(size, options)
                assert freed == detail
                continue
            block = allocator.alloc(size, None if options == BufferOptions() and choice % 2 else options)
            assert block == detail if outcome == "hit" else (block[0] == allocator.made and freed == detail)
            assert block[1:] == (size, options)
            live.append(block)
        elif action == "free" and live:
            block = live.pop(choice % len(live))
            allocator.free(block, *block[1:])
            model.free(block, *block[1:])
            assert freed == ([block] if block[2] == NOLRU else [])
        elif action == "empty":
            allocator.free_cache()
            assert freed == list(model.order)
            model.cache.clear(), model.order.clear()
        assert allocator.live_bytes == model.live == sum(block[1] for block in live)
        assert allocator.cached_bytes == sum(n for n, _ in model.order.values())
        assert allocator.cached_count == len(model.order)
