"""Just enough of relocatable ELF64 objects (System V gABI): sections, symbols, relocations, and dropping debug parts.

Reads what a compiler of this machine has just written, so malformed files are not expected here. What does not live
here: loading (native/cpu/object.cpp, which trusts nothing) and debug information (dwarf).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

HEADER_SIZE = 64
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELA = struct.Struct("<QQq")

SHT_NULL, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_NOBITS = 0, 2, 3, 4, 8
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR = 1, 2, 4
STT_FUNC, STB_LOCAL = 2, 0


class Section(NamedTuple):
    """One section header, with its name."""

    number: int
    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entsize: int


class Symbol(NamedTuple):
    """One symbol, with its name."""

    name: str
    info: int
    section: int
    value: int
    size: int

    @property
    def is_function(self) -> bool:
        """Whether it is a function that is visible outside of its object."""
        return self.info & 15 == STT_FUNC and self.info >> 4 != STB_LOCAL


class Object:
    """A relocatable object, as bytes. Raises ValueError where the bytes are none."""

    def __init__(self, data: bytes) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not a 64-bit little-endian ELF object")
        self.data = data
        self.machine: int = struct.unpack_from("<H", data, 18)[0]
        (table,) = struct.unpack_from("<Q", data, 40)
        count, names_index = struct.unpack_from("<HH", data, 60)
        raw = [SECTION.unpack_from(data, table + i * SECTION.size) for i in range(count)]
        names_at = raw[names_index][4]
        self._names_index = names_index
        self.sections = [Section(i, self._text(names_at + header[0]), *header[1:]) for i, header in enumerate(raw)]
        self.by_name = {section.name: section for section in self.sections}
        self.symbols: list[Symbol] = []
        for section in self.sections:
            if section.type == SHT_SYMTAB:
                strings = self.sections[section.link].offset
                self.symbols = [
                    Symbol(self._text(strings + name), info, where, value, size)
                    for name, info, _other, where, value, size in SYMBOL.iter_unpack(self.contents(section))
                ]
        self._relocations = {section.info: section for section in self.sections if section.type == SHT_RELA}

    def contents(self, section: Section) -> bytes:
        """The stored bytes of a section."""
        if section.type == SHT_NOBITS:
            return b""
        return self.data[section.offset : section.offset + section.size]

    def relocations(self, section: Section) -> list[tuple[int, int, int, int]]:
        """(offset, type, symbol index, addend) of every relocation of a section."""
        source = self._relocations.get(section.number)
        if source is None:
            return []
        return [
            (offset, info & 0xFFFFFFFF, info >> 32, addend)
            for offset, info, addend in RELA.iter_unpack(self.contents(source))
        ]

    def stripped(self) -> bytes:
        """The object without debug information, notes and unwind tables. Indices stay: what is dropped is emptied."""
        keep = {self._names_index}
        for section in self.sections:
            if section.flags & SHF_ALLOC and not section.name.startswith((".eh_frame", ".note")):
                keep.add(section.number)
            elif section.type == SHT_SYMTAB:
                keep |= {section.number, section.link}
        keep |= {section.number for section in self.sections if section.type == SHT_RELA and section.info in keep}
        out = bytearray(self.data[:HEADER_SIZE])
        headers = bytearray()
        for section in self.sections:
            if section.number not in keep:
                headers += bytes(SECTION.size)
                continue
            contents = self.contents(section)
            out += bytes(-len(out) % max(16, min(section.align, 64)))
            offset = len(out)
            out += contents
            name = struct.unpack_from("<I", self.data, self._header_offset(section.number))[0]
            headers += SECTION.pack(
                name, section.type, section.flags, 0, offset, section.size, section.link, section.info, section.align,
                section.entsize,
            )  # fmt: skip
        out += bytes(-len(out) % 16)
        struct.pack_into("<Q", out, 40, len(out))
        return bytes(out + headers)

    def _header_offset(self, index: int) -> int:
        return int(struct.unpack_from("<Q", self.data, 40)[0]) + index * SECTION.size

    def _text(self, at: int) -> str:
        return self.data[at : self.data.index(b"\0", at)].decode(errors="replace")
