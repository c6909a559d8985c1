"""Sub-groups where a target has none: 32 neighbours that exchange values through local memory.

A shuffle becomes a store, a barrier, a load and a barrier, in the form in the middle itself. Where only some sub-groups
of a group come to a shuffle, its barriers pass by those that wait elsewhere; targets whose barriers allow that (the
CPU's) can have it as long as no barrier of the kernel's own follows. What does not live here: targets with sub-groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hcq.errors import CompileError
from hcq.kernels import types
from hcq.kernels.lower.rewrite import Rewriter
from hcq.kernels.lower.varying import Varying

if TYPE_CHECKING:
    from hcq.kernels.ir import Function, Op, Value
    from hcq.kernels.types import Scalar

SIZE: Final = 32
"""Items of a sub-group."""

_GROUP: Final = 1024  # items that a group may have


def expand(function: Function, apart: bool) -> Function:
    """The function without sub-groups; itself, if it has none.

    `apart` says that the target's barriers may be reached by some items only. Raises CompileError where a shuffle can't
    be had so.
    """
    ops = list(function.walk())
    if not any(op.code in ("shuffle", "subgroup") for op in ops):
        return function
    _check(function, ops, apart)
    return _Expansion(function).run()


def _check(function: Function, ops: list[Op], apart: bool) -> None:
    parted = Varying(function).apart
    for position, op in enumerate(ops):
        if op.code != "shuffle" or op not in parted:
            continue
        where = f" ({op.location})" if op.location else ""
        if not apart:
            raise CompileError(
                f"{function.name}{where}: this target exchanges values through local memory, which all work-items of "
                "the group must come to together: move the shuffle out of the condition or loop that parts them"
            )
        loops = [other for other in ops if other.code in ("for", "loop") and op in list(other.blocks[0].walk())]
        inside = any(each.code == "barrier" for other in loops for each in other.blocks[0].walk())
        if inside or any(each.code == "barrier" for each in ops[position:]):
            raise CompileError(
                f"{function.name}{where}: this target can't have a shuffle that only some work-items of the group come "
                "to where a barrier follows: move the shuffle out of the condition or loop that parts them"
            )


class _Expansion(Rewriter):
    """Copies a function, with shuffles and questions about sub-groups written out."""

    def begin(self) -> None:
        self.arrays: dict[Scalar, Value] = {}
        for op in self.function.walk():
            if op.code == "shuffle":
                element = types.element_of(op.result.type)
                if element not in self.arrays:
                    pointer = types.pointer(element, "local")
                    name = f"shuffle_{element.name}"
                    self.arrays[element] = self.b.op("local", (), (pointer,), name=name, count=_GROUP).result
        sizes = [self.b.id("local_size", dim) for dim in range(3)]
        ids = [self.b.id("local_id", dim) for dim in range(3)]
        row = self.b.binary("add", self.b.binary("mul", ids[2], sizes[1]), ids[1])
        self.linear = self.b.binary("add", self.b.binary("mul", row, sizes[0]), ids[0])
        self.items = self.b.binary("mul", self.b.binary("mul", sizes[0], sizes[1]), sizes[2])
        self.size = self.b.const(SIZE, types.i32)
        self.lane = self.b.binary("and", self.linear, self.b.const(SIZE - 1, types.i32))
        self.index = self.b.binary("shr", self.linear, self.b.const(SIZE.bit_length() - 1, types.i32))
        self.first = self.b.binary("sub", self.linear, self.lane)

    def replace(self, op: Op) -> Value | None:
        if op.code == "subgroup":
            found: Value = getattr(self, op.attributes["kind"])
            return found
        return self.shuffled(op) if op.code == "shuffle" else None

    def shuffled(self, op: Op) -> Value:
        """The value of another lane; outside the sub-group or the group, the item's own."""
        value, given = (self.values[each] for each in op.operands)
        how, b = op.attributes["how"], self.b
        code = {"xor": "xor", "up": "sub", "down": "add"}.get(how)
        lane = given if code is None else b.binary(code, self.lane, given)
        place = b.binary("add", self.first, lane)
        inside = b.binary("lt", b.cast(lane, types.u32), b.const(SIZE, types.u32))
        there = b.binary("and", inside, b.binary("lt", place, self.items))
        source = b.select(there, place, self.linear)
        array = self.arrays[types.element_of(value.type)]
        b.store(array, self.linear, value)
        b.op("barrier")
        result = b.load(array, source)
        b.op("barrier")
        return result
