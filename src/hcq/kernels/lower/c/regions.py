"""A kernel cut at its barriers: what the group does as one, and what each item does between two barriers.

Control flow around barriers is the group's: all items take it alike, so what decides it must be the same for all, and
computed from what the group knows. What stands between is a region, a loop over the items. A loop that neighbouring
items go through along neighbouring elements is the group's too: then the items are the inner loop, which becomes
vectors. What an item defines in one region and uses in another is kept, one element an item, or computed again.

What does not live here: code (group); the same for LLVM IR of any origin (drivers/cpu/llvm_regions).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hcq.kernels import types
from hcq.kernels.lower import indices
from hcq.kernels.pointers import Origins, root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.kernels.ir import Block, Function, Op, Value
    from hcq.kernels.lower.indices import Needs

_OWN_IDS: Final = frozenset({"local_id", "global_id"})
_CHEAP: Final = frozenset(
    {"add", "sub", "mul", "and", "or", "xor", "neg", "not", "cast", "select", "offset", "min", "max"}
    | {"eq", "ne", "lt", "le", "gt", "ge", "id", "const"}
)
_SWAPPED: Final = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}
_AGAIN: Final = 12
"""Operations at most to compute a value again rather than to keep it."""
_UNROLLED: Final = 250
"""Operations up to which compilers unroll a loop of known length, which then stands in nobody's way."""
_FAR: Final = 1 << 20  # a stride that is no number


