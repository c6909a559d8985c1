"""Allocators: memory that queued work still uses."""

import signal
import threading
import weakref

import pytest
from memory_devices import Handle, QueuedDevice, kinds, opened

from hcq import (
    Buffer,
    BufferOptions,
    Device,
    dtypes,
)
from hcq.errors import DeviceLost

NOLRU = BufferOptions(nolru=True)


@pytest.fixture
def queued():
    with opened(QueuedDevice) as name:
        yield Device[name]


def test_memory_freed_while_queued_work_uses_it_waits_for_that_work(queued):
    allocator = queued.allocator
    queued.queue()
    one = allocator.alloc(64)
    allocator.free(one, 64)
    assert allocator.pending_bytes == 64 and allocator.cached_bytes == 64
    assert allocator.alloc(64) is not one
    queued.finish()
    assert allocator.alloc(64) is one
    assert allocator.pending_bytes == 0


def test_really_freed_memory_waits_for_queued_work_too(queued):
    allocator = queued.allocator
    queued.queue()
    allocator.free(allocator.alloc(64, NOLRU), 64, NOLRU)
    assert kinds(allocator) == ["alloc"]
    queued.finish()
    allocator.free_cache()
    assert kinds(allocator) == ["alloc", "free"]


def test_a_callers_memory_is_kept_until_queued_work_has_passed(queued):
    memory = Handle(bytearray(16))
    alive = weakref.ref(memory)
    buf = Buffer(queued.dname, 16, dtypes.uint8, opaque=memory)
    queued.queue()
    del buf, memory
    assert alive() is not None
    queued.finish()
    queued.allocator.alloc(8)
    assert alive() is None


def test_memory_that_waits_is_bounded_and_an_allocation_does_not_wait_for_ever(queued):
    allocator = queued.allocator
    allocator._alloc = lambda size, options: Handle(b"", 0, size)
    queued.queue()
    blocks = [allocator.alloc(1 << 30) for _ in range(2)]
    for block in blocks:
        allocator.free(block, 1 << 30)
    assert allocator.pending_bytes == 2 << 30
    assert allocator.alloc(1 << 30) not in blocks  # waited a little, then took new memory
    timer = threading.Timer(0.02, queued.finish)
    timer.start()
    while queued.done != queued.submitted:
        fresh = allocator.alloc(1 << 20)
        allocator.free(fresh, 1 << 20)
    timer.join()
    assert allocator.alloc(1 << 30) in blocks


def test_under_a_limit_an_allocation_waits_for_memory_that_work_is_about_to_release(queued):
    allocator = queued.allocator
    allocator.limit = 100
    queued.queue()
    allocator.free(allocator.alloc(80), 80)
    timer = threading.Timer(0.01, queued.finish)
    timer.start()
    allocator.alloc(60)
    timer.join()
    assert allocator.cached_bytes == 0


def test_waiting_for_memory_can_be_interrupted(queued):
    class Interrupted(Exception):
        pass

    def interrupt(*_):
        raise Interrupted

    allocator = queued.allocator
    allocator.limit = 100
    queued.queue()
    allocator.free(allocator.alloc(80), 80)
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    try:
        with pytest.raises(Interrupted):
            allocator.alloc(60)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert allocator.live_bytes == 0
    queued.finish()
    assert allocator.alloc(60) is not None


def test_a_lost_device_is_asked_to_free_nothing(queued):
    allocator = queued.allocator
    block = allocator.alloc(64)

    def lost():
        raise DeviceLost("gone")

    queued.position = lost
    type(queued).position, before = lambda self: lost(), type(queued).position
    try:
        allocator.free(block, 64)
        assert allocator.live_bytes == 0 and allocator.cached_count == 0 and kinds(allocator) == ["alloc"]
    finally:
        type(queued).position = before
