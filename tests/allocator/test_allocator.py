"""Allocators: reuse of freed memory, closing, counters, mistakes of clients."""

import gc
import os
import subprocess
import sys
import threading
import weakref

import pytest
from memory_devices import FarAllocator, FarDevice, HostDevice, kinds, opened

from hcq import (
    Allocator,
    Buffer,
    BufferOptions,
    Compiled,
    Device,
    HCQBuffer,
    LRUAllocator,
    MallocAllocator,
    dtypes,
    memory_stats,
)
from hcq.errors import OutOfMemory
from hcq.runtime.allocator import HostAllocator

HOST = BufferOptions(host=True)
NOLRU = BufferOptions(nolru=True)


# Options


def test_options_are_frozen_hashable_and_equal_by_value():
    assert BufferOptions() == BufferOptions(image=None, uncached=False, cpu_access=False, host=False, nolru=False)
    assert hash(BufferOptions(host=True)) == hash(HOST) and BufferOptions(uncached=True) != HOST
    with pytest.raises(AttributeError):
        HOST.host = False


# The plain allocator


def test_the_plain_allocator_calls_the_driver_with_options():
    class Plain(Allocator):
        def __init__(self):
            super().__init__("somewhere")
            self.log = []

        def _alloc(self, size, options):
            self.log.append((size, options))
            if size > 100:
                raise RuntimeError("none left")
            return "memory"

        def _free(self, opaque, options):
            self.log.append((opaque, options))

    plain = Plain()
    assert plain.device == "somewhere"
    assert plain.alloc(8) == "memory" and plain.alloc(size=9, options=HOST) == "memory"
    plain.free("memory", 8)
    plain.free("memory", 9, options=HOST)
    assert plain.log == [(8, BufferOptions()), (9, HOST), ("memory", BufferOptions()), ("memory", HOST)]
    for size in (0, -1):
        with pytest.raises(ValueError):
            plain.alloc(size)
    with pytest.raises(OutOfMemory, match="none left") as caught:
        plain.alloc(101)
    assert caught.value.asked == 101 and caught.value.device == "somewhere"
    bare = Allocator()
    for missing in (lambda: bare.alloc(1), lambda: bare.copyin(None, None), lambda: bare.copyout(None, None)):
        with pytest.raises(NotImplementedError):
            missing()
    assert not any(hasattr(bare, name) for name in ("offset", "as_buffer", "transfer", "copy_from_disk", "map"))


# Reuse


def test_freed_memory_is_handed_out_again_for_the_same_size_and_options(far):
    one = far.alloc(64)
    far.free(one, 64)
    assert far.alloc(64, BufferOptions()) is one
    far.free(one, 64, BufferOptions())
    assert far.alloc(65) is not one and far.alloc(64, HOST) is not one and far.alloc(size=64, options=None) is one
    two = far.alloc(64)
    far.free(one, 64), far.free(two, 64)
    assert far.alloc(64) is two and far.alloc(64) is one  # the one freed last is the one still in caches
    assert "free" not in kinds(far)
    assert far.log[0] == ("alloc", 64, BufferOptions())


def test_options_of_another_library_are_told_apart_by_value(far):
    class Theirs:
        nolru = False

        def __init__(self, tag):
            self.tag = tag

        def __eq__(self, other):
            return isinstance(other, Theirs) and self.tag == other.tag

        def __hash__(self):
            return hash(self.tag)

    class Unhashable:
        __hash__ = None

    one = far.alloc(64, Theirs(1))
    far.free(one, 64, Theirs(1))
    assert far.alloc(64, Theirs(2)) is not one and far.alloc(64) is not one and far.alloc(64, Theirs(1)) is one
    two = far.alloc(64, Unhashable())
    far.free(two, 64, Unhashable())
    assert far.cached_count == 0 and kinds(far)[-1] == "free"


def test_nolru_memory_is_really_freed(far):
    far.free(far.alloc(64, NOLRU), 64, NOLRU)
    assert kinds(far) == ["alloc", "free"] and far.log[1][2] == NOLRU and far.cached_count == 0


def test_free_cache_gives_everything_back(far):
    for size in (64, 64, 128):
        far.free(far.alloc(size, HOST), size, HOST)
    blocks = [far.alloc(32), far.alloc(32)]
    for block in blocks:
        far.free(block, 32)
    assert (far.cached_bytes, far.cached_count, far.live_bytes) == (64 + 128 + 64, 4, 0)
    far.free_cache()
    assert (far.cached_bytes, far.cached_count, far.used) == (0, 0, 0)
    assert [entry[2] for entry in far.log if entry[0] == "free"] == [HOST, HOST, BufferOptions(), BufferOptions()]
    far.free_cache()


