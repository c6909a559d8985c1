"""Random queue programs and the plain sequential model that says what they must leave behind.

A program is a list of submits over the queues of two devices. Each submit waits for the one before it on its own queue
and for some earlier submits of others, works on a few small buffers, and sets a signal of its own. The waits are chosen
so that whatever shares a buffer is ordered: so there is one right result, that of running the submits one by one.
Nothing here touches a device; test_random_programs.py does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

BUFFERS = 6
WORDS = 16  # 32-bit integers in a buffer
QUEUES = ((0, "compute"), (0, "copy"), (1, "compute"), (1, "copy"))


@dataclass
class Copy:
    """`words` words from one buffer at an offset to another (or the same, apart) at an offset."""

    dest: int
    dest_at: int
    source: int
    source_at: int
    words: int

    def buffers(self) -> tuple[set[int], set[int]]:
        """(read, written)"""
        return {self.source}, {self.dest}

    def run(self, memory: np.ndarray) -> None:
        part = memory[self.source, self.source_at : self.source_at + self.words].copy()
        memory[self.dest, self.dest_at : self.dest_at + self.words] = part


@dataclass
class Fill:
    dest: int
    words: int
    value: int

    def buffers(self) -> tuple[set[int], set[int]]:
        return set(), {self.dest}

    def run(self, memory: np.ndarray) -> None:
        memory[self.dest, : self.words] = self.value


@dataclass
class Add:
    dest: int
    one: int
    two: int
    words: int

    def buffers(self) -> tuple[set[int], set[int]]:
        return {self.one, self.two}, {self.dest}

    def run(self, memory: np.ndarray) -> None:
        memory[self.dest, : self.words] = memory[self.one, : self.words] + memory[self.two, : self.words]


@dataclass
class Skip:
    """An exec of no groups: runs nothing."""

    dest: int

    def buffers(self) -> tuple[set[int], set[int]]:
        return set(), set()

    def run(self, memory: np.ndarray) -> None:
        return None


@dataclass
class Submit:
    """One submit: a queue (index into QUEUES), its commands, and how it is made.

    bound: the queue is bound first. again: the copies' addresses are patched in after the commands were written with
    others, and that wrong version was never submitted. repeat: of the same queue object as the submit before on this
    queue, patched, where its commands have the same shape. gate: the host lets it begin.
    """

    queue: int
    commands: list[Any]
    bound: bool = False
    again: bool = False
    gate: bool = False
    waits: set[int] = field(default_factory=set)


def order(submits: list[Submit]) -> None:
    """Gives each submit the waits that it needs: for the last writer of what it touches, and for all readers since of
    what it writes. Submits of one queue are in order by themselves."""
    writer: dict[int, int] = {}
    readers: dict[int, set[int]] = {}
    for number, submit in enumerate(submits):
        for command in submit.commands:
            reads, writes = command.buffers()
            for buffer in reads | writes:
                if buffer in writer:
                    submit.waits.add(writer[buffer])
            for buffer in writes:
                submit.waits |= readers.get(buffer, set())
        for command in submit.commands:
            reads, writes = command.buffers()
            for buffer in writes:
                writer[buffer], readers[buffer] = number, set()
        for command in submit.commands:
            for buffer in command.buffers()[0]:
                readers.setdefault(buffer, set()).add(number)
        submit.waits = {
            earlier for earlier in submit.waits if submits[earlier].queue != submit.queue and earlier != number
        }


def run(submits: list[Submit], memory: np.ndarray) -> np.ndarray:
    """What memory holds after the submits, one by one."""
    memory = memory.copy()
    for submit in submits:
        for command in submit.commands:
            command.run(memory)
    return memory
