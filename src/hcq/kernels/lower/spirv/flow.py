"""Control flow of a SPIR-V kernel: structured blocks and phis, from blocks in blocks.

What does not live here: what stands in a block (writer).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.kernels import types
from hcq.kernels.lower.blocks import BlockWriter
from hcq.kernels.lower.spirv.casts import kind
from hcq.kernels.types import Pointer, Vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.kernels.ir import Function, Op, Value
    from hcq.kernels.lower.spirv.module import Module
    from hcq.kernels.lower.spirv.ops import Arithmetic
    from hcq.kernels.types import Scalar

Edge = tuple[int, list[list[int]]]
"""The block that control comes from, and the values it brings, an identity an element."""


class _Loop:
    """The loop that is being written. `phis` are those of its head, complete when the body is: the instruction, and
    where its value comes from next."""

    __slots__ = ("before", "breaks", "continues", "exit", "head", "latch", "phis")

    def __init__(self, before: int, head: int, latch: int, exit_: int) -> None:
        self.before, self.head, self.latch, self.exit = before, head, latch, exit_
        self.continues: list[Edge] = []
        self.breaks: list[Edge] = []
        self.phis: list[list[int | str]] = []


class Flow(BlockWriter[list[int], int]):
    """Writes control flow. `names` are a function's values, an identity an element; `wide` those of indices, an i64. A
    subclass writes the operations of a block."""

    def __init__(self, function: Function, module: Module, arithmetic: Arithmetic) -> None:
        super().__init__(function)
        self.m, self.x = module, arithmetic
        self.loops: list[_Loop] = []
        self.merges: list[tuple[int, list[Edge]]] = []

    def widen(self, value: Value) -> None:
        if value in self.needs.wide:
            self.wide[value] = self.x.extended(self.names[value][0], types.element_of(value.type))

    def spelled(self, value: Value) -> int:
        """The type of a value's elements."""
        return self.m.type("i64" if isinstance(value.type, Pointer) else kind(types.element_of(value.type)))

    def named(self, values: Sequence[Value]) -> list[list[int]]:
        return [self.names[each] for each in values]

    def join(self, results: Sequence[Value], edges: Sequence[Edge]) -> None:
        """Defines what comes out of control flow, at the block where the edges meet: phis, before anything else."""
        for position, result in enumerate(results):
            self.names[result] = []
            for lane in range(lanes(result)):
                pairs = [word for label, values in edges for word in (values[position][lane], label)]
                made = pairs[0] if len(edges) == 1 else self.m.emit("OpPhi", self.spelled(result), *pairs)
                self.names[result].append(made)
        for result in results:
            self.widen(result)

    def on_if(self, op: Op) -> bool:
        m, edges = self.m, list[Edge]()
        then, other, merge = m.id(), m.id(), m.id()
        self.merges.append((merge, edges))
        m.do("OpSelectionMerge", merge, 0)
        m.do("OpBranchConditional", self.names[op.operands[0]][0], then, other)
        for label, block in ((then, op.blocks[0]), (other, op.blocks[1])):
            m.begin(label)
            self.block(block)
        self.merges.pop()
        m.begin(merge)
        if not edges:
            m.do("OpUnreachable")
            return True
        self.join(op.results, edges)
        return False

    def on_loop(self, op: Op) -> bool:
        (block,) = op.blocks
        loop = self.enter(block.arguments, op.operands)
        self.open(loop)
        self.block(block)
        self.again(loop, [])
        return self.leave(op, loop)

    def on_for(self, op: Op) -> bool:
        """Python's range. An index of up to 32 bits runs in 64, where nothing overflows; one of 64 bits, in steps other
        than 1, runs beside a count of the rounds that are left."""
        (block,) = op.blocks
        index, step = block.arguments[0], op.attributes["step"]
        element = types.element_of(index.type)
        start, stop = (self.x.extended(self.names[each][0], element) for each in op.operands[:2])
        counted = element.bits == 64 and abs(step) != 1
        own = [(start, step)]
        if counted:
            own.append((self.rounds(start, stop, element, step), -1))
        loop = self.enter(block.arguments[1:], op.operands[2:], own)
        at = int(loop.phis[0][2])
        if counted:
            more = self.x.test("INotEqual", int(loop.phis[1][2]), self.m.constant("i64", 0))
        else:
            sign = "U" if element is types.u64 else "S"
            more = self.x.test(sign + ("LessThan" if step > 0 else "GreaterThan"), at, stop)
        loop.breaks.append((loop.head, self.named(block.arguments[1:])))
        self.open(loop, more)
        self.wide[index] = at
        if index in self.needs.plain:
            name = kind(element)
            self.names[index] = [at if element.bits == 64 else self.x.op("UConvert", name, at)]
        self.block(block)
        self.again(loop, own)
        return self.leave(op, loop)

    def rounds(self, start: int, stop: int, element: Scalar, step: int) -> int:
        """How often a loop over a 64-bit index goes round: ceil(distance / step), without overflow."""
        low, high = (start, stop) if step > 0 else (stop, start)
        one, zero = self.m.constant("i64", 1), self.m.constant("i64", 0)
        less = self.x.op("ISub", "i64", self.x.op("ISub", "i64", high, low), one)
        whole = self.x.op("UDiv", "i64", less, self.m.constant("i64", abs(step)))
        some = self.x.test("ULessThan" if element.kind == "u" else "SLessThan", low, high)
        return self.x.choose(some, self.x.op("IAdd", "i64", whole, one), zero, "i64")

    def enter(self, carried: Sequence[Value], initial: Sequence[Value], own: Sequence[tuple[int, int]] = ()) -> _Loop:
        """Begins the head of a loop: its phis, first those that the loop changes itself (a start and a step each)."""
        m = self.m
        loop = _Loop(m.label, m.id(), m.id(), m.id())
        m.do("OpBranch", loop.head)
        m.begin(loop.head)
        self.loops.append(loop)
        starts = [(m.type("i64"), start) for start, _ in own]
        for value, first in zip(carried, initial, strict=True):
            starts += [(self.spelled(value), each) for each in self.names[first]]
        for type_, start in starts:
            m.emit("OpPhi", type_, start, loop.before)
            loop.phis.append(m.body[-1])
        made = iter(loop.phis[len(own) :])
        for value in carried:
            self.names[value] = [int(next(made)[2]) for _ in range(lanes(value))]
        for value in carried:
            self.widen(value)
        return loop

    def open(self, loop: _Loop, more: int | None = None) -> None:
        """Ends the head and begins the body, where `more` holds."""
        m = self.m
        body = m.id()
        m.do("OpLoopMerge", loop.exit, loop.latch, 0)
        if more is None:
            m.do("OpBranch", body)
        else:
            m.do("OpBranchConditional", more, body, loop.exit)
        m.begin(body)

    def again(self, loop: _Loop, own: Sequence[tuple[int, int]]) -> None:
        """Writes where `continue` goes, the one way back to the head, and completes the head's phis."""
        m = self.m
        m.begin(loop.latch)
        nexts: list[int] = []
        for at, phi in enumerate(loop.phis[len(own) :]):
            values = [([each for value in values for each in value][at], label) for label, values in loop.continues]
            if not values:  # nothing comes here, and the head wants to know what it would bring
                nexts.append(m.emit("OpUndef", int(phi[1])))
            elif len(values) == 1:
                nexts.append(values[0][0])
            else:
                nexts.append(m.emit("OpPhi", int(phi[1]), *(word for pair in values for word in pair)))
        steps = [
            self.x.op("IAdd", "i64", int(phi[2]), m.constant("i64", step))
            for phi, (_, step) in zip(loop.phis, own, strict=False)
        ]
        m.do("OpBranch", loop.head)
        for phi, following in zip(loop.phis, [*steps, *nexts], strict=True):
            phi += [following, loop.latch]

    def leave(self, op: Op, loop: _Loop) -> bool:
        """Begins what follows a loop; True where nothing can, since nothing breaks out of it."""
        self.loops.pop()
        self.m.begin(loop.exit)
        if not loop.breaks:
            self.m.do("OpUnreachable")
            return True
        self.join(op.results, loop.breaks)
        return False

    def on_yield(self, op: Op) -> bool:
        if op.code == "yield":
            label, edges = self.merges[-1]
        else:
            loop = self.loops[-1]
            label, edges = (loop.latch, loop.continues) if op.code == "continue" else (loop.exit, loop.breaks)
        edges.append((self.m.label, self.named(op.operands)))
        self.m.do("OpBranch", label)
        return True

    on_continue = on_yield
    on_break = on_yield

    def on_return(self, op: Op) -> bool:
        self.m.do("OpReturn")
        return True


def lanes(value: Value) -> int:
    return value.type.lanes if isinstance(value.type, Vector) else 1
