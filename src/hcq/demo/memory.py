"""How fast this machine's memory is, measured without hcq: what the demo's times are held against."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from statistics import median

import numpy as np

BYTES = 256 << 20
ROUNDS = 5


def copy_speed(threads: int, size: int = BYTES, rounds: int = ROUNDS) -> float:
    """Bytes a second, read and written, that `threads` threads of NumPy copy together. Median of `rounds` after one
    more that touches the memory. Takes `2 * size` bytes and a fraction of a second."""
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    bounds = [size * i // threads for i in range(threads + 1)]
    parts = [(target[a:b], source[a:b]) for a, b in pairwise(bounds)]
    took = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(rounds + 1):
            start = time.perf_counter()
            list(pool.map(lambda part: np.copyto(*part), parts))  # large copies are made without the interpreter's lock
            took.append(time.perf_counter() - start)
    return 2 * size / median(took[1:])
