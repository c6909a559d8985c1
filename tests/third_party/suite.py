"""MINI as the conformance suite sees it: its kernels, in Python, and what it does not have."""

from pathlib import Path

from hcq.testing import DriverUnderTest
from hcq.testing.driver import KERNELS

from .mini import MiniDevice

_OUT = ", ".join(f"b{number}: 'i32*'" for number in range(1, 32))
_VALUES = ", ".join(f"v{number}: 'i32'" for number in range(32))
_SUM = " + ".join([*(f"b{number}[0]" for number in range(1, 32)), *(f"v{number}" for number in range(32))])

SOURCE = f"""
import time

def fill(launch, out: "i32*", n: "i32", value: "i32"):
    for i in range(n):
        out[i] = value

def iota(launch, out: "i32*", n: "i32", start: "i32"):
    for i in range(n):
        out[i] = start + i

def add(launch, out: "i32*", a: "i32*", b: "i32*", n: "i32"):
    for i in range(n):
        out[i] = a[i] + b[i]

def increment(launch, out: "i32*"):
    out[0] += 1

def append(launch, log: "i32*", value: "i32"):
    log[0] += 1
    log[log[0]] = value

def spin(launch, out: "i32*", n: "i32"):
    until = time.perf_counter_ns() + n
    while time.perf_counter_ns() < until:
        pass
    out[0] = n

def nothing(launch):
    pass

def values(launch, out: "i64*", a: "i8", b: "i16", c: "i32", d: "i64", e: "f32", f: "f64"):
    import struct
    bits = struct.unpack("<2q", struct.pack("<2d", e, f))
    for index, value in enumerate((a, b, c, d, *bits)):
        out[index] = value

def raw(launch, out: "u32*", a: "u32"):
    out[0] = a

def sixty_four(launch, out: "i32*", {_OUT}, {_VALUES}):
    out[0] = {_SUM}

def grid(launch, out: "i32*"):
    group, groups, items = launch
    number = (group[2] * groups[1] + group[1]) * groups[0] + group[0]
    count = items[0] * items[1] * items[2]
    for item in range(count):
        out[number * count + item] += number * 1000 + item + 1

def meet(launch, out: "i32*", rounds: "i32"):
    group, _, (count, _, _) = launch
    sums = [0] * count
    for turn in range(rounds):
        local = [item + turn for item in range(count)]  # all items reach the barrier before any goes on
        for item in range(count):
            sums[item] += local[(item + 1) % count]
    for item in range(count):
        out[group[0] * count + item] = sums[item]
"""

_TESTS = Path(__file__).parents[1]

driver = DriverUnderTest(
    "MINI",
    factory=MiniDevice,
    kernels=dict.fromkeys(KERNELS, SOURCE),
    lacks={
        "kernels": "its driver has no kernel_language",
        "inject": "faults are injected by native code and the null device",
        "host_pointers": "it knows only memory that it has allocated itself",
        "shared_signals": "its signals are Python objects",
        "plain": "each of its kernels is called once a work-group",
        "native": "its queues are Python threads",
    },
    exclusions={
        "interop.array_copy_false": "a buffer's memory is always the driver's own",
        "checks.races": "streams of drivers in Python share one queue of a kind, so that copies of two are in order",
    },
    setup=f"""
import sys
sys.path.insert(0, {str(_TESTS)!r})
import hcq
from third_party.mini import MiniDevice
hcq.Device.register("MINI", MiniDevice)
""",
    bad_source="def broken(launch, out: 'i32*'):\n  out[0] = = 1\n",
)
