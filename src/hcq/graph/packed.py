"""Kernargs that somebody has filled: which buffers and values stand in them, where the program's layout is known.

Buffers come first, 8 bytes each, from `kernargs_args_offset` on; then values, each aligned to its size,
structures to 8. What does not live here: filling kernargs (hcq.queues.program), and what becomes of them (native,
bound, saving).
"""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from hcq import _native
from hcq.queues.launch import STRUCTURE_ALIGNMENT

if TYPE_CHECKING:
    from collections.abc import Sequence

_CODES = {
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
    "bool": "?",
    "bits8": "b",
    "bits16": "h",
    "bits32": "i",
    "bits64": "q",
    "i8": "b",
    "u8": "B",
    "i16": "h",
    "u16": "H",
    "i32": "i",
    "u32": "I",
    "i64": "q",
    "u64": "Q",
    "f16": "e",
    "f32": "f",
    "f64": "d",
    "boolean": "?",
}
"""How a value of a type stands in kernargs: codes of the struct module."""


class Packed(NamedTuple):
    """What was found in kernargs."""

    data: bytes
    """All of them."""
    addresses: Sequence[int] | None
    """Of the buffers; None where it is not known how many there are."""
    vals: tuple[Any, ...] | None
    """The values; None where their types are not known, or can't be read."""


def read(program: Any, kernargs: int) -> Packed:
    """What stands at the address `kernargs`, for a launch of `program`."""
    start: int = program.kernargs_args_offset
    count: int | None
    kinds: Sequence[str] | None
    if isinstance(program, _native.Program):
        signature = program.signature
        if signature is None:
            return Packed(ctypes.string_at(kernargs, 8 + 8 * ctypes.c_uint64.from_address(kernargs).value), None, None)
        count = sum(kind == "pointer" for kind, _ in signature)
        kinds = [kind for kind, _ in signature[count:]]
    else:
        count, kinds = program.buffer_count, program.value_types
    data = ctypes.string_at(kernargs, program.kernargs_alloc_size)
    if count is None:
        return Packed(data, None, None)
    addresses = struct.unpack_from(f"<{count}Q", data, start)
    if kinds is None or any(kind not in _CODES and not kind.startswith("bytes") for kind in kinds):
        return Packed(data, addresses, None)
    vals: list[Any] = []
    offset = start + 8 * count
    for kind in kinds:
        structure = kind not in _CODES
        size = int(kind[5:]) if structure else struct.calcsize("<" + _CODES[kind])
        alignment = STRUCTURE_ALIGNMENT if structure else size
        offset = -(-(offset - start) // alignment) * alignment + start
        found = data[offset : offset + size]
        vals.append(found if structure else struct.unpack("<" + _CODES[kind], found)[0])
        offset += size
    return Packed(data, addresses, tuple(vals))