class Regions:
    """`group` are the control flow operations that the group does as one; `own` the values that differ between items;
    `kept` those that are stored from region to region; `again` those that are computed where they are used;
    `private` in which regions each private array is used. `guards` are those branches of the group by which it leaves
    out the items at an end of each row. `splits`: whether the kernel can be cut so."""

    def __init__(self, function: Function, needs: Needs) -> None:
        self.needs = needs
        self.origins = Origins(function)
        self.group: set[Op] = set()
        self.own: set[Value] = set()
        self.kept: set[Value] = set()
        self.again: set[Value] = set()
        self.private: dict[Value, set[int]] = {}
        self.guards: set[Op] = set()
        self.leaves = False  # some items may return before others are done
        for op in function.walk():
            if op.code in ("if", "for", "loop") and _holds(op, "barrier"):
                self.group.add(op)
        self._decide(function.body, None)
        self._spread(function)
        self.splits = all(self._shared_control(op) for op in self.group)
        if self.splits:
            self._share_loops(function)
            self.defined: dict[Value, int] = {}
            self.used: dict[Value, set[int]] = {}
            self.number = 0
            self._number(function.body)
            for value, regions in self.used.items():
                if value in self.own and (value not in self.defined or regions != {self.defined[value]}):
                    (self.again if self._cost(value) <= _AGAIN else self.kept).add(value)

    # What the group does

    def _decide(self, block: Block, loop: Op | None) -> None:
        """Branches by which the group leaves a loop of its own are its own too. `loop` is the innermost, if it is."""
        for op in block.ops:
            if op.code == "if":
                if op not in self.group and loop is not None and _leaves_loop(op):
                    self.group.add(op)
                for inner in op.blocks:
                    self._decide(inner, loop)
            elif op.blocks:
                self._decide(op.blocks[0], op if op in self.group else None)

    def _spread(self, function: Function) -> None:
        """Finds what differs between items, as long as more is found."""
        before = -1
        while before != len(self.own):
            before = len(self.own)
            self._values(function.body, (), None, True)

    def _values(self, block: Block, results: Sequence[Value], loop: Op | None, whole: bool) -> None:
        """`whole`: the group is in this block as one."""
        for op in block.ops:
            if op.code == "yield":
                self._pass(results, op.operands)
            elif op.code in ("continue", "break") and loop is not None:
                first = loop.code == "for"
                carried = loop.blocks[0].arguments[first:]
                self._pass(carried if op.code == "continue" else loop.results, op.operands)
                if op.code == "break" and first:
                    self._pass(carried, op.operands)
            elif op.blocks:
                inside = whole and op in self.group
                if not inside:
                    self.own.update(op.results)
                if op.code == "if":
                    for inner in op.blocks:
                        self._values(inner, op.results, loop, inside)
                else:
                    first = op.code == "for"
                    (inner,) = op.blocks
                    carried = inner.arguments[first:]
                    if not inside:
                        self.own.update(inner.arguments)
                    self._pass(carried, op.operands[2 if first else 0 :])
                    self._values(inner, (), op, inside)
                    if first:  # carried values and results are the same places
                        self._pass(op.results, carried)
                        self._pass(carried, op.results)
            elif op.results and not (
                whole
                and (op.is_pure or op.code == "local")
                and op.attributes.get("kind") not in _OWN_IDS
                and not any(each in self.own for each in op.operands)
            ):
                self.own.update(op.results)

    def _pass(self, targets: Sequence[Value], values: Sequence[Value]) -> None:
        self.own.update(target for target, value in zip(targets, values, strict=True) if value in self.own)

    def _shared_control(self, op: Op) -> bool:
        if op.code == "loop":
            return True
        return not any(each in self.own for each in op.operands[: 1 if op.code == "if" else 2])

    # Loops without barriers that are worth sharing

    def _share_loops(self, function: Function) -> None:
        while fresh := self._guards(function.body) - self.guards:
            self.guards |= fresh
            self.group |= fresh
            self.own.clear()
            self._spread(function)
        found = {op for op in self._candidates(function.body) if _Sharing(op, self.own).pays()}
        idle = {op for op in self.guards if not any(each in found for each in op.blocks[0].walk())}
        self.guards -= idle
        self.group -= idle
        self.group |= found
        self.own.clear()
        self._spread(function)

    def _guards(self, block: Block) -> set[Op]:
        """Branches that the group comes to as one, and that only leave out items at an end of each row."""
        found: set[Op] = set()
        for op in block.ops:
            if op in self.group:
                for inner in op.blocks:
                    found |= self._guards(inner)
            elif op.code == "if" and guarded(op, self.own) is not None:
                leaving = any(each.code in ("return", "barrier") for each in op.blocks[0].walk())
                if not leaving and not _leaves_loop(op):
                    found.add(op)
        return found

    def _candidates(self, block: Block) -> list[Op]:
        """Loops that the group comes to as one, and whose rounds no item ends by itself."""
        found: list[Op] = []
        for op in block.ops:
            if op in self.group:
                for inner in op.blocks:
                    found += self._candidates(inner)
            elif op.code == "for" and self._shared_control(op):
                inner = op.blocks[0]
                innermost = not any(each.code in ("for", "loop", "return") for each in inner.walk())
                if innermost and inner.ops[-1].code == "continue" and not any(map(_leaves_loop, inner.ops)):
                    found.append(op)
        return found

    # Regions

    def _number(self, block: Block) -> None:
        """Gives each operation a region; a new one begins wherever the writer ends a loop over the items."""
        for op in block.ops:
            if op in self.group:
                if op not in self.guards:
                    self._use(op.operands)
                self.number += 1
                for inner in op.blocks:
                    self._number(inner)
                    self.number += 1
                for result in op.results:
                    self.defined.setdefault(result, -1)
                for inner in op.blocks:
                    for each in inner.arguments:
                        self.defined[each] = -1
            elif op.code == "barrier":
                self.number += 1
            elif op.code in ("yield", "continue", "break", "return"):
                self._use(op.operands)
                self.number += 1
            elif not indices.is_dead(op, self.needs):
                self._inside(op)

    def _inside(self, op: Op) -> None:
        self._use(op.operands)
        for result in op.results:
            self.defined[result] = self.number
        for block in op.blocks:
            for each in block.arguments:
                self.defined[each] = self.number
            for inner in block.ops:
                self.leaves |= inner.code == "return"
                self._inside(inner)

    def _use(self, operands: Sequence[Value]) -> None:
        for each in operands:
            self.used.setdefault(each, set()).add(self.number)
            if isinstance(each.type, types.Pointer) and each.type.space == "private":
                for array in self.origins.of(each):
                    self.private.setdefault(array, set()).add(self.number)

    def _cost(self, value: Value) -> int:
        """How many operations compute a value from what every region has; more than _AGAIN where that can't be."""
        if value not in self.own:
            return 0
        op = value.op
        if op is None or not (op.is_pure or op.code == "private") or self.defined.get(value) == -1:
            return _AGAIN + 1
        if op.code == "private":
            return 0
        if op.code not in _CHEAP:
            return _AGAIN + 1
        total = 1
        for each in op.operands:
            total += self._cost(each)
            if total > _AGAIN:
                break
        return total


