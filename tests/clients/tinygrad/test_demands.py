"""What tinygrad's programs do to the device layer besides calling it, and must go on doing."""

import functools
import gc
import weakref

import numpy as np
import pytest
from tinygrad import Device, GlobalCounters, Tensor, dtypes
from tinygrad.device import Buffer, BufferOptions, Compiler, HCQBuffer
from tinygrad.engine.realize import CompiledRunner
from tinygrad.renderer import Program

ADD_ONE = "void add_one(int* restrict data0) { for (int i = 0; i < 4; i++) { data0[i] = data0[i] + 1; } }"
ADD_N = "void add_n(int* restrict data0, const int n) { for (int i = 0; i < 4; i++) { data0[i] = data0[i] + n; } }"


@pytest.fixture(params=["CLANG", "LLVM", "CLANG:1"])
def dev(request):
    return Device[request.param]


@pytest.fixture
def clang():
    return Device["CLANG"]


def filled(name, values, dtype=dtypes.int32):
    array = np.array(values, np.int32)
    return Buffer(name, array.size, dtype).allocate().copyin(array.data)


def read(buf):
    return np.frombuffer(buf.as_buffer(), np.int32).tolist()


def plus_one(values, device):
    return (Tensor(values, device=device) + 1).tolist()


def test_compiler_runtime_and_allocator_of_an_opened_device_can_be_replaced(clang):
    calls = []

    class Counting(Compiler):
        def compile_cached(self, src):
            calls.append("compile")
            return compiler.compile_cached(src)

    compiler, runtime, allocator = clang.compiler, clang.runtime, clang.allocator

    def load(name, lib):
        calls.append("load")
        return runtime(name, lib)

    class Allocator(type(allocator)):
        def _alloc(self, size, options):
            calls.append("alloc")
            return super()._alloc(size, options)

    clang.compiler, clang.runtime, clang.allocator = Counting(), load, Allocator(clang)
    try:
        assert (Tensor([41, 1234567], device="CLANG") * 17).tolist() == [697, 20987639]
    finally:
        clang.compiler, clang.runtime, clang.allocator = compiler, runtime, allocator
    assert {"compile", "load", "alloc"} <= set(calls)
    seen = len(calls)
    assert plus_one([3, 4, 5, 6], "CLANG") == [4, 5, 6, 7]
    assert len(calls) == seen


def test_options_of_an_allocated_buffer_can_be_changed(dev):
    buf = filled(dev.dname, [1, 2, 3, 4])
    buf.options = BufferOptions(nolru=True)
    cached = dev.allocator.cached_bytes
    del buf
    gc.collect()
    assert dev.allocator.cached_bytes == cached
    fresh = Buffer(dev.dname, 4, dtypes.int32, options=BufferOptions(nolru=True))
    fresh.options = None
    assert fresh.allocate().options is None


def test_buffers_are_keys_of_dictionaries_and_of_weak_ones(dev):
    first, second = filled(dev.dname, [1, 2, 3, 4]), filled(dev.dname, [1, 2, 3, 4])
    assert {first: "a", second: "b"}[first] == "a"
    assert [first, second].index(second) == 1
    weak = weakref.WeakKeyDictionary({first: second})
    assert weak[first] is second
    del first
    gc.collect()
    assert len(weak) == 0


def test_handles_roots_and_the_allocators_device_can_be_read(dev):
    root = filled(dev.dname, [1, 2, 3, 4])
    view = root.view(2, dtypes.int32, 8).ensure_allocated()
    assert isinstance(root._buf, HCQBuffer)
    assert root._buf is root._buf
    assert root._base is None and view._base is root and view.base is root
    assert view._buf.va_addr == root._buf.va_addr + 8
    assert root.allocator.device is dev
    assert hasattr(dev.allocator, "offset") and hasattr(dev.allocator, "transfer")


def test_alloc_and_free_of_an_allocator_can_be_called(dev):
    memory = dev.allocator._alloc(4096, BufferOptions(cpu_access=True))
    (np.frombuffer(dev.allocator.as_buffer(memory), np.uint8))[:] = 7
    dev.allocator._free(memory, BufferOptions(cpu_access=True))
    memory = dev.allocator.alloc(64)
    dev.allocator.free(memory, 64, None)


