"""A SPIR-V module as text, as spirv-dis writes it, for the instructions that kernels are written with.

What does not live here: their numbers (codes).
"""

from __future__ import annotations

import struct
from typing import Final

from hcq.errors import InvalidProgram
from hcq.kernels.lower.spirv.codes import BUILTINS, CODES, ENUMS, MAGIC

_NAMES: Final = {code.number: name for name, code in CODES.items()}
_WORDS: Final = {kind: {number: word for word, number in words.items()} for kind, words in ENUMS.items()}
_BUILTINS: Final = {number: word for word, number in BUILTINS.items()}


def disassemble(module: bytes) -> str:
    """The text, a line an instruction. Raises InvalidProgram for bytes that are no module of hcq's kernels."""
    if len(module) % 4 or len(module) < 20 or int.from_bytes(module[:4], "little") != MAGIC:
        raise InvalidProgram(f"this is no SPIR-V module ({len(module)} bytes)")
    words = struct.unpack(f"<{len(module) // 4}I", module)
    lines = [f"; SPIR-V {words[1] >> 16 & 255}.{words[1] >> 8 & 255}, bound {words[3]}"]
    floats: set[int] = set()
    at = 5
    while at < len(words):
        count, number = words[at] >> 16, words[at] & 0xFFFF
        name = _NAMES.get(number)
        if name is None or count == 0 or at + count > len(words):
            raise InvalidProgram(f"word {at} begins no instruction that kernels are written with ({number})")
        operands = list(words[at + 1 : at + count])
        if name == "OpTypeFloat" and operands:
            floats.add(operands[0])
        try:
            lines.append(_line(name, operands, floats))
        except (IndexError, struct.error) as error:
            raise InvalidProgram(f"{name} at word {at} has not the operands that it should") from error
        at += count
    return "\n".join([*lines, ""])


def _line(name: str, operands: list[int], floats: set[int]) -> str:
    kinds, result, parts = CODES[name].operands, "", [name]
    position = 0
    is_builtin = False
    while operands:
        kind = kinds[position] if position < len(kinds) and kinds[position] != "*" else kinds[-2]
        position += 1
        if kind == "s":
            parts.append(_string(operands))
        elif kind == "v":
            parts.append(_constant(operands, int(parts[1][1:]) in floats))
        else:
            word = operands.pop(0)
            if kind == "r":
                result = f"%{word}"
            elif kind in "ti":
                parts.append(f"%{word}")
            elif is_builtin:
                parts.append(_BUILTINS.get(word, str(word)))
            else:
                parts.append(_WORDS.get(kind, {}).get(word, str(word)))
                is_builtin = parts[-1] == "BuiltIn"
    return f"{result + ' = ' if result else '':>10}{' '.join(parts)}"


def _string(operands: list[int]) -> str:
    """A string, whose words are taken from the operands."""
    raw = b""
    while operands:
        raw += operands.pop(0).to_bytes(4, "little")
        if b"\0" in raw[-4:]:
            break
    text = raw.rstrip(b"\0").decode(errors="replace")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _constant(operands: list[int], is_float: bool) -> str:
    """A constant's bits: an integer without a sign, or a float, whose hexadecimal digits are exact."""
    bits = b"".join(each.to_bytes(4, "little") for each in operands)
    operands.clear()
    if is_float:
        value: float = struct.unpack("<d" if len(bits) == 8 else "<f", bits)[0]
        return value.hex()
    return str(int.from_bytes(bits, "little"))
