"""Copying a function while some of its operations become others, for targets that do not have them.

What does not live here: what they become (subgroups, remainder, fused).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.kernels import types
from hcq.kernels.ir import Block, Builder, Function, Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.kernels.ir import Op


class Rewriter:
    """`b` appends to the copy. A subclass's `replace` writes an operation anew; all else is copied."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.values: dict[Value, Value] = {each: each for each in function.parameters}
        self.b = Builder(Block())

    def run(self) -> Function:
        """The copy."""
        old = self.function
        made = Function(old.name, old.parameters, self.b.block, old.file, old.source)
        self.begin()
        self.block(old.body)
        return made

    def begin(self) -> None:
        """What the copy starts with: nothing, unless a subclass says so."""

    def replace(self, op: Op) -> Value | None:
        """What the operation's result is in the copy, or None to have it copied."""
        raise NotImplementedError

    def by_lanes(self, op: Op, write: Callable[..., Value]) -> Value:
        """An operation on numbers written for each element of its operands."""
        operands = [self.values[each] for each in op.operands]
        type_ = op.result.type
        if not isinstance(type_, types.Vector):
            return write(*operands)
        made = []
        for lane in range(type_.lanes):
            one = (self.b.op("extract", (each,), (types.element_of(each.type),), lane=lane).result for each in operands)
            made.append(write(*one))
        return self.b.op("pack", made, (type_,)).result

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.b.location = op.location
            made = self.replace(op)
            if made is None:
                self.copy(op)
            else:
                self.values[op.result] = made

    def copy(self, op: Op) -> None:
        outer, blocks = self.b, []
        for block in op.blocks:
            arguments = [Value(each.type, each.name) for each in block.arguments]
            self.values.update(zip(block.arguments, arguments, strict=True))
            self.b = Builder(Block(arguments))
            self.block(block)
            blocks.append(self.b.block)
        self.b = outer
        self.b.location = op.location
        operands = [self.values[each] for each in op.operands]
        made = self.b.op(op.code, operands, [each.type for each in op.results], blocks, **op.attributes)
        for before, after in zip(op.results, made.results, strict=True):
            after.name = before.name
            self.values[before] = after
