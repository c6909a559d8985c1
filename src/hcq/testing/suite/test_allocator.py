"""Allocators: the calls, the cache, limits, running out, and memory that queued work still uses."""

import ctypes
import gc

import numpy as np
import pytest

import hcq
from hcq import Buffer, BufferOptions, LRUAllocator
from hcq.errors import OutOfMemory
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import BYTE, I32, empty, filled, noise, printed, read, together

REFUSED = (ValueError, TypeError, RuntimeError)


class Ledger(LRUAllocator):
    """A cache over pretended memory that keeps a record, and has only `capacity` bytes."""

    def __init__(self, device, capacity=1 << 40, error=RuntimeError):
        super().__init__(device)
        self.capacity, self.error = capacity, error
        self.taken, self.log = 0, []

    def _alloc(self, size, options):
        if self.taken + size > self.capacity:
            self.log.append(("refused", size))
            raise self.error("no more")
        self.taken += size
        self.log.append(("alloc", size))
        return [size]

    def _free(self, opaque, options):
        self.taken -= opaque[0]
        self.log.append(("free", opaque[0]))


@pytest.fixture
def ledger(fresh):
    def make(**keywords):
        made = Ledger(fresh, **keywords)
        fresh.allocator = made
        return made

    return make


# -- the calls --------------------------------------------------------------------------------------------------------


@promise("allocator.calls", "allocator.copies", "allocator.device")
def test_clients_may_call_the_allocator(dev):
    allocator = dev.allocator
    data = noise(1000)
    for take, give in ((allocator.alloc, allocator.free), (allocator._alloc, None)):
        opaque = take(1000, BufferOptions())
        allocator.copyin(opaque, memoryview(data))
        out = bytearray(1000)
        allocator.copyout(memoryview(out), opaque)
        assert out == data.tobytes()
        give(opaque, 1000, BufferOptions()) if give else allocator._free(opaque, BufferOptions())
    opaque = allocator.alloc(64)
    allocator.free(opaque, 64)
    assert getattr(allocator, "device", None) in (dev, None) or isinstance(allocator, hcq.Allocator)


@promise("allocator.calls")
def test_alloc_and_free_call_the_drivers(ledger):
    made = ledger()
    opaque = made.alloc(100)
    assert made.log == [("alloc", 100)]
    made.free(opaque, 100, BufferOptions(nolru=True))
    assert made.log == [("alloc", 100), ("free", 100)]


@promise("allocator.size_refused", "errors.no_assert")
@pytest.mark.parametrize("size", [0, -1, -(2**62)])
def test_no_bytes_are_refused(dev, size):
    with pytest.raises(REFUSED):
        dev.allocator.alloc(size)


@promise("allocator.offset")
@needs("host_memory")
def test_offset_gives_a_views_opaque(dev):
    data = noise(100)
    buf = filled(dev, data)
    part = dev.allocator.offset(buf._buf, 30, 7)
    out = bytearray(30)
    dev.allocator.copyout(memoryview(out), part)
    assert out == data[7:37].tobytes()


@promise("allocator.optional")
def test_what_an_allocator_lacks_it_does_not_have(fresh):
    for name in ("offset", "as_buffer", "transfer", "copy_from_disk", "map"):
        assert not hasattr(Ledger(fresh), name)
        assert not hasattr(hcq.Allocator, name)
    fresh.allocator = Ledger(fresh)
    with pytest.raises(REFUSED):
        Buffer(fresh.dname, 10, I32).allocate().as_buffer(force_zero_copy=True)


# -- the cache --------------------------------------------------------------------------------------------------------


@promise("allocator.lru_reuse")
def test_freed_memory_is_handed_out_again(ledger):
    made = ledger()
    opaque = made.alloc(100)
    made.free(opaque, 100)
    assert made.alloc(100) is opaque
    assert made.alloc(100) is not opaque
    assert made.alloc(200) is not opaque
    assert made.log == [("alloc", 100), ("alloc", 100), ("alloc", 200)]


@promise("allocator.lru_options")
def test_memory_of_other_options_is_not_handed_out(ledger):
    made = ledger()
    opaque = made.alloc(100, BufferOptions(host=True))
    made.free(opaque, 100, BufferOptions(host=True))
    assert made.alloc(100) is not opaque
    assert made.alloc(100, BufferOptions(host=True)) is opaque