def test_all_is_given_back_though_the_driver_fails_on_some(far):
    blocks = [far.alloc(64) for _ in range(4)]
    for block in blocks:
        far.free(block, 64)
    ok, calls = far._free, []

    def failing(opaque, options):
        calls.append(opaque)
        if len(calls) in (2, 3):
            raise OSError(f"failure {len(calls)}")
        ok(opaque, options)

    far._free = failing
    with pytest.raises(OSError, match="failure 2"):
        far.free_cache()
    assert len(calls) == 4 and far.cached_count == 0


@pytest.mark.parametrize("size", [0, -1, 2**63, -(2**100)])
def test_sizes_of_zero_or_less_and_too_large_ones_are_refused(far, size):
    with pytest.raises(ValueError):
        far.alloc(size)
    assert far.log == []
    with pytest.raises(TypeError):
        far.alloc(1.0)
    with pytest.raises(TypeError):
        far.alloc()
    with pytest.raises(TypeError):
        far.alloc(1, None, None)
    with pytest.raises(TypeError):
        far.alloc(1, sizes=2)


def test_the_environment_switches_the_cache_off_and_sets_a_limit():
    code = (
        "from hcq import LRUAllocator\n"
        "class A(LRUAllocator):\n"
        "    def _alloc(self, size, options): return bytearray(size)\n"
        "    def _free(self, opaque, options): print('freed', len(opaque))\n"
        "a = A(); print(a.limit); a.free(a.alloc(8), 8); print(a.cached_count); a.free_cache()\n"
    )

    def run(**env):
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split("\n")[:-1]

    assert run() == ["None", "1", "freed 8"]
    assert run(LRU="0", HCQ_MEMORY_LIMIT="1M") == ["1048576", "freed 8", "0"]
    assert run(HCQ_MEMORY_LIMIT="0") == ["None", "1", "freed 8"]


def test_an_allocator_that_dies_gives_its_cache_back():
    log = []

    class Logged(LRUAllocator):
        def _alloc(self, size, options):
            return bytearray(size)

        def _free(self, opaque, options):
            log.append(len(opaque))

    allocator = Logged()
    allocator.me = allocator
    allocator.free(allocator.alloc(8), 8)
    alive = weakref.ref(allocator)
    del allocator
    gc.collect()
    assert alive() is None and log == [8]


def test_drivers_may_set_their_attributes_before_they_call_up():
    class Theirs(LRUAllocator):
        def __init__(self, device, extra):
            self.device, self.extra = device, extra
            super().__init__()

    allocator = Theirs("D", 3)
    assert (allocator.device, allocator.extra) == ("D", 3)
    assert Theirs(None, 1).device is None
    with pytest.raises(AttributeError):
        LRUAllocator().alloc(1)


def test_overridden_alloc_and_free_are_what_buffers_call():
    class Counting(FarAllocator):
        calls = 0

        def alloc(self, size, options=None):
            self.calls += 1
            return super().alloc(size, options)

        def free(self, opaque, size, options=None):
            self.calls += 10
            super().free(opaque, size, options)

    class CountingDevice(Compiled):
        def __init__(self, name):
            super().__init__(name, Counting(self))

    with opened(CountingDevice) as name:
        Buffer(name, 4, dtypes.uint8, preallocate=True)
        assert Device[name].allocator.calls == 11


# Closing, counters, the shared allocator


def test_a_closed_devices_allocator_keeps_nothing_and_gives_nothing(far):
    block = far.alloc(64)
    far.close()
    far.free(block, 64)
    assert kinds(far) == ["alloc", "free"]
    with pytest.raises(RuntimeError, match="closed"):
        far.alloc(64)


