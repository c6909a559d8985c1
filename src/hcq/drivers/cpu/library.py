"""The CPU library: a table of functions beside one relocatable object, as bytes. Written and read here.

The layout is described in docs/design/code.md. What does not live here: making objects (toolchain), loading them
(native/cpu), and judging whether one may be loaded (the loader checks every bound again).
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, ClassVar, NamedTuple, Self

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


class Numbered(int):
    """One of a few numbers that native/core/program.hpp has, with its name; made of any other number: ValueError.

    As enum.IntEnum, which takes as long to make these two as LLVM takes to parse a kernel.
    """

    name: str
    ALL: ClassVar[tuple[Any, ...]] = ()

    def __new__(cls, number: int) -> Self:
        for one in cls.ALL:
            if one == number:
                found: Self = one
                return found
        raise ValueError(f"{number!r} is no {cls.__name__}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (int(self),)

    @classmethod
    def _named(cls, first: int, names: tuple[str, ...]) -> None:
        for number, name in enumerate(names, first):
            one = int.__new__(cls, number)
            one.name = name
            setattr(cls, name, one)
            cls.ALL += (one,)


class EntryKind(Numbered):
    """How a function is entered."""

    PLAIN: ClassVar[EntryKind]  # C ABI function, called once a launch
    ITEMS: ClassVar[EntryKind]  # C ABI function, called once a work-item
    FIBERS: ClassVar[EntryKind]  # C ABI function with barriers, a fiber a work-item
    GROUP: ClassVar[EntryKind]  # void(const uint8_t *kernargs, const GroupContext *), called once a work-group
    PACKED: ClassVar[EntryKind]  # void(const uint8_t *kernargs), called once a launch


EntryKind._named(1, ("PLAIN", "ITEMS", "FIBERS", "GROUP", "PACKED"))


class ParamKind(Numbered):
    """What a parameter is."""

    POINTER: ClassVar[ParamKind]
    I8: ClassVar[ParamKind]
    U8: ClassVar[ParamKind]
    I16: ClassVar[ParamKind]
    U16: ClassVar[ParamKind]
    I32: ClassVar[ParamKind]
    U32: ClassVar[ParamKind]
    I64: ClassVar[ParamKind]
    U64: ClassVar[ParamKind]
    F16: ClassVar[ParamKind]
    BF16: ClassVar[ParamKind]
    F32: ClassVar[ParamKind]
    F64: ClassVar[ParamKind]
    BOOLEAN: ClassVar[ParamKind]
    BITS8: ClassVar[ParamKind]  # integers whose sign nothing recorded, as those of LLVM IR
    BITS16: ClassVar[ParamKind]
    BITS32: ClassVar[ParamKind]
    BITS64: ClassVar[ParamKind]

    @property
    def size(self) -> int:
        """Bytes, and alignment."""
        return _SIZES[self]


ParamKind._named(
    0,
    ("POINTER", "I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64", "F16", "BF16", "F32", "F64", "BOOLEAN")
    + ("BITS8", "BITS16", "BITS32", "BITS64"),
)
_SIZES = (8, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1, 2, 4, 8)


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
