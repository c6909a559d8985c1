"""The opcode cvt (PTX ISA 9.7.9.21, 9.7.9.22): one value, two into a packed one, floats of 8 bits and fewer, cvt.pack.

What does not live here: how one value is converted (convert.py). Not run, and refused by name: stochastic rounding
(.rs), ue5m3.
"""

from __future__ import annotations

from hcq.cudacpu.lower.emitter import Emitter
from hcq.cudacpu.lower.helpers import Code, intrinsic
from hcq.cudacpu.lower.opcodes.floats import HALVES, join, split
from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.lower.types import is_type
from hcq.cudacpu.lower.values.arithmetic import widen
from hcq.cudacpu.lower.values.convert import (
    FLOATS,
    INTEGERS,
    MODES,
    WHOLE,
    of_integer,
    short_float,
    to_float,
    to_integer,
)
from hcq.cudacpu.lower.values.rounding import BF16, F32, FORMATS, narrow
from hcq.cudacpu.ptx.nodes import Instruction, Operand, Register

FLAGS = frozenset((*MODES, "rna", *WHOLE, "ftz", "sat", "relu", "satfinite"))
SHORT = {"e4m3x2": "e4m3", "e5m2x2": "e5m2", "e3m2x2": "e3m2", "e2m3x2": "e2m3", "e2m1x2": "e2m1"}


@translates("cvt")
def cvt(e: Emitter, instruction: Instruction) -> None:
    given = instruction.modifiers
    if "pack" in given:
        cvt_pack(e, instruction)
        return
    types = [each for each in given if is_type(each)]
    flags = frozenset(given) - set(types)
    for each in flags - FLAGS:
        e.refuse(f"{instruction.name}: .{each} is not run here")
    if len(types) != 2:
        e.refuse(f"{instruction.name} is not run here")
    to, source = types
    if to in HALVES and to.endswith("x2") and source == "f32":
        destination, high, low = e.operands(instruction, 3)
        halves = [to_float(e, e.read(each, source), source, HALVES[to], flags) for each in (low, high)]
        e.write(destination, join(e, *halves), to)
    elif to in SHORT and source in ("f32", "f16x2", "bf16x2"):
        to_short(e, instruction, to, source, flags)
    elif to == "f16x2" and source in SHORT:
        destination, a = e.operands(instruction, 2)
        e.write(destination, join(e, *(_of_short(e, each, SHORT[source], flags) for each in _two(e, a, source))), to)
    elif to == "ue8m0x2" and source in ("f32", "bf16x2"):
        to_scales(e, instruction, source, flags)
    elif to == "bf16x2" and source == "ue8m0x2":
        of_scales(e, instruction)
    elif to in (*INTEGERS, *FLOATS, "tf32") and source in (*INTEGERS, *FLOATS):
        destination, a = e.operands(instruction, 2)
        value = e.read_number(a, source)
        if source not in FLOATS:
            result = of_integer(e, value, source, to, flags)
        elif to in INTEGERS:
            result = to_integer(e, value, source, to, flags)
        else:
            result = to_float(e, value, source, to, flags)
        if to in INTEGERS and isinstance(destination, Register) and e.stored(destination) in ("float", "double"):
            e.wrong(f"{instruction.name} wants a register of integers as destination")
        e.write(destination, result, to)
    else:
        e.refuse(f"{instruction.name} is not run here")


def to_short(e: Emitter, instruction: Instruction, to: str, source: str, flags: frozenset[str]) -> None:
    """Two floats of 8, 6 or 4 bits from two f32 (the first one is the upper) or from f16x2 or bf16x2."""
    form, mode = FORMATS[SHORT[to]], "rz" if "rz" in flags else "rn"
    found = []
    for each in _sources(e, instruction, source):
        wide = to_float(e, each, HALVES.get(source, "f32"), "f64", flags & {"relu"})
        narrowed = narrow(e, wide, form, mode, satfinite=True)
        found.append(e.op(f"zext i{form.bits} {narrowed} to i16"))
    _write_two(e, instruction, to, found, _spacing(to))


def _sources(e: Emitter, instruction: Instruction, source: str) -> list[str]:
    """The two values, the lower one first: floats, or halves as they are."""
    if source == "f32":
        _, high, low = e.operands(instruction, 3)
        return [e.read(each, source) for each in (low, high)]
    _, a = e.operands(instruction, 2)
    return list(split(e, e.read(a, source)))


def _spacing(kind: str) -> int:
    """Bits from one value to the next: those of 6 bits have a byte each."""
    return 4 if kind == "e2m1x2" else 8


