"""The pool of host memory, as the allocators over it show it: alignment, reuse, mappings, limits of the system."""

import os
import subprocess
import sys
import textwrap
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_devices import HostDevice, opened

from hcq import Buffer, BufferOptions, Device, dtypes
from hcq._native import HCQBuffer, HostAllocator, host_pool_stats
from hcq.errors import OutOfMemory

SMALL_TENSORS = """
from hcq._native import HostAllocator, host_pool_stats
allocator = HostAllocator()
kept = [allocator.alloc(16384) for _ in range(200)]
stats = host_pool_stats()
print(stats["used"], stats["populated"])
"""
OPTIONS = BufferOptions()
KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def allocator():
    made = HostAllocator()
    yield made
    made.free_cache()


def mappings():
    with open("/proc/self/maps") as maps:
        return sum(1 for _ in maps)


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("size", [1, 63, 64, 65, 4095, 4096, 4097, 65536, MIB + 1, 31 * MIB, 32 * MIB, 33 * MIB + 5])
def test_memory_is_aligned_writable_and_of_the_size_asked_for(allocator, size):
    handle = allocator.alloc(size)
    assert isinstance(handle, HCQBuffer) and handle.size == size
    assert handle.va_addr % (64 if size < 4096 else 4096) == 0
    view = allocator.as_buffer(handle)
    assert view.nbytes == size and not view.readonly
    view[0] = view[-1] = 7
    assert view[0] == view[-1] == 7


def test_pages_are_there_before_the_memory_is_used(allocator):
    handles = [allocator.alloc(size) for size in (256 * KIB, 4 * MIB, 40 * MIB)]
    before = resident()
    for handle in handles:
        np.frombuffer(allocator.as_buffer(handle), np.uint8)[::4096] = 1
    assert resident() - before < 2 * MIB


def test_a_hundred_thousand_buffers_need_no_mapping_each():
    with opened(HostDevice) as name:
        Buffer(name, 1024, dtypes.float32, preallocate=True)
        before = mappings()
        buffers = [Buffer(name, 1024, dtypes.float32, preallocate=True) for _ in range(100_000)]
        assert mappings() - before < 64
        assert len({buf._buf.va_addr for buf in buffers}) == len(buffers)
        del buffers
        Device[name].allocator.free_cache()
        assert mappings() - before < 8


def test_memory_goes_back_to_the_system_when_the_cache_is_emptied(allocator):
    before, stats = resident(), host_pool_stats()
    for size in (MIB, 100, 48 * MIB):
        handles = [allocator.alloc(size) for _ in range(32 if size <= MIB else 2)]
        for handle in handles:
            allocator.free(handle, size)
        del handles
    assert resident() - before > 100 * MIB
    allocator.free_cache()
    assert resident() - before < 20 * MIB
    assert host_pool_stats()["used"] == stats["used"]


def test_large_nolru_memory_goes_back_at_once(allocator):
    before = resident()
    options = BufferOptions(nolru=True)
    allocator.free(allocator.alloc(256 * MIB, options), 256 * MIB, options)
    assert resident() - before < 8 * MIB


def test_a_handle_that_dies_gives_its_memory_back(allocator):
    used = host_pool_stats()["used"]
    handle = allocator._alloc(MIB, OPTIONS)
    assert host_pool_stats()["used"] == used + MIB
    part = allocator.offset(handle, 100, 50)
    assert (part.va_addr, part.size) == (handle.va_addr + 50, 100)
    del handle
    assert host_pool_stats()["used"] == used + MIB
    del part
    assert host_pool_stats()["used"] == used


def test_freed_memory_stays_while_a_view_of_it_lives(allocator):
    used = host_pool_stats()["used"]
    handle = allocator._alloc(MIB, OPTIONS)
    view = allocator.as_buffer(handle)
    allocator._free(handle, OPTIONS)
    view[:] = bytes(MIB)
    assert host_pool_stats()["used"] == used + MIB
    view.release()
    assert host_pool_stats()["used"] == used
    allocator._free(handle, OPTIONS)  # nothing is left to free


