"""hcq.cudacpu: its libcuda.so.1 called by ctypes, with kernels as PTX (cudacpu.ptx)."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from importlib.metadata import version
from itertools import repeat
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from serve import VERSIONS, bench, expect, serve

import hcq.cudacpu

VERSIONS["llvmlite"] = version("llvmlite")


@lru_cache
def driver() -> Any:
    hcq.cudacpu.install()
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    expect("cuInit", cuda.cuInit(0), 0)
    expect("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), 0)
    expect("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context), 0)
    return cuda


@lru_cache
def kernel(name: str) -> Any:
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    text = (Path(__file__).parent / "cudacpu.ptx").read_bytes()
    expect("cuModuleLoadData", driver().cuModuleLoadData(ctypes.byref(module), text), 0)
    expect("cuModuleGetFunction", driver().cuModuleGetFunction(ctypes.byref(function), module, name.encode()), 0)
    return function


def launched(n: int, name: str, grid: tuple[int, int], block: tuple[int, int], *arguments: Any) -> float:
    """Seconds for a launch and its end, the context being waited for each time."""
    values = [ctypes.c_uint64(a.ctypes.data) if isinstance(a, np.ndarray) else ctypes.c_int(a) for a in arguments]
    pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    given = (kernel(name), *grid, 1, *block, 1, 0, None, pointers, None)
    launch, wait = driver().cuLaunchKernel, driver().cuCtxSynchronize
    launch(*given)
    expect("a first launch", wait(), 0)
    start = perf_counter()
    for _ in repeat(None, n):
        launch(*given)
        wait()
    return (perf_counter() - start) / n


@bench
def launch(n: int) -> float:
    """32 threads that add to a word each."""
    out = np.zeros(32, np.int32)
    took = launched(n, "count", (1, 1), (32, 1), out)
    expect("launches that ran", int(out[0]), n + 1)
    return took


@bench
def product(n: int, size: int, tile: int = 32) -> float:
    """A matrix product in tiles, as in the programming guide."""
    a, b = (np.random.default_rng(seed).random((size, size), np.float32) for seed in (1, 2))
    c = np.zeros((size, size), np.float32)
    name = "product" if tile == 32 else f"product{tile}"
    took = launched(n, name, (size // tile, size // tile), (tile, tile), a, b, c, size)
    expect("the product", bool(np.allclose(c, a @ b, rtol=1e-4)), True)
    return took


@bench
def barrier(n: int, block: int, rounds: int = 500, blocks: int = 64) -> float:
    """One barrier, a thread, in a kernel that has two in each round of a loop, and an access of shared memory each."""
    out = np.zeros(blocks * block, np.int32)
    took = launched(n, "barriers", (blocks, 1), (block, 1), out, rounds)
    neighbours = (np.arange(block) + 1) % block
    expect("the sums", bool((out.reshape(-1, block) == neighbours * rounds + rounds * (rounds - 1) // 2).all()), True)
    return took / (blocks * block * rounds * 2)


if __name__ == "__main__":
    serve()
