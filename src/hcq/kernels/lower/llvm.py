"""The LLVM IR of a kernel: basic blocks and phis from structured control flow, memory, ids, the function around them.

One writer for all targets (llvm_targets). Every argument of a block becomes a phi; nothing is analysed. What does not
live here: pure operations (llvm_ops), which values are needed (indices).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hcq.kernels import types
from hcq.kernels.lower import indices, llvm_subgroups
from hcq.kernels.lower.blocks import BlockWriter
from hcq.kernels.lower.llvm_ops import Arithmetic
from hcq.kernels.lower.llvm_targets import CPU
from hcq.kernels.lower.llvm_text import ENTRY, MEMORY, VALUES, Emitter, literal, shaped
from hcq.kernels.lower.names import entry_name
from hcq.kernels.types import Pointer, Scalar, Vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.kernels.ir import Block, Function, Op, Value
    from hcq.kernels.lower.llvm_targets import Target
    from hcq.kernels.types import Type

_ATOMIC: Final = {"add": "add", "and": "and", "or": "or", "xor": "xor", "exchange": "xchg"}
_ATOMIC_REAL: Final = {"add": "fadd", "min": "fminimum", "max": "fmaximum", "exchange": "xchg"}

_MANY: Final = 5  # fused multiplications and additions: a function of mathlib has more

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


def write(function: Function, target: Target = CPU) -> str:
    """The module of one kernel. Its parameters are the function's pointers, then its scalars."""
    return Writer(function, target).module()


