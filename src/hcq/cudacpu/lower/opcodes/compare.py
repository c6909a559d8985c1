"""Floats compared and chosen: setp set testp min max, and what only touches signs: neg abs copysign.

PTX ISA 9.7.3 and 9.7.4 (min, max: -0 is below +0; one NaN gives the other operand, with .NaN a canonical NaN), 9.7.6
and 9.7.7 (set, setp). What does not live here: integers (moves.py, integers.py).
"""

from __future__ import annotations

from hcq.cudacpu.lower.emitter import Emitter
from hcq.cudacpu.lower.helpers import intrinsic
from hcq.cudacpu.lower.opcodes.floats import HALVES, WIDE, join, modifiers, split
from hcq.cudacpu.lower.opcodes.moves import combined, truth, write_predicates
from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.lower.types import is_type, llvm
from hcq.cudacpu.lower.values.arithmetic import IR, canonical, extreme, flushed, flushed_bits, shrink, widen
from hcq.cudacpu.ptx.nodes import Instruction, Pair

CONDITIONS = {
    **{each: f"o{each}" for each in ("eq", "lt", "le", "gt", "ge")},
    **{f"{each}u": f"u{each}" for each in ("eq", "lt", "le", "gt", "ge")},
    "ne": "one",
    "neu": "une",
    "num": "ord",
    "nan": "uno",
}
FLOATS = (*WIDE, *HALVES)


def _condition(e: Emitter, instruction: Instruction) -> str:
    name, *others = instruction.modifiers
    if name not in CONDITIONS:
        e.wrong(f"{name!r} is no comparison of floats")
    for each in others:
        if each not in ("and", "or", "xor", "ftz") and not is_type(each):
            e.refuse(f"{instruction.name}: .{each} is not run here")
    return CONDITIONS[name]


def _parts(e: Emitter, instruction: Instruction, kind: str, value: str) -> list[str]:
    """The operand as floats or doubles: two of a packed one."""
    ftz = instruction.has("ftz")
    if kind in WIDE:
        return [flushed(e, kind, value, ftz and kind == "f32")]
    halves = split(e, value) if kind.endswith("x2") else (value,)
    return [flushed(e, HALVES[kind], widen(e, HALVES[kind], each), ftz) for each in halves]


def _compared(e: Emitter, instruction: Instruction, kind: str) -> list[str]:
    """The comparison of operands 1 and 2 (i1), for each part."""
    condition = _condition(e, instruction)
    first, second = (_parts(e, instruction, kind, e.read_number(each, kind)) for each in instruction.operands[1:3])
    ir = "double" if kind == "f64" else "float"
    return [e.op(f"fcmp {condition} {ir} {a}, {b}") for a, b in zip(first, second, strict=True)]


@translates("setp", types=FLOATS)
def setp(e: Emitter, instruction: Instruction) -> None:
    destination, _, _, *rest = e.operands(instruction, 3, 4)
    kind = instruction.modifiers[-1]
    found = _compared(e, instruction, kind)
    if len(found) == 1:
        write_predicates(e, instruction, destination, found[0], rest)
        return
    if not isinstance(destination, Pair):
        e.wrong(f"{instruction.name} sets two predicates, p|q")
    results = [combined(e, instruction, each, rest) for each in found]
    e.write(destination.first, results[0], "pred")
    e.write(destination.second, results[1], "pred")


@translates("set", types=FLOATS)
def set_(e: Emitter, instruction: Instruction) -> None:
    destination, _, _, *rest = e.operands(instruction, 3, 4)
    types = [each for each in instruction.modifiers if is_type(each)]
    to, kind = types[0], types[-1]
    found = [combined(e, instruction, each, rest) for each in _compared(e, instruction, kind)]
    if len(found) == 2:
        half = HALVES.get(to, "s16")
        e.write(destination, join(e, *(truth(e, each, half) for each in found)), to)
    else:
        e.write(destination, truth(e, found[0], to), to)


