"""What a pointer may point into: the parameters and arrays that it is made of, on all ways that lead to it.

A pointer that comes out of a branch or goes round in a loop may be one of several; whoever asks what is read or written
takes all of them. What does not live here: which elements (accesses).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.kernels import types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.kernels.ir import Block, Function, Value


def root(pointer: Value) -> tuple[Value, tuple[Value, ...]]:
    """The parameter, array, or meeting of ways that a pointer was made from, and what was added to it."""
    offsets: list[Value] = []
    while pointer.op is not None and pointer.op.code == "offset":
        offsets.append(pointer.op.operands[1])
        pointer = pointer.op.operands[0]
    return pointer, tuple(offsets)


class Origins:
    """Of every pointer of a function the parameters and arrays that it may point into."""

    __slots__ = ("_made",)

    def __init__(self, function: Function) -> None:
        self._made: dict[Value, list[Value]] = {}
        self._block(function.body, (), ((), ()))

    def of(self, pointer: Value) -> frozenset[Value]:
        """Where a pointer may come from; most have one origin."""
        found: set[Value] = set()
        seen: set[Value] = set()
        work = [pointer]
        while work:
            place = root(work.pop())[0]
            if place not in seen:
                seen.add(place)
                ways = self._made.get(place)
                if ways is None:
                    found.add(place)
                else:
                    work += ways
        return frozenset(found)

    def _pass(self, targets: Sequence[Value], values: Sequence[Value]) -> None:
        for target, value in zip(targets, values, strict=True):
            if isinstance(target.type, types.Pointer):
                self._made.setdefault(target, []).append(value)

    def _block(self, block: Block, results: Sequence[Value], loop: tuple[Sequence[Value], Sequence[Value]]) -> None:
        """`results` are those of the branch around; `loop` what the innermost loop carries, and its results."""
        for op in block.ops:
            if op.code == "yield":
                self._pass(results, op.operands)
            elif op.code in ("continue", "break"):
                self._pass(loop[op.code == "break"], op.operands)
            elif op.code == "if":
                for inner in op.blocks:
                    self._block(inner, op.results, loop)
            elif op.code == "for":
                carried = op.blocks[0].arguments[1:]
                self._pass(carried, op.operands[2:])
                self._pass(op.results, carried)
                self._block(op.blocks[0], (), (carried, op.results))
            elif op.code == "loop":
                self._pass(op.blocks[0].arguments, op.operands)
                self._block(op.blocks[0], (), (op.blocks[0].arguments, op.results))
