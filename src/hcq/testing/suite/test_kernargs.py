"""Programs as queues see them: kernargs, where they lie and how long they stay."""

import ctypes
import struct

import numpy as np
import pytest

import hcq
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import BYTE, address, empty, filled, read

ONE = (1, 1, 1)


@promise("program.sizes_known", "program.device_name")
@needs("queues", "compiles")
def test_a_loaded_program_knows_its_sizes(dev, kernels):
    program = kernels.nothing
    assert isinstance(program, hcq.HCQProgram)
    assert program.name == "nothing" and program.device is dev
    assert program.kernargs_alloc_size >= program.kernargs_args_offset >= 0


@promise("program.sizes_known", "program.fill_kernargs")
@needs("queues", "computes", "typed")
def test_the_size_holds_all_arguments(dev, kernels):
    assert kernels.fill.kernargs_alloc_size >= kernels.fill.kernargs_args_offset + 16
    assert kernels.sixty_four.kernargs_alloc_size >= kernels.sixty_four.kernargs_args_offset + 32 * 8 + 32 * 4


@promise("program.fill_kernargs")
@needs("queues", "computes", "host_memory")
def test_fill_kernargs_writes_addresses_then_values(dev, kernels):
    out = filled(dev, [0] * 4)
    pointer = kernels.fill.fill_kernargs([out._buf], (4, -7))
    assert isinstance(pointer, int)
    written = ctypes.string_at(pointer + kernels.fill.kernargs_args_offset, 16)
    assert struct.unpack("<Qii", written) == (address(out), 4, -7)


@promise("program.fill_kernargs", "launch.vals_numpy")
@needs("queues", "computes", "host_memory")
def test_numpy_values_lie_at_their_alignment(dev, kernels):
    out = filled(dev, np.zeros(6, "i8"))
    scalars = (np.int8(-5), np.int16(-300), np.int32(7), np.int64(-9), np.float32(1.5), np.float64(2.5))
    pointer = kernels.values.fill_kernargs([out._buf], scalars)
    written = ctypes.string_at(pointer + kernels.values.kernargs_args_offset, 40)
    assert struct.unpack("<QbxhiqfxxxxD".replace("D", "d"), written) == (address(out), -5, -300, 7, -9, 1.5, 2.5)


@promise("program.fill_given")
@needs("queues", "computes", "host_memory")
def test_the_caller_may_bring_the_memory(dev, kernels):
    out, room = filled(dev, [0] * 4), empty(dev, 256, BYTE, hcq.BufferOptions(host=True))
    pointer = kernels.fill.fill_kernargs([out._buf], (4, 3), kernargs_ptr=address(room) + 64)
    assert pointer == address(room) + 64
    done = dev.signal_t()
    queue = dev.hw_compute_queue_t().exec(kernels.fill, pointer, ONE, ONE).signal(done, 1)
    queue.submit(dev)
    done.wait(1)
    assert read(out).tolist() == [3] * 4
    kernels.fill.fill_kernargs([out._buf], (2, 8), kernargs_ptr=pointer)  # the queue reads what lies there when it runs
    done.value = 0
    queue.submit(dev)
    done.wait(1)
    assert read(out).tolist() == [8, 8, 3, 3]


@promise("program.kernargs_recent")
@needs("queues", "computes", "host_memory")
def test_recent_kernargs_stay_as_they_were_filled(dev, kernels):
    out = filled(dev, [0] * 4)
    pointers = [kernels.fill.fill_kernargs([out._buf], (n, n)) for n in range(10_000)]
    assert len(set(pointers)) == 10_000
    for _ in range(500):
        kernels.fill(out._buf, vals=(1, 1))
    for n, pointer in enumerate(pointers):
        written = ctypes.string_at(pointer + kernels.fill.kernargs_args_offset + 8, 8)
        assert struct.unpack("<ii", written) == (n, n)


@promise("program.kernargs_in_flight")
@needs("queues", "computes", "host_memory", "native", "async")
@pytest.mark.slow
def test_kernargs_that_work_reads_are_not_handed_out(fresh, fresh_kernels):
    out, other, gate, done = filled(fresh, [0] * 4), filled(fresh, [0] * 4), fresh.signal_t(), fresh.signal_t()
    program = fresh_kernels.fill
    pointer = program.fill_kernargs([out._buf], (4, 5))
    fresh.hw_compute_queue_t().wait(gate, 1).exec(program, pointer, ONE, ONE).signal(done, 1).submit(fresh)
    size = max(program.kernargs_alloc_size, 64)
    for n in range((40 << 20) // size):
        program.fill_kernargs([other._buf], (4, n))
    gate.value = 1
    done.wait(1)
    assert (read(out).tolist(), read(other).tolist()) == ([5] * 4, [0] * 4)


@promise("program.fill_kernargs", "errors.no_assert", "launch.vals_range")
@needs("queues", "computes")
def test_what_cannot_be_packed_is_refused(dev, kernels):
    out = filled(dev, [0] * 4)
    for vals in ((2**32, 1), ("1", 1), (None, 1)):
        with pytest.raises((ValueError, TypeError, RuntimeError)):
            kernels.fill.fill_kernargs([out._buf], vals)