def test_more_than_the_system_has_is_refused(allocator):
    for size in (1 << 44, 1 << 50, 2**63 - 1):
        with pytest.raises(OutOfMemory, match="the system has no") as caught:
            allocator.alloc(size)
        assert caught.value.asked == size
    with opened(HostDevice) as name, pytest.raises(MemoryError):
        Buffer(name, 1 << 42, dtypes.float64, preallocate=True)


def test_copies_of_handles_are_checked(allocator):
    handle = allocator.alloc(16)
    allocator.copyin(handle, b"0123456789abcdef")
    out = bytearray(4)
    allocator.copyout(out, handle)
    assert out == b"0123"
    for wrong in (
        lambda: allocator.copyin(handle, bytes(17)),
        lambda: allocator.copyout(bytearray(17), handle),
        lambda: allocator.offset(handle, 8, 9),
        lambda: allocator.offset(handle, 17, 0),
        lambda: allocator.offset(handle, 1, 2**64 - 1),
        lambda: allocator.offset(handle, -1, 0),
    ):
        with pytest.raises(ValueError):
            wrong()
    for wrong in (
        lambda: allocator.copyin(bytearray(4), b"abcd"),
        lambda: allocator.copyin(handle),
        lambda: allocator.as_buffer(3),
        lambda: allocator.copyout(bytes(4), handle),
    ):
        with pytest.raises((TypeError, BufferError)):
            wrong()


def test_handles_can_be_made_by_hand_and_subclassed():
    class Mine(HCQBuffer):
        pass

    handle = Mine(va_addr=2**64 - 1, size=4)
    handle.note = "x"
    assert (handle.va_addr, handle.size) == (2**64 - 1, 4)
    handle.va_addr = 16
    assert repr(HCQBuffer(16, 4)) == "<HCQBuffer of 4 bytes at 0x10>"
    for wrong in ((-1, 4), (2**64, 4), (1, -1)):
        with pytest.raises(ValueError):
            HCQBuffer(*wrong)
    for wrong in (("a", 4), (1.5, 4)):
        with pytest.raises(TypeError):
            HCQBuffer(*wrong)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 22), st.integers(0, 2**20)), min_size=1, max_size=150))
def test_no_two_live_blocks_overlap(steps):
    allocator, live = HostAllocator(), []
    used = host_pool_stats()["used"]
    for is_alloc, power, choice in steps:
        if is_alloc or not live:
            size = (1 << power) + choice % (1 << power)
            handle = allocator._alloc(size, OPTIONS)
            mark = choice % 256
            view = np.frombuffer(allocator.as_buffer(handle), np.uint8)
            view[:] = mark
            live.append((handle, view, mark))
        else:
            handle, view, mark = live.pop(choice % len(live))
            assert (view == mark).all()
            del view
            allocator._free(handle, OPTIONS)
        if choice % 16 == 0:
            allocator.free_cache()
    spans = sorted((handle.va_addr, handle.va_addr + handle.size) for handle, _, _ in live)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert all((view == mark).all() for _, view, mark in live)
    del live
    handle = view = None
    assert host_pool_stats()["used"] == used


