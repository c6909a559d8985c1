"""NumPy: operations over arrays, at once, on one thread."""

from __future__ import annotations

from functools import lru_cache
from itertools import repeat
from statistics import median
from time import perf_counter
from typing import Any

import files
import kernels
import numpy as np
import operations
from serve import VERSIONS, Answer, bench, fresh_median, mappings, serve

VERSIONS["NumPy"] = np.__version__


@bench
def launch(n: int) -> float:
    """c += a over one element: NumPy's own launch."""
    a, c = np.ones(1, np.int32), np.zeros(1, np.int32)
    call = np.add
    start = perf_counter()
    for _ in repeat(None, n):
        call(a, c, c)
    return (perf_counter() - start) / n


@bench
def buffer(n: int, size: int) -> float:
    make = np.empty
    start = perf_counter()
    for _ in repeat(None, n):
        make(size, np.uint8)
    return (perf_counter() - start) / n


@bench
def view(n: int) -> float:
    root = np.empty(4096, np.uint8)
    start = perf_counter()
    for _ in repeat(None, n):
        root[1024:2048]
    return (perf_counter() - start) / n


@lru_cache(maxsize=2)
def array(size: int, which: int) -> Any:
    return np.full(size, which, np.uint8)


@bench
def copy(n: int, size: int) -> float:
    dest, source = array(size, 0), array(size, 1)
    start = perf_counter()
    for _ in repeat(None, n):
        np.copyto(dest, source)
    return (perf_counter() - start) / n


@bench
def read_file(n: int, size: int, cold: bool) -> float:
    """A new array each time: fromfile has no other way."""
    name = files.path(size)
    took = []
    for _ in range(n):
        files.prepare(name, cold)
        start = perf_counter()
        np.fromfile(name, np.uint8)
        took.append(perf_counter() - start)
    return median(took)


@bench
def import_module(n: int) -> Answer:
    return fresh_median(n, "", "import numpy")


@bench
def many_buffers(n: int) -> Answer:
    before = mappings()
    start = perf_counter()
    made = [np.empty(4096, np.uint8) for _ in range(n)]
    took = (perf_counter() - start) / n
    added = mappings() - before
    del made
    return {"value": added, "each": took}


@lru_cache
def stream() -> tuple[Any, ...]:
    return tuple(np.full(kernels.STREAM_COUNT, k + 1, np.float32) for k in range(3))


@bench
def triad(n: int) -> float:
    """Two passes, as NumPy has no fused one."""
    a, b, c = stream()
    start = perf_counter()
    for _ in repeat(None, n):
        np.multiply(c, np.float32(3), out=a)
        np.add(a, b, out=a)
    return (perf_counter() - start) / n


@bench
def reduce(n: int) -> float:
    x = stream()[2].reshape(kernels.BLOCKS, kernels.BLOCK)
    sums = np.zeros(kernels.BLOCKS, np.float32)
    start = perf_counter()
    for _ in repeat(None, n):
        np.add.reduce(x, axis=1, out=sums)
    return (perf_counter() - start) / n


@bench
def operation(n: int, name: str) -> float:
    """One of NumPy's operations; memory for its result as NumPy likes."""
    run = operations.in_numpy(name)
    run()
    start = perf_counter()
    for _ in repeat(None, n):
        run()
    return (perf_counter() - start) / n


@bench
def product(n: int, size: int) -> float:
    """A matrix product, by whatever BLAS NumPy has, on all cores."""
    a, b = (np.random.default_rng(seed).random((size, size), np.float32) for seed in (1, 2))
    c = np.empty((size, size), np.float32)
    np.matmul(a, b, out=c)
    start = perf_counter()
    for _ in repeat(None, n):
        np.matmul(a, b, out=c)
    return (perf_counter() - start) / n


if __name__ == "__main__":
    serve()
