"""Control flow of a kernel's LLVM IR: basic blocks and phis, from blocks in blocks.

Every argument of a block becomes a phi; nothing is analysed. What does not live here: what stands in a block (writer).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.kernels import types
from hcq.kernels.lower import indices
from hcq.kernels.lower.blocks import BlockWriter
from hcq.kernels.lower.llvm.text import VALUES, Emitter, shaped
from hcq.kernels.types import Pointer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.kernels.ir import Block, Function, Op, Value
    from hcq.kernels.lower.llvm.targets import Target
    from hcq.kernels.types import Scalar, Type

Edge = tuple[str, list[str]]
"""Where control comes from, and the values it brings."""


class _Loop:
    """The loop that is being written: its labels, the edges to them met so far, and the phis of its head, which are
    complete when the body is: the number of the line, how it begins, and what is next (a value, or an instruction)."""

    __slots__ = ("before", "breaks", "continues", "exit", "head", "latch", "phis")

    def __init__(self, before: str, head: str, latch: str, exit_: str) -> None:
        self.before, self.head, self.latch, self.exit = before, head, latch, exit_
        self.continues: list[Edge] = []
        self.breaks: list[Edge] = []
        self.phis: list[tuple[int, str, Value | str]] = []


class Flow(BlockWriter[str, str]):
    """Writes control flow. `names` and `wide` are the names of values and of indices. A subclass writes the operations
    of a block."""

    def __init__(self, function: Function, target: Target) -> None:
        super().__init__(function)
        self.target = target
        self.e = Emitter()
        self.loops: list[_Loop] = []
        self.merges: list[tuple[str, list[Edge]]] = []

    def widen(self, value: Value) -> None:
        if value in self.needs.wide:
            self.wide[value] = self.extended(self.names[value], types.element_of(value.type))

    def extended(self, name: str, element: Scalar) -> str:
        if element.bits == 64:
            return name
        return self.e.emit(f"{'sext' if element.kind == 'i' else 'zext'} {VALUES[element]} {name} to i64")

    def spelled(self, type_: Type) -> str:
        if isinstance(type_, Pointer):
            return self.target.pointer(type_.space)
        return shaped(VALUES[types.element_of(type_)], type_)

    def named(self, values: Sequence[Value]) -> list[str]:
        return [self.names[each] for each in values]

    def phi(self, type_: Type, edges: Sequence[tuple[str, str]]) -> str:
        """A phi; of one edge, its value."""
        if len(edges) == 1:
            return edges[0][1]
        return self.e.emit(
            f"phi {self.spelled(type_)} " + ", ".join(f"[ {value}, %{label} ]" for label, value in edges)
        )

    def join(self, results: Sequence[Value], edges: Sequence[Edge]) -> None:
        """Defines what comes out of control flow, at the block where the edges meet."""
        for position, result in enumerate(results):
            self.names[result] = self.phi(result.type, [(label, values[position]) for label, values in edges])
        for result in results:
            self.widen(result)

    def on_if(self, op: Op) -> bool:
        merge, condition = self.e.new_label("endif"), self.names[op.operands[0]]
        edges: list[Edge] = []
        self.merges.append((merge, edges))
        targets = [self.at_once(block) for block in op.blocks]
        if targets[0] == targets[1]:  # one block can't come in twice
            targets[0] = None
        labels = []
        for target, hint in zip(targets, ("then", "else"), strict=True):
            labels.append(target[0] if target is not None else self.e.new_label(hint))
        self.e.do(f"br i1 {condition}, label %{labels[0]}, label %{labels[1]}")
        before = self.e.label
        for target, label, block in zip(targets, labels, op.blocks, strict=True):
            if target is not None:
                target[1].append((before, self.named(block.ops[-1].operands)))
            else:
                self.e.begin(label)
                self.block(block)
        self.merges.pop()
        if not edges:
            return True
        self.e.begin(merge)
        self.join(op.results, edges)
        return False

    def at_once(self, block: Block) -> tuple[str, list[Edge]] | None:
        """Where a block goes that does nothing else: it needs no basic block of its own, which analyses count."""
        *before, last = block.ops
        if last.code == "return" or any(op.code != "const" and not indices.is_dead(op, self.needs) for op in before):
            return None
        for op in before:
            self.block_op(op)
        return self.target_of(last)

    def on_loop(self, op: Op) -> bool:
        (block,) = op.blocks
        loop = self.enter("loop")
        self.carry(loop, block.arguments, op.operands)
        self.block(block)
        self.again(loop)
        return self.leave(op, loop)

    def on_for(self, op: Op) -> bool:
        """Python's range. An index of up to 32 bits runs in 64, where nothing overflows; one of 64 bits, in steps other
        than 1, runs beside a count of the rounds that are left."""
        (block,) = op.blocks
        index, step = block.arguments[0], op.attributes["step"]
        element = types.element_of(index.type)
        start, stop = (self.extended(each, element) for each in self.named(op.operands[:2]))
        counted = element.bits == 64 and abs(step) != 1
        rounds = self.rounds(start, stop, element, step) if counted else ""
        loop = self.enter("for")
        flag = "" if counted or element is types.u64 else "nsw "
        at = self.count(loop, start, f"add {flag}i64 {{}}, {step}", index.name)
        left = self.count(loop, rounds, "sub i64 {}, 1") if counted else ""
        self.carry(loop, block.arguments[1:], op.operands[2:])
        if counted:
            more = self.e.emit(f"icmp ne i64 {left}, 0")
        else:
            order = ("u" if element is types.u64 else "s") + ("lt" if step > 0 else "gt")
            more = self.e.emit(f"icmp {order} i64 {at}, {stop}")
        loop.breaks.append((self.e.label, self.named(block.arguments[1:])))
        inside = self.e.new_label("body")
        self.e.do(f"br i1 {more}, label %{inside}, label %{loop.exit}")
        self.e.begin(inside)
        self.names[index] = self.wide[index] = at
        if index in self.needs.plain and element.bits < 64:
            self.names[index] = self.e.emit(f"trunc i64 {at} to {self.spelled(element)}", index.name)
        self.block(block)
        self.again(loop)
        return self.leave(op, loop)

    def rounds(self, start: str, stop: str, element: Scalar, step: int) -> str:
        """How often a loop over a 64-bit index goes round: ceil(distance / step), without overflow."""
        low, high = (start, stop) if step > 0 else (stop, start)
        distance = self.e.emit(f"sub i64 {high}, {low}")
        less = self.e.emit(f"sub i64 {distance}, 1")
        whole = self.e.emit(f"udiv i64 {less}, {abs(step)}")
        count = self.e.emit(f"add i64 {whole}, 1")
        some = self.e.emit(f"icmp {'u' if element.kind == 'u' else 's'}lt i64 {low}, {high}")
        return self.e.emit(f"select i1 {some}, i64 {count}, i64 0")

    def enter(self, hint: str) -> _Loop:
        """Begins the head of a loop."""
        loop = _Loop(self.e.label, self.e.new_label(hint), self.e.new_label("next"), self.e.new_label("endloop"))
        self.e.do(f"br label %{loop.head}")
        self.e.begin(loop.head)
        self.loops.append(loop)
        return loop

    def count(self, loop: _Loop, start: str, step: str, hint: str = "") -> str:
        """A number that the loop itself changes every round: `step` is the instruction, with a place for the number."""
        name = self.e.name(hint)
        loop.phis.append((len(self.e.lines), f"  {name} = phi i64 [ {start}, %{loop.before} ]", step.format(name)))
        self.e.lines.append("")
        return name

    def carry(self, loop: _Loop, carried: Sequence[Value], initial: Sequence[Value]) -> None:
        """The arguments of the loop's block."""
        for value, first in zip(carried, initial, strict=True):
            self.names[value] = name = self.e.name(value.name)
            start = f"  {name} = phi {self.spelled(value.type)} [ {self.names[first]}, %{loop.before} ]"
            loop.phis.append((len(self.e.lines), start, value))
            self.e.lines.append("")
        for value in carried:
            self.widen(value)

    def again(self, loop: _Loop) -> None:
        """Writes where `continue` goes, one block with one way back to the head, and completes the head's phis."""
        nexts: list[str] = [""] * len(loop.phis)
        if len(loop.continues) == 1 and self.e.lines[-1] == f"  br label %{loop.latch}":
            self.e.lines.pop()
            loop.latch = self.e.label
        elif loop.continues:
            self.e.begin(loop.latch)
        if loop.continues:
            position = 0
            for at, (_, _, step) in enumerate(loop.phis):
                if isinstance(step, str):
                    continue
                nexts[at] = self.phi(step.type, [(label, values[position]) for label, values in loop.continues])
                position += 1
            for at, (_, _, step) in enumerate(loop.phis):
                if isinstance(step, str):
                    nexts[at] = self.e.emit(step)
            self.e.do(f"br label %{loop.head}")
        for (line, start, _), following in zip(loop.phis, nexts, strict=True):
            self.e.lines[line] = start + (f", [ {following}, %{loop.latch} ]" if loop.continues else "")

    def leave(self, op: Op, loop: _Loop) -> bool:
        """Begins what follows a loop; True where nothing can, since nothing breaks out of it."""
        self.loops.pop()
        if not loop.breaks:
            return True
        self.e.begin(loop.exit)
        self.join(op.results, loop.breaks)
        return False

    def on_yield(self, op: Op) -> bool:
        label, edges = self.target_of(op)
        edges.append((self.e.label, self.named(op.operands)))
        self.e.do(f"br label %{label}")
        return True

    on_continue = on_yield
    on_break = on_yield

    def target_of(self, op: Op) -> tuple[str, list[Edge]]:
        """Where a terminator goes, and the edges that come there."""
        if op.code == "yield":
            return self.merges[-1]
        loop = self.loops[-1]
        return (loop.latch, loop.continues) if op.code == "continue" else (loop.exit, loop.breaks)

    def on_return(self, op: Op) -> bool:
        self.e.do("ret void")
        return True
