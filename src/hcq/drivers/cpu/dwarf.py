"""Parameters of an object's functions, read from its debug information (DWARF 4, which the toolchain asks for).

Reads the types of functions and their parameters and passes over everything else: a general reader costs more than the
compile itself. An object without such information gives nothing, and its functions are then untyped.
What does not live here: whether a function is a kernel (toolchain).
"""

from __future__ import annotations

from typing import NamedTuple

from hcq.drivers.cpu.elf import Object
from hcq.drivers.cpu.library import Param, ParamKind

# DWARF 4, section 7.5.4: tags, attributes and forms by number.
TAG_ARRAY, TAG_ENUM, TAG_PARAMETER, TAG_POINTER, TAG_STRUCT, TAG_SUBROUTINE = 0x01, 0x04, 0x05, 0x0F, 0x13, 0x15
TAG_TYPEDEF, TAG_UNION, TAG_VARIADIC, TAG_BASE, TAG_CONST, TAG_FUNCTION = 0x16, 0x17, 0x18, 0x24, 0x26, 0x2E
TAG_VOLATILE, TAG_RESTRICT, TAG_ATOMIC = 0x35, 0x37, 0x47
QUALIFIERS = frozenset({TAG_TYPEDEF, TAG_CONST, TAG_VOLATILE, TAG_RESTRICT, TAG_ATOMIC})
WANTED = QUALIFIERS | {
    TAG_ARRAY, TAG_ENUM, TAG_PARAMETER, TAG_POINTER, TAG_STRUCT, TAG_SUBROUTINE, TAG_UNION, TAG_VARIADIC, TAG_BASE,
    TAG_FUNCTION,
}  # fmt: skip
AT_NAME, AT_SIZE, AT_ENCODING, AT_DECLARATION, AT_TYPE, AT_LINKAGE = 0x03, 0x0B, 0x3E, 0x3C, 0x49, 0x6E
KEPT = frozenset({AT_NAME, AT_SIZE, AT_ENCODING, AT_DECLARATION, AT_TYPE, AT_LINKAGE})
FORM_STRING, FORM_BLOCK, FORM_BLOCK1, FORM_BLOCK2, FORM_BLOCK4 = 0x08, 0x09, 0x0A, 0x03, 0x04
FORM_SDATA, FORM_UDATA, FORM_REF_UDATA, FORM_EXPRLOC, FORM_STRP = 0x0D, 0x0F, 0x15, 0x18, 0x0E
FIXED = {
    0x01: 8, 0x05: 2, 0x06: 4, 0x07: 8, 0x0B: 1, 0x0C: 1, 0x0E: 4, 0x10: 4, 0x11: 1, 0x12: 2, 0x13: 4, 0x14: 8,
    0x17: 4, 0x19: 0, 0x20: 8, 0x1F20: 4, 0x1F21: 4,
}  # fmt: skip
REFERENCES = frozenset({0x11, 0x12, 0x13, 0x14, FORM_REF_UDATA})  # relative to the unit
ATE_BOOLEAN, ATE_FLOAT, ATE_SIGNED, ATE_SIGNED_CHAR, ATE_UNSIGNED, ATE_UNSIGNED_CHAR, ATE_UTF = 2, 4, 5, 6, 7, 8, 0x10
SIGNED = {1: ParamKind.I8, 2: ParamKind.I16, 4: ParamKind.I32, 8: ParamKind.I64}
UNSIGNED = {1: ParamKind.U8, 2: ParamKind.U16, 4: ParamKind.U32, 8: ParamKind.U64}


class Signature(NamedTuple):
    """A function's parameters, or why it can't be launched ('' when it can). `returns` is False for void."""

    params: tuple[Param, ...]
    refused: str
    returns: bool


class _Entry(NamedTuple):
    tag: int
    attributes: dict[int, int | bytes]  # names are bytes or offsets of strings, the rest are integers
    children: list[_Entry]


class _Abbreviation(NamedTuple):
    tag: int
    children: bool
    forms: list[tuple[int, int]]
    skip: int  # bytes of all forms where none has to be read, else -1


