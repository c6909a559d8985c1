"""CUDA devices that lack what most have: those of hcq.cudacpu that do without it, each in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALL = "managed-access,pools,registering,graphs"  # what the driver can do without beside memory operations

USE = """
import numpy as np
import hcq


def plus_one(out: hcq.ptr[hcq.i32], src: hcq.ptr[hcq.i32]):
    i = hcq.global_id(0)
    out[i] = src[i] + 1


dev, other = hcq.Device["CUDA"], hcq.Device["CUDA:1"]
print(dev.info["signals"])
add = hcq.kernel(plus_one)
x, y = hcq.array(np.arange(64, dtype=np.int32), "CUDA"), hcq.empty(64, hcq.i32, "CUDA")
add[2, 32](y, x)
with hcq.capture() as graph:
    for _ in range(4):
        add[2, 32](y, y)
for _ in range(3):
    graph.replay()
far = hcq.empty(64, hcq.i32, "CUDA:1")
hcq.copy(far, y)
assert (far.numpy() == np.arange(64) + 13).all()
shared = hcq.Buffer("CUDA", 64, hcq.i32, options=hcq.BufferOptions(cpu_access=True), preallocate=True)
stream = dev.stream()
hcq.copy(shared, y, stream=stream)
stream.synchronize()
assert (shared.numpy() == np.arange(64) + 13).all()
done = dev.signal_t()
for value in range(1, 20, 2):
    dev.hw_copy_queue_t().copy(y._buf.va_addr, x._buf.va_addr, 256).signal(done, value).submit(dev)
    dev.hw_compute_queue_t().wait(done, value).signal(done, value + 1).submit(dev)
    other.hw_compute_queue_t().wait(done, value + 1).submit(other)
other.synchronize()
dev.synchronize()
assert done.value == 20 and (y.numpy() == np.arange(64)).all()
"""
OPEN = """
import hcq
try:
    hcq.Device["CUDA"]
except hcq.errors.DeviceUnavailable as why:
    print(why.reason)
"""


def run(code, without, *command):
    variables = {**os.environ, "HCQ_CUDA": "cpu", "HCQ_CUDACPU_DEVICES": "2", "HCQ_CUDACPU_WITHOUT": without}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        command or [sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=900, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("without", "signals"),
    [("memory-operations", "set by the host"), ("pools,graphs", "set by streams"), (ALL, "set by the host")],
)
def test_the_driver_does_without_what_a_device_lacks(tmp_path, without, signals):
    program = tmp_path / "use.py"  # a kernel's source is read from a file
    program.write_text(USE)
    assert run("", without, sys.executable, str(program)) == signals


@pytest.mark.parametrize("without", ["mapping", "unified-addresses"])
def test_a_device_without_one_address_for_all_is_unavailable(without):
    assert run(OPEN, without) == "hcq CUDA on CPU has no unified addresses"


@pytest.mark.thorough
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("without", ["memory-operations", f"memory-operations,{ALL}", ALL])
def test_the_conformance_suite_holds_without(without):
    """And the driver's own tests, but for what they have no device for."""
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not thorough and not gibibytes"]
    told = run(
        "",
        without,
        *pytest_,
        "tests/conformance/test_conformance_cuda.py",
        "tests/cuda",
        f"--deselect={Path(__file__)}",
    )
    assert " failed" not in told and " passed" in told
