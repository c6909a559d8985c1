"""Programs of tinygrad 0.9.2, run alone and on hcq alike: replays, single kernels, first results, memory."""

from __future__ import annotations

from functools import lru_cache
from itertools import repeat
from time import perf_counter
from typing import Any

from serve import Answer, bench, expect, fresh, fresh_median
from tinygrad import Device, Tensor, TinyJit

KERNELS = 100
ELEMENTS = 1024

FIRST = """
import os
os.environ['CACHELEVEL'] = '0'
factor = 1 + time.time_ns() % 1_000_003 / 1_000_003
"""
FIRST_RESULT = """
from tinygrad import Tensor
x = Tensor([1.0, 2.0, 3.0], device={device!r})
assert abs((x * factor + 1).sum().item() - (6 * factor + 3)) < 1e-3
"""
WORK = """
from tinygrad import Tensor, TinyJit
step = TinyJit(lambda x: (x @ x.T).relu().sum().realize())
kept = [Tensor.zeros(64, 64, device={device!r}).contiguous().realize()]
for k in range(200):
    kept.append((kept[-1] + 1).contiguous().realize())
    step(kept[-1])
assert step(kept[1]).item() == 64 * 64 * 64
"""
UNCACHED = """
import os
os.environ |= {'CACHELEVEL': '0', 'DISABLE_COMPILER_CACHE': '1'}
"""
# Not ru_maxrss: a child begins with what its parent had resident when it was started. Not private dirty pages: those of
# a file that was written a moment ago, as the native module after a build, count as dirty until the system wrote them.
HELD = """
def kib(file, field):
    return next(int(line.split()[1]) for line in open(file) if line.startswith(field))
extra['own'] = sum(kib('/proc/self/smaps_rollup', field) for field in ('Pss_Anon:', 'Pss_Shmem:')) / 1024
extra['peak'] = kib('/proc/self/status', 'VmHWM:') / 1024
"""


def chain(x: Any) -> Any:
    for _ in range(KERNELS):
        x = (x + 1).contiguous()
    return x.realize()


@lru_cache
def captured(device: str) -> tuple[Any, Any]:
    """A JIT that has captured a hundred kernels and built what graph there is, and an input of it."""
    jitted = TinyJit(chain)
    x = Tensor.zeros(ELEMENTS, device=device).contiguous().realize()
    for _ in range(4):
        out = jitted(x)
    expect("kernels' sum", out.numpy().tolist()[-1], float(KERNELS))
    return jitted, x


@bench
def replay(n: int, device: str) -> float:
    """One of a hundred replayed kernels, until the last of n replays has finished."""
    jitted, x = captured(device)
    Device[device].synchronize()
    start = perf_counter()
    for _ in repeat(None, n):
        out = jitted(x)
    Device[device].synchronize()
    took = (perf_counter() - start) / (n * KERNELS)
    expect("kernels' sum", out.numpy().tolist()[-1], float(KERNELS))
    return took


@bench
def eager(n: int, device: str) -> float:
    """A tensor made by one kernel: schedule it, look its program up, allocate, launch."""
    x = Tensor.zeros(ELEMENTS, device=device).contiguous().realize()
    Device[device].synchronize()
    start = perf_counter()
    for _ in repeat(None, n):
        out = (x + 1).realize()
    Device[device].synchronize()
    took = (perf_counter() - start) / n
    expect("the sum", out.numpy().tolist()[-1], 1.0)
    return took


@bench
def first(n: int, device: str) -> Answer:
    """A new interpreter's first result, of a kernel that no cache has: import, open, compile, run, read."""
    return fresh_median(n, FIRST, FIRST_RESULT.format(device=device))


@bench
def memory(n: int, device: str) -> Answer:
    """MiB that a new interpreter holds for itself after 200 tensors of 16 KiB and a JIT: all but pages of files, which
    processes share and the system takes back."""
    return {"value": held(device)["own"]}


@bench
def resident(n: int, device: str) -> Answer:
    """MiB that it ever had resident, pages of files included."""
    return {"value": held(device)["peak"]}


def held(device: str) -> Answer:
    return fresh(UNCACHED, WORK.format(device=device), HELD)
