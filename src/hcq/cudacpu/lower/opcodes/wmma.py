"""wmma.load and wmma.store: fragments from and to memory (PTX ISA 9.7.14.3 and following). Each thread on its own.

What does not live here: where elements are (fragments.py), wmma.mma (mma.py).
"""

from __future__ import annotations

from hcq.cudacpu.lower.emitter import Emitter
from hcq.cudacpu.lower.opcodes.mma import WMMA_SHAPES, shape_of, wmma_mma
from hcq.cudacpu.lower.pointers import pointer, space_of
from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.lower.types import llvm
from hcq.cudacpu.lower.values.fragments import BITS, Shape
from hcq.cudacpu.ptx.nodes import Instruction, Vector

OF_SUM = {"f16": ("f16", "bf16"), "f32": ("f16", "bf16", "tf32"), "s32": ("s8", "s4", "b1"), "f64": ("f64",)}


@translates("wmma")
def wmma(e: Emitter, instruction: Instruction) -> None:
    kind = instruction.modifiers[0]
    if kind == "mma":
        wmma_mma(e, instruction)
    elif kind in ("load", "store") and len(instruction.modifiers) > 1:
        _memory(e, instruction, instruction.modifiers[1])
    else:
        e.refuse(f"{instruction.name} is not run here")


def _memory(e: Emitter, instruction: Instruction, matrix: str) -> None:
    kind = instruction.modifiers[-1]
    if kind not in BITS and kind not in OF_SUM:
        e.refuse(f"{instruction.name} is not run here")
    operands = e.operands(instruction, 2, 3)
    store = instruction.modifiers[0] == "store"
    address, registers = (operands[0], operands[1]) if store else (operands[1], operands[0])
    if not isinstance(registers, Vector):
        e.wrong(f"{instruction.name} wants registers in braces")
    row_major = instruction.has("row")
    shape = _shape(e, instruction, matrix, kind)
    base = pointer(e, address, space_of(instruction))
    size = {"a": (shape.m, shape.k), "b": (shape.k, shape.n)}.get(matrix, (shape.m, shape.n))
    stride = e.read(operands[2], "u32") if len(operands) == 3 else str(size[1] if row_major else size[0])
    places = _Places(e, base, stride, row_major, BITS.get(kind, 32))
    if matrix in "ab":
        _load_factor(e, instruction, matrix, shape, places, registers)
    elif store:
        _store_sums(e, instruction, kind, shape, places, registers)
    else:
        _load_sums(e, instruction, kind, shape, places, registers)


def _shape(e: Emitter, instruction: Instruction, matrix: str, kind: str) -> Shape:
    """A shape with the given matrix; for C and D that of any type that has such sums."""
    if matrix in ("a", "b"):
        return shape_of(e, instruction, kind, kind, WMMA_SHAPES)
    having = (a for a in OF_SUM.get(kind, ()) if instruction.has(*WMMA_SHAPES[a]))
    a = next(having, "") or e.refuse(f"{instruction.name} is not run here")
    return shape_of(e, instruction, a, a, WMMA_SHAPES)


class _Places:
    """Pointers to elements (row, column) of a matrix in memory."""

    def __init__(self, e: Emitter, base: str, stride: str, row_major: bool, bits: int) -> None:
        self.e, self.base, self.row_major, self.bits = e, base, row_major, bits
        self.stride = e.op(f"zext i32 {stride} to i64")
        lane = e.op(f"and i32 {e.context.linear(e)}, 31")
        self.g = e.op(f"lshr i32 {lane}, 2")
        self.t = e.op(f"and i32 {lane}, 3")

    def at(self, row: tuple[str, int, int], column: tuple[str, int, int]) -> str:
        """The element whose row and column are (lane's number, factor, addend)."""
        e = self.e
        outer, inner = (row, column) if self.row_major else (column, row)
        lines = e.op(f"mul i64 {self._index(outer)}, {self.stride}")
        elements = e.op(f"add i64 {lines}, {self._index(inner)}")
        offset = e.op(f"lshr i64 {e.op(f'mul i64 {elements}, {self.bits}')}, 3")
        return e.op(f"getelementptr i8, ptr {self.base}, i64 {offset}")

    def _index(self, what: tuple[str, int, int]) -> str:
        number, factor, addend = what
        scaled = self.e.op(f"mul i32 {number}, {factor}")
        return self.e.op(f"zext i32 {self.e.op(f'add i32 {scaled}, {addend}')} to i64")


