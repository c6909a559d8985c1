"""Portable kernels, in hcq's worker: launching, compiling from Python's text to a first launch, and hcq.ops."""

from __future__ import annotations

import random
from functools import lru_cache
from itertools import repeat
from time import perf_counter
from typing import Any

import operations
from serve import Answer, bench, expect

import hcq


@hcq.kernel
def count(a: hcq.ptr[hcq.i32], b: hcq.ptr[hcq.i32], c: hcq.ptr[hcq.i32]):  # type: ignore[no-untyped-def]
    c[0] += a[0] + b[0]


@hcq.kernel
def ten_lines(  # type: ignore[no-untyped-def]
    out: hcq.ptr[hcq.f32], a: hcq.ptr[hcq.f32], b: hcq.ptr[hcq.f32], n: hcq.i32, tag: hcq.constexpr
):
    i = hcq.global_id(0)
    if i < n:
        x = a[i] * 2.0 + b[i]
        y = x if x > 0 else -x
        y = y * y + 1.0
        if y > 100.0:
            y = hcq.f32(tag)
        z = y / (1.0 + x * x)
        out[i] = z - a[i]


@lru_cache
def buffers(device: str) -> list[Any]:
    made: list[Any] = [hcq.zeros(1024, hcq.i32, device) for _ in range(3)]
    made[0].fill(1)
    return made


@bench
def kernel_launch(n: int, device: str = "LLVM") -> Answer:
    """n launches queued, until the last has finished; each adds one to a counter, which is checked."""
    dev, (a, b, c) = hcq.Device[device], buffers(device)
    before = int(c.numpy()[0])
    start = perf_counter()
    for _ in repeat(None, n):
        count[1, 1](a, b, c)
    called = perf_counter()
    dev.synchronize()
    end = perf_counter()
    expect("launches that ran", (int(c.numpy()[0]) - before) & 0xFFFFFFFF, n & 0xFFFFFFFF)
    return {"value": (end - start) / n, "calls alone": (called - start) / n}


@bench
def kernel_compile(n: int, device: str) -> float:
    """From Python's text to a launch that has finished, of a kernel that no cache has."""
    out, a, b = (hcq.zeros(64, hcq.f32, device) for _ in range(3))
    ten_lines[1, 64](out, a, b, 64, 0.5, wait=True)
    total = 0.0
    for _ in range(n):
        tag = random.SystemRandom().random() * 1000
        start = perf_counter()
        ten_lines[1, 64](out, a, b, 64, tag, wait=True)
        total += perf_counter() - start
    return total / n


@bench
def kernel_cached(n: int, device: str) -> float:
    """A launch of a kernel that was compiled before, which Python looks at: its arguments have names."""
    out, a, b = (hcq.zeros(64, hcq.f32, device) for _ in range(3))
    ten_lines[1, 64](out, a, b, 64, 0.5, wait=True)
    start = perf_counter()
    for _ in repeat(None, n):
        ten_lines[1, 64](out=out, a=a, b=b, n=64, tag=0.5)
    took = (perf_counter() - start) / n
    hcq.Device[device].synchronize()
    return took


@bench
def operation(n: int, name: str, device: str = "LLVM") -> float:
    """One of hcq.ops, into a buffer that is there; its result is checked against NumPy's."""
    run = checked(name, device)
    dev = hcq.Device[device]
    dev.synchronize()
    start = perf_counter()
    for _ in repeat(None, n):
        run()
    dev.synchronize()
    return (perf_counter() - start) / n


@lru_cache(maxsize=2)  # of two devices
def checked(name: str, device: str) -> Any:
    import numpy

    run = operations.in_hcq(name, device)
    got, wanted = run().numpy(), operations.in_numpy(name)()
    if not numpy.allclose(got, wanted, rtol=2e-3, atol=2e-3):
        raise AssertionError(f"{name}: results differ from NumPy's")
    return run
