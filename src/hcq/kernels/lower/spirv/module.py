"""A SPIR-V module while it is written: identities, types, constants, the sections that it must be in, and its words.

What does not live here: which instructions a kernel becomes (ops, writer).
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

from hcq.kernels.lower.spirv.codes import CODES, ENUMS, MAGIC, VERSION

Word: TypeAlias = "int | str"
Instruction: TypeAlias = list[Word]
"""A name, then operands: numbers, words of ENUMS, or a string where the instruction takes one."""

_BITS: Final = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "f32": 32, "f64": 64}


class Module:
    """Collects instructions. `emit` appends to the function's body; types and constants are made once each."""

    def __init__(self) -> None:
        self.bound = 1
        self.capabilities: dict[str, None] = {}
        self.extensions: dict[str, None] = {}
        self.head: list[Instruction] = []
        self.names: list[Instruction] = []
        self.decorations: list[Instruction] = []
        self.globals: list[Instruction] = []
        self.variables: list[Instruction] = []
        self.body: list[Instruction] = []
        self.functions: list[Instruction] = []
        self.label = 0
        self._made: dict[tuple[Word, ...], int] = {}
        self.extended = self.id()

    def id(self) -> int:
        """A new identity."""
        self.bound += 1
        return self.bound - 1

    def need(self, capability: str) -> None:
        self.capabilities[capability] = None

    # Types and constants

    def type(self, name: str) -> int:
        """void, bool, i8 to i64 (of no sign), f32 or f64."""
        if name in ("void", "bool"):
            return self.made("OpTypeVoid" if name == "void" else "OpTypeBool")
        if name not in ("i32", "f32"):
            self.need({"i": "Int", "f": "Float"}[name[0]] + name[1:])
        return self.made("OpTypeInt", _BITS[name], 0) if name[0] == "i" else self.made("OpTypeFloat", _BITS[name])

    def pointer(self, storage: str, to: int) -> int:
        return self.made("OpTypePointer", storage, to)

    def made(self, code: str, *operands: Word) -> int:
        """A type, or something else without a type that is declared once."""
        key = (code, *operands)
        if key not in self._made:
            self._made[key] = self.id()
            self.globals.append([code, self._made[key], *operands])
        return self._made[key]

    def constant(self, name: str, value: int) -> int:
        """A constant of a type of `type`, by its bits."""
        if name == "bool":
            return self.declared("OpConstantTrue" if value else "OpConstantFalse", self.type(name))
        bits = value & (1 << _BITS[name]) - 1
        words = [bits] if _BITS[name] <= 32 else [bits & 0xFFFFFFFF, bits >> 32]
        return self.declared("OpConstant", self.type(name), *words)

    def declared(self, code: str, type_: int, *operands: Word) -> int:
        """Something with a type that is declared once."""
        key = (code, type_, *operands)
        if key not in self._made:
            self._made[key] = self.id()
            self.globals.append([code, type_, self._made[key], *operands])
        return self._made[key]

    def variable(self, storage: str, to: int) -> int:
        """A variable of the module, or at the head of the function."""
        made = self.id()
        where = self.variables if storage == "Function" else self.globals
        where.append(["OpVariable", self.pointer(storage, to), made, storage])
        return made

    def decorate(self, target: int, *words: Word) -> None:
        self.decorations.append(["OpDecorate", target, *words])

    # The body

    def emit(self, code: str, type_: int, *operands: Word) -> int:
        """An instruction with a result; its identity."""
        made = self.id()
        self.body.append([code, type_, made, *operands])
        return made

    def do(self, code: str, *operands: Word) -> None:
        """An instruction without a result."""
        self.body.append([code, *operands])

    def begin(self, label: int) -> None:
        """Starts a block."""
        self.body.append(["OpLabel", label])
        self.label = label

    # The result

    def words(self) -> bytes:
        """The module, little-endian."""
        lines: list[Instruction] = [["OpCapability", each] for each in self.capabilities]
        lines += [["OpExtension", each] for each in self.extensions]
        lines.append(["OpExtInstImport", self.extended, "GLSL.std.450"])
        lines += [*self.head, *self.names, *self.decorations, *self.globals, *self.body, *self.functions]
        words = [MAGIC, VERSION, 0, self.bound, 0]
        for line in lines:
            words += _encoded(line)
        return struct.pack(f"<{len(words)}I", *words)


def _encoded(line: Instruction) -> list[int]:
    code = CODES[str(line[0])]
    kinds, words = code.operands, []
    for position, operand in enumerate(line[1:]):
        kind = kinds[position] if position < len(kinds) else "*"
        if kind == "*":
            kind = kinds[-2]
        if isinstance(operand, int):
            words.append(operand)
        elif kind == "s":
            raw = operand.encode() + b"\0"
            raw += bytes(-len(raw) % 4)
            words += struct.unpack(f"<{len(raw) // 4}I", raw)
        else:
            words.append(ENUMS[kind][operand])
    return [(len(words) + 1) << 16 | code.number, *words]
