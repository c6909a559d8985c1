"""Matrices spread over a warp's registers, and their product: what mma and wmma.mma have in common.

All shapes follow one rule (PTX ISA 9.7.14, "Matrix fragments for mma"). With g = lane / 4, t = lane % 4, and E elements
in a register of 32 bits (64 for f64), tiles are of 16 rows (8 where the matrix has 8), 8 columns and 4 E of k:

    A: register (q, h) of a tile has row g + 8 h and k = 4 E q + E t + (0 .. E - 1); h varies faster
    B: register q has column g and the same k
    C, D: element i has row g + 8 (i / 2) and column 2 t + i % 2

So that a row of A and a column of B are in four neighbouring lanes, word by word. wmma leaves its layout open; it is
the same one here, tile after tile (f16 repeats its registers until there are 8, as the manual wants that many).

Products are summed from k = 0 upwards, beginning with C: of floats by fused steps in f32 (f16 results are rounded once,
at the end), of f64 by fused steps, of integers exactly. What does not live here: opcodes, operands (mma.py, wmma.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from hcq.cudacpu.lower.helpers import Body, Code, intrinsic, want
from hcq.cudacpu.lower.values.arithmetic import fused, hardware_halves, widen
from hcq.cudacpu.lower.values.convert import short_float

BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, "e4m3": 8, "e5m2": 8,
}  # fmt: skip
INTEGERS = frozenset(("s8", "u8", "s4", "u4", "b1"))


@dataclass(frozen=True)
class Shape:
    """M, N and K of a product, and what its elements are. `combine` is xor or and for b1."""

    m: int
    n: int
    k: int
    a: str
    b: str
    mode: str = "rn"
    combine: str = ""

    @property
    def word(self) -> int:
        """Bytes of a register."""
        return 8 if self.a == "f64" else 4

    @property
    def each(self) -> int:
        """Elements of A or B in a register."""
        return self.word * 8 // BITS[self.a]

    @property
    def steps(self) -> int:
        """Registers along k."""
        return self.k // (4 * self.each)

    @property
    def halves(self) -> int:
        """Groups of 8 rows in a tile."""
        return 2 if self.m >= 16 else 1

    @property
    def rows(self) -> int:
        """Tiles along M."""
        return self.m // (8 * self.halves)

    @property
    def columns(self) -> int:
        """Tiles along N."""
        return self.n // 8

    @property
    def registers(self) -> tuple[int, int, int]:
        """Registers of A and B, and elements of C, that a thread has."""
        tile = self.steps * self.halves
        return self.rows * tile, self.columns * self.steps, self.rows * self.columns * 2 * self.halves

    @property
    def sum_type(self) -> str:
        """LLVM's type of the sums: float, double, or i32."""
        return "double" if self.a == "f64" else "i32" if self.a in INTEGERS else "float"


def multiply(code: Code, shape: Shape) -> str:
    """The symbol of `void f(ptr all, i32 thread, ptr sums)`: adds the thread's part of A * B to its sums.

    `all` has 32 times the registers of A and then of B, lane after lane.
    """
    name = f"mma.m{shape.m}n{shape.n}k{shape.k}.{shape.a}.{shape.b}.{shape.mode}{shape.combine and '.' + shape.combine}"
    parameters = "ptr noalias readonly %all, i32 %thread, ptr noalias %sums"
    return want(code, name, "void", parameters, lambda c: _multiply(c, shape), "nounwind willreturn noinline")


def _multiply(c: Body, shape: Shape) -> str:
    size = shape.word * sum(shape.registers[:2])
    lane = c.op("and i32 %thread, 31")
    rows = _at(c, "%all", c.op(f"mul i32 {c.op(f'lshr i32 {lane}, 2')}, {4 * size}"))
    columns = _at(c, "%all", c.op(f"mul i32 {c.op(f'and i32 {lane}, 3')}, {8 * size}"))
    kind, count, number = shape.sum_type, 2 * shape.halves, 0
    found: dict[tuple[str, int], list[str]] = {}

    def elements(side: str, base: str, offset: int) -> list[str]:
        if (side, offset) not in found:
            register = c.op(f"getelementptr i8, ptr {base}, i32 {offset}")
            found[side, offset] = _elements(c, shape.a if side == "a" else shape.b, register, shape.each)
        return found[side, offset]

    for row in range(shape.rows):
        for column in range(shape.columns):
            places = [c.op(f"getelementptr {kind}, ptr %sums, i32 {number + n}") for n in range(count)]
            totals = [c.op(f"load {kind}, ptr {place}") for place in places]
            for step in range(shape.steps):
                for neighbour in range(4):
                    for n in range(count):
                        a = ((row * shape.steps + step) * shape.halves + n // 2) * shape.word + neighbour * size
                        b = (shape.registers[0] + column * shape.steps + step) * shape.word
                        b += (n % 2 * 4 + neighbour) * size
                        left, right = elements("a", rows, a), elements("b", columns, b)
                        totals[n] = _dot(c, shape, left, right, totals[n])
            for place, total in zip(places, totals, strict=True):
                c.do(f"store {kind} {total}, ptr {place}")
            number += count
    return ""


def _at(c: Body, base: str, offset: str) -> str:
    return c.op(f"getelementptr i8, ptr {base}, i32 {offset}")


def _dot(c: Body, shape: Shape, left: list[str], right: list[str], total: str) -> str:
    """total + the products of the elements of two registers."""
    for a, b in zip(left, right, strict=True):
        if shape.a == "b1":  # 32 of them at once
            total = c.op(f"add i32 {total}, {intrinsic(c, 'ctpop', 'i32', c.op(f'{shape.combine} i32 {a}, {b}'))}")
        elif shape.a in INTEGERS:
            total = c.op(f"add i32 {total}, {c.op(f'mul i32 {a}, {b}')}")
        else:
            total = fused(c, "f64" if shape.a == "f64" else "f32", shape.mode, a, b, total)
    return total


def _elements(c: Body, kind: str, register: str, count: int) -> list[str]:
    """The elements of a register in memory: doubles, floats, or i32; of b1 the register."""
    if kind == "f64":
        return [c.op(f"load double, ptr {register}")]
    if kind == "f16" and hardware_halves():
        halves = c.op(f"fpext <2 x half> {c.op(f'load <2 x half>, ptr {register}, align 4')} to <2 x float>")
        return [c.op(f"extractelement <2 x float> {halves}, i32 {n}") for n in range(2)]
    word = c.op(f"load i32, ptr {register}")
    if kind == "b1":
        return [word]
    if kind == "f16":
        parts = [c.op(f"trunc i32 {each} to i16") for each in (word, c.op(f"lshr i32 {word}, 16"))]
        return [widen(c, kind, each) for each in parts]
    if kind == "tf32":  # the lower 13 bits count for nothing
        return [c.op(f"bitcast i32 {c.op(f'and i32 {word}, -8192')} to float")]
    if kind == "bf16":
        bits = c.op(f"shl i32 {word}, 16"), c.op(f"and i32 {word}, -65536")
        return [c.op(f"bitcast i32 {each} to float") for each in bits]
    width = BITS[kind]
    if kind in ("e4m3", "e5m2"):
        parts = [c.op(f"trunc i32 {c.op(f'lshr i32 {word}, {n * width}')} to i16") for n in range(count)]
        return [short_float(c, c.op(f"and i16 {each}, 255"), kind) for each in parts]
    shift = "ashr" if kind[0] == "s" else "lshr"
    parts = [c.op(f"shl i32 {word}, {32 - (n + 1) * width}") for n in range(count)]
    return [c.op(f"{shift} i32 {each}, {32 - width}") for each in parts]
