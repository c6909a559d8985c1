"""What a module of PTX says of its kernels (PTX ISA, 5.1 state spaces and 11 directives).

What does not live here: compiling CUDA C (nvrtc), and types that only a mangled name has (mangling).
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r"\.entry\s+([\w$%]+)\s*(?:\(([^)]*)\))?([^{;]*)[{;]", re.DOTALL)
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s*((?:\.ptr)?(?:\s*\.(?:global|shared|const|local|param))?"
    r"(?:\s*\.align\s+\d+)?)\s*([\w$%]+)\s*(?:\[\s*(\d+)\s*\])?"
)
_REQUIRED = re.compile(r"\.reqntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_BITS = {8: "bits8", 16: "bits16", 32: "bits32"}
_SIGNED = {
    "s8": "i8",
    "s16": "i16",
    "s32": "i32",
    "s64": "i64",
    "f16": "f16",
    "bf16": "bf16",
    "f32": "f32",
    "f64": "f64",
}


_ABOUT = re.compile(r"^// hcq\.kernel (\{.*\})$", re.MULTILINE)


class Parameter(NamedTuple):
    """`kind`: a key of VALUE_TYPES, "bits8" ... "bits32", "ptr"; "word" for 64 bits that may be a pointer; "bytesN" for
    N bytes of a structure, as halves are too here. `size` in bytes."""

    kind: str
    size: int
    name: str = ""


class Entry(NamedTuple):
    """A kernel. `items`: the only size of groups that it takes, (0, 0, 0) for any."""

    parameters: tuple[Parameter, ...]
    items: tuple[int, int, int]


def is_ptx(text: str) -> bool:
    """Whether a source is PTX and not CUDA C: a module begins with its version."""
    return _COMMENTS.sub("", text[:4096]).lstrip().startswith(".version")


def entries(text: str) -> dict[str, Entry]:
    """The kernels of a module, by their symbols.

    Who marks pointers, as LLVM does, marks all of them: then other 64-bit parameters are numbers.
    """
    told = {each["name"]: each for each in map(json.loads, _ABOUT.findall(text))}
    marks = re.search(r"\.param\s[^,;()]*\.ptr\b", text) is not None
    found = {}
    for name, parameters, directives in _ENTRY.findall(_COMMENTS.sub("", text)):
        required = _REQUIRED.search(directives)
        x, y, z = (int(each or 1) for each in required.groups()) if required else (0, 0, 0)
        read = [_parameter(*each) for each in _PARAMETER.findall(parameters or "")]
        made_up = re.compile(re.escape(name) + r"_param_\d+")  # by a compiler: it says nothing
        read = [each._replace(name="") if made_up.fullmatch(each.name) else each for each in read]
        if marks:
            read = [each._replace(kind="bits64") if each.kind == "word" else each for each in read]
        found[name] = Entry(tuple(_named(read, told.get(name))), (x, y, z))
    return found


def _named(read: list[Parameter], about: dict[str, Any] | None) -> list[Parameter]:
    """With what hcq's own kernels say of themselves (hcq.kernels.lower.about)."""
    if about is None:
        return read
    kinds = ["const" if access == "r" else "ptr" for access in about["accesses"]] + about["value_types"]
    names = about["buffers"] + about["values"]
    return [Parameter(kind, each.size, name) for each, kind, name in zip(read, kinds, names, strict=True)]


def _parameter(type_: str, pointer: str, name: str, count: str) -> Parameter:
    bits = int(re.sub(r"\D", "", type_.removeprefix("bf")) or 8)
    if count:
        size = int(count) * bits // 8
        return Parameter(f"bytes{size}", size, name)
    if pointer.startswith(".ptr"):
        return Parameter("ptr", 8, name)
    kind = _SIGNED.get(type_) or _BITS.get(bits) or "word"
    return Parameter(kind, bits // 8, name)