def signatures(obj: Object) -> dict[str, Signature]:
    """Signatures by linker name. Empty where the object has no DWARF 4."""
    info_section, abbreviations = obj.by_name.get(".debug_info"), obj.by_name.get(".debug_abbrev")
    if info_section is None or abbreviations is None:
        return {}
    info = _relocated(obj, ".debug_info")
    abbrev = obj.contents(abbreviations)
    strings = obj.contents(obj.by_name[".debug_str"]) if ".debug_str" in obj.by_name else b""
    found: dict[str, Signature] = {}
    at = 0
    while at + 11 <= len(info):
        length = int.from_bytes(info[at : at + 4], "little")
        end = at + 4 + length
        if length >= 0xFFFFFFF0 or int.from_bytes(info[at + 4 : at + 6], "little") != 4 or info[at + 10] != 8:
            return {}
        table = _abbreviations(abbrev, int.from_bytes(info[at + 6 : at + 10], "little"))
        entries, functions = _entries(info, at, end, table)
        for function in functions:
            attributes = function.attributes
            name = attributes.get(AT_LINKAGE, attributes.get(AT_NAME))
            if name is not None and AT_DECLARATION not in attributes:
                text = _text(name, strings)
                found[text] = _signature(function, entries, strings)
        at = end
    return found


def _relocated(obj: Object, name: str) -> bytearray:
    section = obj.by_name[name]
    data = bytearray(obj.contents(section))
    for offset, _type, symbol, addend in obj.relocations(section):
        value = obj.symbols[symbol].value + addend
        data[offset : offset + 4] = (value & 0xFFFFFFFF).to_bytes(4, "little")  # the low half of addresses suffices
    return data


def _abbreviations(data: bytes, at: int) -> dict[int, _Abbreviation]:
    table: dict[int, _Abbreviation] = {}
    while True:
        code, at = _uleb(data, at)
        if not code:
            return table
        tag, at = _uleb(data, at)
        children, at = bool(data[at]), at + 1
        forms = []
        while True:
            attribute, at = _uleb(data, at)
            form, at = _uleb(data, at)
            if not form:
                break
            forms.append((attribute, form))
        fixed = tag not in WANTED and all(form in FIXED for _, form in forms)
        skip = sum(FIXED[form] for _, form in forms) if fixed else -1
        table[code] = _Abbreviation(tag, children, forms, skip)


def _entries(
    info: bytearray, unit: int, end: int, table: dict[int, _Abbreviation]
) -> tuple[dict[int, _Entry], list[_Entry]]:
    """All entries that matter, by their offset in the unit, and the functions of the unit's top level."""
    entries: dict[int, _Entry] = {}
    functions: list[_Entry] = []
    parents: list[_Entry | None] = []
    at = unit + 11
    while at < end:
        offset = at - unit
        code = info[at]
        at += 1
        if code & 0x80:
            code, at = _uleb(info, at - 1)
        if not code:
            if parents:
                parents.pop()
            continue
        tag, children, forms, skip = table[code]
        entry = None
        if skip >= 0:
            at += skip
        else:
            attributes: dict[int, int | bytes] = {}
            for attribute, form in forms:
                value, at = _value(info, at, form)
                if attribute in KEPT:
                    attributes[attribute] = value
            if tag in WANTED:
                entry = entries[offset] = _Entry(tag, attributes, [])
                parent = parents[-1] if parents else None
                if tag in (TAG_PARAMETER, TAG_VARIADIC) and parent is not None:
                    parent.children.append(entry)
                elif tag == TAG_FUNCTION and len(parents) == 1:
                    functions.append(entry)
        if children:
            parents.append(entry)
    return entries, functions


def _value(data: bytearray, at: int, form: int) -> tuple[int | bytes, int]:
    size = FIXED.get(form)
    if size is not None:
        value = int.from_bytes(data[at : at + size], "little")
        return (value if size else 1), at + size
    if form == FORM_STRING:
        end = data.index(0, at)
        return bytes(data[at:end]), end + 1
    if form in (FORM_UDATA, FORM_SDATA, FORM_REF_UDATA):
        return _uleb(data, at)
    if form in (FORM_BLOCK, FORM_EXPRLOC):
        size, at = _uleb(data, at)
    elif form in (FORM_BLOCK1, FORM_BLOCK2, FORM_BLOCK4):
        width = {FORM_BLOCK1: 1, FORM_BLOCK2: 2, FORM_BLOCK4: 4}[form]
        size, at = int.from_bytes(data[at : at + width], "little"), at + width
    else:
        raise ValueError(f"debug information of unknown form {form:#x}")
    return 0, at + size