def test_a_forked_child_has_memory_of_its_own_and_leaves_the_parents_alone():
    code = """
    import os, sys, threading
    sys.path.insert(0, "tests")
    import hcq
    from hcq import Buffer, Device, MallocAllocator, dtypes
    from hcq.errors import ForkedDeviceError
    from memory_devices import FarDevice, HostDevice

    Device.register("HOSTMEM", HostDevice)
    Device.register("FARMEM", FarDevice)
    bufs = [Buffer(name, 1 << 20, dtypes.uint8, initial_value=bytes([7]) * (1 << 20)) for name in ("HOSTMEM", "FARMEM")]
    views = [buf.view(16, dtypes.uint8, 3).ensure_allocated() for buf in bufs]
    cached = Buffer("FARMEM", 64, dtypes.uint8, preallocate=True)
    cached.deallocate()
    array = Buffer("NPY", 4, dtypes.uint8, opaque=bytearray(b"abcd"))
    shared = MallocAllocator.alloc(4096)
    handle = bufs[0]._buf
    window = bufs[0].as_buffer(force_zero_copy=True)
    log = Device["FARMEM"].allocator.log
    logged = len(log)

    def refused(use):
        try:
            use()
        except ForkedDeviceError as error:
            assert str(parent) in str(error) and str(os.getpid()) in str(error), error
            return True
        return False

    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            for buf in bufs + views:
                for use in (
                    buf.ensure_allocated, buf.as_buffer, buf.is_allocated, buf.deallocate, lambda: buf._buf,
                    lambda: buf.copyin(bytes(buf.nbytes)), lambda: buf.copyout(bytearray(buf.nbytes)),
                    lambda: hasattr(buf, "_buf"), lambda: buf.view(1, dtypes.uint8, 0), lambda: memoryview(buf),
                ):
                    assert refused(use), (buf, use)
                repr(buf)
            nines = bytes([9]) * (1 << 20)
            own = [Buffer(name, 1 << 20, dtypes.uint8, initial_value=nines) for name in ("HOSTMEM", "FARMEM")]
            assert all(bytes(buf.as_buffer()) == bytes([9]) * (1 << 20) for buf in own)
            assert own[0]._buf.va_addr != handle.va_addr
            assert bytes(array.as_buffer()) == b"abcd"
            fresh = MallocAllocator.alloc(4096)
            assert fresh.va_addr != shared.va_addr
            MallocAllocator.free(fresh, 4096)
            MallocAllocator.free(shared, 4096)
            assert MallocAllocator.cached_count == 1
            assert bytes(window[:2]) == bytes([7, 7])
            stats = hcq.memory_stats("FARMEM")
            del bufs[:], views[:], cached, window
            assert len(log) == logged, log
            status = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert all(bytes(buf.as_buffer()) == bytes([7]) * (1 << 20) for buf in bufs)
    assert bytes(views[1].as_buffer()) == bytes([7]) * 16
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_leaving_the_interpreter_with_live_buffers_is_silent():
    code = """
    import sys
    sys.path.insert(0, "tests")
    import hcq
    from hcq import Buffer, Device, dtypes
    from memory_devices import FarDevice, HostDevice
    for factory in (FarDevice, HostDevice):
        Device.register(factory.__name__, factory)
        buf = Buffer(factory.__name__, 16, dtypes.uint8, preallocate=True)
        buf.view(4, dtypes.uint8, 0).ensure_allocated()
        Buffer(factory.__name__, 16, dtypes.uint8, preallocate=True)
        setattr(hcq, factory.__name__, buf)
    hcq.window = Buffer("HOSTDEVICE", 16, dtypes.uint8, preallocate=True).as_buffer(force_zero_copy=True)
    class Loop(Buffer):
        pass
    loop = Loop("FARDEVICE", 4, dtypes.uint8, preallocate=True)
    loop.me = loop
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_forked_child_can_not_launch_with_inherited_buffers():
    code = """
    import os, sys
    import hcq
    from hcq import Device, dtypes
    from hcq.errors import ForkedDeviceError
    source = "void five(int *a) { a[0] = 5; }"
    buf = hcq.zeros(4, dtypes.int32, "CLANG")
    Device["CLANG"].program("five", source)(buf, wait=True)
    handle, failed = buf._buf, []
    pid = os.fork()
    if pid == 0:
        own, program = hcq.zeros(4, dtypes.int32, "CLANG"), Device["CLANG"].program("five", source)
        refused = 0
        for inherited in (buf, handle):
            try:
                program(inherited, wait=True)
            except ForkedDeviceError:
                refused += 1
        program(own, wait=True)
        os._exit(0 if refused == 2 and own.numpy().tolist() == [5, 0, 0, 0] else 1)
    assert os.waitpid(pid, 0)[1] == 0
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_program_of_small_tensors_holds_little_more_than_they_take():
    ran = subprocess.run([sys.executable, "-c", SMALL_TENSORS], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    used, populated = map(int, ran.stdout.split())
    assert used >= 3 * MIB
    assert populated <= used + MIB // 2
