"""Writes one function of LLVM IR: blocks, values, and PTX operands read and written.

A register of PTX is a slot on the stack (LLVM makes values of them), an integer of its width, `float` or `double`. What
an operation becomes is said by the modules that registry.py knows; where a thread's numbers and memory come from is
said by the context (contexts.py).
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from hcq.cudacpu import debug
from hcq.cudacpu.abi import Op, Thread
from hcq.cudacpu.lower import checks, modifiers, registry
from hcq.cudacpu.lower.forms.uniform import LANES
from hcq.cudacpu.lower.types import bits_of, llvm, signed, width
from hcq.cudacpu.lower.values.arithmetic import canonical
from hcq.cudacpu.ptx.errors import PtxError, Unsupported
from hcq.cudacpu.ptx.nodes import (
    Immediate,
    Instruction,
    Label,
    Not,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
)

if TYPE_CHECKING:
    from hcq.cudacpu.lower.forms.contexts import Context
    from hcq.cudacpu.lower.forms.frames import Frame
    from hcq.cudacpu.lower.forms.kernel_memory import KernelMemory
    from hcq.cudacpu.lower.forms.lanes import Lanes
    from hcq.cudacpu.lower.module import Unit


class Emitter:
    """State of one LLVM function that is being written. Modules of operations use its public methods only."""

    def __init__(self, unit: Unit, context: Context) -> None:
        self.unit = unit
        self.context = context
        self.frame: Frame | None = None  # the PTX function whose instructions are written now
        self.line = 0
        self.memory: KernelMemory | None = None  # of the kernel that is written
        self.lanes: Lanes | None = None  # where operations of a warp are done, in the form of regions
        self.group = ""  # metadata that says that accesses of the threads don't depend on each other
        self._slots: list[str] = []
        self._slot_names: set[str] = set()
        self._scratch: dict[int, str] = {}
        self._lines: list[str] = []
        self._count = 0
        self._carry = ""
        self._open = True  # whether the block has no end yet

    # -- text -----------------------------------------------------------------------------------------------------

    def op(self, text: str) -> str:
        """Write an instruction with a result; returns the result's name."""
        name = f"%t{self.number()}"
        self.do(f"{name} = {text}")
        return name

    def do(self, text: str) -> None:
        """Write an instruction without a result."""
        if not self._open:
            self.place(self.label("dead"))
        mark = self.unit.mark(self.line) if self.line and debug.tells(text, self._slot_names) else ""
        self._lines.append(f"  {text}{mark}")

    def number(self) -> int:
        """A number that was not used in this function before."""
        self._count += 1
        return self._count

    def slot(self, type: str, align: int = 0, name: str = "") -> str:
        """Room on the stack, of this function as long as it runs."""
        name = f"%{name or 'slot'}.{self.number()}"
        self._slots.append(f"  {name} = alloca {type}" + (f", align {align}" if align else ""))
        self._slot_names.add(name)
        return name

    def scratch(self, size: int) -> str:
        """Room of `size` bytes on the stack for one operation: all operations that want as much share it."""
        if size not in self._scratch:
            self._scratch[size] = self.slot(f"[{size} x i8]", 16, "scratch")
        return self._scratch[size]

    @property
    def dead(self) -> bool:
        """Whether nothing comes to where the next instruction would stand."""
        return not self._open

    def label(self, name: str = "b") -> str:
        """A new label, to be placed later."""
        return f"{name}.{self.number()}"

    def place(self, label: str) -> None:
        """Begin a block; the one before goes on here if it has no end."""
        if self._open:
            self._lines.append(f"  br label %{quoted(label)}")
        self._lines.append(f"{quoted(label)}:")
        self._open = True

    def end(self, text: str) -> None:
        """Write the instruction that ends a block."""
        self.do(text)
        self._open = False

    def branch(self, label: str) -> None:
        """End a block by going to a label."""
        self.end(f"br label %{quoted(label)}")

    def choose(self, condition: str, yes: str, no: str) -> None:
        """End a block by going to one of two labels."""
        self.end(f"br i1 {condition}, label %{quoted(yes)}, label %{quoted(no)}")

    def text(self) -> str:
        """All that was written, without the function's head."""
        return "\n".join(["entry:", *self._slots, *self._lines])

    def declare(self, text: str) -> None:
        """A declaration that the module needs, as `declare i32 @llvm.ctpop.i32(i32)`."""
        self.unit.declare(text)

    def helper(self, name: str, text: str) -> None:
        """A function's whole text that the module needs once."""
        self.unit.helper(name, text)

    def intrinsic(self, name: str, result: str, *arguments: tuple[str, str]) -> str:
        """Declare an intrinsic or a function of the process and call it with (type, value) arguments."""
        types = ", ".join(type for type, _ in arguments)
        self.declare(f"declare {result} @{name}({types})")
        call = f"call {result} @{name}({', '.join(f'{type} {value}' for type, value in arguments)})"
        if result == "void":
            self.do(call)
            return ""
        return self.op(call)

    # -- threads --------------------------------------------------------------------------------------------------

    def carry(self) -> str:
        """CC.CF."""
        return self.op(f"load i1, ptr {self._carry_slot()}")

    def set_carry(self, value: str) -> None:
        """Set CC.CF."""
        self.do(f"store i1 {value}, ptr {self._carry_slot()}")

    def _carry_slot(self) -> str:
        if not self._carry:
            self._carry = self.slot("i1", name="carry")
        return self._carry

    def fail(self, result: int) -> None:
        """End the block with an error; the executor does it."""
        self.intrinsic(
            "hcq_cuda_fail", "void", ("ptr", self.context.block(self)), ("i32", self.context.linear(self)),
            ("i32", str(int(result))), ("i32", str(self.line)), ("i64", "0"),
        )  # fmt: skip
        self.end("unreachable")

    def suspend(self, op: Op, *operands: tuple[int, str, str], mask: str | None = None) -> None:
        """Ask the executor for an operation. `operands`: (offset in `Thread`, LLVM type, value)."""
        if not self.context.suspends:
            self.refuse("a barrier or an operation of a warp in a function that is called by address or calls itself")
        for offset, type, value in ((int(Thread.op), "i32", str(int(op))), *operands):
            self.do(f"store {type} {value}, ptr {self.field(offset)}")
        if mask is not None:
            self.do(f"store i32 {mask}, ptr {self.field(Thread.mask)}")
        self.context.suspend(self)

    def answer(self, number: int = 0) -> str:
        """What the executor answered, of 64 bits."""
        return self.op(f"load i64, ptr {self.field(Thread.r + 8 * number)}")

    def field(self, offset: int) -> str:
        """Pointer to a field of the `Thread`."""
        return self.op(f"getelementptr i8, ptr {self.context.thread(self)}, i64 {int(offset)}")

    def yield_thread(self) -> None:
        """Let others go on."""
        self.suspend(Op.yielded)

    # -- errors ---------------------------------------------------------------------------------------------------

    def refuse(self, why: str) -> NoReturn:
        """What is said here is not run."""
        raise Unsupported(why, self.line)

    def wrong(self, why: str) -> NoReturn:
        """What is said here is not PTX."""
        raise PtxError(why, self.line)

    # -- operands -------------------------------------------------------------------------------------------------

    def read(self, operand: Operand, type: str) -> str:
        """The operand as a value of `llvm(type)`."""
        if isinstance(operand, Register):
            return self.convert(self.whole(operand), self.stored(operand), llvm(type), signed(type))
        if isinstance(operand, Immediate):
            return constant(operand, type)
        if isinstance(operand, Special):
            value, natural = self.context.special(self, operand.name)
            return self.convert(value, natural, llvm(type), False)
        if isinstance(operand, Not):
            return self.op(f"xor i1 {self.read(operand.operand, 'pred')}, true")
        if isinstance(operand, Symbol):
            return self.convert(self.here().symbol_value(self, operand), "i64", llvm(type), False)
        return self.wrong(f"expected a register or a constant, found {_kind(operand)}")

    def whole(self, register: Register) -> str:
        """A register's value, of the type that it is stored as."""
        slot, stored = self.here().register(register)
        value = self.op(f"load {stored}, ptr {slot}")
        return canonical(self, value) if self.unsettled(register) else value

    def read_number(self, operand: Operand, type: str) -> str:
        """As `read`, for what doesn't see a NaN's bits: it need not be the one that `read` would give."""
        if type == "f32" and isinstance(operand, Register) and self.unsettled(operand):
            slot, stored = self.here().register(operand)
            return self.op(f"load {stored}, ptr {slot}")
        return self.read(operand, type)

    def unsettled(self, operand: Operand) -> bool:
        """Whether it is a register of f32 whose NaNs get their bits when it is read (nans.py)."""
        return isinstance(operand, Register) and operand.name in self.here().unsettled

    def write(self, operand: Operand, value: str, type: str) -> None:
        """Set the operand from a value of `llvm(type)`; a wider register gets it extended as the type says."""
        if isinstance(operand, Sink):
            return
        if not isinstance(operand, Register):
            self.wrong(f"expected a register as destination, found {_kind(operand)}")
        slot, stored = self.here().register(operand)
        self.do(f"store {stored} {self.convert(value, llvm(type), stored, signed(type))}, ptr {slot}")

    def convert(self, value: str, have: str, want: str, sign: bool) -> str:
        """The bits of a value in another type; wider ones get zeros or the sign, narrower ones lose the upper bits."""
        if have == want:
            return value
        if have in ("float", "double"):
            whole = f"i{bits_of(have)}"
            value, have = self.op(f"bitcast {have} {value} to {whole}"), whole
        bits, wanted = bits_of(have), bits_of(want)
        if bits < wanted:
            value = self.op(f"{'sext' if sign else 'zext'} {have} {value} to i{wanted}")
        elif bits > wanted:
            value = self.op(f"trunc {have} {value} to i{wanted}")
        return self.op(f"bitcast i{wanted} {value} to {want}") if want in ("float", "double") else value

    def stored(self, operand: Operand) -> str:
        """LLVM's type of the register that the operand is, `i<width>` of anything else unknown: empty."""
        return self.here().register(operand)[1] if isinstance(operand, Register) else ""

    def operands(self, instruction: Instruction, *numbers: int) -> tuple[Operand, ...]:
        """The operands, of which there must be one of these numbers."""
        if len(instruction.operands) not in numbers:
            wanted = " or ".join(str(n) for n in numbers)
            self.wrong(f"{instruction.name} takes {wanted} operands, found {len(instruction.operands)}")
        return instruction.operands

    # -- bodies ---------------------------------------------------------------------------------------------------

    def body(self, statements: list[Instruction | Label]) -> None:
        """Write all statements of the current frame's function."""
        for each in statements:
            if isinstance(each, Label):
                self.place(self.here().label(each.name))
                self.line = each.line
            else:
                self.instruction(each)

    def instruction(self, instruction: Instruction) -> None:
        """Write one instruction, under its guard."""
        self.line = instruction.line
        translation = registry.find(instruction)
        if translation is None:
            self._unknown(instruction)
        if instruction.guard is None or instruction.opcode == "bra":
            self._translate(translation, instruction)
            return
        if self.lanes is not None and instruction.opcode in LANES:
            self._taking_part(self.lanes, translation, instruction, instruction.guard)
            return
        yes, after = self.label("do"), self.label("next")
        self.choose(self.read(instruction.guard, "pred"), yes, after)
        self.place(yes)
        self._translate(translation, instruction)
        self.place(after)

    def _taking_part(
        self, lanes: Lanes, translation: registry.Translation, instruction: Instruction, guard: Register | Not
    ) -> None:
        """An operation that all threads come to; those whose guard doesn't hold give nothing and keep what they had."""
        lanes.active = self.read(guard, "pred")
        first = instruction.operands[0]
        targets = (first.first, first.second) if isinstance(first, Pair) else (first,)
        kept = []
        for each in targets:
            if isinstance(each, Register):
                slot, stored = self.here().register(each)
                kept.append((slot, stored, self.op(f"load {stored}, ptr {slot}")))
        self._translate(translation, instruction)
        for slot, stored, old in kept:
            new = self.op(f"load {stored}, ptr {slot}")
            chosen = self.op(f"select i1 {lanes.active}, {stored} {new}, {stored} {old}")
            self.do(f"store {stored} {chosen}, ptr {slot}")
        lanes.active = ""

    def _translate(self, translation: registry.Translation, instruction: Instruction) -> None:
        if self.unit.options.check:
            checks.instrument(self, instruction)
        translation(self, instruction)
        for modifier in instruction.modifiers:
            if not modifiers.known(modifier):
                self.wrong(f"{instruction.name}: .{modifier} is no modifier of PTX")
        if self.unit.options.check:
            checks.conclude(self, instruction)

    def _unknown(self, instruction: Instruction) -> NoReturn:
        if registry.known(instruction.opcode):
            self.refuse(f"{instruction.name} is not run here with these types")
        self.refuse(f"{instruction.name} is not run here")

    def here(self) -> Frame:
        """The frame that is written now."""
        assert self.frame is not None
        return self.frame