def _signature(function: _Entry, entries: dict[int, _Entry], strings: bytes) -> Signature:
    params: list[Param] = []
    refused = ""
    for position, child in enumerate(function.children):
        if child.tag == TAG_VARIADIC:
            refused = refused or "it takes a variable number of arguments"
            break
        name = _text(child.attributes.get(AT_NAME, b""), strings)
        kind = _kind(child, entries, strings)
        if isinstance(kind, str):
            refused = refused or f"parameter {name or position + 1} is {kind}"
            continue
        if kind is ParamKind.POINTER and params and params[-1].kind is not ParamKind.POINTER:
            refused = refused or f"parameter {name or position + 1} is a pointer after a value: pointers come first"
        params.append(Param(kind, name, _access(child, entries) if kind is ParamKind.POINTER else None))
    returned = _resolved(function, entries)
    if returned is not None and returned.tag in (TAG_STRUCT, TAG_UNION, TAG_ARRAY):
        refused = refused or "it returns a struct"
    return Signature(tuple(params), refused, returned is not None)


def _resolved(entry: _Entry, entries: dict[int, _Entry]) -> _Entry | None:
    """The type of an entry, without typedefs and qualifiers; None for void."""
    for _ in range(100):
        reference = entry.attributes.get(AT_TYPE)
        if not isinstance(reference, int):
            return None
        entry = entries[reference]
        if entry.tag not in QUALIFIERS:
            return entry
    return None


def _access(parameter: _Entry, entries: dict[int, _Entry]) -> str:
    """What a pointer parameter says of its memory: read where it points to const, else read and written."""
    pointer = _resolved(parameter, entries)
    pointee = pointer
    while pointee is not None:
        reference = pointee.attributes.get(AT_TYPE)
        pointee = entries[reference] if isinstance(reference, int) else None
        if pointee is not None and pointee.tag == TAG_CONST:
            return "r"
        if pointee is None or pointee.tag not in QUALIFIERS | {TAG_ARRAY}:
            break
    return "rw"


def _kind(parameter: _Entry, entries: dict[int, _Entry], strings: bytes) -> ParamKind | str:
    """What a parameter is; in words, where it isn't supported."""
    resolved = _resolved(parameter, entries)
    if resolved is None:
        return "of no known type"
    if resolved.tag in (TAG_POINTER, TAG_SUBROUTINE):
        return ParamKind.POINTER
    if resolved.tag in (TAG_STRUCT, TAG_UNION):
        return "a struct or union passed by value: pass a pointer"
    if resolved.tag == TAG_ARRAY:
        return "a vector passed by value: pass a pointer"
    size, encoding = int(resolved.attributes.get(AT_SIZE, 0)), resolved.attributes.get(AT_ENCODING)
    if resolved.tag == TAG_ENUM:
        base = _resolved(resolved, entries)
        encoding = base.attributes.get(AT_ENCODING) if base is not None else ATE_UNSIGNED
    kind: ParamKind | None = None
    name = _text(resolved.attributes.get(AT_NAME, b""), strings)
    if encoding in (ATE_SIGNED, ATE_SIGNED_CHAR):
        kind = SIGNED.get(size)
    elif encoding in (ATE_UNSIGNED, ATE_UNSIGNED_CHAR, ATE_UTF):
        kind = UNSIGNED.get(size)
    elif encoding == ATE_BOOLEAN and size == 1:
        kind = ParamKind.BOOLEAN
    elif encoding == ATE_FLOAT:
        half = ParamKind.BF16 if "bf" in name.lower() else ParamKind.F16
        kind = {2: half, 4: ParamKind.F32, 8: ParamKind.F64}.get(size)
    return kind if kind is not None else f"of type {name or 'unknown'}, which can't be passed"


def _text(value: int | bytes, strings: bytes) -> str:
    if isinstance(value, int):
        value = strings[value : strings.index(b"\0", value)]
    return value.decode(errors="replace")


def _uleb(data: bytes | bytearray, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