def test_counters_tell_live_cached_and_peak():
    with opened(FarDevice) as name:
        assert memory_stats(name) == (0, 0, 0, 0, 0)
        bufs = [Buffer(name, 100, dtypes.uint8, preallocate=True) for _ in range(3)]
        view = bufs[0].view(50, dtypes.uint8, 0).ensure_allocated()
        assert memory_stats(name) == (300, 3, 0, 0, 300) == memory_stats()[name]
        bufs.pop().deallocate()
        del bufs[1:]
        assert memory_stats(name.lower() + ":0") == (100, 1, 200, 2, 300)
        del bufs, view
        assert memory_stats(name)[:4] == (0, 0, 300, 3)
        Device[name].allocator.free_cache()
        stats = memory_stats(name)
        assert (stats.live_bytes, stats.live_count, stats.cached_bytes, stats.cached_count, stats.peak_bytes) == (
            *(0, 0, 0, 0),
            300,
        )


def test_the_shared_host_allocator_serves_any_device():
    assert isinstance(MallocAllocator, LRUAllocator) and isinstance(MallocAllocator, HostAllocator)
    with opened(lambda name: Compiled(name, MallocAllocator)) as name:
        buf = Buffer(name, 4, dtypes.uint8, initial_value=b"abcd")
        assert bytes(buf.view(2, dtypes.uint8, 1).as_buffer(force_zero_copy=True)) == b"bc"
        assert Device[name].allocator is MallocAllocator


def test_ten_threads_share_an_allocator_of_pooled_memory():
    with opened(HostDevice) as name:
        allocator = Device[name].allocator
        problems = []

        def work(number):
            for turn in range(200):
                size = 64 + 64 * ((number + turn) % 5)
                block = allocator.alloc(size)
                view = allocator.as_buffer(block)
                view[:] = bytes([number]) * size
                if bytes(view) != bytes([number]) * size:
                    problems.append((number, turn))
                del view
                allocator.free(block, size)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not problems and allocator.live_bytes == 0


# Mistakes of clients


@pytest.fixture(params=["pooled", "driver"])
def giving_handles(request):
    """An allocator whose handles are HCQBuffers: pooled host memory, and a driver's own in Python."""
    return HostAllocator() if request.param == "pooled" else HandleAllocator()


class HandleAllocator(LRUAllocator):
    def _alloc(self, size, options):
        return HCQBuffer(0x1000, (size + 255) // 256 * 256)

    def _free(self, opaque, options):
        pass


@pytest.mark.parametrize("options", [None, NOLRU], ids=["cached", "nolru"])
def test_memory_is_freed_once_for_each_alloc(giving_handles, options):
    memory = giving_handles.alloc(64, options)
    giving_handles.free(memory, 64, options)
    with pytest.raises(ValueError, match="is free already"):
        giving_handles.free(memory, 64, options)
    assert giving_handles.alloc(64, options) is not giving_handles.alloc(64, options)
    again = giving_handles.alloc(64)
    giving_handles.free(again, 64)
    assert giving_handles.alloc(64) is again
    giving_handles.free(again, 64)


def test_memory_is_freed_as_what_it_was_allocated_as(giving_handles):
    memory = giving_handles.alloc(64)
    for size in (1 << 20, 63, 256):
        with pytest.raises(ValueError, match=f"was allocated as 64 bytes, and can't be freed as {size}"):
            giving_handles.free(memory, size)
    assert (giving_handles.live_bytes, giving_handles.cached_bytes) == (64, 0)
    giving_handles.free(memory, 64)
    assert (giving_handles.live_bytes, giving_handles.cached_bytes) == (0, 64)


def test_a_free_that_waits_for_a_view_is_a_free():
    allocator = HostAllocator()
    memory = allocator.alloc(64)
    view = allocator.as_buffer(memory)
    allocator.free(memory, 64)
    with pytest.raises(ValueError, match="is free already"):
        allocator.free(memory, 64)
    assert allocator.cached_bytes == 0
    view.release()
    assert allocator.cached_bytes == 64
    assert allocator.alloc(64) is memory


def test_memory_of_a_buffer_that_a_client_freed_is_not_freed_again():
    buf = Buffer("CLANG", 1000, dtypes.uint8, preallocate=True)
    allocator, handle = buf.allocator, buf._buf
    allocator.free(handle, 1000)
    buf.deallocate()
    assert allocator.alloc(1000) is handle
    other = allocator.alloc(1000)
    assert other is not handle
    allocator.free(handle, 1000)
    allocator.free(other, 1000)


@pytest.mark.parametrize("allocator", [HostAllocator, Allocator, MallocAllocator], ids=["native", "python", "shared"])
def test_none_is_no_memory(allocator):
    given = allocator if allocator is MallocAllocator else allocator()
    with pytest.raises(TypeError, match="not None"):
        given.free(None, 8)