@translates("testp", types=WIDE)
def testp(e: Emitter, instruction: Instruction) -> None:
    destination, a = e.operands(instruction, 2)
    kind, test = instruction.modifiers[-1], instruction.modifiers[0]
    modifiers(e, instruction, test)
    ir, value = IR[kind], e.read(a, kind)
    infinity, least = "0x7FF0000000000000", "0x3810000000000000" if kind == "f32" else "0x0010000000000000"
    magnitude = intrinsic(e, "fabs", kind, value)
    if test in ("normal", "subnormal"):
        tiny = e.op(f"fcmp olt {ir} {magnitude}, {least}")
        there = e.op(f"fcmp one {ir} {value}, 0.0")
        result = e.op(f"and i1 {tiny}, {there}")
        if test == "normal":
            finite = e.op(f"fcmp olt {ir} {magnitude}, {infinity}")
            result = e.op(f"and i1 {finite}, {e.op(f'xor i1 {result}, true')}")
    else:
        conditions = {"finite": "olt", "infinite": "oeq", "number": "ord", "notanumber": "uno"}
        if test not in conditions:
            e.refuse(f"{instruction.name}: .{test} is no test")
        result = e.op(f"fcmp {conditions[test]} {ir} {magnitude}, {infinity}")
    e.write(destination, result, "pred")


@translates("copysign", types=WIDE)
def copysign(e: Emitter, instruction: Instruction) -> None:
    destination, a, b = e.operands(instruction, 3)
    kind = instruction.modifiers[-1]
    modifiers(e, instruction)
    e.write(destination, intrinsic(e, "copysign", kind, e.read(b, kind), e.read(a, kind)), kind)


@translates("neg", "abs", types=FLOATS)
def sign(e: Emitter, instruction: Instruction) -> None:
    base, kind = instruction.opcode, instruction.modifiers[-1]
    flags = modifiers(e, instruction, "ftz")
    destination, a = e.operands(instruction, 2)
    value = e.read_number(a, kind) if e.unsettled(destination) else e.read(a, kind)
    if kind in WIDE:
        value = flushed(e, kind, value, bool(flags))
        result = e.op(f"fneg {IR[kind]} {value}") if base == "neg" else intrinsic(e, "fabs", kind, value)
    else:
        if flags:
            halves = [flushed_bits(e, each) for each in (split(e, value) if kind.endswith("x2") else (value,))]
            value = join(e, *halves) if kind.endswith("x2") else halves[0]
        packed = kind.endswith("x2")
        operation, mask = ("xor", 0x80008000) if base == "neg" else ("and", 0x7FFF7FFF)
        mask = mask if packed else mask & 0xFFFF
        result = e.op(f"{operation} {llvm(kind)} {value}, {mask}")
    e.write(destination, result, kind)


@translates("min", "max", types=FLOATS)
def extremes(e: Emitter, instruction: Instruction) -> None:
    kind = instruction.modifiers[-1]
    own = () if kind == "f64" else ("NaN", "xorsign", "abs")
    flags = modifiers(e, instruction, *own, *(("ftz",) if kind in ("f32", "f16", "f16x2") else ()))
    operands = e.operands(instruction, 3, *((4,) if kind == "f32" else ()))
    columns = [_parts(e, instruction, kind, e.read_number(each, kind)) for each in operands[1:]]
    results = [_extreme(e, instruction.opcode, kind, flags, list(row)) for row in zip(*columns, strict=True)]
    if kind in WIDE:
        settled = kind == "f64" or e.unsettled(operands[0])
        e.write(operands[0], results[0] if settled else canonical(e, results[0]), kind)
        return
    shrunk = [shrink(e, HALVES[kind], each) for each in results]
    e.write(operands[0], join(e, *shrunk) if len(shrunk) == 2 else shrunk[0], kind)


def _extreme(e: Emitter, base: str, kind: str, flags: frozenset[str], values: list[str]) -> str:
    """The least or largest of floats or doubles."""
    wide = "f64" if kind == "f64" else "f32"
    signs = values
    if "abs" in flags:
        values = [intrinsic(e, "fabs", wide, each) for each in values]
    result = values[0]
    for each in values[1:]:
        result = extreme(e, base, wide, result, each, "NaN" in flags)
    if "xorsign" in flags:
        bits = [e.op(f"bitcast float {each} to i32") for each in signs]
        sign = e.op(f"bitcast i32 {e.op(f'xor i32 {bits[0]}, {bits[1]}')} to float")
        result = intrinsic(e, "copysign", wide, result, sign)
    return result
