"""Which values may differ between the work-items of a group, and what stands where only some of them come.

A forward look over structured control flow, repeated until nothing changes. It errs towards "may differ". What does not
live here: what follows from it (subgroups).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.kernels.ir import Block, Function, Op, Value

_VARYING_IDS = frozenset({"global_id", "local_id", "lane", "index"})


class Varying:
    """`values` may differ between items; `apart` are the operations that not all items of a group come to together."""

    __slots__ = ("apart", "changed", "loops", "values")

    def __init__(self, function: Function) -> None:
        self.values: set[Value] = set()
        self.apart: set[Op] = set()
        self.loops: list[tuple[Op, int]] = []
        self.changed = True
        while self.changed:
            self.changed = False
            self._block(function.body, 0, ())

    def _mark(self, values: Sequence[Value]) -> None:
        fresh = set(values) - self.values
        if fresh:
            self.values |= fresh
            self.changed = True

    def _part(self, op: Op) -> None:
        if op not in self.apart:
            self.apart.add(op)
            self.changed = True

    def _block(self, block: Block, depth: int, results: Sequence[Value]) -> None:
        """`depth` is how many branches and loops around part the items; `results` are those of the `if` around."""
        for op in block.ops:
            if depth:
                self._part(op)
            if op.code == "if":
                parts = op.operands[0] in self.values
                if parts:
                    self._mark(op.results)
                for inner in op.blocks:
                    self._block(inner, depth + parts, op.results)
            elif op.blocks:
                self._loop(op, depth)
            elif op.code == "yield":
                self._pass(op.operands, results)
            elif op.code in ("continue", "break"):
                self._leave(op, depth)
            elif (
                op.code in ("load", "atomic", "shuffle")
                or op.attributes.get("kind") in _VARYING_IDS
                or any(each in self.values for each in op.operands)
            ):
                self._mark(op.results)

    def _pass(self, values: Sequence[Value], targets: Sequence[Value]) -> None:
        self._mark([target for value, target in zip(values, targets, strict=True) if value in self.values])

    def _loop(self, op: Op, depth: int) -> None:
        (block,) = op.blocks
        carried = block.arguments
        if op.code == "for":
            self._pass(op.operands[:1], carried[:1])
            self._pass(op.operands[2:], carried[1:])
            if any(bound in self.values for bound in op.operands[:2]):
                self._mark([*carried, *op.results])
                self._part(op)
            self._pass(carried[1:], op.results)
        else:
            self._pass(op.operands, carried)
        parts = op in self.apart  # by itself, or all around it is
        if parts:
            self._mark(op.results)
        self.loops.append((op, depth))
        self._block(block, depth + parts, ())
        self.loops.pop()

    def _leave(self, op: Op, depth: int) -> None:
        """`break` and `continue`: where only some items come to it, the loop parts them."""
        loop, around = self.loops[-1]
        carried = loop.blocks[0].arguments[loop.code == "for" :]
        self._pass(op.operands, carried if op.code == "continue" else loop.results)
        if depth > around + (loop in self.apart):
            self._part(loop)
            self._mark(loop.results)
            self._mark(carried)
