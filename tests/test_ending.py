"""What becomes of queued work when the interpreter ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hcq.cudacpu
from hcq.errors import DeviceUnavailable

ENDLESS = """
import os, signal, sys
os.environ["HCQ_CUDA"] = "cpu"
import numpy as np
import hcq
source = '''.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 to) {
  .reg .b64 %d1; .reg .b32 %r1; .reg .pred %p1;
  ld.param.u64 %d1, [to];
LOOK:
  ld.volatile.global.u32 %r1, [%d1];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra LOOK;
  ret;
}'''
dev = hcq.Device["CUDA"]
word = hcq.array(np.zeros(1, "i4"), "CUDA")
dev.program("k", source)(word, global_size=(1, 1, 1), local_size=(32, 1, 1))
os.kill(os.getpid(), signal.SIGINT)
dev.synchronize()
"""
PATIENCE = """
import atexit
atexit.register(lambda: print(hcq.queues.device._patience()))
import hcq.queues.device
"""


def test_a_kernel_that_never_ends_keeps_no_interrupt_from_ending_the_program():
    try:
        hcq.cudacpu.library_path()
    except DeviceUnavailable as why:
        pytest.skip(str(why))
    ended = subprocess.run([sys.executable, "-c", ENDLESS], capture_output=True, text=True, timeout=60)
    assert ended.stderr.rstrip().endswith("KeyboardInterrupt"), ended.stderr


def test_work_has_less_time_to_finish_where_an_interrupt_ends_the_program():
    found = {}
    for how in ("pass", "raise KeyboardInterrupt"):
        ended = subprocess.run([sys.executable, "-c", PATIENCE + how], capture_output=True, text=True, timeout=60)
        found[how] = float(ended.stdout)
    assert found["raise KeyboardInterrupt"] < found["pass"]
