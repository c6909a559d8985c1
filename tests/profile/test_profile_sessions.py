"""Profiles begin, nest, fill up and end; what they keep alive."""

import gc
import json
import weakref
from collections import Counter

import pytest
from profile_tools import I32, C, buffer, events, of
from third_party.suite import SOURCE

import hcq
from hcq.testing import inject


def test_profiles_nest_and_each_takes_its_own_part(clang):
    a, one, two = buffer(), clang.program("one", C), clang.program("two", C)
    with hcq.profile() as outer:
        one(a, wait=True)
        with hcq.profile() as inner:
            two(a)
        one(a)
    assert Counter(span.name for span in of(inner, "kernel")) == {"two": 1}
    assert Counter(span.name for span in of(outer, "kernel")) == {"one": 2, "two": 1}


def test_a_profile_is_entered_once_and_read_after_its_end(clang):
    p = hcq.profile()
    with pytest.raises(RuntimeError, match="not ended"):
        p.table()
    with p, pytest.raises(RuntimeError, match="not ended"):
        _ = p.spans
    with pytest.raises(RuntimeError, match="another"):
        p.__enter__()
    assert not p.stop()


def test_nothing_is_recorded_outside_of_a_profile(clang):
    a, program = buffer(), clang.program("one", C)
    program(a, wait=True)
    with hcq.profile() as p:
        pass
    program(a)
    assert not of(p, "kernel", "copy")


def test_a_full_store_drops_what_comes_later_and_says_so(clang, tmp_path):
    a, program = buffer(), clang.program("one", C)
    with hcq.profile(limit=4096) as p:
        for _ in range(20000):
            program(a)
    kernels = of(p, "kernel")
    assert 1000 < len(kernels) <= 4096 and p.dropped > 10000
    assert "missing" in str(p.table())
    with open(p.save(tmp_path / "t.json")) as file:
        assert "dropped" in json.load(file)["otherData"]


def test_a_wrong_suffix_or_limit_is_refused_before_anything_runs():
    for path in ("trace.txt", "trace", "trace.svg"):
        with pytest.raises(ValueError, match=r"\.json or \.pftrace"):
            hcq.profile(path)


@pytest.mark.parametrize("limit", [-1, 0, 10, 1023])
def test_a_limit_too_small_to_keep_anything_is_refused_by_its_name(limit, monkeypatch):
    with pytest.raises(ValueError, match=f"limit={limit}.*1024"):
        hcq.profile(limit=limit)
    if limit >= 0:
        monkeypatch.setenv("HCQ_PROFILE_RECORDS", str(limit))
        with pytest.raises(ValueError, match=f"HCQ_PROFILE_RECORDS={limit}.*1024"):
            hcq.profile()


@pytest.mark.parametrize("limit", [1024, 1500, 5000])
def test_a_small_limit_is_kept_and_never_passed(clang, limit):
    a, program = buffer(), clang.program("one", C)
    with hcq.profile(limit=limit) as p:
        for _ in range(2 * limit):
            program(a, wait=True)
    assert limit / 2 < len(p.spans) <= limit and of(p, "kernel") and p.dropped
    assert "limit=" in str(p.table())


def test_a_queue_that_stands_at_a_wait_does_not_hold_the_end_of_a_profile(clang):
    a, gate, program = buffer(), clang.signal_t(), clang.program("one", C)
    with hcq.profile() as p:
        program(a)
        clang.synchronize()
        clang.hw_compute_queue_t().wait(gate, 1).submit(clang)
        program(a)
    gate.value = 1
    clang.synchronize()
    assert len(of(p, "kernel")) == 1


def test_a_device_lost_inside_a_profile_leaves_what_finished_and_its_error(tmp_path):
    dev = hcq.Device["CLANG:6"]
    a = buffer("CLANG:6")
    one, two = dev.program("one", C), dev.program("two", C)
    with pytest.raises(hcq.errors.DeviceLost), hcq.profile(tmp_path / "t.json") as p:
        one(a, wait=True)
        with inject(dev, "exec"):
            two(a)
        one(a)
    assert [span.name for span in of(p, "kernel")] == ["one"]
    assert any(event.get("name") == "one" for event in events(tmp_path / "t.json"))
    dev.close()


def test_an_error_in_the_block_is_raised_and_the_trace_is_written(clang, tmp_path):
    a, program = buffer(), clang.program("one", C)
    with pytest.raises(KeyError), hcq.profile(tmp_path / "t.json"):
        program(a)
        raise KeyError("mine")
    assert any(event["name"] == "one" for event in events(tmp_path / "t.json"))


def test_fifty_thousand_launches_keep_no_buffer_alive(clang):
    program = clang.program("one", C)
    with hcq.profile() as p:
        gc.collect()
        before = hcq.memory_stats("CLANG")
        last = None
        for _ in range(500):
            a = hcq.Buffer("CLANG", 1024, I32).allocate()
            for _ in range(100):
                program(a)
            last = weakref.ref(a)
        del a
        clang.synchronize()
        assert last() is None
        assert hcq.memory_stats("CLANG").live_bytes == before.live_bytes
        made = weakref.ref(clang.program("two", C))
        gc.collect()
        assert made() is None
    assert len(of(p, "kernel")) == 50000 and p.dropped == 0
    assert p.table()[0].calls == 50000


def test_python_drivers_keep_no_buffer_alive_either():
    dev = hcq.Device["SLOW"]
    program = dev.program("increment", SOURCE)
    with hcq.profile() as p:
        a = buffer("SLOW")
        for _ in range(1500):
            program(a)
        seen = weakref.ref(a)
        del a
        dev.synchronize()
        gc.collect()
        assert seen() is None
    assert len(of(p, "kernel")) == 1500


def test_a_program_that_is_gone_is_still_named(clang):
    a = buffer()
    with hcq.profile() as p:
        clang.program("two", C)(a)
        gc.collect()
    assert [span.name for span in of(p, "kernel")] == ["two"]
