"""The table of what translates which opcode. Modules of operations fill it; the emitter asks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hcq.cudacpu.lower.types import is_type

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter
    from hcq.cudacpu.ptx.nodes import Instruction

Translation = Callable[["Emitter", "Instruction"], None]

_TABLE: dict[tuple[str, str], Translation] = {}


def translates(*opcodes: str, types: tuple[str, ...] = ("",)) -> Callable[[Translation], Translation]:
    """Register a function for base opcodes; with `types` only where a type of the instruction is one of them."""

    def register(function: Translation) -> Translation:
        for opcode in opcodes:
            for type in types:
                assert (opcode, type) not in _TABLE, f"{opcode} {type} is registered twice"
                _TABLE[opcode, type] = function
        return function

    return register


def find(instruction: Instruction) -> Translation | None:
    """Who translates an instruction: by its last type, its first one, or whatever types it has."""
    types = [each for each in instruction.modifiers if is_type(each)]
    for type in (*types[-1:], *types[:1], ""):
        found = _TABLE.get((instruction.opcode, type))
        if found is not None:
            return found
    return None


def known(opcode: str) -> bool:
    """Whether an opcode is translated with some types."""
    return any(each == opcode for each, _ in _TABLE)
