"""DISK: what happens to a file while it is read or written, and files under the checks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy
import pytest
from disk_tools import U8, data_of, forget_pages, whole

import hcq
from hcq import Buffer, Device, HCQSignal

# What happens meanwhile


def test_a_file_cut_short_while_it_is_read_raises_or_was_read_before(tmp_path, engine):
    path = tmp_path / "data"
    size = 32 << 20
    data = numpy.frombuffer(data_of(size), numpy.uint8)
    dest = hcq.zeros(size, U8, "CLANG")
    seen = set()
    for attempt in range(12):
        data.tofile(path)
        forget_pages(path)
        src = whole(path)
        cutter = threading.Timer(attempt * 0.002, os.truncate, (path, size // 2))
        cutter.start()
        try:
            hcq.copy(dest, src)
            assert (numpy.asarray(dest) == data).all()
            seen.add("whole")
        except EOFError as error:
            assert str(path) in str(error)
            seen.add("cut")
        cutter.join()
    assert "cut" in seen


def test_a_limit_of_file_sizes_is_the_systems_error(tmp_path):
    code = f"""
import errno, resource, hcq
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
try:
    hcq.Buffer("DISK:{tmp_path}/much?mode=create", 2 << 20, hcq.dtypes.uint8).allocate()
except OSError as error:
    assert error.errno == errno.EFBIG, error
else:
    raise SystemExit("it grew")
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert not list(tmp_path.iterdir())


def test_control_c_ends_a_wait_for_a_file_and_the_memory_stays(big):
    code = f"""
import os, signal, threading
import numpy
import hcq
from hcq.drivers.disk import device
src = hcq.Buffer("DISK:{big}", 3000001, hcq.dtypes.uint8).allocate()
dest = hcq.empty(3000001, hcq.dtypes.uint8, "CLANG")
clang, gate = hcq.Device["CLANG"], hcq.HCQSignal()
value = clang.next_timeline()
clang.hw_compute_queue_t().wait(gate, 1).signal(clang.timeline_signal, value).submit(clang)
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    hcq.copy(dest, src)  # behind what the device stands at
except KeyboardInterrupt:
    pass
else:
    raise SystemExit("it did not wait")
assert len(device._left) == 1
gate.value = 1
hcq.Device[src.device].synchronize()
assert bytes(dest.as_buffer()) == open("{big}", "rb").read()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# Under the checks


def test_checks_see_files_and_find_nothing_where_all_is_well(big, tmp_path, segment):
    with hcq.checks(strict=True) as found:
        src, dest = whole(big), hcq.zeros(3_000_001, U8, "CLANG")
        hcq.copy(dest, src)
        hcq.copy(dest, src)
        made = Buffer(f"DISK:{tmp_path}/made?mode=create", 3_000_001, U8)
        hcq.copy(made, dest)
        hcq.copy(dest, made)
        both = Buffer(f"DISK:shm:{segment}?mode=create", 4096, U8).allocate()
        numpy.asarray(both)[:] = 7
        assert bytes(both.as_buffer()) == bytes([7]) * 4096 and os.path.getsize(f"/dev/shm/{segment}") == 4096
        os.truncate(big, 10)
        with pytest.raises(EOFError):
            hcq.copy(dest, src)
        hcq.copy(dest, made)
    assert not found.findings


def test_checks_find_two_writers_of_a_file(tmp_path):
    one, other = (hcq.zeros(500_000, U8, name) for name in ("CLANG", "LLVM"))
    with hcq.checks(), pytest.raises(hcq.errors.RaceError, match="made"):
        made = Buffer(f"DISK:{tmp_path}/made?mode=create", 500_000, U8).allocate()
        for source in (one, other):
            device = Device[source.device]
            queue = device.hw_copy_queue_t().copy(made._buf.va_addr, source._buf.va_addr, 500_000)
            queue.signal(HCQSignal(), 1).submit(device)
    for name in ("CLANG", "LLVM"):
        Device[name].synchronize()
