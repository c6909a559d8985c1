"""Integer arithmetic: add, sub, mul, mad, carries, div, rem, min, max, abs, neg, sad."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.lower.opcodes.memory import type_of
from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.lower.types import llvm, signed, width
from hcq.cudacpu.ptx.nodes import Instruction

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter

_INTEGERS = ("u16", "u32", "u64", "s16", "s32", "s64")


@translates("add", "sub", types=(*_INTEGERS, "b32", "b64"))
def add(e: Emitter, i: Instruction) -> None:
    d, a, b = e.operands(i, 3)
    type = type_of(e, i)
    x, y = e.read(a, type), e.read(b, type)
    t = llvm(type)
    if i.has("cc"):
        carry_out(e, i, d, x, y, None, type)
    elif i.has("sat"):
        e.write(d, e.intrinsic(f"llvm.s{i.opcode}.sat.{t}", t, (t, x), (t, y)), type)
    else:
        e.write(d, e.op(f"{i.opcode} {t} {x}, {y}"), type)


@translates("addc", "subc")
def addc(e: Emitter, i: Instruction) -> None:
    d, a, b = e.operands(i, 3)
    type = type_of(e, i)
    carry_out(e, i, d, e.read(a, type), e.read(b, type), e.carry(), type)


def carry_out(e: Emitter, i: Instruction, d: object, x: str, y: str, carry: str | None, type: str) -> None:
    """d = x +- y +- carry; CC.CF is set where the instruction says so. After a subtraction it is the borrow."""
    t = llvm(type)
    wider = f"i{width(type) + 8}"
    kind = "sub" if i.opcode.startswith("sub") else "add"
    wx, wy = e.op(f"zext {t} {x} to {wider}"), e.op(f"zext {t} {y} to {wider}")
    total = e.op(f"{kind} {wider} {wx}, {wy}")
    if carry is not None:
        total = e.op(f"{kind} {wider} {total}, {e.op(f'zext i1 {carry} to {wider}')}")
    if i.has("cc"):
        e.set_carry(e.op(f"trunc {wider} {e.op(f'lshr {wider} {total}, {width(type)}')} to i1"))
    e.write(d, e.op(f"trunc {wider} {total} to {t}"), type)  # type: ignore[arg-type]


@translates("mul", types=_INTEGERS)
def mul(e: Emitter, i: Instruction) -> None:
    d, a, b = e.operands(i, 3)
    type = type_of(e, i)
    value, result = product(e, i, e.read(a, type), e.read(b, type), type)
    e.write(d, value, result)


@translates("mad", types=_INTEGERS)
def mad(e: Emitter, i: Instruction) -> None:
    d, a, b, c = e.operands(i, 4)
    type = type_of(e, i)
    value, result = product(e, i, e.read(a, type), e.read(b, type), type)
    t, addend = llvm(result), e.read(c, result)
    if i.has("cc"):
        carry_out(e, i, d, value, addend, None, result)
    elif i.has("sat"):
        e.write(d, e.intrinsic(f"llvm.sadd.sat.{t}", t, (t, value), (t, addend)), result)
    else:
        e.write(d, e.op(f"add {t} {value}, {addend}"), result)


@translates("madc")
def madc(e: Emitter, i: Instruction) -> None:
    d, a, b, c = e.operands(i, 4)
    type = type_of(e, i)
    value, result = product(e, i, e.read(a, type), e.read(b, type), type)
    carry_out(e, i, d, value, e.read(c, result), e.carry(), result)


def product(e: Emitter, i: Instruction, x: str, y: str, type: str) -> tuple[str, str]:
    """The part of x * y that lo, hi or wide names, and its type."""
    t, bits = llvm(type), width(type)
    if not i.has("hi", "wide"):
        return e.op(f"mul {t} {x}, {y}"), type
    extend, wider = "sext" if signed(type) else "zext", f"i{2 * bits}"
    whole = e.op(
        f"mul {'nsw' if signed(type) else 'nuw'} {wider} {e.op(f'{extend} {t} {x} to {wider}')},"
        f" {e.op(f'{extend} {t} {y} to {wider}')}"
    )
    if i.has("wide"):
        return whole, f"{type[0]}{2 * bits}"
    return e.op(f"trunc {wider} {e.op(f'lshr {wider} {whole}, {bits}')} to {t}"), type
