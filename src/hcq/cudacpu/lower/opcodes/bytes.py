"""Operations on the bytes of a word: prmt, dp4a, dp2a."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.lower.types import is_type, signed
from hcq.cudacpu.ptx.nodes import Instruction

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter


@translates("prmt")
def prmt(e: Emitter, i: Instruction) -> None:
    d, a, b, c = e.operands(i, 4)
    pool = e.op(f"zext i32 {e.read(a, 'b32')} to i64")
    high = e.read(b, "b32")
    upper = e.op(f"shl i64 {e.op(f'zext i32 {high} to i64')}, 32")
    pool = e.op(f"or i64 {pool}, {upper}")
    selector = e.read(c, "b32")
    mode = next((m for m in i.modifiers if m in _MODES), "")
    result = "0"
    for n in range(4):
        if mode:
            byte = _byte(e, pool, _index(e, mode, selector, n))
        else:
            four = e.op(f"and i32 {e.op(f'lshr i32 {selector}, {4 * n}')}, 15")
            byte = _byte(e, pool, e.op(f"and i32 {four}, 7"))
            sign = e.op(f"ashr i8 {byte}, 7")
            byte = e.op(f"select i1 {e.op(f'icmp ugt i32 {four}, 7')}, i8 {sign}, i8 {byte}")
        wide = e.op(f"shl i32 {e.op(f'zext i8 {byte} to i32')}, {8 * n}")
        result = e.op(f"or i32 {result}, {wide}")
    e.write(d, result, "b32")


_MODES = ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")


def _index(e: Emitter, mode: str, selector: str, n: int) -> str:
    """Which of the eight bytes becomes byte n."""
    two = e.op(f"and i32 {selector}, 3")
    if mode == "f4e":
        return e.op(f"add i32 {two}, {n}")
    if mode == "b4e":
        return e.op(f"and i32 {e.op(f'sub i32 {two}, {n}')}, 7")
    if mode == "rc8":
        return two
    if mode == "rc16":
        one = e.op(f"and i32 {selector}, 1")
        return e.op(f"or i32 {e.op(f'shl i32 {one}, 1')}, {n & 1}")
    name = "umax" if mode == "ecl" else "umin"
    return e.intrinsic(f"llvm.{name}.i32", "i32", ("i32", two), ("i32", str(n)))


def _byte(e: Emitter, pool: str, index: str) -> str:
    amount = e.op(f"zext i32 {e.op(f'shl i32 {index}, 3')} to i64")
    return e.op(f"trunc i64 {e.op(f'lshr i64 {pool}, {amount}')} to i8")


@translates("dp4a", "dp2a")
def dot(e: Emitter, i: Instruction) -> None:
    d, a, b, c = e.operands(i, 4)
    of_a, of_b = [m for m in i.modifiers if is_type(m)]
    x, y, total = e.read(a, "b32"), e.read(b, "b32"), e.read(c, "b32")
    four = i.opcode == "dp4a"
    first = 2 if not four and i.has("hi") else 0
    for n in range(4 if four else 2):
        left = _part(e, x, n, 8 if four else 16, of_a)
        right = _part(e, y, n + first, 8, of_b)
        total = e.op(f"add i32 {total}, {e.op(f'mul i32 {left}, {right}')}")
    e.write(d, total, "b32")


def _part(e: Emitter, value: str, n: int, bits: int, type: str) -> str:
    moved = e.op(f"lshr i32 {value}, {n * bits}") if n else value
    return e.op(f"{'sext' if signed(type) else 'zext'} i{bits} {e.op(f'trunc i32 {moved} to i{bits}')} to i32")
