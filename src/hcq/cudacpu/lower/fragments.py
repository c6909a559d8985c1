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

from hcq.cudacpu.lower.arithmetic import fused, widen
from hcq.cudacpu.lower.convert import eighth
from hcq.cudacpu.lower.helpers import Body, Code, intrinsic, want

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
    return want(
        code, name, "void", "ptr %all, i32 %thread, ptr %sums", lambda body: _multiply(body, shape),
        attributes="nounwind willreturn noinline",
    )  # fmt: skip


def _multiply(c: Body, shape: Shape) -> str:
    size = shape.word * sum(shape.registers[:2])
    lane = c.op("and i32 %thread, 31")
    rows = _at(c, "%all", c.op(f"mul i32 {c.op(f'lshr i32 {lane}, 2')}, {4 * size}"))
    columns = _at(c, "%all", c.op(f"mul i32 {c.op(f'and i32 {lane}, 3')}, {8 * size}"))
    kind, number = shape.sum_type, 0
    for row in range(shape.rows):
        for column in range(shape.columns):
            for element in range(2 * shape.halves):
                place = c.op(f"getelementptr {kind}, ptr %sums, i32 {number}")
                total = c.op(f"load {kind}, ptr {place}")
                for step in range(shape.steps):
                    a = ((row * shape.steps + step) * shape.halves + element // 2) * shape.word
                    b = (shape.registers[0] + column * shape.steps + step) * shape.word + element % 2 * 4 * size
                    for neighbour in range(4):
                        left = c.op(f"getelementptr i8, ptr {rows}, i32 {a + neighbour * size}")
                        right = c.op(f"getelementptr i8, ptr {columns}, i32 {b + neighbour * size}")
                        total = _dot(c, shape, left, right, total)
                c.do(f"store {kind} {total}, ptr {place}")
                number += 1
    return ""


def _at(c: Body, base: str, offset: str) -> str:
    return c.op(f"getelementptr i8, ptr {base}, i32 {offset}")


def _dot(c: Body, shape: Shape, left: str, right: str, total: str) -> str:
    """total + the products of the elements of two registers."""
    if shape.a == "b1":
        both = c.op(f"{shape.combine} i32 {c.op(f'load i32, ptr {left}')}, {c.op(f'load i32, ptr {right}')}")
        return c.op(f"add i32 {total}, {intrinsic(c, 'ctpop', 'i32', both)}")
    for n in range(shape.each):
        a, b = _element(c, shape.a, left, n), _element(c, shape.b, right, n)
        if shape.a in INTEGERS:
            total = c.op(f"add i32 {total}, {c.op(f'mul i32 {a}, {b}')}")
        else:
            total = fused(c, "f64" if shape.a == "f64" else "f32", shape.mode, a, b, total)
    return total


def _element(c: Body, kind: str, register: str, n: int) -> str:
    """Element n of a register in memory: a double, a float, or an i32."""
    if kind == "f64":
        return c.op(f"load double, ptr {register}")
    if kind == "tf32":  # the lower 13 bits count for nothing
        bits = c.op(f"and i32 {c.op(f'load i32, ptr {register}')}, -8192")
        return c.op(f"bitcast i32 {bits} to float")
    at = c.op(f"getelementptr i8, ptr {register}, i32 {n * BITS[kind] // 8}")
    if kind in ("f16", "bf16"):
        return widen(c, kind, c.op(f"load i16, ptr {at}"))
    byte = c.op(f"load i8, ptr {at}")
    if kind in ("e4m3", "e5m2"):
        return eighth(c, c.op(f"zext i8 {byte} to i16"), kind)
    if kind in ("s4", "u4"):
        byte = c.op(f"shl i8 {byte}, {4 - 4 * (n % 2)}")
        byte = c.op(f"{'ashr' if kind == 's4' else 'lshr'} i8 {byte}, 4")
    return c.op(f"{'sext' if kind[0] == 's' else 'zext'} i8 {byte} to i32")
