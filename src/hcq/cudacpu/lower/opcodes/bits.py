"""Operations on bits: logic, shifts, fields, counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.lower.opcodes.memory import type_of
from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.lower.types import llvm, signed, width
from hcq.cudacpu.ptx.nodes import Immediate, Instruction, Operand, Pair

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter


@translates("and", "or", "xor")
def logic(e: Emitter, i: Instruction) -> None:
    d, a, b = e.operands(i, 3)
    type = type_of(e, i)
    e.write(d, e.op(f"{i.opcode} {llvm(type)} {e.read(a, type)}, {e.read(b, type)}"), type)


@translates("not")
def invert(e: Emitter, i: Instruction) -> None:
    d, a = e.operands(i, 2)
    type = type_of(e, i)
    e.write(d, e.op(f"xor {llvm(type)} {e.read(a, type)}, -1"), type)


@translates("cnot")
def cnot(e: Emitter, i: Instruction) -> None:
    d, a = e.operands(i, 2)
    type = type_of(e, i)
    e.write(d, e.op(f"zext i1 {e.op(f'icmp eq {llvm(type)} {e.read(a, type)}, 0')} to {llvm(type)}"), type)


@translates("lop3")
def lop3(e: Emitter, i: Instruction) -> None:
    d, a, b, c, table, *q = e.operands(i, 5, 6)
    if not isinstance(table, Immediate):
        e.wrong("lop3 takes its table as a constant")
    values = [e.read(each, "b32") for each in (a, b, c)]
    inverted = [e.op(f"xor i32 {each}, -1") for each in values]
    result = "0"
    for n in range(8):
        if int(table.value) >> n & 1:
            x, y, z = (values[k] if n >> (2 - k) & 1 else inverted[k] for k in range(3))
            both = e.op(f"and i32 {y}, {z}")
            result = e.op(f"or i32 {result}, {e.op(f'and i32 {x}, {both}')}")
    if isinstance(d, Pair):
        e.write(d.first, result, "b32")
        some = e.op(f"icmp ne i32 {result}, 0")
        e.write(d.second, e.op(f"{i.modifiers[0]} i1 {some}, {e.read(q[0], 'pred')}"), "pred")
    else:
        e.write(d, result, "b32")


@translates("shl", "shr")
def shift(e: Emitter, i: Instruction) -> None:
    """Amounts above the width count as the width."""
    d, a, b = e.operands(i, 3)
    type = type_of(e, i)
    t, bits, x = llvm(type), width(type), e.read(a, type)
    kind = "shl" if i.opcode == "shl" else ("ashr" if signed(type) else "lshr")
    if isinstance(b, Immediate):
        amount = int(b.value) & 0xFFFFFFFF
        if amount < bits:
            e.write(d, e.op(f"{kind} {t} {x}, {amount}"), type)
        else:
            e.write(d, e.op(f"ashr {t} {x}, {bits - 1}") if kind == "ashr" else "0", type)
        return
    e.write(d, shifted(e, kind, t, x, e.read(b, "u32")), type)


def shifted(e: Emitter, kind: str, t: str, x: str, amount: str) -> str:
    """x shifted by an amount of 32 bits, which may be the width or more."""
    bits = int(t[1:])
    if kind == "ashr":
        last = e.intrinsic("llvm.umin.i32", "i32", ("i32", amount), ("i32", str(bits - 1)))
        return e.op(f"ashr {t} {x}, {e.convert(last, 'i32', t, False)}")
    inside = e.op(f"icmp ult i32 {amount}, {bits}")
    masked = e.convert(e.op(f"and i32 {amount}, {bits - 1}"), "i32", t, False)
    return e.op(f"select i1 {inside}, {t} {e.op(f'{kind} {t} {x}, {masked}')}, {t} 0")


@translates("shf")
def shf(e: Emitter, i: Instruction) -> None:
    d, a, b, c = e.operands(i, 4)
    low, high, amount = (e.read(each, "b32") for each in (a, b, c))
    left = i.has("l")
    arguments = (("i32", high), ("i32", low), ("i32", amount))
    value = e.intrinsic(f"llvm.fsh{'l' if left else 'r'}.i32", "i32", *arguments)
    if i.has("clamp"):
        over = e.op(f"icmp ugt i32 {amount}, 31")
        value = e.op(f"select i1 {over}, i32 {low if left else high}, i32 {value}")
    e.write(d, value, "b32")


@translates("bfe")
def bfe(e: Emitter, i: Instruction) -> None:
    d, a, b, c = e.operands(i, 4)
    type = type_of(e, i)
    t, bits, x = llvm(type), width(type), e.read(a, type)
    start, length = (e.op(f"and i32 {e.read(each, 'u32')}, 255") for each in (b, c))
    if not signed(type):
        e.write(d, e.op(f"and {t} {shifted(e, 'lshr', t, x, start)}, {_mask(e, t, length)}"), type)
        return
    moved = shifted(e, "ashr", t, x, start)
    kept = e.intrinsic("llvm.umin.i32", "i32", ("i32", length), ("i32", str(bits)))
    drop = e.convert(e.op(f"and i32 {e.op(f'sub i32 {bits}, {kept}')}, {bits - 1}"), "i32", t, False)
    value = e.op(f"ashr {t} {e.op(f'shl {t} {moved}, {drop}')}, {drop}")
    e.write(d, e.op(f"select i1 {e.op(f'icmp eq i32 {length}, 0')}, {t} 0, {t} {value}"), type)


@translates("bfi")
def bfi(e: Emitter, i: Instruction) -> None:
    d, a, b, c, length = e.operands(i, 5)
    type = type_of(e, i)
    t = llvm(type)
    start, count = (e.op(f"and i32 {e.read(each, 'u32')}, 255") for each in (c, length))
    mask = shifted(e, "shl", t, _mask(e, t, count), start)
    moved = e.op(f"and {t} {shifted(e, 'shl', t, e.read(a, type), start)}, {mask}")
    kept = e.op(f"and {t} {e.read(b, type)}, {e.op(f'xor {t} {mask}, -1')}")
    e.write(d, e.op(f"or {t} {kept}, {moved}"), type)


def _mask(e: Emitter, t: str, length: str) -> str:
    """So many bits from the lowest on."""
    return e.op(f"xor {t} {shifted(e, 'shl', t, '-1', length)}, -1")


@translates("bfind")
def bfind(e: Emitter, i: Instruction) -> None:
    d, a = e.operands(i, 2)
    type = type_of(e, i)
    t, bits, x = llvm(type), width(type), e.read(a, type)
    if signed(type):
        x = e.op(f"xor {t} {x}, {e.op(f'ashr {t} {x}, {bits - 1}')}")
    above = e.convert(e.intrinsic(f"llvm.ctlz.{t}", t, (t, x), ("i1", "false")), t, "i32", False)
    if i.has("shiftamt"):
        none = e.op(f"icmp eq {t} {x}, 0")
        e.write(d, e.op(f"select i1 {none}, i32 -1, i32 {above}"), "u32")
    else:
        e.write(d, e.op(f"sub i32 {bits - 1}, {above}"), "u32")


@translates("brev")
def brev(e: Emitter, i: Instruction) -> None:
    d, a = e.operands(i, 2)
    type = type_of(e, i)
    t = llvm(type)
    e.write(d, e.intrinsic(f"llvm.bitreverse.{t}", t, (t, e.read(a, type))), type)


@translates("clz", "popc")
def count(e: Emitter, i: Instruction) -> None:
    d, a = e.operands(i, 2)
    type = type_of(e, i)
    t, x = llvm(type), e.read(a, type)
    if i.opcode == "popc":
        value = e.intrinsic(f"llvm.ctpop.{t}", t, (t, x))
    else:
        value = e.intrinsic(f"llvm.ctlz.{t}", t, (t, x), ("i1", "false"))
    e.write(d, e.convert(value, t, "i32", False), "u32")


@translates("fns")
def fns(e: Emitter, i: Instruction) -> None:
    d, *operands = e.operands(i, 4)
    mask, start, offset = (e.read(each, "b32") for each in operands)
    e.declare("declare i32 @llvm.abs.i32(i32, i1)")
    e.helper("help.fns", _FNS)
    e.write(d, e.op(f"call i32 @help.fns(i32 {mask}, i32 {start}, i32 {offset})"), "b32")


@translates("szext")
def szext(e: Emitter, i: Instruction) -> None:
    d, a, b = e.operands(i, 3)
    type = type_of(e, i)
    x, length = e.read(a, type), _bounded(e, i, b)
    if not signed(type):
        e.write(d, e.op(f"and i32 {x}, {_mask(e, 'i32', length)}"), type)
        return
    drop = e.op(f"and i32 {e.op(f'sub i32 32, {length}')}, 31")
    value = e.op(f"ashr i32 {e.op(f'shl i32 {x}, {drop}')}, {drop}")
    e.write(d, e.op(f"select i1 {e.op(f'icmp eq i32 {length}, 0')}, i32 0, i32 {value}"), type)


@translates("bmsk")
def bmsk(e: Emitter, i: Instruction) -> None:
    d, a, b = e.operands(i, 3)
    start, length = (e.op(f"zext i32 {_bounded(e, i, each)} to i64") for each in (a, b))
    above = e.op(f"shl i64 1, {length}")
    mask = e.op(f"shl i64 {e.op(f'sub i64 {above}, 1')}, {start}")
    e.write(d, e.op(f"trunc i64 {mask} to i32"), "b32")


def _bounded(e: Emitter, i: Instruction, operand: Operand) -> str:
    value = e.read(operand, "u32")
    if i.has("clamp"):
        return e.intrinsic("llvm.umin.i32", "i32", ("i32", value), ("i32", "32"))
    return e.op(f"and i32 {value}, 31")


_FNS = """define internal i32 @help.fns(i32 %mask, i32 %base, i32 %offset) #0 {
entry:
  %here = icmp eq i32 %offset, 0
  %forward = icmp sgt i32 %offset, 0
  %step = select i1 %forward, i32 1, i32 -1
  %size = call i32 @llvm.abs.i32(i32 %offset, i1 false)
  %less = sub i32 %size, 1
  %first = select i1 %here, i32 0, i32 %less
  br label %look
look:
  %at = phi i32 [ %base, %entry ], [ %next, %on ]
  %left = phi i32 [ %first, %entry ], [ %left.next, %on ]
  %inside = icmp ult i32 %at, 32
  br i1 %inside, label %bit, label %none
bit:
  %shifted = lshr i32 %mask, %at
  %set = trunc i32 %shifted to i1
  %last = icmp eq i32 %left, 0
  %found = and i1 %set, %last
  br i1 %found, label %done, label %miss
miss:
  br i1 %here, label %none, label %on
on:
  %counted = zext i1 %set to i32
  %left.next = sub i32 %left, %counted
  %next = add i32 %at, %step
  br label %look
done:
  ret i32 %at
none:
  ret i32 -1
}"""
