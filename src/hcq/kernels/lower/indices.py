"""Which values of a function a target needs, and in which of two forms: as they are, or as an index in 64 bits.

An index must be computed without overflow (ir.OPS), so the additions and products that make one can be done in 64 bits
from the start. That keeps an address a simple function of ids and loop indices, which is what vectorisers ask for; and
it is free where an address has 64 bits anyway. Values that nothing needs are left out of what is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hcq.kernels import ir
from hcq.kernels.types import Scalar

if TYPE_CHECKING:
    from hcq.kernels.ir import Function, Op, Value

_CHAIN: Final = frozenset({"add", "sub", "mul", "neg"})
_INDEXED: Final = frozenset({"load", "store", "atomic", "offset"})


class Needs:
    """`plain` are the values needed as they are, `wide` those needed as an index in 64 bits; some are in both."""

    __slots__ = ("plain", "wide")

    def __init__(self, function: Function) -> None:
        self.plain: set[Value] = set()
        self.wide: set[Value] = set()
        # Backwards: every use of a value stands after its definition.
        for op in reversed(list(function.walk())):
            self._use(op)

    def _use(self, op: Op) -> None:
        if not op.is_pure:
            self._operands(op)
            return
        result = op.result
        if result in self.wide:
            if in_chain(op):
                self.wide.update(op.operands)
            elif op.code not in ("id", "const"):
                self.plain.add(result)
        if result in self.plain:
            self._operands(op)

    def _operands(self, op: Op) -> None:
        for position, operand in enumerate(op.operands):
            (self.wide if position == 1 and op.code in _INDEXED else self.plain).add(operand)


def in_chain(op: Op) -> bool:
    """Whether an index's computation goes on through this operation: it is done in 64 bits, its operands too."""
    if op.code in _CHAIN:
        type_ = op.result.type
        return isinstance(type_, Scalar) and type_.is_integer
    if op.code != "cast":
        return False
    source, target = op.operands[0].type, op.result.type
    return isinstance(source, Scalar) and isinstance(target, Scalar) and source.is_integer and target.is_integer


def is_dead(op: Op, needs: Needs) -> bool:
    """Whether nothing needs a pure operation."""
    return ir.OPS[op.code].pure and op.result not in needs.plain and op.result not in needs.wide
