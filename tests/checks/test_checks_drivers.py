"""hcq.checks() on drivers that are wrong themselves: memory handed out too early, a timeline that wraps wrongly."""

from __future__ import annotations

import warnings

import pytest
from third_party.manual import ManualStrict32
from third_party.mini import MiniAllocator, MiniComputeQueue, MiniCopyQueue, MiniDevice

import hcq
from hcq import Device, errors
from hcq.drivers.cpu.allocator import CPUAllocator

C = """
void fill(float *out, int n, float v) { for (int i = 0; i < n; i++) out[i] = v; }
void total(float *out, const float *a, int n) { float s = 0; for (int i = 0; i < n; i++) s += a[i]; out[0] = s; }
"""
PYTHON = """
def fill(launch, out: "f32*", n: "i32", v: "f32"):
    for i in range(n): out[i] = v
"""
N = 64
WRAP = 2**31


def floats(device, n=N):
    return hcq.empty(n, hcq.dtypes.float32, device)


def found(kind, program):
    with pytest.raises(errors.ValidationError) as caught, hcq.checks():
        program()
    assert type(caught.value) is kind, caught.value
    return str(caught.value)


def clean(program):
    with warnings.catch_warnings(), hcq.checks(strict=True) as checks:
        warnings.simplefilter("error", errors.ValidationWarning)
        program()
    assert not checks.findings and not checks.possible


# Reuse before the timeline


class Early:
    """Mixed into an allocator: hands freed memory out at once, whatever still uses it."""

    def alloc(self, size, options=None):
        early = vars(self).setdefault("early", {}).setdefault(size, [])
        return early.pop() if early else super().alloc(size, options)

    def free(self, opaque, size, options=None):
        vars(self).setdefault("early", {}).setdefault(size, []).append(opaque)


class EarlyMini(Early, MiniAllocator):
    pass


class EarlyCPU(Early, CPUAllocator):
    pass


@pytest.fixture
def mini():
    """Opens a driver in Python with that allocator."""
    opened = []

    def make(allocator):
        class Made(MiniDevice):
            def __init__(self, name):
                super().__init__(name)
                self.allocator = allocator(self)

        name = f"EARLY{len(opened)}"
        Device.register(name, Made)
        opened.append(name)
        return Device[name]

    yield make
    for name in opened:
        Device.close(name)
        Device.unregister(name)


@pytest.fixture
def cpu(request):
    """CLANG:2 with that allocator."""
    dev = Device["CLANG:2"]

    def make(allocator):
        dev.allocator = allocator(dev)
        return dev

    yield make
    dev.synchronize()
    Device.close("CLANG:2")


def copied_over(dev):
    """A kernel stands behind a gate while its buffer is freed; a copy queue fills the next one."""
    fill = dev.program("fill", PYTHON)
    fill.accesses = ("w",)
    source, gate, done = floats(dev.dname), dev.signal_t(), dev.signal_t()
    source.fill(1)
    a = floats(dev.dname)
    kernargs = fill.fill_kernargs((a,), (N, 2.0))
    dev.hw_compute_queue_t().wait(gate, 1).exec(fill, kernargs).signal(done, 1).submit(dev)
    del a
    try:
        b = floats(dev.dname)
        dev.hw_copy_queue_t().copy(b._buf.va_addr, source._buf.va_addr, 4 * N).signal(done, 2).submit(dev)
    finally:
        gate.value = 1
        dev.synchronize()


def test_a_python_driver_that_hands_memory_out_early(mini):
    dev = mini(EarlyMini)
    text = found(errors.ReuseError, lambda: copied_over(dev))
    assert "kernel fill" in text and "copy of 256 bytes" in text
    now, _, before = text.partition(" was handed out again while work on what it was before, ")
    assert "freed at" not in now and "freed at" in before
    clean(lambda: copied_over(mini(MiniAllocator)))


def test_an_allocator_that_a_client_gave_hands_memory_out_early_to_another_stream(cpu):
    def program(dev, mended=False):
        fill, total = dev.program("fill", C), dev.program("total", C)
        one, two = dev.stream(), dev.stream()
        a, out = floats(dev.dname), floats(dev.dname, 1)
        gate = dev.signal_t()
        one.wait((gate, 1))
        fill(a, vals=(N, 1.0), stream=one)
        total(out, a, vals=(N,), stream=one)
        del a
        b = floats(dev.dname)
        try:
            if mended:
                two.wait(one)
            fill(b, vals=(N, 2.0), stream=two)
        finally:
            gate.value = 1
            dev.synchronize()

    early = cpu(EarlyCPU)
    assert "stream" in found(errors.ReuseError, lambda: program(early))
    clean(lambda: program(early, mended=True))
    clean(lambda: program(cpu(CPUAllocator)))


