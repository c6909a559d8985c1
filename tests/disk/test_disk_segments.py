"""DISK: `shm:` segments, shared with queues, kernels, other processes and children."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy
import pytest
from disk_tools import U8, data_of

import hcq
from hcq import Buffer, HCQSignal


def test_a_segment_is_shared_memory_in_place(segment):
    made = Buffer(f"DISK:shm:{segment}?mode=create", 4096, U8).allocate()
    other = Buffer(f"DISK:shm:{segment}", 4096, U8).allocate()
    numpy.asarray(made)[:4] = [1, 2, 3, 4]
    assert bytes(other.as_buffer())[:4] == bytes([1, 2, 3, 4])
    assert not numpy.asarray(other).flags.writeable
    with pytest.raises(ValueError, match="writable memory"):
        HCQSignal(0, memory=other.view(64, U8, 64))
    signal = HCQSignal(0, memory=made.view(64, U8, 64))
    HCQSignal(0, memory=made.view(64, U8, 64)).value = 7
    assert signal.value == 7 and bytes(other.as_buffer())[64] == 7
    with pytest.raises(ValueError, match="mode=create grows"):
        Buffer(f"DISK:shm:{segment}", 8192, U8).allocate()
    with pytest.raises(FileNotFoundError):
        Buffer(f"DISK:shm:{segment}-none", 4, U8).allocate()


def test_kernels_and_queues_work_in_a_segment(segment, device):
    made = Buffer(f"DISK:shm:{segment}?mode=create", 100_000, U8).allocate()
    data = hcq.array(numpy.frombuffer(data_of(100_000), numpy.uint8), device)
    hcq.copy(made, data)
    back = hcq.empty(100_000, U8, device)
    hcq.copy(back, made)
    assert bytes(back.as_buffer()) == data_of(100_000) == bytes(made.as_buffer())


OTHER_SIDE = """
import hcq, sys
both = hcq.Buffer("DISK:shm:" + sys.argv[1] + "?mode=rw", 4096, hcq.dtypes.uint8).allocate()
ask, answer = (hcq.HCQSignal(memory=both.view(64, hcq.dtypes.uint8, at)) for at in (0, 64))
numbers = hcq.Buffer("CLANG", 100, hcq.dtypes.uint8, preallocate=True)
device = hcq.Device["CLANG"]
for n in range(1, 101):
    # The queue waits for the other process, and answers it.
    queue = device.hw_copy_queue_t().wait(ask, n).copy(both._buf.va_addr + 1024, both._buf.va_addr + 128, 100)
    queue.signal(answer, n).submit(device)
device.synchronize()
"""


def test_two_processes_signal_each_other_through_a_segment(segment):
    both = Buffer(f"DISK:shm:{segment}?mode=create", 4096, U8).allocate()
    ask, answer = (HCQSignal(0, memory=both.view(64, U8, at)) for at in (0, 64))
    child = subprocess.Popen([sys.executable, "-c", OTHER_SIDE, segment])
    memory = numpy.asarray(both)
    for n in range(1, 101):
        memory[128:228] = n
        ask.value = n
        answer.wait(n, 30_000)
        assert (memory[1024:1124] == n).all()
    assert child.wait(30) == 0
    assert os.path.exists(f"/dev/shm/{segment}"), "it is ours, not the child's"


def test_a_segments_name_goes_with_the_last_buffer_of_who_made_it(segment):
    path = f"/dev/shm/{segment}"
    made, more = (Buffer(f"DISK:shm:{segment}?mode=create", size, U8).allocate() for size in (64, 128))
    other = Buffer(f"DISK:shm:{segment}?mode=rw", 64, U8).allocate()
    view = numpy.asarray(made)
    made.deallocate()
    assert os.path.exists(path)
    more.deallocate()
    assert os.path.exists(path), "an array over it lives"
    view[0] = 5
    assert bytes(other.as_buffer())[0] == 5
    del view
    assert not os.path.exists(path)
    assert bytes(other.as_buffer())[0] == 5
    code = (
        f"import hcq; b = hcq.Buffer('DISK:shm:{segment}?mode=create', 64, hcq.dtypes.uint8).allocate(); hcq.kept = b"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert not os.path.exists(path)


def test_a_child_leaves_the_parents_segment(segment):
    made = Buffer(f"DISK:shm:{segment}?mode=create", 64, U8).allocate()
    child = os.fork()
    if not child:
        numpy.asarray(made)[0] = 9
        made.deallocate()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.path.exists(f"/dev/shm/{segment}") and bytes(made.as_buffer())[0] == 9
