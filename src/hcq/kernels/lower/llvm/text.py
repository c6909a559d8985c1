"""Lines of LLVM IR: names, literals, types, declarations. What does not live here: what is written (ops, writer)."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Final

from hcq.kernels import types
from hcq.kernels.types import Scalar, Vector

if TYPE_CHECKING:
    from hcq.kernels.types import Type

VALUES: Final = {
    **{each: f"i{each.bits}" for each in types.SCALARS if each.is_integer},
    types.bool_: "i1",
    types.f16: "float",
    types.bf16: "float",
    types.f32: "float",
    types.f64: "double",
}
"""The LLVM type that a value has; f16 and bf16 are held in a float, and rounded after every operation."""

MEMORY: Final = {**VALUES, types.bool_: "i8", types.f16: "half", types.bf16: "i16"}
"""The LLVM type of an element in memory."""


def lanes_of(type_: Type) -> int:
    """How many elements: 1 of a scalar."""
    return type_.lanes if isinstance(type_, Vector) else 1


def shaped(name: str, like: Type) -> str:
    """The LLVM type of that name, or a vector of it where `like` is one."""
    return f"<{like.lanes} x {name}>" if isinstance(like, Vector) else name


def suffix(type_: str) -> str:
    """How a type is called in the name of an intrinsic."""
    found = re.fullmatch(r"<(\d+) x (\w+)>", type_)
    if found is not None:
        return f"v{found[1]}{suffix(found[2])}"
    return {"half": "f16", "float": "f32", "double": "f64"}.get(type_, type_)


def literal(value: bool | float, type_: Scalar) -> str:
    """A constant of a scalar type. Floats by their bits as a double, which LLVM wants to be exact."""
    if type_.kind == "b":
        return "true" if value else "false"
    if type_.is_float:
        return number(float(value))
    return str(int(value))


def number(value: float) -> str:
    """A float or double constant."""
    if value != value:
        return "0x7FF8000000000000"
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def repeated(text: str, name: str, lanes: int) -> str:
    """A constant of LLVM type `name`, or a vector whose elements are all that."""
    return text if lanes == 1 else "<" + ", ".join([f"{name} {text}"] * lanes) + ">"


ENTRY: Final = "entry.0"
"""The first basic block; a parameter may be called `entry`, and no parameter has a dot."""


class Emitter:
    """Collects the lines of a function's body. `label` is the basic block that is being written."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declarations: dict[str, str] = {}
        self.label = ENTRY
        self._count = 0

    def name(self, hint: str = "") -> str:
        """A new local name."""
        self._count += 1
        hint = re.sub(r"\W", "_", hint, flags=re.ASCII)
        return f"%{hint or 'v'}.{self._count}"  # always with a dot, which no parameter has

    def new_label(self, hint: str) -> str:
        self._count += 1
        return f"{hint}.{self._count}"

    def emit(self, text: str, hint: str = "") -> str:
        """An instruction with a result; its name."""
        name = self.name(hint)
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """An instruction without a result."""
        self.lines.append(f"  {text}")

    def begin(self, label: str) -> None:
        """Starts a basic block."""
        self.lines.append(f"{label}:")
        self.label = label

    def declare(self, function: str, result: str, arguments: str) -> None:
        self.declarations[function] = f"declare {result} @{function}({arguments})"

    def call(self, function: str, result: str, *arguments: tuple[str, str], flags: str = "") -> str:
        """A call of a function, which is declared; arguments are pairs of type and value."""
        self.declare(function, result, ", ".join(kind for kind, _ in arguments))
        passed = ", ".join(f"{kind} {value}" for kind, value in arguments)
        return self.emit(f"call {flags}{result} @{function}({passed})")

    def intrinsic(self, name: str, type_: str, *values: str, flags: str = "") -> str:
        """A call of `llvm.NAME` on values of one type, which it gives as well."""
        return self.call(f"llvm.{name}.{suffix(type_)}", type_, *((type_, each) for each in values), flags=flags)
