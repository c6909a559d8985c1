"""Memory for kernel arguments: handed out in order, and again only once neither queued work nor a client needs it.

What does not live here: what is written into it (program).
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from hcq.runtime.options import BufferOptions

if TYPE_CHECKING:
    from hcq.queues.device import HCQCompiled, Position

CHUNK = 256 << 10
KEPT = 16 << 20
"""Bytes handed out after a chunk before it comes again: clients may fill kernargs and submit them a little later."""

ALIGNMENT = 64


class Block:
    """Memory of the device that the host can write at `va_addr`; freed with the object."""

    def __init__(self, device: HCQCompiled, size: int) -> None:
        self._options = BufferOptions(cpu_access=True)
        self._allocator = device.allocator
        self._opaque = self._allocator._alloc(size, self._options)
        self._device = device
        self.va_addr: int = self._opaque.va_addr
        self.size = size

    def free(self) -> None:
        """Give the memory back now; nothing must use it any more. On a lost device there is nothing to give it to."""
        opaque, self._opaque = self._opaque, None
        if opaque is not None and not self._device.lost:
            self._allocator._free(opaque, self._options)

    def __del__(self) -> None:
        # Not where the allocation failed, nor once a closed device took its memory with it.
        if "_opaque" in self.__dict__ and not self._device.closed:
            self.free()


class Kernargs:
    """A device's kernargs. It grows as needed, from nothing. Threads may share it."""

    def __init__(self, device: HCQCompiled) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._chunk: Block | None = None
        self._used = 0
        self._handed_out = 0  # bytes, ever
        self._young: deque[tuple[int, Block]] = deque()  # with the value of _handed_out when it was full
        self._old: deque[tuple[Position | None, Block]] = deque()  # with the position that must be passed

    def take(self, size: int) -> int:
        """The address of `size` bytes, aligned to 64, good for what is filled within the next 16 MiB at least."""
        size = max(-(-size // ALIGNMENT), 1) * ALIGNMENT
        with self._lock:
            chunk = self._chunk
            if chunk is None or self._used + size > chunk.size:
                chunk = self._next(size)
            address = chunk.va_addr + self._used
            self._used += size
            self._handed_out += size
            return address

    def _next(self, size: int) -> Block:
        if self._chunk is not None:
            self._young.append((self._handed_out, self._chunk))
        # From now on no client counts on these, but what they have submitted may still read them.
        while self._young and self._handed_out - self._young[0][0] >= KEPT:
            self._old.append((self._device.position(), self._young.popleft()[1]))
        if self._old and self._old[0][1].size >= size and self._device.passed(self._old[0][0]):
            self._chunk = self._old.popleft()[1]
        else:
            self._chunk = Block(self._device, max(CHUNK, size))
        self._used = 0
        return self._chunk

    def free(self) -> None:
        """Give all memory back; nothing must be queued any more."""
        with self._lock:
            blocks = [*(block for _, block in self._young), *(block for _, block in self._old)]
            blocks += [self._chunk] if self._chunk is not None else []
            self._young.clear()
            self._old.clear()
            self._chunk = None
        for block in blocks:
            block.free()
