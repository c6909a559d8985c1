"""What threads may do beside each other and beside the end: closing a device that others use, leaving in the midst.

Each runs in a process of its own, since what is found otherwise is that this process ends.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import hcq

BEGIN = """
import os, sys, threading, time
import numpy as np
import hcq
D = sys.argv[1]
def once():
    z = hcq.ops.add(hcq.array(np.arange(16, dtype="i4"), D), 1)
    assert (z.numpy() == np.arange(1, 17)).all()
once()
"""

CLOSED = """
wrong = []
def use():
    while not over:
        try:
            once()
        except RuntimeError as error:
            if "closed" not in str(error):
                wrong.append(repr(error)[:300])
        except BaseException as error:
            wrong.append(repr(error)[:300])
over = False
threads = [threading.Thread(target=use, daemon=True) for _ in range(3)]
for thread in threads: thread.start()
for _ in range(8):
    time.sleep(0.04)
    hcq.Device.close(D)
over = True
for thread in threads:
    thread.join(20)
    assert not thread.is_alive()
assert not wrong, wrong
once()
print("well")
"""

COPIED = """
from contextlib import suppress
given, size = np.ones(24 << 20, "u1"), 24 << 20
def use():
    with suppress(RuntimeError):
        buf, got = hcq.Buffer(D, size, hcq.dtypes.uint8).allocate(), np.empty(size, "u1")
        while True:
            buf.copyin(given)
            buf.copyout(got)
for round in range(12):
    device = hcq.Device[D]
    threads = [threading.Thread(target=use, daemon=True) for _ in range(3)]
    for thread in threads: thread.start()
    time.sleep(0.02 + 0.005 * round)
    device.close()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
once()
print("well")
"""

LEFT = """
def use():
    while True:
        once()
for _ in range(3): threading.Thread(target=use, daemon=True).start()
time.sleep(0.2)
sys.stderr = open(os.devnull, "w")  # a thread that is told of the end may say so
print("well", flush=True)
"""

FORKED = """
pid = os.fork()
if pid:
    assert os.waitpid(pid, 0)[1] == 0
    print("well")
"""


def run(device: str, body: str) -> None:
    try:
        hcq.Device[device]
    except hcq.errors.DeviceUnavailable as why:
        pytest.skip(f"{device}: {why}")
    command = [sys.executable, "-X", "faulthandler", "-c", BEGIN + body, device]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=os.environ)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr[-3000:])
    assert done.stdout.strip() == "well"
    assert "Exception ignored" not in done.stderr, done.stderr


@pytest.mark.parametrize("device", ["CLANG", "GPU", "VULKAN"])
def test_a_device_is_closed_while_threads_use_it_and_they_are_told(device: str) -> None:
    run(device, CLOSED)


@pytest.mark.parametrize("device", ["GPU", "VULKAN"])
def test_a_device_is_closed_while_threads_copy_through_its_ring(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCQ_FORCE_STAGING", "1")
    run(device, COPIED)


@pytest.mark.parametrize("device", ["CLANG", "GPU", "VULKAN"])
def test_the_process_ends_while_daemon_threads_use_a_device(device: str) -> None:
    run(device, LEFT)


@pytest.mark.parametrize("device", ["CLANG", "GPU", "VULKAN"])
def test_a_forked_child_ends_without_a_word_about_what_it_inherited(device: str) -> None:
    run(device, FORKED)
