"""numba: compiled functions over NumPy arrays, called at once on the caller's thread; prange spreads over all cores."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version
from itertools import repeat
from time import perf_counter
from typing import Any

import kernels
import numba
import numpy as np
from serve import VERSIONS, Answer, bench, busy_thread, expect, fresh_median, serve

VERSIONS["numba"] = version("numba")


@lru_cache
def add() -> tuple[Any, tuple[Any, ...]]:
    def add(a, b, c):  # type: ignore[no-untyped-def]
        c[0] += a[0] + b[0]

    arrays = tuple(np.zeros(1024, np.int32) for _ in range(3))
    arrays[0][:] = 1
    function = numba.njit(add)
    function(*arrays)
    return function, arrays


@bench
def launch(n: int, busy: str = "") -> float:
    function, (a, b, c) = add()
    before = int(c[0])
    with busy_thread(busy):
        start = perf_counter()
        for _ in repeat(None, n):
            function(a, b, c)
        took = (perf_counter() - start) / n
    expect("calls that ran", (int(c[0]) - before) & 0xFFFFFFFF, n & 0xFFFFFFFF)
    return took


@bench
def compile(n: int, device: str) -> float:
    """From a Python function to machine code: numba's front end is part of it."""
    total = 0.0
    for k in range(n):
        tag = np.float32(3000 + k)

        def f(out, a, b):  # type: ignore[no-untyped-def]
            for i in range(out.size):
                x = a[i] * np.float32(2) + b[i]
                y = x if x > 0 else -x
                y = y * y + np.float32(1)
                if y > 100:
                    y = tag  # noqa: B023  # frozen when it is compiled, in this round of the loop
                z = y / (np.float32(1) + x * x)
                out[i] = z - a[i]

        array = numba.types.Array(numba.float32, 1, "C")
        start = perf_counter()
        numba.njit((array, array, array))(f)
        total += perf_counter() - start
    return total / n


@bench
def import_module(n: int) -> Answer:
    return fresh_median(n, "", "import numba")


@lru_cache
def arrays() -> tuple[Any, ...]:
    return tuple(np.full(kernels.STREAM_COUNT, k + 1, np.float32) for k in range(3))


@lru_cache
def triad_function() -> Any:
    @numba.njit(parallel=True)
    def triad(a, b, c, s):  # type: ignore[no-untyped-def]
        for i in numba.prange(a.size):
            a[i] = b[i] + s * c[i]

    return triad


@bench
def triad(n: int) -> float:
    (a, b, c), function = arrays(), triad_function()
    function(a, b, c, np.float32(3))
    start = perf_counter()
    for _ in repeat(None, n):
        function(a, b, c, np.float32(3))
    return (perf_counter() - start) / n


@lru_cache
def reduce_function() -> Any:
    @numba.njit(parallel=True)
    def reduce(sums, x):  # type: ignore[no-untyped-def]
        for g in numba.prange(sums.size):
            total = np.float32(0)
            for i in range(256):
                total += x[g * 256 + i]
            sums[g] = total

    return reduce


@bench
def reduce(n: int) -> float:
    x, sums, function = arrays()[2], np.zeros(kernels.BLOCKS, np.float32), reduce_function()
    function(sums, x)
    start = perf_counter()
    for _ in repeat(None, n):
        function(sums, x)
    return (perf_counter() - start) / n


if __name__ == "__main__":
    serve()
