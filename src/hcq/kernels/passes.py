"""Small passes over the form in the middle: constants are folded, repeated operations shared, unused ones dropped.

Each keeps every result to the last bit (ir.OPS). What does not live here: what a target's own compiler does better.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hcq.kernels import types
from hcq.kernels.arithmetic import evaluator
from hcq.kernels.ir import COMPARISONS, Block, Function, Op, Value

if TYPE_CHECKING:
    from collections.abc import Hashable

_DROPPED = frozenset({"local", "private"})


def simplify(function: Function) -> None:
    """Folds, shares and drops, in place."""
    _Folding().block(function.body, {})
    _drop(function)


class _Folding:
    """Constant folding and common subexpressions in one walk: an operation is known where it is in an open block."""

    def __init__(self) -> None:
        self.replaced: dict[Value, Value] = {}

    def block(self, block: Block, known: dict[Hashable, Value]) -> None:
        """`known` are the operations at hand, and comes to hold this block's too."""
        kept: list[Op] = []
        for op in block.ops:
            op.operands = [self.replaced.get(each, each) for each in op.operands]
            if op.code == "if" and (constant := _constant(op.operands[0])) is not None:
                chosen = op.blocks[0 if constant else 1]
                if chosen.ops and chosen.ops[-1].code == "yield":
                    self.block(chosen, known)
                    end = chosen.ops.pop()
                    kept += chosen.ops
                    self.replaced.update(zip(op.results, end.operands, strict=True))
                    continue
            for inner in op.blocks:
                self.block(inner, dict(known))
            if op.is_pure and len(op.results) == 1:
                same = self.simpler(op)
                if same is not None:
                    self.replaced[op.result] = same
                    continue
                key = _key(op)
                before = known.get(key)
                if before is not None:
                    self.replaced[op.result] = before
                    continue
                known[key] = op.result
            kept.append(op)
        block.ops = kept

    def simpler(self, op: Op) -> Value | None:
        """Another value that this operation always gives; the operation itself may become a constant."""
        constants = [_constant(each) for each in op.operands]
        if op.code == "const":
            return None
        if op.operands and all(each is not None for each in constants):
            self.fold(op, constants)
            return None
        if op.code == "select":
            if constants[0] is not None:
                return op.operands[1 if constants[0] else 2]
            return op.operands[1] if op.operands[1] is op.operands[2] else None
        if op.code in ("add", "or", "xor", "shl", "shr", "sub", "mul", "offset") and len(op.operands) == 2:
            return _neutral(op, constants)
        if op.code in ("and", "or") and op.result.type is types.bool_:
            for at, constant in enumerate(constants):
                if constant is not None:
                    return op.operands[1 - at] if constant == (op.code == "and") else op.operands[at]
        if op.code in COMPARISONS and op.operands[0] is op.operands[1] and _is_integer(op.operands[0]):
            op.code, op.operands, op.attributes = "const", [], {"value": op.code in ("eq", "le", "ge")}
            return None
        if op.code == "not" and (inner := op.operands[0].op) is not None and inner.code == "not":
            return inner.operands[0]
        return None

    def fold(self, op: Op, constants: list[Any]) -> None:
        """Turns an operation on constants into a constant."""
        result = op.result.type
        if not isinstance(result, types.Scalar) or op.code in ("extract", "id", "subgroup", "offset"):
            return
        of = op.operands[1 if op.code == "select" else 0].type
        value = evaluator(op.code, of, result)(*constants)
        if isinstance(value, float) and math.isnan(value) and op.code == "bitcast":
            return  # which NaN it is would be lost
        op.code, op.operands, op.attributes = "const", [], {"value": value}


def _neutral(op: Op, constants: list[Any]) -> Value | None:
    """x + 0, x * 1 and the like, of integers and pointers."""
    a, b = op.operands
    if types.element_of(b.type).kind not in "iu" or isinstance(b.type, types.Vector):
        return None
    unit = 1 if op.code == "mul" else 0
    if constants[1] is not None and constants[1] == unit:
        return a
    if constants[0] is not None and constants[0] == unit and op.code in ("add", "or", "xor", "mul"):
        return b
    return None


def _is_integer(value: Value) -> bool:
    """Whether a value is one integer or bool: equal to itself, as floats need not be."""
    return isinstance(value.type, types.Scalar) and not value.type.is_float


def _constant(value: Value) -> Any:
    """The value of a constant; None for anything else."""
    return value.op.attributes["value"] if value.op is not None and value.op.code == "const" else None


def _key(op: Op) -> Hashable:
    attributes = tuple(
        (name, repr(value) if isinstance(value, float) else value, type(value)) for name, value in op.attributes.items()
    )
    return op.code, tuple(map(id, op.operands)), attributes, op.result.type