# Wraps kept wrong


class Narrow(MiniComputeQueue):
    signal_bits = 32


class NarrowCopies(MiniCopyQueue):
    signal_bits = 32


class NarrowMini(MiniDevice):
    """Its queues compare 32 bits, as some hardware's do."""

    def __init__(self, name):
        super().__init__(name)
        self.hw_compute_queue_t, self.hw_copy_queue_t, self._narrow = Narrow, NarrowCopies, True


class Restarts(NarrowMini):
    """Begins the values anew, and forgets that the signal has them all behind it."""

    def _wrap(self):
        if self.timeline_value >= WRAP:
            self.timeline_value = 1


def near_the_wrap(dev):
    dev.timeline_value, dev.timeline_signal.value = WRAP - 1, WRAP - 2


def work(dev, kind="hw_compute_queue_t"):
    return dev.enqueue(lambda signal, value: getattr(dev, kind)().wait(signal, value - 1).signal(signal, value))


def over_the_wrap(device):
    Device.register("NARROW", device)
    dev = Device["NARROW"]
    try:
        near_the_wrap(dev)
        for _ in range(3):
            work(dev)
            work(dev, "hw_copy_queue_t")
        dev.synchronize()
        for _ in range(3):
            work(dev)
            work(dev, "hw_copy_queue_t")
        dev.synchronize()
    finally:
        Device.close("NARROW")
        Device.unregister("NARROW")


def test_a_driver_that_restarts_its_timeline_on_the_same_signal():
    assert "wrap kept wrong" in found(errors.SignalOrderError, lambda: over_the_wrap(Restarts))
    clean(lambda: over_the_wrap(NarrowMini))


@pytest.mark.parametrize("by", ["a queue", "the host", "a stream"])
def test_a_value_that_is_kept_without_its_signal(by):
    def program(mended):
        dev = NarrowMini("NARROW")
        try:
            near_the_wrap(dev)
            for _ in range(4):
                signal, value = work(dev)
            dev.synchronize()
            work(dev)
            if not mended:
                signal = dev.timeline_signal
            if by == "a queue":
                dev.hw_copy_queue_t().wait(signal, value).submit(dev)
            elif by == "the host":
                signal.wait(value, timeout=1000)
            else:
                stream = dev.stream()
                stream.wait((signal, value))
                stream.enqueue(lambda s, v: dev.hw_copy_queue_t().wait(s, v - 1).signal(s, v))
            dev.synchronize()
        finally:
            dev.close()

    assert "belongs to the one before" in found(errors.SignalOrderError, lambda: program(mended=False))
    clean(lambda: program(mended=True))


def test_a_queue_that_was_built_before_the_wrap_and_sets_the_fresh_timeline():
    def program(mended):
        dev = ManualStrict32()
        near_the_wrap(dev)
        for _ in range(4):
            _, value = work(dev)
        dev.run()
        dev.synchronize()
        queue = dev.hw_copy_queue_t()
        try:
            with dev.timeline_lock:
                now = dev.timeline_value
                queue.signal(dev.timeline_signal, now if mended else value + 1).submit(dev)
                dev.timeline_value = now + 1
            dev.run()
            dev.synchronize()
        finally:
            dev.close()

    found(errors.SignalOrderError, lambda: program(mended=False))
    clean(lambda: program(mended=True))


# Right ones


class FarAllocator(MiniAllocator):
    host_access = False  # so that copies go through the staging ring, and there are no red zones

    def map(self, buf):
        pass


def test_devices_of_a_kind_copy_to_each_other_where_memory_was_freed_before(mini):
    dev = mini(FarAllocator)
    peer = Device[f"{dev.dname}:1"]

    def program():
        for _ in range(20):
            kept = [floats(dev.dname, 500).ensure_allocated(), floats(peer.dname, 500).ensure_allocated()]
            kept[0].copyin(bytes(2000))
            hcq.copy(kept[1], kept[0])
            assert not kept[1].numpy().any()
            kept.clear()
            dev.allocator.free_cache()
            peer.allocator.free_cache()

    clean(program)
    Device.close(peer.dname)
