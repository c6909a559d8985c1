"""Launches on VULKAN by hcq: one kernel that adds 1 to a number, and how they end."""

from __future__ import annotations

from functools import lru_cache
from itertools import repeat
from time import perf_counter
from typing import Any

import numpy as np
from serve import Answer, Missing, bench, expect

import hcq


@hcq.kernel
def bump(out: hcq.ptr[hcq.i32]) -> None:
    out[0] += 1


@lru_cache
def bumped() -> tuple[Any, Any, Any]:
    """The device, the program, and the buffer of one number."""
    try:
        device = hcq.Device["VULKAN"]
    except hcq.errors.DeviceUnavailable as why:
        raise Missing(str(why)) from None
    program, out = device.program("bump", bump.source(device)), hcq.array(np.zeros(1, np.int32), "VULKAN")
    program(out, wait=True)
    return device, program, out


@bench
def vulkan_launch(n: int, way: str = "called", waits: bool = False) -> Answer:
    device, program, out = bumped()
    before = int(out.numpy()[0])
    if way == "called":
        call, arguments = program, (out,)
    elif way == "prepared":
        call, arguments = program.prepare(out), ()
    else:
        queue = device.hw_compute_queue_t().exec(program, program.fill_kernargs((out._buf,)), (1, 1, 1), (1, 1, 1))
        call, arguments = queue.bind(device).submit, (device,)
    synchronize = device.synchronize
    start = perf_counter()
    for _ in repeat(None, n):
        call(*arguments)
        if waits:
            synchronize()
    called = perf_counter()
    synchronize()
    end = perf_counter()
    expect("launches that ran", int(out.numpy()[0]) - before, n)
    return {"value": (end - start) / n, "calls alone": (called - start) / n}
