"""Which buffers a kernel reads and writes.

What does not live here: what commands do to memory in general (graph, validation), which go by `prg.accesses`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.kernels.ir import Function, Value
    from hcq.queues.launch import Dims


class Bounds:
    """What a kernel does to the memory of its buffers."""

    def __init__(self, function: Function) -> None:
        self.access_words = access_words(function)

    def check(self, groups: Dims, items: Dims, sizes: Sequence[int], values: Sequence[bool | int | float]) -> None:
        """Raises LaunchError where a launch provably leaves a buffer. `sizes` in elements."""


def root(pointer: Value) -> Value:
    """The parameter or array that a pointer was made from."""
    while pointer.op is not None and pointer.op.code == "offset":
        pointer = pointer.op.operands[0]
    return pointer


def access_words(function: Function) -> tuple[str, ...]:
    """'r', 'w' or 'rw' for each buffer, in order; one that is not touched counts as read."""
    read: set[Value] = set()
    written: set[Value] = set()
    for op in function.walk():
        if op.code in ("load", "atomic"):
            read.add(root(op.operands[0]))
        if op.code in ("store", "atomic"):
            written.add(root(op.operands[0]))
    return tuple(
        "rw" if each in read and each in written else "w" if each in written else "r" for each in function.pointers
    )