def _load_factor(
    e: Emitter, instruction: Instruction, matrix: str, shape: Shape, places: _Places, registers: Vector
) -> None:
    along = instruction.has("row") == (matrix == "a")  # whether a register's elements are neighbours in memory
    if BITS[shape.a] < 8 and not along:
        e.refuse(f"{instruction.name}: elements of less than a byte lie along k")
    values = []
    outers = [row * 8 * shape.halves for row in range(shape.rows)] if matrix == "a" else range(0, shape.n, 8)
    for outer in outers:
        for step in range(shape.steps):
            for half in range(shape.halves if matrix == "a" else 1):
                line = (places.g, 1, outer + 8 * half)
                first = 4 * shape.each * step
                values.append(_register(e, matrix, shape, places, line, first, along))
    wanted = 8 if shape.a == "f16" else len(values)
    if len(registers.elements) != wanted:
        e.wrong(f"{instruction.name} takes {wanted} registers, found {len(registers.elements)}")
    for n, register in enumerate(registers.elements):
        e.write(register, values[n % len(values)], "f64" if shape.a == "f64" else "b32")


def _register(
    e: Emitter, matrix: str, shape: Shape, places: _Places, line: tuple[str, int, int], first: int, along: bool
) -> str:
    """One register's elements, from k = first + each * t."""

    def at(n: int) -> str:
        k = (places.t, shape.each, first + n)
        return places.at(line, k) if matrix == "a" else places.at(k, line)

    if along:
        return e.op(f"load {'double' if shape.a == 'f64' else 'i32'}, ptr {at(0)}, align {shape.word}")
    bits = BITS[shape.a]
    if shape.each == 1:
        return e.op(f"load {'double' if shape.a == 'f64' else 'i32'}, ptr {at(0)}, align {shape.word}")
    value = ""
    for n in range(shape.each):
        part = e.op(f"zext i{bits} {e.op(f'load i{bits}, ptr {at(n)}')} to i32")
        if n:
            value = e.op(f"or i32 {value}, {e.op(f'shl i32 {part}, {n * bits}')}")
        else:
            value = part
    return value


def _sum_places(shape: Shape, places: _Places) -> list[str]:
    found = []
    for row in range(shape.rows):
        for column in range(shape.columns):
            for n in range(2 * shape.halves):
                line = (places.g, 1, row * 8 * shape.halves + 8 * (n // 2))
                found.append(places.at(line, (places.t, 2, column * 8 + n % 2)))
    return found


def _load_sums(
    e: Emitter, instruction: Instruction, kind: str, shape: Shape, places: _Places, registers: Vector
) -> None:
    at = _sum_places(shape, places)
    each = 2 if kind == "f16" else 1
    _check(e, instruction, registers, len(at) // each)
    values = [e.op(f"load {llvm(kind)}, ptr {place}") for place in at]
    for n, register in enumerate(registers.elements):
        if each == 2:
            low, high = (e.op(f"zext i16 {values[2 * n + k]} to i32") for k in range(2))
            e.write(register, e.op(f"or i32 {low}, {e.op(f'shl i32 {high}, 16')}"), "b32")
        else:
            e.write(register, values[n], kind)


def _store_sums(
    e: Emitter, instruction: Instruction, kind: str, shape: Shape, places: _Places, registers: Vector
) -> None:
    at = _sum_places(shape, places)
    each = 2 if kind == "f16" else 1
    _check(e, instruction, registers, len(at) // each)
    for n, register in enumerate(registers.elements):
        value = e.read(register, "b32" if each == 2 else kind)
        if each == 2:
            for k in range(2):
                half = e.op(f"trunc i32 {e.op(f'lshr i32 {value}, {16 * k}')} to i16")
                e.do(f"store i16 {half}, ptr {at[2 * n + k]}")
        else:
            e.do(f"store {llvm(kind)} {value}, ptr {at[n]}")


def _check(e: Emitter, instruction: Instruction, registers: Vector, wanted: int) -> None:
    if len(registers.elements) != wanted:
        e.wrong(f"{instruction.name} takes {wanted} registers, found {len(registers.elements)}")
