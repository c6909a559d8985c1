"""hcq.checks() on real devices: each kind of finding planted, in shapes the check was not made for, and mended."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest

import hcq
from hcq import Device, errors

SOURCE = """
void fill(float *out, int n, float v) { for (int i = 0; i < n; i++) out[i] = v; }
void add(float *out, const float *a, const float *b, int n) { for (int i = 0; i < n; i++) out[i] = a[i] + b[i]; }
void scale(float *x, int n) { for (int i = 0; i < n; i++) x[i] *= 2; }
void total(float *out, const float *a, int n) { float s = 0; for (int i = 0; i < n; i++) s += a[i]; out[0] = s; }
void past(float *out, int first, int count) { for (int i = 0; i < count; i++) out[first + i] = 7; }
"""
N = 64


@pytest.fixture
def dev():
    return Device["CLANG"]


@pytest.fixture
def k(dev):
    class Kernels:
        fill, add, scale, total, past = (dev.program(n, SOURCE) for n in ("fill", "add", "scale", "total", "past"))

    return Kernels


def floats(n=N, device="CLANG"):
    return hcq.empty(n, hcq.dtypes.float32, device)


def found(kind, program, strict=False):
    """The error that the checks raise for a program; its text."""
    with pytest.raises(errors.ValidationError) as caught, hcq.checks(strict=strict) as checks:
        program()
    assert type(caught.value) is kind, caught.value
    assert checks.findings and str(caught.value) in checks.findings
    Device["CLANG"].synchronize()
    return str(caught.value)


def clean(program):
    """The same program, mended: nothing is found, nothing is possible."""
    with warnings.catch_warnings(), hcq.checks(strict=True) as checks:
        warnings.simplefilter("error", errors.ValidationWarning)
        program()
    assert not checks.findings and not checks.possible


def line_of(function, words):
    """(file:line) of the line of `function` that has these words, as findings show it."""
    import inspect

    lines, first = inspect.getsourcelines(function)
    (at,) = [first + i for i, text in enumerate(lines) if words in text]
    return f"test_checks.py:{at}"


# Races


def test_two_streams_that_touch_one_buffer(dev, k):
    def program(mended=False):
        a, out = floats(), floats()
        one, two = dev.stream(), dev.stream()
        k.fill(a, vals=(N, 1.0), stream=one)  # the write
        if mended:
            two.wait(one)
        k.total(out, a, vals=(N,), stream=two)  # the read
        one.synchronize()
        two.synchronize()

    text = found(errors.RaceError, program)
    assert line_of(program, "# the write") in text and line_of(program, "# the read") in text
    assert "kernel fill" in text and "kernel total" in text
    clean(lambda: program(mended=True))


def test_a_copy_queue_that_does_not_wait_for_the_kernel(dev, k):
    def program(mended=False):
        a, b = floats(), floats()
        done = dev.signal_t()
        kernargs = k.fill.fill_kernargs((a,), (N, 1.0))
        dev.hw_compute_queue_t().exec(k.fill, kernargs).signal(done, 1).submit(dev)
        copies = dev.hw_copy_queue_t()
        if mended:
            copies.wait(done, 1)
        copies.copy(b._buf.va_addr, a._buf.va_addr, a.nbytes).signal(done, 2).submit(dev)
        dev.synchronize()

    found(errors.RaceError, program)
    clean(lambda: program(mended=True))


def test_half_of_a_buffer_races_with_the_other_only_where_they_overlap(dev, k):
    def program(second):
        a = floats()
        left, right = a.view(N // 2, hcq.dtypes.float32, 0), a.view(N // 2, hcq.dtypes.float32, second)
        one, two = dev.stream(), dev.stream()
        k.fill(left, vals=(N // 2, 1.0), stream=one)
        k.fill(right, vals=(N // 2, 2.0), stream=two)
        one.synchronize()
        two.synchronize()

    assert "bytes 124 to 127" in found(errors.RaceError, lambda: program(N // 2 * 4 - 4))
    clean(lambda: program(N // 2 * 4))


def test_two_devices_share_memory_and_nothing_else(dev, k):
    other = Device["CLANG:1"]
    scale = other.program("scale", SOURCE)

    def program(mended=False):
        a = floats()
        k.fill(a, vals=(N, 1.0))
        if mended:
            dev.synchronize()
        scale(a._buf, vals=(N,))
        other.synchronize()
        dev.synchronize()

    found(errors.RaceError, program)
    clean(lambda: program(mended=True))


def test_waiting_for_too_low_a_value_is_no_order(dev, k):
    def program(value):
        a, out = floats(), floats()
        step = dev.signal_t()
        q = dev.hw_compute_queue_t().signal(step, 1)
        q.exec(k.fill, k.fill.fill_kernargs((a,), (N, 1.0))).signal(step, 2).submit(dev)
        stream = dev.stream()
        stream.wait((step, value))
        k.total(out, a, vals=(N,), stream=stream)
        stream.synchronize()
        dev.synchronize()

    found(errors.RaceError, lambda: program(1))
    clean(lambda: program(2))


def test_a_wait_that_another_may_end_is_no_order(dev, k):
    # Two queues set the same value: who waits for it knows of neither.
    def program(separate):
        a, b, out = floats(), floats(), floats()
        first, second = dev.signal_t(), dev.signal_t()
        one = dev.hw_compute_queue_t().exec(k.fill, k.fill.fill_kernargs((a,), (N, 1.0))).signal(first, 1)
        one.submit(dev)
        k.fill(b, vals=(N, 1.0))
        dev.synchronize()
        dev.hw_copy_queue_t().signal(second if separate else first, 1).submit(dev)
        dev.hw_compute_queue_t().exec(k.scale, k.scale.fill_kernargs((b,), (N,))).signal(second, 1).submit(dev)
        stream = dev.stream()
        stream.wait((second, 1))
        k.total(out, b, vals=(N,), stream=stream)
        stream.synchronize()
        dev.synchronize()

    clean(lambda: program(separate=False))
    found(errors.RaceError, lambda: program(separate=True))


def test_readers_of_one_buffer_do_not_race(dev, k):
    def program():
        a, one, two = floats(), floats(1), floats(1)
        a.fill(1)
        streams = dev.stream(), dev.stream()
        for out, stream in zip((one, two), streams, strict=True):
            k.total(out, a, vals=(N,), stream=stream)
        for stream in streams:
            stream.synchronize()
        assert one.numpy()[0] == two.numpy()[0] == N

    clean(program)


def test_polling_a_signal_orders_what_the_host_does_then(dev, k):
    def program():
        a = floats()
        done = dev.signal_t()
        q = dev.hw_compute_queue_t().exec(k.fill, k.fill.fill_kernargs((a,), (N, 3.0))).signal(done, 1)
        q.submit(dev)
        while done.value < 1:
            pass
        other = Device["CLANG:1"]
        out = floats(1, "CLANG:1")
        other.program("total", SOURCE)(out, a._buf, vals=(N,), wait=True)
        assert out.numpy()[0] == 3 * N

    clean(program)


def test_an_undeclared_access_is_only_possible(dev, k):
    null = Device["NULL"]
    nothing = null.program("nothing", "")

    def program():
        a = hcq.empty(N, hcq.dtypes.float32, "NULL")
        one, two = null.stream(), null.stream()
        nothing(a, stream=one)
        nothing(a, stream=two)
        null.synchronize()

    with pytest.warns(errors.ValidationWarning, match="nothing"), hcq.checks() as checks:
        program()
    assert len(checks.possible) == 1 and not checks.findings
    found(errors.RaceError, program, strict=True)
    nothing.accesses = ("r",)
    with hcq.checks(strict=True), pytest.raises(errors.UnwrittenReadError):  # and now it is known to read
        program()
    nothing.accesses = ("w",)
    found(errors.RaceError, program)


# Deadlocks


def test_two_queues_that_wait_for_each_other(dev):
    def program(mended=False):
        a, b = dev.signal_t(), dev.signal_t()
        dev.hw_compute_queue_t().wait(a, 1).signal(b, 1).submit(dev)
        other = dev.hw_copy_queue_t()
        try:
            (other.signal(a, 1).wait(b, 1) if mended else other.wait(b, 1).signal(a, 1)).submit(dev)
            dev.synchronize()
        finally:
            a.value = 1  # the one that was refused was not queued
            b.value = 1

    text = found(errors.DeadlockError, program)
    assert line_of(program, "hw_compute_queue_t()") in text
    clean(lambda: program(mended=True))


def test_a_cycle_of_three_over_two_devices(dev):
    other = Device["CLANG:1"]

    def program(mended=False):
        a, b, c = (dev.signal_t() for _ in range(3))
        dev.hw_compute_queue_t().wait(a, 1).signal(b, 1).submit(dev)
        other.hw_compute_queue_t().wait(b, 1).signal(c, 2).submit(other)
        last = dev.hw_copy_queue_t()
        try:
            (last if mended else last.wait(c, 2)).signal(a, 1).submit(dev)
            dev.synchronize()
            other.synchronize()
        finally:
            a.value = b.value = 1

    found(errors.DeadlockError, program)
    clean(lambda: program(mended=True))


def test_a_queue_that_waits_for_what_comes_behind_it(dev):
    def program(mended=False):
        a = dev.signal_t()
        q = dev.hw_compute_queue_t()
        (q.signal(a, 1).wait(a, 1) if mended else q.wait(a, 1).signal(a, 1)).submit(dev)
        dev.synchronize()

    found(errors.DeadlockError, program)
    clean(lambda: program(mended=True))


def test_a_deadlock_is_refused_as_often_as_it_is_submitted_and_told_once(dev):
    a, b = dev.signal_t(), dev.signal_t()
    with hcq.checks(raises=False) as checks:
        known = len(checks.findings)
        dev.hw_compute_queue_t().wait(a, 1).signal(b, 1).submit(dev)
        try:
            for _ in range(3):
                with pytest.raises(errors.DeadlockError):
                    dev.hw_copy_queue_t().wait(b, 1).signal(a, 1).submit(dev)
        finally:
            a.value = b.value = 1
        dev.synchronize()
        assert len(checks.findings) == known + 1


def test_a_signal_that_python_can_set_is_no_deadlock_but_is_named_at_the_deadline(dev):
    with hcq.checks():
        gate, done = dev.signal_t(), dev.signal_t()
        dev.hw_compute_queue_t().wait(gate, 1).signal(done, 1).submit(dev)  # the wait
        with pytest.raises(errors.SignalTimeout, match="stands at a wait for signal") as caught:
            done.wait(1, timeout=20)
        line = line_of(test_a_signal_that_python_can_set_is_no_deadlock_but_is_named_at_the_deadline, "# the" + " wait")
        assert line in str(caught.value) and "Python alone can" in str(caught.value)
        gate.value = 1
        done.wait(1)


# Lifetimes


def test_kernargs_that_outlive_their_buffer(dev, k):
    def program(mended=False):
        a = floats()
        kernargs = k.fill.fill_kernargs((a,), (N, 1.0))
        if mended:
            dev.hw_compute_queue_t().exec(k.fill, kernargs).submit(dev)
            a.deallocate()
        else:
            a.deallocate()  # the free
            dev.hw_compute_queue_t().exec(k.fill, kernargs).submit(dev)
        dev.synchronize()

    assert line_of(program, "# the free") in found(errors.UseAfterFreeError, program)
    clean(lambda: program(mended=True))


def test_a_stale_address_in_a_copy(dev):
    def program(mended=False):
        a, b = floats(), floats()
        a.fill(1)
        address, size = a._buf.va_addr, a.nbytes
        if not mended:
            del a
        dev.hw_copy_queue_t().copy(b._buf.va_addr, address, size).submit(dev)
        dev.synchronize()

    found(errors.UseAfterFreeError, program)
    clean(lambda: program(mended=True))


def test_a_bound_queue_that_is_submitted_once_too_often(dev, k):
    def program(times):
        a = floats()
        q = dev.hw_compute_queue_t().exec(k.fill, k.fill.fill_kernargs((a,), (N, 1.0))).bind(dev)
        for _ in range(times):
            q.submit(dev)
        dev.synchronize()
        if times > 2:
            del a
            b = floats()  # gets the same memory, most likely
            q.submit(dev)
            dev.synchronize()
            del b

    found(errors.UseAfterFreeError, lambda: program(3))
    clean(lambda: program(2))


# Contents


def test_a_kernel_that_reads_what_nobody_wrote(dev, k):
    def program(mended=False):
        a, out = floats(), floats(1)
        if mended:
            a.copyin(np.ones(N, "f4"))
        k.total(out, a, vals=(N,))
        dev.synchronize()

    assert "never written" in found(errors.UnwrittenReadError, program)
    clean(lambda: program(mended=True))


def test_unwritten_memory_that_was_copied_first(dev, k):
    def program(mended=False):
        a, b, out = floats(), floats(), floats(1)
        if mended:
            k.fill(a, vals=(N, 1.0))
        hcq.copy(b, a)
        k.total(out, b, vals=(N,))
        dev.synchronize()

    found(errors.UnwrittenReadError, program)
    clean(lambda: program(mended=True))


def test_a_host_read_of_what_nobody_wrote(dev):
    found(errors.UnwrittenReadError, lambda: floats().numpy())
    clean(lambda: floats().fill(0).numpy())


def test_memory_that_the_host_wrote_at_its_address_is_written(dev, k):
    def program():
        a, out = floats(), floats(1)
        ctypes.memset(a._buf.va_addr, 0, a.nbytes)
        k.total(out, a, vals=(N,))
        assert out.numpy()[0] == 0

    clean(program)


def test_memory_that_the_host_wrote_through_a_view_is_written(dev, k):
    def program():
        a, out = floats(), floats(1)
        np.asarray(a)[:] = 2
        k.total(out, a, vals=(N,))
        assert out.numpy()[0] == 2 * N

    clean(program)


# Bounds


@pytest.mark.parametrize(
    ("first", "count", "words"), [(N, 1, "0 bytes past"), (N + 8, 2, "32 bytes past"), (-2, 1, "8 bytes before")]
)
def test_a_write_beside_a_buffer(dev, k, first, count, words):
    def program(first=first):
        a = floats()
        k.past(a, vals=(first, count))  # the culprit
        dev.synchronize()

    text = found(errors.OutOfBoundsError, program)
    assert "kernel past" in text and line_of(program, "# the culprit") in text and words in text
    clean(lambda: program(first=0))


def test_a_write_past_the_end_is_found_when_the_memory_is_freed(dev, k):
    def program(count):
        a, b = floats(N + 3), floats()
        k.fill(b, vals=(N, 1.0))
        k.past(a, vals=(0, count), wait=True)
        del a
        b.numpy()

    found(errors.OutOfBoundsError, lambda: program(N + 4))
    clean(lambda: program(N + 3))


@pytest.mark.parametrize("kept", [True, False])
def test_the_end_of_the_block_waits_for_what_may_still_write_beside(dev, kept):
    slow = """
    #include <hcq.h>
    void late(float *out, int n) {
      volatile long spin = 0;
      while (spin < 20000000) spin++;
      for (int i = 0; i < n; i++) out[i] = 7;
    }"""
    late = dev.program("late", slow)

    def program(count):
        a = floats()
        late(a, vals=(count,))
        if kept:
            here.append(a)

    here = []
    assert "kernel late" in found(errors.OutOfBoundsError, lambda: program(N + 1))
    clean(lambda: program(N))


def test_the_end_of_the_block_does_not_wait_for_what_stands_at_a_wait(dev):
    go = dev.signal_t()
    with hcq.checks():
        a = floats()
        dev.hw_compute_queue_t().wait(go, 1).submit(dev)
        del a
    go.value = 1
    dev.synchronize()


def test_a_copy_that_goes_past_the_end(dev):
    def program(size):
        a, b = floats(), floats(2 * N)
        b.fill(1)
        dev.hw_copy_queue_t().copy(a._buf.va_addr, b._buf.va_addr, size).submit(dev)
        dev.synchronize()

    assert "16 bytes past the end" in found(errors.OutOfBoundsError, lambda: program(N * 4 + 16))
    clean(lambda: program(N * 4))


def test_a_host_write_past_the_end(dev):
    def program(size):
        a = floats()
        ctypes.memset(a._buf.va_addr, 1, size)
        dev.synchronize()

    found(errors.OutOfBoundsError, lambda: program(N * 4 + 1))
    clean(lambda: program(N * 4))


def test_host_writes_past_the_ends_of_two_buffers_are_two_findings_though_no_command_had_them(dev):
    with hcq.checks() as checks:
        known = len(checks.findings)
        for device in (dev, Device["CLANG:1"], dev):  # the last one is raised as well, and is no third text
            a = floats(device=device.dname)
            ctypes.memset(a._buf.va_addr, 1, N * 4 + 1)
            with pytest.raises(errors.OutOfBoundsError, match=f"on {device.dname}, allocated at"):
                device.synchronize()
        assert len(checks.findings) == known + 2


def test_a_write_past_the_end_is_found_at_the_next_synchronize_among_many_buffers(dev, k):
    def program(count):
        others = [floats() for _ in range(200)]
        a = floats()
        dev.synchronize()
        k.past(a, vals=(0, count))
        dev.synchronize()
        went_on.append(len(others))

    went_on = []
    assert "kernel past" in found(errors.OutOfBoundsError, lambda: program(N + 1))
    assert not went_on  # the synchronize raised, not the end of the block
    clean(lambda: program(N))


def test_a_host_write_past_the_end_among_many_buffers_is_found_by_the_end_of_the_block(dev):
    def program(size):
        kept.append([floats() for _ in range(200)])
        ctypes.memset(kept[-1][100]._buf.va_addr, 1, size)
        dev.synchronize()

    kept = []
    found(errors.OutOfBoundsError, lambda: program(N * 4 + 1))
    clean(lambda: program(N * 4))


def test_loading_many_buffers_looks_at_a_bounded_number_of_them_each_time(dev, monkeypatch):
    from hcq.validation import redzones

    looked = []
    whole = redzones._Guard.is_whole
    monkeypatch.setattr(redzones._Guard, "is_whole", lambda guard: looked.append(guard) or whole(guard))
    kept = []
    with hcq.checks():
        for _ in range(400):
            kept.append(floats())
            kept[-1].copyin(bytes(4 * N))
        assert len(looked) < 400 * 40  # all of them, each time, were 80,000
        assert len(set(map(id, looked))) > 300


# What orders


def test_making_zeros_between_two_launches_orders_them_since_it_waits(dev, k):
    def program(between):
        a = floats()
        one, two = dev.stream(), dev.stream()
        k.fill(a, vals=(N, 1.0), stream=one)
        kept.append(between())
        k.scale(a, vals=(N,), stream=two)
        dev.synchronize()

    kept = []
    found(errors.RaceError, lambda: program(lambda: hcq.empty(N, hcq.dtypes.float32, "CLANG")))
    clean(lambda: program(lambda: hcq.zeros(N, hcq.dtypes.float32, "CLANG")))


# Signals


def test_a_signal_that_is_reset_under_a_wait(dev):
    def program(mended=False):
        step, done = dev.signal_t(), dev.signal_t()
        dev.hw_copy_queue_t().signal(step, 1).submit(dev)
        dev.hw_compute_queue_t().wait(step, 1).signal(done, 1).submit(dev)
        if mended:
            done.wait(1)
        else:
            step.wait(1)
        step.value = 0
        dev.hw_copy_queue_t().signal(step, 1).submit(dev)
        dev.synchronize()

    found(errors.SignalOrderError, program)
    clean(lambda: program(mended=True))


def test_a_wait_for_a_value_that_a_later_command_takes_back(dev):
    def program(values):
        step, done = dev.signal_t(), dev.signal_t()
        dev.hw_copy_queue_t().signal(step, values[0]).signal(step, values[1]).signal(done, 1).submit(dev)
        try:
            dev.hw_compute_queue_t().wait(step, 5).submit(dev)
        finally:
            done.wait(1)  # else what is queued may set it back after this, and the wait would stand for ever
            step.value = 9
        dev.synchronize()

    found(errors.SignalOrderError, lambda: program((5, 3)))
    clean(lambda: program((3, 5)))


def test_setting_one_signal_is_not_refused_for_another_that_goes_back(dev):
    """What a signal lets go on is told at the next event: the set itself is right, and must go on."""

    def program():
        gate, step, done = dev.signal_t(), dev.signal_t(), dev.signal_t()
        dev.hw_copy_queue_t().wait(gate, 1).signal(step, 5).signal(step, 3).signal(done, 1).submit(dev)
        dev.hw_compute_queue_t().wait(step, 5).submit(dev)
        try:
            gate.value = 1
            went_on.append(True)
            done.wait(1)
        finally:  # a finding is told once: these pass, and nothing is left standing
            gate.value = 1
            done.wait(1)
            step.value = 9
        dev.synchronize()

    went_on = []
    found(errors.SignalOrderError, program)
    assert went_on


# Around them


def test_nothing_is_left_when_the_block_ends(dev, k):
    from hcq.runtime import watch

    with hcq.checks():
        a = floats()
        k.fill(a, vals=(N, 1.0))
    assert not watch.active
    assert a.numpy()[0] == 1  # memory of the block goes on working
    a.deallocate()
    assert "alloc" not in vars(dev.allocator) and "free" not in vars(dev.allocator)
    assert floats()._buf.size == 4 * N


def test_blocks_nest_and_strictness_is_the_strictest(dev):
    with hcq.checks() as outer, hcq.checks(strict=True) as inner:
        assert inner is outer and outer.strict


def test_a_finding_is_told_once(dev, k):
    with hcq.checks() as checks:
        a, out = floats(), floats(1)
        for _ in range(3):
            try:
                k.total(out, a, vals=(N,))
            except errors.UnwrittenReadError:
                pass
    assert len(checks.findings) == 1


def test_errors_pickle_and_carry_lines():
    import pickle

    error = pickle.loads(pickle.dumps(errors.RaceError("text", sites=(("a.py", 3),))))
    assert error.sites == (("a.py", 3),) and isinstance(error, errors.HCQError) and isinstance(error, RuntimeError)


@pytest.mark.parametrize("mode", ["1", "strict", "0", ""])
def test_the_environment_turns_them_on(mode):
    program = """
        import hcq
        dev = hcq.Device["CLANG"]
        total = dev.program("total", "void total(float *o, const float *a, int n) { o[0] = a[0]; }")
        a, o = hcq.empty(4, hcq.dtypes.float32), hcq.empty(1, hcq.dtypes.float32)
        total(o, a, vals=(4,))
        dev.synchronize()
    """
    env = {**os.environ, "HCQ_CHECK": mode, "HCQ_DEVICE": "CLANG"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    on = mode in ("1", "strict")
    assert (done.returncode != 0) is on, done.stderr
    assert ("UnwrittenReadError" in done.stderr) is on


def test_a_mode_that_is_none_is_refused():
    env = {**os.environ, "HCQ_CHECK": "sometimes"}
    done = subprocess.run(
        [sys.executable, "-c", "import hcq"], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode and "expected 0, 1 or strict" in done.stderr
