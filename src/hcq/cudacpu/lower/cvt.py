"""The opcode cvt (PTX ISA 9.7.9.21, 9.7.9.22): one value, two values into a packed one, 8-bit floats, cvt.pack.

What does not live here: how one value is converted (convert.py). Not run, and refused by name: stochastic rounding
(.rs), 4-bit and 6-bit floats, ue8m0.
"""

from __future__ import annotations

from hcq.cudacpu.lower.convert import FLOATS, INTEGERS, MODES, WHOLE, eighth, of_integer, to_float, to_integer
from hcq.cudacpu.lower.emitter import Emitter
from hcq.cudacpu.lower.floats import HALVES, join, split
from hcq.cudacpu.lower.helpers import Code, intrinsic
from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.lower.rounding import FORMATS, narrow
from hcq.cudacpu.lower.types import is_type
from hcq.cudacpu.ptx.nodes import Instruction, Register

FLAGS = frozenset((*MODES, "rna", *WHOLE, "ftz", "sat", "relu", "satfinite"))
EIGHTS = {"e4m3x2": "e4m3", "e5m2x2": "e5m2"}


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
    elif to in EIGHTS and source in ("f32", "f16x2"):
        to_eights(e, instruction, to, source, flags)
    elif to == "f16x2" and source in EIGHTS:
        destination, a = e.operands(instruction, 2)
        eights = _bytes(e, e.read(a, source))
        e.write(destination, join(e, *(_of_eight(e, each, EIGHTS[source], flags) for each in eights)), to)
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


def to_eights(e: Emitter, instruction: Instruction, to: str, source: str, flags: frozenset[str]) -> None:
    """Two floats of 8 bits from two f32 (the first one is the upper) or from f16x2."""
    if source == "f32":
        destination, high, low = e.operands(instruction, 3)
        values = [e.read(each, source) for each in (low, high)]
        kind = "f32"
    else:
        destination, a = e.operands(instruction, 2)
        values, kind = list(split(e, e.read(a, source))), "f16"
    found = []
    for each in values:
        wide = to_float(e, each, kind, "f64", flags & {"relu"})
        narrowed = narrow(e, wide, FORMATS[EIGHTS[to]], "rn", satfinite=True)
        found.append(e.op(f"zext i8 {narrowed} to i16"))
    e.write(destination, e.op(f"or i16 {found[0]}, {e.op(f'shl i16 {found[1]}, 8')}"), to)


def _bytes(e: Emitter, value: str) -> tuple[str, str]:
    """The lower and the upper byte of an i16, as i16."""
    return e.op(f"and i16 {value}, 255"), e.op(f"lshr i16 {value}, 8")


def _of_eight(code: Code, value: str, kind: str, flags: frozenset[str]) -> str:
    """The f16 (i16) with the value of an 8-bit float in the lower bits of an i16. All are exact."""
    return to_float(code, eighth(code, value, kind), "f32", "f16", flags & {"relu"})


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
