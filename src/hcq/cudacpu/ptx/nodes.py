"""The typed form of PTX: modules, functions, variables, instructions, operands. Made by the parser, read by lower/.

Names are unique in a function: registers, variables and labels of nested scopes carry a suffix. A register's name has
its `%` where the text has it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

# -- operands -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register:
    """A register; `type` is what it was declared as (b32, f64, pred ...)."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Special:
    """A special register, without its %: tid.x, laneid, clock64 ..."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant. `value` is the number; `bits` is, for 0f... and 0d..., its encoding of `width` bits."""

    value: int | float
    bits: int = 0
    width: int = 0


@dataclass(slots=True)
class Symbol:
    """A variable's, function's or label's name, with bytes to be added."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """[base + offset]; `extra` are the operands after the first one inside the brackets."""

    base: Register | Symbol | int
    offset: int = 0
    extra: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Vector:
    """{a, b, ...}"""

    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """!p"""

    operand: Operand


@dataclass(frozen=True, slots=True)
class Pair:
    """d|p"""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Sink:
    """_"""


@dataclass(frozen=True, slots=True)
class Group:
    """(a, b, ...) of a call."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """Part of a register, by a selector that is no vector's: %r.b0, %r.h1."""

    register: Register
    selector: str


Operand: TypeAlias = Register | Special | Immediate | Symbol | Address | Vector | Not | Pair | Sink | Group | Member

# -- declarations -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Initialiser:
    """One value of an initialiser: a number, or a symbol's address (`generic`: its generic address), of which `mask`
    chooses bytes (0: all)."""

    value: int | float | None = None
    bits: int = 0
    width: int = 0
    symbol: Symbol | None = None
    generic: bool = False
    mask: int = 0


@dataclass(slots=True)
class Variable:
    """A variable of a state space, or a parameter (space "param" or "reg").

    `count` is the elements in all, `None` where the outermost dimension is open; `elements` a flat initialiser.
    """

    name: str
    space: str
    type: str
    line: int
    align: int = 0
    lanes: int = 1
    count: int | None = 1
    array: bool = False
    linkage: str = ""
    elements: list[Initialiser] = field(default_factory=list)
    pointer: str | None = None  # a parameter that was said to point into this space ("" : no space was named)
    attributes: tuple[str, ...] = ()


@dataclass(slots=True)
class Prototype:
    """.callprototype"""

    name: str
    returns: list[Variable]
    params: list[Variable]
    noreturn: bool
    line: int


@dataclass(slots=True)
class Instruction:
    """One instruction. `guard` is its predicate, `source` (file number, line, column) of the last .loc before it."""

    line: int
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | Not | None = None
    source: tuple[int, int, int] | None = None

    @property
    def name(self) -> str:
        """As written: add.cc.s32."""
        return ".".join((self.opcode, *self.modifiers))

    def has(self, *modifiers: str) -> bool:
        """Whether one of these modifiers is there."""
        return any(each in self.modifiers for each in modifiers)


@dataclass(slots=True)
class Label:
    """A place in a body."""

    name: str
    line: int


@dataclass(slots=True)
class Function:
    """An entry (a kernel) or a device function. `body` is None where it is only declared."""

    name: str
    entry: bool
    returns: list[Variable]
    params: list[Variable]
    line: int
    linkage: str = ""
    registers: dict[str, str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    body: list[Instruction | Label] | None = None
    tables: dict[str, list[Symbol]] = field(default_factory=dict)  # .branchtargets and .calltargets
    prototypes: dict[str, Prototype] = field(default_factory=dict)
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)  # maxntid, reqntid, minnctapersm ...


@dataclass(slots=True)
class Module:
    """One PTX module."""

    version: tuple[int, int] = (0, 0)
    target: tuple[str, ...] = ()
    address_size: int = 64
    lines: dict[str, int] = field(default_factory=dict)  # of directives that there is one of
    variables: list[Variable] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    files: dict[int, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
