"""The CPU library: a table of functions beside one relocatable object, as bytes. Written and read here.

The layout is described in docs/design/code.md. What does not live here: making objects (toolchain), loading them
(native/cpu), and judging whether one may be loaded (the loader checks every bound again).
"""

from __future__ import annotations

import enum
import struct
import zlib
from typing import NamedTuple

from hcq.drivers.cpu import LIBRARY_VERSION
from hcq.errors import InvalidProgram

MAGIC = b"HCQLIB\x1a\n"
VERSION = LIBRARY_VERSION
HEADER = struct.Struct("<8sIIIIQQQ")  # magic, version, crc, machine, functions, total, object offset, object size
FUNCTION = struct.Struct(
    "<HHBBHII"
)  # name bytes, reason bytes, kind, flags, parameters, scratch a group, scratch an item
PARAM = struct.Struct("<BBI")  # kind with access in its two high bits, name bytes, offset
ACCESSES = (None, "r", "w", "rw")  # by what those two bits say
TYPED = 1
MACHINES = {"x86_64": 62, "amd64": 62, "aarch64": 183, "arm64": 183}  # e_machine of the ELF gABI


class EntryKind(enum.IntEnum):
    """How a function is entered; the numbers are those of native/core/program.hpp."""

    PLAIN = 1  # C ABI function, called once a launch
    ITEMS = 2  # C ABI function, called once a work-item
    FIBERS = 3  # C ABI function with barriers, a fiber a work-item
    GROUP = 4  # void(const uint8_t *kernargs, const GroupContext *), called once a work-group
    PACKED = 5  # void(const uint8_t *kernargs), called once a launch


class ParamKind(enum.IntEnum):
    """What a parameter is; the numbers are those of native/core/program.hpp."""

    POINTER = 0
    I8 = 1
    U8 = 2
    I16 = 3
    U16 = 4
    I32 = 5
    U32 = 6
    I64 = 7
    U64 = 8
    F16 = 9
    BF16 = 10
    F32 = 11
    F64 = 12
    BOOLEAN = 13
    BITS8 = 14  # integers whose sign nothing recorded, as those of LLVM IR
    BITS16 = 15
    BITS32 = 16
    BITS64 = 17

    @property
    def size(self) -> int:
        """Bytes, and alignment."""
        return _SIZES[self]


_SIZES = dict(zip(ParamKind, (8, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1, 2, 4, 8), strict=True))


class Param(NamedTuple):
    """One parameter: its kind, its name for messages ('' where unknown), and what is done to the memory of a pointer:
    one of ACCESSES, None where that is not known."""

    kind: ParamKind
    name: str = ""
    access: str | None = None


class Function(NamedTuple):
    """One function of a library.

    `params` is None where nothing recorded them; `refused` says why it can't be launched ('' when it can). GROUP
    functions are given scratch memory: bytes a group (a multiple of 64) and bytes a work-item on top of it.
    """

    name: str
    kind: EntryKind
    params: tuple[Param, ...] | None = None
    refused: str = ""
    scratch_group: int = 0
    scratch_item: int = 0

    def offsets(self) -> tuple[int, ...]:
        """Where each argument lies in the kernargs, at its natural alignment."""
        offsets, end = [], 0
        for param in self.params or ():
            offset = -(-end // param.kind.size) * param.kind.size
            offsets.append(offset)
            end = offset + param.kind.size
        return tuple(offsets)


class Library(NamedTuple):
    """What `unpack` returns: the functions, the ELF machine number, and the object's bytes."""

    functions: tuple[Function, ...]
    machine: int
    object: bytes


def pack(object_bytes: bytes, functions: list[Function], machine: int | None = None) -> bytes:
    """Library of an ELF object and its functions. Parameters must have all pointers before any value.

    `machine` is read from the object when not given. Raises ValueError for what the format can't hold.
    """
    if machine is None:
        machine = int.from_bytes(object_bytes[18:20], "little")
    table = bytearray()
    for function in functions:
        params = function.params or ()
        kinds = [param.kind is ParamKind.POINTER for param in params]
        if kinds != sorted(kinds, reverse=True):
            raise ValueError(f"function {function.name!r}: pointers must come before values")
        name, reason = function.name.encode(), function.refused.encode()
        flags = TYPED if function.params is not None else 0
        scratch = (function.scratch_group, function.scratch_item)
        table += FUNCTION.pack(len(name), len(reason), function.kind, flags, len(params), *scratch) + name + reason
        for param, offset in zip(params, function.offsets(), strict=True):
            param_name = param.name.encode()[:255].decode(errors="ignore").encode()
            table += PARAM.pack(param.kind | ACCESSES.index(param.access) << 6, len(param_name), offset) + param_name
    table += bytes(-(HEADER.size + len(table)) % 16)
    offset = HEADER.size + len(table)
    fields = (VERSION, 0, machine, len(functions), offset + len(object_bytes), offset, len(object_bytes))
    image = HEADER.pack(MAGIC, *fields) + table + object_bytes
    crc = zlib.crc32(image)
    return image[:12] + struct.pack("<I", crc) + image[16:]


def unpack(library: bytes) -> Library:
    """The parts of a library, for tools. Raises InvalidProgram where it is damaged or foreign."""
    if library[:8] != MAGIC:
        raise InvalidProgram("not a CPU library of hcq: it doesn't start like one")
    if len(library) < HEADER.size:
        raise InvalidProgram("damaged library: it ends within its header")
    _, version, crc, machine, count, total, offset, size = HEADER.unpack_from(library)
    if version != VERSION:
        raise InvalidProgram(f"library of format {version}, this hcq reads format {VERSION}: compile it anew")
    if total != len(library) or zlib.crc32(library[:12] + bytes(4) + library[16:]) != crc:
        raise InvalidProgram("damaged library: its length or checksum doesn't match; compile it anew")
    functions, at = [], HEADER.size
    try:
        for _ in range(count):
            name_size, reason_size, kind, flags, params_count, group, item = FUNCTION.unpack_from(library, at)
            at += FUNCTION.size
            name = library[at : at + name_size].decode()
            reason = library[at + name_size : at + name_size + reason_size].decode()
            at += name_size + reason_size
            params = []
            for _ in range(params_count):
                param_kind, param_name, _offset = PARAM.unpack_from(library, at)
                at += PARAM.size
                access = ACCESSES[param_kind >> 6]
                params.append(Param(ParamKind(param_kind & 63), library[at : at + param_name].decode(), access))
                at += param_name
            known = tuple(params) if flags & TYPED else None
            functions.append(Function(name, EntryKind(kind), known, reason, group, item))
    except (struct.error, ValueError) as error:
        raise InvalidProgram(f"damaged library: its function table is malformed ({error})") from None
    return Library(tuple(functions), machine, library[offset : offset + size])
