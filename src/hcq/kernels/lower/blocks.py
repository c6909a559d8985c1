"""What writers of all languages do alike: a block's operations one after the other, ids, indices in 64 bits.

What does not live here: how anything is spelled (c, llvm, spirv), which values are needed (indices).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from hcq.kernels.lower import indices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hcq.kernels.ir import Block, Function, Op, Value

PARTS: Final = {"global_id": ("group_id", "local_size", "local_id"), "global_size": ("num_groups", "local_size")}
"""Ids that are made of others: the product of the first two, and the third. All stay below 2^31."""

Held = TypeVar("Held")
"""What a language keeps of a value."""
Word = TypeVar("Word")
"""What it keeps of a number, which ids and indices are."""


class BlockWriter(ABC, Generic[Held, Word]):
    """Writes one function. `names` are its values as they are, `wide` those needed as indices, in 64 bits.

    An operation is written by the method `on_` and its code; without one it is pure, and `value` writes it. A method
    gives True where the operation leaves the block, and what follows can't be reached.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.needs = indices.Needs(function)
        self.names: dict[Value, Held] = {}
        self.wide: dict[Value, Word] = {}
        self.ids: dict[tuple[str, int], Word] = {}

    @abstractmethod
    def value(self, op: Op) -> None:
        """Writes a pure operation, whose result is needed as it is."""

    @abstractmethod
    def index(self, op: Op, operands: Sequence[Word]) -> Word:
        """Writes an addition, difference, product or negation of indices."""

    @abstractmethod
    def widen(self, value: Value) -> None:
        """Makes the index of a value that is there as it is, where it is needed."""

    @abstractmethod
    def new_id(self, kind: str, dim: int, parts: Sequence[Word]) -> Word:
        """Writes an id, of its parts where it has some."""

    # Blocks

    def block(self, block: Block) -> bool:
        """Writes operations until one leaves the block; whether one did, and nothing can follow."""
        for op in block.ops:
            if self.block_op(op):
                return op.code != "yield"
        return True

    def block_op(self, op: Op) -> bool | None:
        """Writes one operation, if anything needs it; whether it left the block."""
        if indices.is_dead(op, self.needs):
            return None
        write: Callable[[Op], bool | None] = getattr(self, f"on_{op.code}", self.pure)
        return write(op)

    def pure(self, op: Op) -> None:
        result = op.result
        if result in self.needs.plain:
            self.value(op)
        if result not in self.needs.wide:
            return
        if not indices.in_chain(op):
            self.widen(result)
        elif op.code == "cast":
            self.wide[result] = self.wide[op.operands[0]]
        else:
            self.wide[result] = self.index(op, [self.wide[each] for each in op.operands])

    # Ids

    def wanted_ids(self) -> Iterator[tuple[str, int]]:
        """Which ids the function needs. They stand at its head, once each: they are the same wherever it asks."""
        for op in self.function.walk():
            if op.code == "id" and not indices.is_dead(op, self.needs):
                yield op.attributes["kind"], op.attributes["dim"]

    def id(self, kind: str, dim: int) -> Word:
        if (kind, dim) not in self.ids:
            parts = [self.id(each, dim) for each in PARTS.get(kind, ())]
            self.ids[kind, dim] = self.new_id(kind, dim, parts)
        return self.ids[kind, dim]
