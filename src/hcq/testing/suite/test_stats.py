"""The counters of memory."""

import gc

import numpy as np
import pytest

import hcq
from hcq import Buffer
from hcq.testing.marks import promise
from hcq.testing.suite.tools import BYTE, I32, empty, live


@promise("stats.live", "stats.shape")
def test_live_counts_root_buffers_and_drops_when_they_die(fresh):
    before = hcq.memory_stats(fresh.dname)
    assert before._fields == ("live_bytes", "live_count", "cached_bytes", "cached_count", "peak_bytes")
    buf = empty(fresh, 1000)
    other = empty(fresh, 3, BYTE)
    now = hcq.memory_stats(fresh.dname)
    assert (now.live_bytes - before.live_bytes, now.live_count - before.live_count) == (4003, 2)
    del buf
    assert live(fresh.dname) == (before.live_bytes + 3, before.live_count + 1)
    del other
    assert live(fresh.dname) == (before.live_bytes, before.live_count)


@promise("stats.cached")
def test_cached_counts_what_the_cache_keeps(fresh):
    buf = empty(fresh, 1000)
    before = hcq.memory_stats(fresh.dname)
    del buf
    gc.collect()
    after = hcq.memory_stats(fresh.dname)
    assert (after.cached_bytes - before.cached_bytes, after.cached_count - before.cached_count) == (4000, 1)
    fresh.allocator.free_cache()
    emptied = hcq.memory_stats(fresh.dname)
    assert (emptied.cached_bytes, emptied.cached_count) == (0, 0)


@promise("stats.peak")
def test_peak_keeps_the_most(fresh):
    buf = empty(fresh, 1_000_000)
    peak = hcq.memory_stats(fresh.dname).peak_bytes
    assert peak >= 4_000_000
    del buf
    gc.collect()
    assert hcq.memory_stats(fresh.dname).peak_bytes == peak
    assert hcq.memory_stats(fresh.dname).live_bytes < peak


@promise("stats.shape")
def test_without_a_device_all_by_name(fresh):
    buf = empty(fresh, 100)
    stats = hcq.memory_stats()
    assert stats[fresh.dname].live_bytes == hcq.memory_stats(fresh.dname).live_bytes >= buf.nbytes
    assert hcq.memory_stats(fresh.dname.lower()) == hcq.memory_stats(fresh.dname)


@pytest.mark.core
@promise("stats.excluded")
def test_arrays_are_not_counted(driver):
    before = hcq.memory_stats().get("NPY")
    buf = Buffer("NPY", 1000, I32, opaque=np.zeros(1000, I32))
    after = hcq.memory_stats().get("NPY")
    assert (before.live_bytes if before else 0) == (after.live_bytes if after else 0)
    assert buf.is_allocated()
