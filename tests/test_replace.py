"""hcq.save, killed at every step: what has the file's name is the old file or the whole new one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy
import pytest

import hcq

pytestmark = pytest.mark.thorough

# Kills the process before its n-th call of what touches files, which are all that the system sees of saving.
KILLED = """
import os, signal, sys
import numpy
import hcq
import hcq.formats.saving

at, path, kind = int(sys.argv[1]), sys.argv[2], sys.argv[3]
calls = 0

def stops(call):
    def counted(*args, **options):
        global calls
        calls += 1
        if calls > at:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **options)
    return counted

data = {"a": hcq.array(numpy.arange(100_000, dtype="f4") + 1, "CPU"), "b": numpy.arange(7)}
for name in ("open", "write", "pwrite", "fchmod", "fsync", "close", "replace", "rename"):
    setattr(os, name, stops(getattr(os, name)))
hcq.save(path, data if kind != ".npy" else data["b"])
os._exit(0)
"""


@pytest.mark.parametrize("kind", [".safetensors", ".npy", ".npz"])
def test_a_save_killed_at_any_step_leaves_the_old_file_or_the_new_one(tmp_path, kind):
    path = tmp_path / f"weights{kind}"
    old = {"a": numpy.zeros(10, "f4"), "b": numpy.zeros(3, "i8")}
    hcq.save(path, old if kind != ".npy" else old["b"])
    before = path.read_bytes()
    hcq.save(tmp_path / f"new{kind}", _new() if kind != ".npy" else _new()["b"])
    after = (tmp_path / f"new{kind}").read_bytes()
    killed = replaced = 0
    for at in range(100):
        path.write_bytes(before)
        status = subprocess.run([sys.executable, "-c", KILLED, str(at), path, kind], timeout=60).returncode
        found = path.read_bytes()
        assert found in (before, after), f"killed before call {at + 1}: {len(found)} bytes"
        if status == 0:
            assert found == after
            break
        assert status == -signal.SIGKILL
        killed += 1
        replaced += found == after
    assert killed >= 4 and replaced < killed, "the steps were not met"
    assert os.path.exists(path)


def _new():
    return {"a": numpy.arange(100_000, dtype="f4") + 1, "b": numpy.arange(7)}
