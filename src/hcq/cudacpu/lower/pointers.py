"""Addresses of PTX as LLVM pointers, by state space; cvta, isspacep and mapa are in spaces.py.

A 64-bit address becomes a pointer as `getelementptr i8, ptr null`, since LLVM follows that, but not inttoptr, through a
loop; every function has null_pointer_is_valid, without which it would take such a pointer for a wrong one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.ptx.nodes import Address, Instruction, Operand, Register, Symbol

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter

SPACES = {"global", "shared", "local", "const", "param", "generic"}


def space_of(instruction: Instruction) -> str:
    """The state space that the modifiers name; generic where they name none."""
    for modifier in instruction.modifiers:
        name, _, rest = modifier.partition("::")
        if name in SPACES and (not rest or name in ("shared", "param")):
            return name
    return "generic"


def pointer(e: Emitter, operand: Operand, space: str) -> str:
    """The pointer that an address operand stands for."""
    if not isinstance(operand, Address):
        e.wrong("expected an address in brackets")
    base = operand.base
    if isinstance(base, Symbol):
        return _of_symbol(e, base, operand.offset, space)
    if isinstance(base, Register):
        if space in ("shared", "local"):
            start = e.context.shared(e) if space == "shared" else e.context.local(e)
            # Such memory ends far below 2**31, so that the sign keeps an offset that was counted from a larger base.
            return moved(e, e.op(f"getelementptr i8, ptr {start}, i64 {wide(e, base, signed=True)}"), operand.offset)
        value = wide(e, base)
        return moved(e, e.op(f"getelementptr i8, ptr null, i64 {value}"), operand.offset)
    start = "null"
    if space in ("shared", "local"):
        start = e.context.shared(e) if space == "shared" else e.context.local(e)
    return e.op(f"getelementptr i8, ptr {start}, i64 {base + operand.offset}")


def _of_symbol(e: Emitter, symbol: Symbol, offset: int, space: str) -> str:
    place = e.here().place(symbol)
    if place is None:
        e.wrong(f"{symbol.name} is not declared")
    if place.pointer == "%params":
        return moved(e, e.context.params(e), place.offset + offset)
    if place.pointer:
        return moved(e, place.pointer, offset)
    start = e.context.shared(e) if place.space == "shared" else e.context.local(e)
    return moved(e, start, place.offset + offset)


def wide(e: Emitter, operand: Operand, signed: bool = False) -> str:
    """An address register as 64 bits."""
    stored = e.stored(operand)
    if stored == "i32" or (stored == "float"):
        return e.op(f"{'sext' if signed else 'zext'} i32 {e.read(operand, 'b32')} to i64")
    return e.read(operand, "b64")


def moved(e: Emitter, pointer: str, offset: int) -> str:
    """A pointer some bytes on."""
    return e.op(f"getelementptr i8, ptr {pointer}, i64 {offset}") if offset else pointer