@promise("allocator.lru_free_cache")
def test_free_cache_gives_back(ledger):
    made = ledger()
    for opaque in [made.alloc(100), made.alloc(200)]:
        made.free(opaque, opaque[0])
    made.free_cache()
    assert sorted(made.log[2:]) == [("free", 100), ("free", 200)] and made.taken == 0


@promise("allocator.lru_off")
def test_the_cache_can_be_switched_off(ledger):
    made = ledger()
    made.free(made.alloc(100, BufferOptions(nolru=True)), 100, BufferOptions(nolru=True))
    assert made.taken == 0


@promise("allocator.lru_off")
def test_lru_zero_switches_the_cache_off(driver):
    code = f"""
{driver.setup}
import hcq, gc
b = hcq.Buffer({driver.device!r}, 5000, hcq.dtypes.int32).allocate(); del b; gc.collect()
print(hcq.memory_stats({driver.device!r}).cached_bytes)"""
    assert int(printed(code, env={"LRU": "1"})) >= 20000
    assert printed(code, env={"LRU": "0"}) == "0"


@promise("allocator.lru_retry", "allocator.oom_errors")
@pytest.mark.parametrize("error", [RuntimeError, MemoryError])
def test_a_refusal_empties_the_cache_and_tries_once_more(ledger, error):
    made = ledger(capacity=1000, error=error)
    made.free(made.alloc(600), 600)
    assert made.alloc(500) == [500]
    assert made.log == [("alloc", 600), ("refused", 500), ("free", 600), ("alloc", 500)]
    made.log.clear()
    with pytest.raises(OutOfMemory):
        made.alloc(600)
    assert [entry for entry in made.log if entry[0] == "refused"] and len(made.log) <= 2


@promise("allocator.oom", "errors.attributes")
def test_out_of_memory_tells_what_is_held(ledger, fresh):
    ledger(capacity=10_000)
    buf = Buffer(fresh.dname, 7000, BYTE).allocate()
    with pytest.raises(OutOfMemory) as refused:
        Buffer(fresh.dname, 5000, BYTE).allocate()
    error = refused.value
    assert isinstance(error, MemoryError)
    assert (error.device, error.asked, error.live, error.cached) == (fresh.dname, 5000, 7000, 0)
    assert "7000" in str(error).replace(",", "").replace(" ", "") or "6.8" in str(error)
    assert buf.is_allocated()


# -- limits -----------------------------------------------------------------------------------------------------------


@promise("allocator.limit")
def test_the_limit_counts_live_and_cached_and_drops_the_oldest_first(fresh):
    fresh.allocator.free_cache()
    base = hcq.memory_stats(fresh.dname).live_bytes
    fresh.allocator.limit = base + 100_000
    old, young = empty(fresh, 30_000, BYTE), empty(fresh, 31_000, BYTE)
    old.deallocate()
    young.deallocate()
    assert hcq.memory_stats(fresh.dname).cached_bytes == 61_000
    kept = empty(fresh, 50_000, BYTE)  # 30 + 31 + 50 are too many: the oldest cached block goes, the other stays
    assert hcq.memory_stats(fresh.dname).cached_bytes == 31_000
    with pytest.raises(OutOfMemory):
        empty(fresh, 60_000, BYTE)
    assert empty(fresh, 50_000, BYTE).is_allocated()
    fresh.allocator.limit = None
    assert empty(fresh, 500_000, BYTE).is_allocated() and kept.is_allocated()


@promise("allocator.limit_variable", "allocator.oom")
def test_the_variable_sets_the_limit(driver):
    code = f"""
{driver.setup}
import hcq
def take(n):
    try: return hcq.Buffer({driver.device!r}, n, hcq.dtypes.uint8).allocate()
    except hcq.errors.OutOfMemory as e: return e
a = take(600_000); b = take(600_000)
print(hcq.Device[{driver.device!r}].allocator.limit, type(b).__name__)"""
    assert printed(code, env={"HCQ_MEMORY_LIMIT": "1000000"}) == "1000000 OutOfMemory"
    assert printed(code, env={"HCQ_MEMORY_LIMIT": "0"}) == "None Buffer"