def _write_two(e: Emitter, instruction: Instruction, to: str, parts: list[str], spacing: int) -> None:
    both = e.op(f"or i16 {parts[0]}, {e.op(f'shl i16 {parts[1]}, {spacing}')}")
    if to == "e2m1x2":
        both = e.op(f"trunc i16 {both} to i8")
    e.write(instruction.operands[0], both, to)


def _two(e: Emitter, operand: Operand, kind: str) -> tuple[str, str]:
    """The lower and the upper value of two packed ones, each in the lower bits of an i16."""
    value = e.read(operand, kind)
    if kind == "e2m1x2":
        value = e.op(f"zext i8 {value} to i16")
    spacing = _spacing(kind)
    return e.op(f"and i16 {value}, {(1 << spacing) - 1}"), e.op(f"lshr i16 {value}, {spacing}")


def _of_short(code: Code, value: str, kind: str, flags: frozenset[str]) -> str:
    """The f16 (i16) with the value of a shorter float in the lower bits of an i16. All are exact."""
    return to_float(code, short_float(code, value, kind), "f32", "f16", flags & {"relu"})


def to_scales(e: Emitter, instruction: Instruction, source: str, flags: frozenset[str]) -> None:
    """ue8m0x2: the powers of two next to two magnitudes, towards zero or upwards; the smallest is 2**-127."""
    found = []
    for each in _sources(e, instruction, source):
        number = each if source == "f32" else widen(e, "bf16", each)
        bits = e.op(f"and i32 {e.op(f'bitcast float {number} to i32')}, {(1 << 31) - 1}")
        exponent = e.op(f"lshr i32 {bits}, 23")
        if "rp" in flags:  # half of the least exponent is 2**-127
            rest = e.op(f"and i32 {bits}, {(1 << 23) - 1}")
            low = e.op(f"icmp eq i32 {exponent}, 0")
            bound = e.op(f"select i1 {low}, i32 {1 << 22}, i32 0")
            above = e.op(f"icmp ugt i32 {rest}, {bound}")
            exponent = e.op(f"add i32 {exponent}, {e.op(f'zext i1 {above} to i32')}")
        exponent = intrinsic(e, "umin", "i32", exponent, "254" if "satfinite" in flags else "255")
        nan = e.op(f"icmp ugt i32 {bits}, {F32.infinity}")
        exponent = e.op(f"select i1 {nan}, i32 255, i32 {exponent}")
        found.append(e.op(f"trunc i32 {exponent} to i16"))
    _write_two(e, instruction, "ue8m0x2", found, 8)


def of_scales(e: Emitter, instruction: Instruction) -> None:
    """bf16x2 of ue8m0x2: powers of two, or NaN."""
    destination, a = e.operands(instruction, 2)
    found = []
    for each in _two(e, a, "ue8m0x2"):
        nan, least = e.op(f"icmp eq i16 {each}, 255"), e.op(f"icmp eq i16 {each}, 0")
        half = e.op(f"select i1 {least}, i16 64, i16 {e.op(f'shl i16 {each}, 7')}")
        found.append(e.op(f"select i1 {nan}, i16 {BF16.nan}, i16 {half}"))
    e.write(destination, join(e, *found), "bf16x2")


def cvt_pack(e: Emitter, instruction: Instruction) -> None:
    """cvt.pack.sat: two integers clamped to a narrow type, side by side, below the lower bits of a third operand."""
    types = [each for each in instruction.modifiers if each not in ("pack", "sat")]
    if not 2 <= len(types) <= 3 or types[1] not in ("s32", "u32") or "sat" not in instruction.modifiers:
        e.refuse(f"{instruction.name} is not run here")
    to, source = types[:2]
    size = int(to[1:])
    if to not in tuple(f"{sign}{bits}" for sign in "us" for bits in (2, 4, 8, 16)):
        e.refuse(f"{instruction.name}: no .{to}")
    destination, a, b, *rest = e.operands(instruction, 3 if size == 16 else 4)
    low, high = (-(1 << (size - 1)), (1 << (size - 1)) - 1) if to[0] == "s" else (0, (1 << size) - 1)
    parts = []
    for each in (b, a):
        value = e.read(each, source)
        if source == "s32":
            value = intrinsic(e, "smax", "i32", value, str(low))
        value = intrinsic(e, "smin" if source == "s32" else "umin", "i32", value, str(high))
        parts.append(e.op(f"and i32 {value}, {(1 << size) - 1}"))
    result = e.op(f"or i32 {parts[0]}, {e.op(f'shl i32 {parts[1]}, {size}')}")
    if rest:
        above = e.op(f"shl i32 {e.read(rest[0], 'b32')}, {2 * size}")
        result = e.op(f"or i32 {result}, {above}")
    e.write(destination, result, "b32")
