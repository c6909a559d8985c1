"""Which memory PYTHON devices have, and which bytes of it were ever written.

What does not live here: the allocator's cache and limit (its base), local and private arrays of a launch (run).
"""

from __future__ import annotations

import ctypes
import threading
from bisect import bisect_right, insort

ALIGNMENT = 64


class Block:
    """One allocation: `data` are its bytes, `written` holds a 1 for each that was written."""

    __slots__ = ("address", "data", "memory", "owner", "size", "written")

    def __init__(self, size: int, owner: object) -> None:
        self.owner = owner
        self.memory = ctypes.create_string_buffer(size + ALIGNMENT - 1)
        self.address = -(-ctypes.addressof(self.memory) // ALIGNMENT) * ALIGNMENT
        start = self.address - ctypes.addressof(self.memory)
        self.data = memoryview(self.memory).cast("B")[start : start + size]
        self.size = size
        self.written = bytearray(size)


class Blocks:
    """Allocations, found by address. Threads may share it: the queues' and those that allocate."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held for single steps on the two tables, never while anything else runs
        self._blocks: dict[int, Block] = {}
        self._starts: list[int] = []

    def add(self, size: int, owner: object) -> int:
        """New memory of a device; returns its address."""
        block = Block(size, owner)
        with self._lock:
            self._blocks[block.address] = block
            insort(self._starts, block.address)
        return block.address

    def remove(self, address: int) -> None:
        with self._lock:
            if self._blocks.pop(address, None) is not None:
                self._starts.remove(address)

    def drop(self, owner: object) -> None:
        """Let go of what a closed device left: a lost one frees nothing."""
        with self._lock:
            for address in [each for each, block in self._blocks.items() if block.owner == owner]:
                del self._blocks[address]
                self._starts.remove(address)

    def at(self, address: int) -> Block | None:
        """The allocation that `address` lies in, or None."""
        with self._lock:
            place = bisect_right(self._starts, address) - 1
            block = self._blocks[self._starts[place]] if place >= 0 else None
        return block if block is not None and address < block.address + max(block.size, 1) else None

    def mark(self, address: int, size: int) -> None:
        """These bytes were written. Memory that is not the device's is left alone."""
        block = self.at(address)
        if block is not None:
            start = address - block.address
            block.written[start : start + size] = b"\1" * min(size, block.size - start)

    def copied(self, dest: int, src: int, size: int) -> None:
        """Bytes were copied: what was never written is no more so at its new place. Other memory counts as written."""
        source = self.at(src)
        target = self.at(dest)
        if target is None:
            return
        start = dest - target.address
        if source is None:
            self.mark(dest, size)
        else:
            first = src - source.address
            target.written[start : start + size] = source.written[first : first + size]


BLOCKS = Blocks()
"""Those of all devices: each may use the others' memory."""