class Writer(BlockWriter[str, str]):
    """Writes one function. `names` and `wide` are the names of its values and of indices."""

    def __init__(self, function: Function, target: Target) -> None:
        super().__init__(function)
        self.target = target
        self.e = Emitter()
        self.arithmetic = Arithmetic(self.e)
        self.globals: list[str] = []
        self.loops: list[_Loop] = []
        self.merges: list[tuple[str, list[Edge]]] = []

    # The function

    def module(self) -> str:
        parameters = [self.parameter(each) for each in (*self.function.pointers, *self.function.scalars)]
        for kind, dim in self.wanted_ids():
            self.id(kind, dim)
        if not self.ids:  # the device LLVM tells a kernel of many items from a plain function by what it asks for
            self.id("group_id", 0)
        self.block(self.function.body)
        name = entry_name(self.function.name)
        convention = f"{self.target.convention} " if self.target.convention else ""
        attributes = f" {self.target.attributes}" if self.target.attributes else ""
        if self.target is CPU and self.computes():
            attributes = ' "prefer-vector-width"="512"'
        lines = list(self.target.head)
        lines += [*self.globals, *sorted(self.e.declarations.values())]
        lines += [f"define {convention}void @{name}({', '.join(parameters)}){attributes} {{", f"{ENTRY}:"]
        return "\n".join([*lines, *self.e.lines, "}", ""])

    def computes(self) -> bool:
        """Whether arithmetic takes longer than memory: wider vectors pay then, where loops become vectors at all."""
        count = 0
        for op in self.function.walk():
            if any(isinstance(each.type, Vector) for each in op.results):
                return False
            count += op.code == "fma"
        return count >= _MANY

    def parameter(self, value: Value) -> str:
        """Declares a parameter; what must be made of it stands at the head of the entry."""
        name = f"%{value.name}" if value.name.isascii() else f'%"{value.name}"'  # other values' names have a dot
        if isinstance(value.type, Pointer):
            self.names[value] = name
            return f"{self.target.pointer('global')} {name}"
        self.names[value] = name
        element = types.element_of(value.type)
        spelled = VALUES[element]
        if self.target.passes_bits and element in (types.bool_, types.f16, types.bf16):
            spelled = MEMORY[element]
            self.names[value] = self.arithmetic.from_memory(name, element)
        elif element is types.f16:
            spelled = "half"
            self.names[value] = self.arithmetic.from_memory(name, element)
        elif element is types.bf16:
            spelled = "bfloat"
            raw = self.e.emit(f"bitcast bfloat {name} to i16")
            self.names[value] = self.arithmetic.from_memory(raw, element)
        elif element.is_integer:
            spelled += " signext" if element.kind == "i" else " zeroext"
        self.widen(value)
        return f"{spelled} {name}"

    def new_id(self, kind: str, dim: int, parts: Sequence[str]) -> str:
        if not parts:
            return self.target.id(self.e, kind, dim)
        first, second, *rest = parts
        name = self.e.emit(f"mul nuw nsw i32 {first}, {second}")
        for each in rest:
            name = self.e.emit(f"add nuw nsw i32 {name}, {each}", kind)
        return name

    # Blocks and values

    def value(self, op: Op) -> None:
        self.names[op.result] = self.arithmetic.write(op, self.named(op.operands))

    def index(self, op: Op, operands: Sequence[str]) -> str:
        flag = "" if types.element_of(op.result.type) is types.u64 else "nsw "
        if op.code == "neg":
            return self.e.emit(f"sub {flag}i64 0, {operands[0]}")
        return self.e.emit(f"{op.code} {flag}i64 {', '.join(operands)}")

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

    # Operations that are no arithmetic

    def on_const(self, op: Op) -> None:
        text = literal(op.attributes["value"], types.element_of(op.result.type))
        self.names[op.result] = self.wide[op.result] = text

    def on_id(self, op: Op) -> None:
        self.names[op.result] = self.id(op.attributes["kind"], op.attributes["dim"])
        if op.result in self.needs.wide:  # ids are not negative
            self.wide[op.result] = self.e.emit(f"zext i32 {self.names[op.result]} to i64")

    def on_local(self, op: Op) -> None:
        name = f"@local.{len(self.globals)}"
        array = f"[{op.attributes['count']} x {MEMORY[types.element_of(op.result.type)]}]"
        kind = f"internal addrspace({self.target.spaces[1]}) global"
        self.globals.append(f"{name} = {kind} {array} undef, align 64")
        self.names[op.result] = name

    def on_private(self, op: Op) -> None:
        array = f"[{op.attributes['count']} x {MEMORY[types.element_of(op.result.type)]}]"
        number = self.target.spaces[2]
        space = f", addrspace({number})" if number else ""
        self.names[op.result] = self.e.emit(f"alloca {array}, align 16{space}", op.attributes["name"])

    def address(self, op: Op, flags: str = "inbounds ") -> str:
        pointer, index = op.operands[:2]
        element = MEMORY[types.element_of(pointer.type)]
        spelled = self.spelled(pointer.type)
        return self.e.emit(f"getelementptr {flags}{element}, {spelled} {self.names[pointer]}, i64 {self.wide[index]}")

    def on_offset(self, op: Op) -> None:
        self.names[op.result] = self.address(op, "")

    def on_load(self, op: Op) -> None:
        pointer, type_ = op.operands[0], op.result.type
        element = types.element_of(type_)
        kind = shaped(MEMORY[element], type_)
        at = self.address(op)
        raw = self.e.emit(f"load {kind}, {self.spelled(pointer.type)} {at}, align {element.itemsize}")
        self.names[op.result] = self.arithmetic.from_memory(raw, type_)
        self.widen(op.result)

    def on_store(self, op: Op) -> None:
        pointer, _, value = op.operands
        element = types.element_of(value.type)
        at = self.address(op)
        raw = self.arithmetic.to_memory(self.names[value], value.type)
        kind = shaped(MEMORY[element], value.type)
        self.e.do(f"store {kind} {raw}, {self.spelled(pointer.type)} {at}, align {element.itemsize}")

    def on_atomic(self, op: Op) -> None:
        how, element = op.attributes["how"], types.element_of(op.result.type)
        spelled, values = self.spelled(op.result.type), self.named(op.operands[2:])
        pointer = f"{self.spelled(op.operands[0].type)} {self.address(op)}"
        order = f"{self.target.scope} monotonic"
        if how == "cas":
            value, expected = values
            pair = self.e.emit(f"cmpxchg {pointer}, {spelled} {expected}, {spelled} {value}{order} monotonic")
            self.names[op.result] = self.e.emit(f"extractvalue {{ {spelled}, i1 }} {pair}, 0")
        else:
            if element.is_float:
                code = _ATOMIC_REAL[how]
            else:
                code = _ATOMIC.get(how) or ("" if element.kind == "i" else "u") + how
            self.names[op.result] = self.e.emit(f"atomicrmw {code} {pointer}, {spelled} {values[0]}{order}")
        self.widen(op.result)

    def on_subgroup(self, op: Op) -> None:
        self.names[op.result] = llvm_subgroups.write_subgroup(self, op)
        self.widen(op.result)

    def on_shuffle(self, op: Op) -> None:
        self.names[op.result] = llvm_subgroups.write_shuffle(self, op)
        self.widen(op.result)

    def on_barrier(self, op: Op) -> None:
        self.target.barrier(self.e)

    # Control flow

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
            if op.code == "const":
                self.on_const(op)
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
