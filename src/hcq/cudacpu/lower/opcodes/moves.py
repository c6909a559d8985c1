"""mov, setp, set, selp, slct of integers and bits; packing and unpacking of vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.lower.opcodes.memory import type_of
from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.lower.types import is_type, llvm, signed, width
from hcq.cudacpu.ptx.nodes import Instruction, Operand, Pair, Register, Sink, Symbol, Vector

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter

_INTEGERS = ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64")
_ONES = {"f32": "1.0", "f16": "15360", "bf16": "16256"}
_COMPARISONS = {"eq": "eq", "ne": "ne", "lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}


@translates("mov")
def mov(e: Emitter, i: Instruction) -> None:
    d, a = e.operands(i, 2)
    type = type_of(e, i)
    if isinstance(d, Vector) and isinstance(a, Vector):
        values = [e.read(each, type) for each in a.elements]
        for part, value in zip(d.elements, values, strict=False):
            e.write(part, value, type)
    elif isinstance(d, Vector):
        unpack(e, d, e.read(a, f"b{width(type)}"), width(type))
    elif isinstance(a, Vector):
        e.write(d, pack(e, a, width(type)), f"b{width(type)}")
    else:
        stored = e.stored(d)
        if isinstance(a, Register) and stored == e.stored(a):
            value = e.read_number(a, "f32") if e.unsettled(d) else e.whole(a)
            e.do(f"store {stored} {value}, ptr {e.here().register(d)[0]}")  # type: ignore[arg-type]
            return
        if isinstance(a, Symbol) and width(type) < 32:
            e.wrong(f"the address of {a.name} doesn't fit {type}")
        e.write(d, e.read(a, type), type)


def unpack(e: Emitter, parts: Vector, value: str, bits: int) -> None:
    """Set a vector's elements from the parts of a value, the lowest first."""
    each = bits // len(parts.elements)
    for n, part in enumerate(parts.elements):
        if isinstance(part, Sink):
            continue
        shifted = e.op(f"lshr i{bits} {value}, {n * each}") if n else value
        e.write(part, e.op(f"trunc i{bits} {shifted} to i{each}"), f"b{each}")


def pack(e: Emitter, parts: Vector, bits: int) -> str:
    """One value of the vector's elements, the first lowest."""
    each = bits // len(parts.elements)
    value = ""
    for n, part in enumerate(parts.elements):
        wide = e.op(f"zext i{each} {e.read(part, f'b{each}')} to i{bits}")
        if n:
            wide = e.op(f"shl i{bits} {wide}, {n * each}")
        value = e.op(f"or i{bits} {value}, {wide}") if value else wide
    return value


@translates("setp", types=_INTEGERS)
def setp(e: Emitter, i: Instruction) -> None:
    d, a, b, *c = e.operands(i, 3, 4)
    write_predicates(e, i, d, compare(e, i, a, b, type_of(e, i)), c)


def write_predicates(e: Emitter, i: Instruction, d: Operand, result: str, c: list[Operand]) -> None:
    """Set p (and q, from the negated comparison) after the boolean operation that the modifiers name, if any."""
    negated = e.op(f"xor i1 {result}, true") if isinstance(d, Pair) else ""
    if isinstance(d, Pair):
        e.write(d.first, combined(e, i, result, c), "pred")
        e.write(d.second, combined(e, i, negated, c), "pred")
    else:
        e.write(d, combined(e, i, result, c), "pred")


def combined(e: Emitter, i: Instruction, result: str, c: list[Operand]) -> str:
    """The comparison's result with predicate c, by and, or, xor."""
    if not c:
        return result
    operation = next((m for m in i.modifiers if m in ("and", "or", "xor")), None)
    if operation is None:
        e.wrong(f"{i.name} names no operation for its last operand")
    return e.op(f"{operation} i1 {result}, {e.read(c[0], 'pred')}")


@translates("set", types=_INTEGERS)
def set_(e: Emitter, i: Instruction) -> None:
    d, a, b, *c = e.operands(i, 3, 4)
    to, source = [m for m in i.modifiers if is_type(m)]
    e.write(d, truth(e, combined(e, i, compare(e, i, a, b, source), c), to), to)


def truth(e: Emitter, holds: str, to: str) -> str:
    """What `set` gives: 1.0 of a float type, or all bits, where the comparison holds, else 0."""
    if to in _ONES:
        return e.op(f"select i1 {holds}, {llvm(to)} {_ONES[to]}, {llvm(to)} {'0.0' if to == 'f32' else '0'}")
    return e.op(f"sext i1 {holds} to {llvm(to)}")


def compare(e: Emitter, i: Instruction, a: Operand, b: Operand, type: str) -> str:
    """An integer comparison as i1."""
    name = i.modifiers[0]
    condition = _COMPARISONS.get(name)
    if condition is None:
        if name not in ("lt", "le", "gt", "ge"):
            e.wrong(f"{name!r} is no comparison of integers")
        condition = ("s" if signed(type) else "u") + name
    return e.op(f"icmp {condition} {llvm(type)} {e.read(a, type)}, {e.read(b, type)}")


@translates("selp")
def selp(e: Emitter, i: Instruction) -> None:
    d, a, b, p = e.operands(i, 4)
    type = type_of(e, i)
    if llvm(type) != e.stored(d) and e.stored(d) in ("float", "double") and width(type) in (32, 64):
        type = f"f{width(type)}"  # the register's own type: no bitcasts
    t = llvm(type)
    e.write(d, e.op(f"select i1 {e.read(p, 'pred')}, {t} {e.read(a, type)}, {t} {e.read(b, type)}"), type)


@translates("slct")
def slct(e: Emitter, i: Instruction) -> None:
    d, a, b, c = e.operands(i, 4)
    type, selector = [m for m in i.modifiers if is_type(m)]
    t = llvm(type)
    if selector == "f32":
        condition = e.op(f"fcmp oge float {e.read(c, 'f32')}, 0.0")
        if i.has("ftz"):  # a negative denormal counts as -0
            condition = e.op(f"fcmp ogt float {e.read(c, 'f32')}, {_LARGEST_DENORMAL}")
    else:
        condition = e.op(f"icmp sge i32 {e.read(c, 's32')}, 0")
    e.write(d, e.op(f"select i1 {condition}, {t} {e.read(a, type)}, {t} {e.read(b, type)}"), type)


_LARGEST_DENORMAL = "bitcast (i32 -2139095040 to float)"  # 0x80800000, the first that is none
