"""Where variables and parameters are: offsets, sizes, and initialisers of globals as LLVM writes them."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hcq.cudacpu.lower.types import size, width
from hcq.cudacpu.ptx.errors import NoRoom, PtxError, Unsupported
from hcq.cudacpu.ptx.nodes import Initialiser, Symbol, Variable

if TYPE_CHECKING:
    from hcq.cudacpu.lower.module import Unit


# Bytes that may be declared: of a kernel (const: of a module), as ptxas takes them; local as a GPU gives a thread.
_MOST = {"shared": 48 << 10, "const": 64 << 10, "param": 32764, "local": 512 << 10}


def element_size(variable: Variable) -> int:
    """Bytes of one element."""
    if variable.type.endswith("ref"):
        raise Unsupported(
            f"{variable.name} is a {variable.type}: textures and surfaces are not run here", variable.line
        )
    return size(variable.type) * variable.lanes


def bytes_of(variable: Variable) -> int:
    """Bytes in all; 0 where the outermost dimension is open."""
    return element_size(variable) * (variable.count or 0)


def alignment(variable: Variable) -> int:
    """As said, at least the element's own."""
    return max(variable.align, element_size(variable))


def check_space(owner: str, space: str, taken: int, line: int = 0) -> None:
    """Raises PtxError where somebody declares more bytes of a space than can be."""
    if taken > _MOST[space]:
        hint = "; more is asked for at the launch, for an .extern .shared array" if space == "shared" else ""
        raise PtxError(f"{owner} has {taken} bytes of .{space} memory, at most {_MOST[space]} can be{hint}", line)


def check_room(taken: int, memory: int) -> None:
    """Raises NoRoom where a module's variables are more than a device's memory (0: it has enough)."""
    if memory and taken > memory:
        raise NoRoom(f"the module's variables have {taken} bytes, the device {memory} (see HCQ_CUDACPU_MEMORY)")


def up(value: int, align: int) -> int:
    """The next multiple of a power of two."""
    return (value + align - 1) & -align


def offsets(variables: Iterable[Variable], start: int = 0) -> tuple[dict[str, int], int]:
    """Each one's offset, in order, and where the last one ends."""
    found: dict[str, int] = {}
    for each in variables:
        start = up(start, alignment(each))
        found[each.name] = start
        start += bytes_of(each)
    return found, start


def initialiser(unit: Unit, variable: Variable) -> tuple[str, str]:
    """LLVM's type and constant for a global variable."""
    total = bytes_of(variable)
    if not variable.elements:
        return f"[{total} x i8]", "zeroinitializer"
    types: list[str] = []
    values: list[str] = []
    plain = bytearray()
    each_size = size(variable.type)

    def flush() -> None:
        if plain:
            types.append(f"[{len(plain)} x i8]")
            text = "".join(f"\\{byte:02X}" for byte in plain)
            values.append(f'[{len(plain)} x i8] c"{text}"')
            plain.clear()

    at = done = 0
    while at < len(variable.elements):
        element = variable.elements[at]
        if element.symbol is None:
            plain += _number(variable, element)
            done += each_size
            at += 1
            continue
        flush()
        taken, width_ = _masked(variable, at)
        types.append(f"i{8 * width_}")
        values.append(f"i{8 * width_} {_address(unit, variable, element.symbol, 8 * width_)}")
        done += width_
        at += taken
    if done > total:
        raise PtxError(f"{variable.name} has {total} bytes, its initialiser {done}", variable.line)
    plain += bytes(total - done)
    flush()
    return "<{ " + ", ".join(types) + " }>", "<{ " + ", ".join(values) + " }>"


def _number(variable: Variable, element: Initialiser) -> bytes:
    bits = width(variable.type)
    if variable.type in ("f32", "f64"):
        code = "<f" if bits == 32 else "<d"
        if element.width == bits:
            return element.bits.to_bytes(bits // 8, "little")
        return struct.pack(code, element.value)
    value = element.bits if element.width else int(element.value or 0)
    return (value & ((1 << bits) - 1)).to_bytes(max(bits // 8, 1), "little")


def _masked(variable: Variable, at: int) -> tuple[int, int]:
    """How many elements one address takes, and its bytes: 0xff(s), 0xff00(s) ... give it byte by byte."""
    first = variable.elements[at]
    if not first.mask:
        return 1, size(variable.type)
    count = 0
    for each in variable.elements[at : at + 8]:
        if each.symbol is None or each.symbol.name != first.symbol.name or each.mask != 0xFF << (8 * count):  # type: ignore[union-attr]
            break
        count += 1
    if size(variable.type) != 1 or count != 8:
        raise Unsupported(f"{variable.name}: a part of an address as initialiser is not had here", variable.line)
    return 8, 8


def _address(unit: Unit, variable: Variable, symbol: Symbol, bits: int) -> str:
    place = unit.place(symbol.name)
    pointer = place.pointer if place else unit.address_of_function(symbol.name)
    if not pointer:
        raise PtxError(
            f"{symbol.name}, in the initialiser of {variable.name}, is no variable or function", variable.line
        )
    if bits != 64:
        raise Unsupported(f"{variable.name} holds an address in {bits} bits", variable.line)
    return f"ptrtoint (ptr getelementptr (i8, ptr {pointer}, i64 {symbol.offset}) to i64)"
