"""div, rem, min, max, abs, neg, sad, mul24, mad24 of integers, and packed pairs of 16 bits.

Division by zero gives all bits set, for quotient and remainder, as NVIDIA's processors do; the most negative number by
-1 gives itself, remainder 0.

Where a loop over threads is to become vectors, 32 bits are divided as doubles, since processors have no vectors of
integer divisions: a * (1 + 2**-50) / b, cut off, is a / b cut off. It is off by less than 2**-49 of itself, so by less
than 2**-17 / b, always upwards, and what is missing to the next integer is 1 / b at least.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.lower.opcodes.memory import type_of
from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.lower.types import llvm, signed
from hcq.cudacpu.ptx.nodes import Immediate, Instruction, Operand

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter

_INTEGERS = ("u16", "u32", "u64", "s16", "s32", "s64")
_PAIRS = ("u16x2", "s16x2")
_ABOVE_ONE = "0x3FF0000000000004"  # 1 + 2**-50


@translates("div", "rem", types=_INTEGERS)
def div(e: Emitter, i: Instruction) -> None:
    d, a, b = e.operands(i, 3)
    type = type_of(e, i)
    t, x, y = llvm(type), e.read(a, type), e.read(b, type)
    zero = e.op(f"icmp eq {t} {y}, 0")
    if not signed(type):
        by = e.op(f"select i1 {zero}, {t} 1, {t} {y}")
        result = _divided(e, i, b, t, x, by)
    else:
        minus = e.op(f"icmp eq {t} {y}, -1")
        either = e.op(f"or i1 {zero}, {minus}")
        by = e.op(f"select i1 {either}, {t} 1, {t} {y}")
        result = _divided(e, i, b, t, x, by)
        if i.opcode == "div":
            result = e.op(f"select i1 {minus}, {t} {e.op(f'sub {t} 0, {x}')}, {t} {result}")
    e.write(d, e.op(f"select i1 {zero}, {t} -1, {t} {result}"), type)


def _divided(e: Emitter, i: Instruction, divisor: Operand, t: str, x: str, by: str) -> str:
    kind = "s" if signed(type_of(e, i)) else "u"
    if t != "i32" or not e.context.together or isinstance(divisor, Immediate):  # a constant becomes a multiplication
        return e.op(f"{kind}{i.opcode} {t} {x}, {by}")
    above, below = (e.op(f"{kind}itofp i32 {each} to double") for each in (x, by))
    inverse = e.op(f"fdiv double {_ABOVE_ONE}, {below}")  # the same for all where the divisor is
    quotient = e.op(f"fpto{kind}i double {e.op(f'fmul double {above}, {inverse}')} to i32")
    if i.opcode == "div":
        return quotient
    return e.op(f"sub i32 {x}, {e.op(f'mul i32 {quotient}, {by}')}")


@translates("min", "max", types=_INTEGERS)
def minimum(e: Emitter, i: Instruction) -> None:
    d, a, b = e.operands(i, 3)
    type = type_of(e, i)
    t = llvm(type)
    name = ("s" if signed(type) else "u") + i.opcode
    value = e.intrinsic(f"llvm.{name}.{t}", t, (t, e.read(a, type)), (t, e.read(b, type)))
    if i.has("relu"):
        value = e.intrinsic(f"llvm.smax.{t}", t, (t, value), (t, "0"))
    e.write(d, value, type)


@translates("add", "sub", "min", "max", types=_PAIRS)
def pairs(e: Emitter, i: Instruction) -> None:
    d, a, b = e.operands(i, 3)
    type, t = type_of(e, i), "<2 x i16>"
    x, y = (e.op(f"bitcast i32 {e.read(each, 'b32')} to {t}") for each in (a, b))
    if i.opcode in ("add", "sub"):
        value = e.op(f"{i.opcode} {t} {x}, {y}")
    else:
        value = e.intrinsic(f"llvm.{type[0]}{i.opcode}.v2i16", t, (t, x), (t, y))
    if i.has("relu"):
        value = e.intrinsic("llvm.smax.v2i16", t, (t, value), (t, "zeroinitializer"))
    e.write(d, e.op(f"bitcast {t} {value} to i32"), "b32")


@translates("abs", "neg", types=_INTEGERS)
def absolute(e: Emitter, i: Instruction) -> None:
    d, a = e.operands(i, 2)
    type = type_of(e, i)
    t, x = llvm(type), e.read(a, type)
    if i.opcode == "neg":
        e.write(d, e.op(f"sub {t} 0, {x}"), type)
    else:
        e.write(d, e.intrinsic(f"llvm.abs.{t}", t, (t, x), ("i1", "false")), type)


@translates("sad")
def sad(e: Emitter, i: Instruction) -> None:
    d, a, b, c = e.operands(i, 4)
    type = type_of(e, i)
    t, x, y = llvm(type), e.read(a, type), e.read(b, type)
    less = e.op(f"icmp {'s' if signed(type) else 'u'}lt {t} {x}, {y}")
    difference = e.op(f"select i1 {less}, {t} {e.op(f'sub {t} {y}, {x}')}, {t} {e.op(f'sub {t} {x}, {y}')}")
    e.write(d, e.op(f"add {t} {e.read(c, type)}, {difference}"), type)


@translates("mul24", "mad24")
def mul24(e: Emitter, i: Instruction) -> None:
    d, a, b, *c = e.operands(i, 3 if i.opcode == "mul24" else 4)
    type = type_of(e, i)
    x, y = (_of_24_bits(e, e.read(each, type), type) for each in (a, b))
    whole = e.op(f"mul i64 {x}, {y}")
    if i.has("hi"):
        whole = e.op(f"{'ashr' if signed(type) else 'lshr'} i64 {whole}, 16")
    value = e.op(f"trunc i64 {whole} to i32")
    if c and i.has("sat"):
        value = e.intrinsic("llvm.sadd.sat.i32", "i32", ("i32", value), ("i32", e.read(c[0], type)))
    elif c:
        value = e.op(f"add i32 {value}, {e.read(c[0], type)}")
    e.write(d, value, type)


def _of_24_bits(e: Emitter, value: str, type: str) -> str:
    up = e.op(f"shl i32 {value}, 8")
    down = e.op(f"{'ashr' if signed(type) else 'lshr'} i32 {up}, 8")
    return e.op(f"{'sext' if signed(type) else 'zext'} i32 {down} to i64")