def _drop(function: Function) -> None:
    """Drops what nobody uses: pure operations, arrays, branches and counted loops without effect, carried values."""
    while True:
        used = _used(function)
        if not _drop_in(function.body, used):
            return


def _used(function: Function) -> set[Value]:
    """The values that something with an effect needs, directly or through others."""
    used: set[Value] = set()
    passes: dict[Value, list[Value]] = {}
    work: list[Value] = []
    _gather(function.body, passes, work, [])
    while work:
        value = work.pop()
        if value in used:
            continue
        used.add(value)
        work += passes.get(value, ())
    return used


def _gather(block: Block, passes: dict[Value, list[Value]], work: list[Value], around: list[Op]) -> None:
    """Fills `passes` (value -> what it is made of) and `work` (what is needed in any case)."""
    for op in block.ops:
        if op.code in ("yield", "break", "continue"):
            loop = op.code != "yield"
            for target in _targets(op, around, loop):
                for to, value in zip(target, op.operands, strict=True):
                    passes.setdefault(to, []).append(value)
            continue
        if op.code in ("for", "loop"):
            start = 2 if op.code == "for" else 0
            work += op.operands[:start]
            carried = op.blocks[0].arguments[1 if op.code == "for" else 0 :]
            for argument, value in zip(carried, op.operands[start:], strict=True):
                passes.setdefault(argument, []).append(value)
            if op.code == "for":
                for result, argument in zip(op.results, carried, strict=True):
                    passes.setdefault(result, []).append(argument)
        elif op.code == "if":
            work += op.operands
        elif op.is_pure or op.code in _DROPPED:
            passes[op.result] = op.operands
        else:
            work += op.operands
        for inner in op.blocks:
            _gather(inner, passes, work, [*around, op])


def _targets(op: Op, around: list[Op], loop: bool) -> list[list[Value]]:
    """What the operands of a terminator become."""
    for owner in reversed(around):
        if not loop and owner.code == "if":
            return [owner.results]
        if loop and owner.code in ("for", "loop"):
            if op.code == "break":
                # A for's results and its carried values are the same places.
                return [owner.results]
            return [owner.blocks[0].arguments[1 if owner.code == "for" else 0 :]]
    return []


def _drop_in(block: Block, used: set[Value], around: list[Op] | None = None) -> bool:
    """Removes what is unused in a block; whether anything went."""
    around = around or []
    kept: list[Op] = []
    changed = False
    for op in block.ops:
        if (op.is_pure or op.code in _DROPPED) and not used.intersection(op.results):
            changed = True
            continue
        for inner in op.blocks:
            changed |= _drop_in(inner, used, [*around, op])
        if op.code in ("if", "for", "loop"):
            changed |= _narrow(op, used)
            if op.code in ("if", "for") and not op.results and _does_nothing(op):
                changed = True
                continue
        kept.append(op)
    block.ops = kept
    return changed


def _does_nothing(op: Op) -> bool:
    end = "yield" if op.code == "if" else "continue"
    return all(len(block.ops) == 1 and block.ops[0].code == end for block in op.blocks)


def _narrow(op: Op, used: set[Value]) -> bool:
    """Drops results and carried values that nobody uses."""
    start = {"for": 2, "loop": 0}.get(op.code, 0)
    if op.code == "if":
        keep = [result in used for result in op.results]
        if all(keep):
            return False
        for block in op.blocks:
            _select_operands(block, "yield", keep)
        op.results = [each for each, good in zip(op.results, keep, strict=True) if good]
        return True
    block = op.blocks[0]
    first = 1 if op.code == "for" else 0
    carried = block.arguments[first:]
    if op.code == "for":
        keep = [a in used or r in used for a, r in zip(carried, op.results, strict=True)]
        results = keep
    else:
        keep = [a in used for a in carried]
        results = [r in used for r in op.results]
    if all(keep) and all(results):
        return False
    _select_operands(block, "continue", keep)
    _select_operands(block, "break", results)
    op.operands = op.operands[:start] + [v for v, good in zip(op.operands[start:], keep, strict=True) if good]
    block.arguments = block.arguments[:first] + [a for a, good in zip(carried, keep, strict=True) if good]
    op.results = [r for r, good in zip(op.results, results, strict=True) if good]
    return True


def _select_operands(block: Block, code: str, keep: list[bool]) -> None:
    """Keeps some operands of the terminators `code` that belong to the operation around `block`."""
    for op in block.ops:
        if op.code == code:
            op.operands = [each for each, good in zip(op.operands, keep, strict=True) if good]
        if op.code == "if" and code != "yield":
            for inner in op.blocks:
                _select_operands(inner, code, keep)
