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

_CAPABILITY, _ENTRY_POINT, _PROCESSED, _FUNCTION = 17, 15, 330, 54
_COMPUTE = 5
_OURS = "hcq.kernel "


class Module(NamedTuple):
    """`entries`: the compute kernels by name. `about`: what hcq's own kernels say besides; None for others."""

    entries: tuple[str, ...]
    capabilities: frozenset[int]
    about: dict[str, Any] | None


def read(data: bytes) -> Module:
    """What a module says before its first function. Raises ValueError where it is none, or damaged there."""
    if len(data) % 4 or len(data) < 20:
        raise ValueError(f"a module is a number of 32-bit words, more than 5: {len(data)} bytes are none")
    words = struct.unpack(f"<{len(data) // 4}I", data)
    if words[0] != MAGIC:
        raise ValueError(f"it does not begin with SPIR-V's magic number, but with {words[0]:#010x}")
    entries, capabilities, about = [], set(), None
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
        at += count
    if not entries:
        raise ValueError("it has no compute kernel (an OpEntryPoint GLCompute)")
    return Module(tuple(entries), frozenset(capabilities), about)


def _string(words: tuple[int, ...]) -> str:
    raw = struct.pack(f"<{len(words)}I", *words)
    return raw.partition(b"\0")[0].decode("utf-8", "replace")
