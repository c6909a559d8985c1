"""How fast this machine's memory is, measured without hcq: what the demo's times are held against."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

BYTES = 256 << 20
PART = 4 << 20  # small parts, so that a thread that another process holds up doesn't hold up the copy


class Copier:
    """Copies the same memory again and again by NumPy on several threads. Holds `2 * size` bytes and the threads."""

    def __init__(self, threads: int, size: int = BYTES) -> None:
        self.threads = threads
        self._size = size
        source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
        self._parts = [(target[at : at + PART], source[at : at + PART]) for at in range(0, size, PART)]
        self._pool = ThreadPoolExecutor(threads)
        self.speed()  # the first copy touches the memory and starts the threads

    def speed(self) -> float:
        """Bytes a second, read and written, of one copy. Blocks for some hundredths of a second."""
        start = time.perf_counter()
        list(self._pool.map(lambda part: np.copyto(*part), self._parts))  # NumPy copies without the interpreter's lock
        return 2 * self._size / (time.perf_counter() - start)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()
