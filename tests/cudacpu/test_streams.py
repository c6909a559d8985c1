"""Streams of the driver on the CPU: order, events, host functions, errors that stay, and how its process ends."""

import subprocess
import sys

import inside

# A wait that never ends, a host function that blocks, and work behind both.
LEFT_QUEUED = """
import ctypes, sys, threading
sys.path.insert(0, sys.argv[1])
from driver import cuda, fresh, out
fresh()
word = out(ctypes.c_void_p, cuda.cuMemHostAlloc, ctypes.c_size_t(4), 0)
ctypes.memset(word, 0, 4)
entered = threading.Event()
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def block(data):
    entered.set()
    threading.Event().wait(600)
waiting, blocked = (out(ctypes.c_void_p, cuda.cuStreamCreate, 1) for _ in range(2))
cuda.cuStreamWaitValue32_v2(waiting, ctypes.c_uint64(word.value), 1, 1)
cuda.cuLaunchHostFunc(blocked, block, None)
for on in (waiting, blocked):
    cuda.cuMemsetD8Async(ctypes.c_uint64(word.value), 0, ctypes.c_size_t(4), on)
assert entered.wait(60)
print("over")
"""

test_streams = inside.each_of("stream_checks.py")


def test_a_process_ends_with_work_queued():
    command = [sys.executable, "-m", "hcq.cudacpu", "-c", LEFT_QUEUED, str(inside.HERE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")
