"""Signals between processes: two processes with one piece of memory order their work by it."""

from __future__ import annotations

import gc
import mmap
import subprocess
import sys
import weakref
from pathlib import Path

import hcq

CHILD = """
import hcq, mmap, sys
with open(sys.argv[1], "r+b") as file:
    memory = memoryview(mmap.mmap(file.fileno(), 4096))
ping, pong = hcq.HCQSignal(memory=memory[:64]), hcq.HCQSignal(memory=memory[64:128])
dev = hcq.Device["CLANG"]
for n in range(1, 101):
    dev.hw_compute_queue_t().wait(ping, n).signal(pong, n).submit(dev)
dev.synchronize()
print("done", pong.value)
"""


def test_queues_of_two_processes_order_each_other(tmp_path: Path) -> None:
    path = tmp_path / "signals"
    path.write_bytes(bytes(4096))
    with path.open("r+b") as file:
        memory = memoryview(mmap.mmap(file.fileno(), 4096))
    ping, pong = hcq.HCQSignal(memory=memory[:64]), hcq.HCQSignal(memory=memory[64:128])
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True)
    dev = hcq.Device["CLANG"]
    for n in range(1, 101):
        dev.hw_compute_queue_t().signal(ping, n).wait(pong, n).submit(dev)
    dev.synchronize()
    said, _ = child.communicate(timeout=60)
    assert said == "done 100\n"
    assert (ping.value, pong.value) == (100, 100)


def test_a_placed_signal_keeps_its_memory_and_gives_it_back() -> None:
    memory = mmap.mmap(-1, 4096)
    kept = weakref.ref(memory)
    signal = hcq.HCQSignal(memory=memory)
    del memory
    gc.collect()
    signal.value = 5
    assert kept() is not None and signal.value == 5
    del signal
    gc.collect()
    assert kept() is None