@promise("allocator.limit")
def test_allocating_in_a_loop_under_a_limit_never_fails(fresh):
    fresh.allocator.limit = hcq.memory_stats(fresh.dname).live_bytes + 1_000_000
    for size in range(1000, 400_000, 3001):
        buf = empty(fresh, size, BYTE)
        stats = hcq.memory_stats(fresh.dname)
        assert stats.live_bytes + stats.cached_bytes <= fresh.allocator.limit
        del buf
    fresh.allocator.limit = None


# -- memory that queued work uses -------------------------------------------------------------------------------------


@promise("allocator.ordered_reuse", "launch.owns", "queue.uses_live")
@needs("queues", "async", "host_memory")
def test_memory_freed_under_queued_work_is_not_overwritten(fresh):
    """A queue at a wait is to read `source`; that is freed, and the host fills as much memory as it can get."""
    data = noise(4096)
    out, source = filled(fresh, np.zeros(4096, np.uint8)), filled(fresh, data)
    gate, done = fresh.signal_t(), fresh.signal_t()
    queue = fresh.hw_copy_queue_t().wait(gate, 1).copy(out._buf.va_addr, source._buf.va_addr, 4096).signal(done, 1)
    queue.submit(fresh)
    del source
    gc.collect()
    others = [empty(fresh, 4096, BYTE) for _ in range(16)]
    for other in others:
        ctypes.memset(other._buf.va_addr, 0, 4096)  # copyin and as_buffer would wait for the queue
    gate.value = 1
    done.wait(1)
    assert (read(out) == data).all()


@promise("allocator.bounded_pending")
@needs("queues", "async", "native")
@pytest.mark.slow
def test_memory_waiting_for_work_is_bounded(fresh):
    gate = fresh.signal_t()
    for _ in range(3):
        fresh.hw_compute_queue_t().wait(gate, 1).submit(fresh)
    size, before = 8 << 20, 0
    taken = set()
    for _ in range(40):
        buf = empty(fresh, size, BYTE)
        taken.add(buf._buf.va_addr)
        del buf
    before = len(taken)
    gate.value = 1
    fresh.synchronize()
    gc.collect()
    for _ in range(40):
        buf = empty(fresh, size, BYTE)
        taken.add(buf._buf.va_addr)
        del buf
    assert len(taken) <= before + 1  # once the work is over the blocks that waited are handed out again


@promise("allocator.threads")
def test_a_block_is_never_handed_to_two_threads(dev):
    def work(seed: int) -> None:
        for n in range(150):
            bufs = [filled(dev, np.full(256, seed + 3 * n + k, I32)) for k in range(3)]
            for k, buf in enumerate(bufs):
                assert (read(buf) == seed + 3 * n + k).all()

    together(*[lambda seed=1000 * t: work(seed) for t in range(6)])


# -- host memory ------------------------------------------------------------------------------------------------------


@pytest.mark.core
@promise("allocator.malloc_shared", "allocator.malloc_aligned")
def test_malloc_allocator_is_shared_and_aligned(driver):
    allocator = hcq.MallocAllocator
    kept = []
    for size in (1, 3, 64, 65, 4097, 1 << 20):
        opaque = allocator.alloc(size)
        allocator.copyin(opaque, memoryview(bytearray(b"x" * size)))
        view = np.frombuffer(allocator.as_buffer(opaque), np.uint8)
        assert view.__array_interface__["data"][0] % 64 == 0
        assert bytes(view[:size]) == b"x" * size
        kept.append((opaque, size))
    for opaque, size in kept:
        allocator.free(opaque, size)


@promise("allocator.malloc_aligned")
@needs("host_memory")
def test_buffers_are_aligned(dev):
    bufs = [empty(dev, size, BYTE) for size in (1, 3, 65, 100, 4097, 100_001)]
    assert all(buf._buf.va_addr % 64 == 0 for buf in bufs)


@promise("allocator.malloc_pooled")
@needs("native")
@pytest.mark.slow
def test_many_buffers_are_few_mappings(fresh):
    def mappings() -> int:
        with open("/proc/self/maps") as file:
            return sum(1 for _ in file)

    before = mappings()
    bufs = [empty(fresh, 64 + n % 7, BYTE) for n in range(100_000)]
    assert mappings() - before < 1000
    del bufs