def guarded(op: Op, own: set[Value]) -> tuple[str, Value, Value] | None:
    """Of a branch that does nothing but where an item's place along x compares so with what all know: the comparison,
    the place, the other."""
    condition = op.operands[0].op
    if condition is None or condition.code not in _SWAPPED or op.results:
        return None
    if not all(each.is_pure or each.code == "yield" for each in op.blocks[1].ops):
        return None
    code, (left, right) = condition.code, condition.operands
    if not _is_item(left):
        code, left, right = _SWAPPED[code], right, left
    return (code, left, right) if _is_item(left) and right not in own else None


def _is_item(value: Value) -> bool:
    """Whether it is an item's place along x, in its group or of all."""
    op = value.op
    return op is not None and op.code == "id" and op.attributes["dim"] == 0 and op.attributes["kind"] in _OWN_IDS


def _holds(op: Op, code: str) -> bool:
    return any(each.code == code for block in op.blocks for each in block.walk())


def _leaves_loop(op: Op) -> bool:
    """Whether a break or continue of the loop around stands in it."""
    if op.code != "if":
        return False
    for block in op.blocks:
        for each in block.ops:
            if each.code in ("break", "continue") or _leaves_loop(each):
                return True
    return False


class _Sharing:
    """Whether a loop is worth going through by the group: neighbouring items then do neighbouring elements."""

    def __init__(self, op: Op, own: set[Value]) -> None:
        self.op = op
        self.own = own
        self.index = op.blocks[0].arguments[0]

    def pays(self) -> bool:
        (start, stop), step = self.op.operands[:2], self.op.attributes["step"]
        ops = list(self.op.blocks[0].walk())
        if all(each.op is not None and each.op.code == "const" for each in (start, stop)):
            first, last = (each.op.attributes["value"] for each in (start, stop) if each.op is not None)
            if len(range(first, last, step)) * len(ops) <= _UNROLLED:
                return False
        near = False
        for op in ops:
            if op.code in ("load", "store"):
                pointer, offsets = root(op.operands[0])
                strides = [self.stride(each, 0) for each in (op.operands[1], *offsets)]
                if None in strides:
                    continue
                stride = sum(each for each in strides if each is not None)
                if abs(stride) > 1 or pointer.type.space == "private":  # type: ignore[union-attr]
                    return False
                near |= stride != 0
        return near

    def stride(self, value: Value, depth: int) -> int | None:
        """By how much a value moves from item to item along x; None where that can't be said."""
        if value is self.index or (value not in self.own):
            return 0
        op = value.op
        if op is None or depth > 24:
            return None
        if op.code == "id":
            return 1 if op.attributes["dim"] == 0 else 0
        operands = [self.stride(each, depth + 1) for each in op.operands]
        if None in operands:
            return None
        known = [each for each in operands if each is not None]
        if op.code in ("add", "sub"):
            return known[0] + known[1] if op.code == "add" else known[0] - known[1]
        if op.code == "neg":
            return -known[0]
        if op.code == "cast":
            return known[0]
        if op.code in ("mul", "shl"):
            if known == [0, 0]:
                return 0
            factor = op.operands[1 if known[0] else 0].op
            number = factor.attributes["value"] if factor is not None and factor.code == "const" else _FAR
            return int(max(known, key=abs) * (number if op.code == "mul" else 1 << min(number, 20)))
        return 0 if not any(known) else None
