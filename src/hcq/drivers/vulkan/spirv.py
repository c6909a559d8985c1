"""What a module of SPIR-V says of itself (SPIR-V specification, 2.3 Physical Layout; docs/design/spirv.md for ours).

What does not live here: writing modules (hcq.kernels.lower), and making programs of them (program).
"""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple

MAGIC = 0x07230203
CAPABILITIES = {
    9: ("Float16", "f16"),
    10: ("Float64", "f64"),
    11: ("Int64", "i64"),
    12: ("Int64Atomics", "atomics64"),
    22: ("Int16", "i16"),
    39: ("Int8", "i8"),
    4433: ("StorageBuffer16BitAccess", "storage16"),
    4448: ("StorageBuffer8BitAccess", "storage8"),
}
"""Capabilities that a device may lack, by number: their names, and what it says of itself then."""

HEAD = 16
"""Bytes of the push constants before the arguments: the number of groups."""

_CAPABILITY, _ENTRY_POINT, _PROCESSED, _FUNCTION = 17, 15, 330, 54
_MEMBER_NAME, _DECORATE, _MEMBER_DECORATE, _CONSTANT, _VARIABLE = 6, 71, 72, 43, 59
_INT, _FLOAT, _VECTOR, _ARRAY, _STRUCT, _POINTER = 21, 22, 23, 28, 30, 32
_KEPT = {_INT, _FLOAT, _VECTOR, _ARRAY, _STRUCT, _POINTER, _CONSTANT, _VARIABLE}
_STRIDE, _OFFSET = 6, 35  # decorations
_PUSH_CONSTANT, _BUFFER = 9, 5349  # storage classes
_COMPUTE = 5
_OURS = "hcq.kernel "


class Argument(NamedTuple):
    """An argument among the push constants: its type by the names of VALUE_TYPES, "ptr" for a buffer's address, and
    the bytes that it has there, counted from the end of the head."""

    name: str
    type: str
    offset: int
    size: int


class Declared(NamedTuple):
    """What a module declares: instructions of types, constants and variables by the id that they make, and what is
    said of ids and of members, by (decoration, id) and (decoration, id, member)."""

    made: dict[int, tuple[int, tuple[int, ...]]]
    said: dict[tuple[int, ...], int]
    names: dict[tuple[int, int], str]


class Module(NamedTuple):
    """`entries`: the compute kernels by name. `about`: what hcq's own kernels say besides; None for others."""

    entries: tuple[str, ...]
    capabilities: frozenset[int]
    about: dict[str, Any] | None
    declared: Declared


def read(data: bytes) -> Module:
    """What a module says before its first function. Raises ValueError where it is none, or damaged there."""
    if len(data) % 4 or len(data) < 20:
        raise ValueError(f"a module is a number of 32-bit words, more than 5: {len(data)} bytes are none")
    words = struct.unpack(f"<{len(data) // 4}I", data)
    if words[0] != MAGIC:
        raise ValueError(f"it does not begin with SPIR-V's magic number, but with {words[0]:#010x}")
    entries, capabilities, about = [], set(), None
    declared = Declared({}, {}, {})
    at = 5
    while at < len(words):
        count, code = words[at] >> 16, words[at] & 0xFFFF
        if not count or at + count > len(words):
            raise ValueError(f"the instruction at word {at} is cut off")
        operands = words[at + 1 : at + count]
        if code == _CAPABILITY and operands:
            capabilities.add(operands[0])
        elif code == _ENTRY_POINT and len(operands) > 2 and operands[0] == _COMPUTE:
            entries.append(_string(operands[2:]))
        elif code == _PROCESSED:
            said = _string(operands)
            if said.startswith(_OURS):
                about = json.loads(said[len(_OURS) :])
        elif code == _FUNCTION:
            break
        else:
            _declare(declared, code, operands)
        at += count
    if not entries:
        raise ValueError("it has no compute kernel (an OpEntryPoint GLCompute)")
    return Module(tuple(entries), frozenset(capabilities), about, declared)


def pushed(module: Module) -> list[Argument]:
    """The arguments of a kernel of somebody else's: what its push constants have behind the head, in order.

    References are buffers; where there are none, so are 64-bit unsigned integers. Vectors, arrays and structures are as
    many arguments as they have elements. ValueError for a member of another kind.
    """
    made = module.declared.made
    blocks = [ops for code, ops in made.values() if code == _VARIABLE and ops[2] == _PUSH_CONSTANT]
    found: list[Argument] = []
    for ops in blocks[:1]:
        _, (_, _, block) = made[ops[0]]
        _flatten(module.declared, block, "", 0, found)
    found = sorted((each for each in found if each.offset >= HEAD), key=lambda each: each.offset)
    untold = not any(each.type == "ptr" for each in found)
    return [
        each._replace(type="ptr" if untold and each.type == "u64" else each.type, offset=each.offset - HEAD)
        for each in found
    ]


def _declare(declared: Declared, code: int, operands: tuple[int, ...]) -> None:
    if code in _KEPT and len(operands) > 1:
        result = operands[1] if code in (_CONSTANT, _VARIABLE) else operands[0]
        declared.made[result] = code, operands
    elif code == _DECORATE and len(operands) == 3:
        declared.said[operands[1], operands[0]] = operands[2]
    elif code == _MEMBER_DECORATE and len(operands) == 4:
        declared.said[operands[2], operands[0], operands[1]] = operands[3]
    elif code == _MEMBER_NAME and len(operands) > 2:
        declared.names[operands[0], operands[1]] = _string(operands[2:])


def _flatten(declared: Declared, id: int, name: str, offset: int, found: list[Argument]) -> None:
    code, ops = declared.made.get(id, (0, ()))
    if code == _STRUCT:
        for member, each in enumerate(ops[1:]):
            inner = declared.names.get((id, member), str(member))
            at = offset + declared.said.get((_OFFSET, id, member), 0)
            _flatten(declared, each, f"{name}.{inner}" if name else inner, at, found)
    elif code in (_VECTOR, _ARRAY):
        count = ops[2] if code == _VECTOR else declared.made[ops[2]][1][2]
        stride = declared.said.get((_STRIDE, id)) or _size(declared, ops[1])
        for index in range(min(count, HEAD * 16)):
            _flatten(declared, ops[1], f"{name}[{index}]", offset + index * stride, found)
    elif code == _INT:
        found.append(Argument(name, f"{'i' if ops[2] else 'u'}{ops[1]}", offset, ops[1] // 8))
    elif code == _FLOAT:
        found.append(Argument(name, f"f{ops[1]}", offset, ops[1] // 8))
    elif code == _POINTER and ops[1] == _BUFFER:
        found.append(Argument(name, "ptr", offset, 8))
    else:
        raise ValueError(f"its push constant {name!r} is no number, reference, vector, array or structure of those")


def _size(declared: Declared, id: int) -> int:
    code, ops = declared.made.get(id, (0, ()))
    return ops[1] // 8 if code in (_INT, _FLOAT) else 8


def _string(words: tuple[int, ...]) -> str:
    raw = struct.pack(f"<{len(words)}I", *words)
    return raw.partition(b"\0")[0].decode("utf-8", "replace")