def test_programs_run_without_arguments_and_with_sizes_left_out(clang):
    nothing = clang.runtime("nothing", clang.compiler.compile("void nothing() {}"))
    assert nothing() is None
    assert nothing(wait=True) >= 0
    buf = filled("CLANG", [1, 2, 3, 4])
    add_one = clang.runtime("add_one", clang.compiler.compile(ADD_ONE))
    add_one(buf._buf)
    add_one(buf._buf, vals=())
    assert add_one(buf._buf, global_size=None, local_size=None, wait=True) >= 0
    assert read(buf) == [4, 5, 6, 7]


def test_the_timeline_can_be_raised_by_hand(dev):
    for _ in range(3):
        value = dev.timeline_value
        pair = dev.timeline_signal, value
        dev.hw_compute_queue_t().wait(dev.timeline_signal, value - 1).signal(*pair).submit(dev)
        dev.timeline_value += 1
        pair[0].wait(pair[1])
        assert dev.timeline_signal.value >= value
    dev.synchronize()
    assert plus_one([1, 2], dev.dname) == [2, 3]


def test_pairs_of_signal_and_value_can_be_kept(dev):
    pairs = []
    for _ in range(5):
        buf = filled(dev.dname, [1, 2, 3, 4])
        assert plus_one([5, 6], dev.dname) == [6, 7]
        pairs.append((dev.timeline_signal, dev.timeline_value - 1))
        del buf
    dev.synchronize()
    for signal, value in pairs:
        signal.wait(value, timeout=1000)


def test_one_queue_is_submitted_a_hundred_times_with_updates_between(clang):
    program = clang.runtime("add_n", clang.compiler.compile(ADD_N))
    buf, signal = filled("CLANG", [0, 0, 0, 0]), clang.signal_t(value=0)
    arguments = program.fill_kernargs([buf._buf], [1])
    queue = clang.hw_compute_queue_t().wait(clang.timeline_signal, 0).exec(program, arguments, (1, 1, 1), (1, 1, 1))
    queue.signal(signal, 0).bind(clang)
    for turn in range(1, 101):
        queue.update_wait(0, clang.timeline_signal, clang.timeline_value - 1)
        queue.update_signal(2, value=turn).submit(clang)
    signal.wait(100)
    assert read(buf) == [100] * 4


def test_a_wait_that_is_set_late_times_out_and_then_succeeds(dev):
    gate, done = dev.signal_t(value=0), dev.signal_t(value=0)
    dev.hw_compute_queue_t().wait(gate, 1).signal(done, 1).submit(dev)
    with pytest.raises(RuntimeError):
        done.wait(1, timeout=50)
    gate.value = 1
    done.wait(1, timeout=5000)
    dev.synchronize()


def test_two_buffers_of_two_gigabytes(clang):
    size, mark = 2 << 30, bytes(range(256))
    first, second = (Buffer("CLANG", size, dtypes.uint8, options=BufferOptions(nolru=True)) for _ in range(2))
    try:
        first.allocate(), second.allocate()
    except MemoryError:
        pytest.skip("this machine has no 4 GB to spare")
    ends = [(buf.view(256, dtypes.uint8, 0), buf.view(256, dtypes.uint8, size - 256)) for buf in (first, second)]
    for end in ends[0]:
        end.ensure_allocated().copyin(memoryview(mark))
    clang.allocator.transfer(second._buf, first._buf, size, src_dev=clang, dest_dev=clang)
    assert [bytes(end.ensure_allocated().as_buffer()) for end in ends[1]] == [mark, mark]


def test_the_counter_of_memory_is_ours_and_tinygrads_at_once():
    gc.collect()
    before = GlobalCounters.mem_used
    buf = Buffer("CLANG", 1000, dtypes.int32).allocate()
    assert GlobalCounters.mem_used == before + 4000
    GlobalCounters.reset()
    assert GlobalCounters.mem_used == before + 4000
    view = buf.view(10, dtypes.int32, 0).ensure_allocated()
    assert GlobalCounters.mem_used == before + 4000
    del buf, view
    gc.collect()
    assert GlobalCounters.mem_used == before


def test_a_launch_is_our_native_program_with_nothing_around_it(clang):
    lib = clang.compiler.compile_cached(ADD_ONE)
    runner = CompiledRunner(Program("add_one", ADD_ONE, "CLANG", globals=[0]), precompiled=lib)
    assert type(runner.clprg).__module__ == "hcq.drivers.cpu.program"
    assert isinstance(clang.runtime, functools.partial)
    buf = filled("CLANG", [1, 2, 3, 4])
    assert runner([buf], {}, wait=True) > 0
    assert read(buf) == [2, 3, 4, 5]
