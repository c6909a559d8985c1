"""The LLVM IR of a kernel: memory, ids, the function around them.

One writer for all targets (targets). What does not live here: pure operations (ops), control flow (flow).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hcq.kernels import types
from hcq.kernels.lower.llvm import subgroups
from hcq.kernels.lower.llvm.flow import Flow
from hcq.kernels.lower.llvm.ops import Arithmetic
from hcq.kernels.lower.llvm.targets import CPU
from hcq.kernels.lower.llvm.text import ENTRY, MEMORY, VALUES, literal, shaped
from hcq.kernels.lower.names import entry_name
from hcq.kernels.types import Pointer, Vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.kernels.ir import Function, Op, Value
    from hcq.kernels.lower.llvm.targets import Target

_ATOMIC: Final = {"add": "add", "and": "and", "or": "or", "xor": "xor", "exchange": "xchg"}
_ATOMIC_REAL: Final = {"add": "fadd", "min": "fminimum", "max": "fmaximum", "exchange": "xchg"}

_MANY: Final = 5  # fused multiplications and additions: a function of mathlib has more


def write(function: Function, target: Target = CPU) -> str:
    """The module of one kernel. Its parameters are the function's pointers, then its scalars."""
    return Writer(function, target).module()


class Writer(Flow):
    """Writes one function."""

    def __init__(self, function: Function, target: Target) -> None:
        super().__init__(function, target)
        self.arithmetic = Arithmetic(self.e)
        self.globals: list[str] = []

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
        self.names[op.result] = subgroups.write_subgroup(self, op)
        self.widen(op.result)

    def on_shuffle(self, op: Op) -> None:
        self.names[op.result] = subgroups.write_shuffle(self, op)
        self.widen(op.result)

    def on_barrier(self, op: Op) -> None:
        self.target.barrier(self.e)
