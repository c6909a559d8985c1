"""The checks (hcq.checks): what they find on a device with command queues, and nothing where all is well."""

from __future__ import annotations

import pytest

import hcq
from hcq import errors
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import I32, address


def _copies(dev, ordered: bool) -> None:
    source, between, out = (hcq.empty(4, I32, dev.dname).fill(1) for _ in range(3))
    dev.synchronize()  # filling may only be queued, and streams don't wait for that
    first, second = dev.stream(), dev.stream()
    hcq.copy(between, source, stream=first)
    if ordered:
        second.wait(first)
    hcq.copy(out, between, stream=second)
    first.synchronize()
    second.synchronize()
    dev.synchronize()


@promise("checks.races")
@needs("queues")
def test_checks_find_copies_without_order(fresh):
    with pytest.raises(errors.RaceError), hcq.checks():
        _copies(fresh, ordered=False)
    fresh.synchronize()
    with hcq.checks() as checks:
        known = list(checks.findings)  # of a block around this one
        _copies(fresh, ordered=True)
    assert checks.findings == known


@promise("checks.deadlocks")
@needs("queues")
def test_checks_refuse_a_cycle_of_queues(fresh):
    one, two = fresh.signal_t(), fresh.signal_t()
    with hcq.checks():
        fresh.hw_compute_queue_t().wait(one, 1).signal(two, 1).submit(fresh)
        with pytest.raises(errors.DeadlockError):
            fresh.hw_copy_queue_t().wait(two, 1).signal(one, 1).submit(fresh)
        fresh.hw_copy_queue_t().signal(one, 1).wait(two, 1).submit(fresh)
        two.wait(1)
        fresh.synchronize()


@promise("checks.lifetimes")
@needs("queues")
def test_checks_find_the_address_of_freed_memory(fresh):
    with hcq.checks():
        buf, out = (hcq.empty(4, I32, fresh.dname).fill(1) for _ in range(2))
        at = address(buf)
        fresh.hw_copy_queue_t().copy(address(out), at, 16).submit(fresh)
        buf.deallocate()
        with pytest.raises(errors.UseAfterFreeError):
            fresh.hw_copy_queue_t().copy(address(out), at, 16).submit(fresh)
        fresh.synchronize()


@promise("checks.bounds")
@needs("queues", "host_memory")
def test_checks_find_a_write_past_the_end(fresh):
    import ctypes

    with hcq.checks():
        buf = hcq.empty(4, I32, fresh.dname)
        ctypes.memset(address(buf), 0, 16)
        fresh.synchronize()
        ctypes.memset(address(buf) + 16, 0, 1)
        with pytest.raises(errors.OutOfBoundsError):
            fresh.synchronize()