def constant(immediate: Immediate, type: str) -> str:
    """A constant as LLVM writes a value of `llvm(type)`."""
    wanted = llvm(type)
    if wanted in ("float", "double"):
        return _float_constant(immediate, wanted)
    bits = immediate.bits if immediate.width else int(immediate.value)
    if immediate.width == 64 and width(type) == 32 and isinstance(immediate.value, float):
        bits = int(_as_float(immediate.value))
    if type == "pred":
        return "true" if bits else "false"
    return str(bits & ((1 << width(type)) - 1))


def _float_constant(immediate: Immediate, wanted: str) -> str:
    if not immediate.width:
        bits = int(immediate.value)
        if wanted == "float":
            return f"bitcast (i32 {struct.unpack('<I', struct.pack('<f', float(bits)))[0]} to float)"
        return f"bitcast (i64 {struct.unpack('<Q', struct.pack('<d', float(bits)))[0]} to double)"
    if wanted == "double":
        if immediate.width == 32:
            return f"bitcast (i64 {struct.unpack('<Q', struct.pack('<d', immediate.value))[0]} to double)"
        return f"bitcast (i64 {immediate.bits} to double)"
    if immediate.width == 32:
        return f"bitcast (i32 {immediate.bits} to float)"
    return f"bitcast (i32 {_as_float(float(immediate.value))} to float)"


def _as_float(value: float) -> int:
    """Bits of the float nearest to a double."""
    with np.errstate(over="ignore"):
        return int(np.float32(value).view(np.uint32))


def quoted(name: str) -> str:
    """A name as LLVM takes it."""
    return name if re.fullmatch(r"[A-Za-z0-9_.$]+", name) else f'"{name}"'


def _kind(operand: Operand) -> str:
    return {"Address": "an address", "Vector": "a vector", "Sink": "'_'", "Symbol": "a symbol"}.get(
        type(operand).__name__, f"a {type(operand).__name__.lower()}"
    )
