"""Which line of the PTX each instruction of the host's code was made of: through LLVM's debug information.

The emitter leaves a line at instructions (`!hcq.line`), since what rewrites kernels knows nothing of debug information.
`with_lines` makes that of them, and `table` reads what LLVM wrote into an object (DWARF 4, section 6.2). What does not
live here: the lines of the source that the PTX was made of, which the PTX says itself.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from hcq.drivers.cpu.elf import Object

MARK = "hcq.line"
_MARKED = re.compile(r", !hcq\.line !(\d+)")
_NODE = re.compile(r"^!(\d+) = (?:!\{i32 (\d+)\}$)?", re.MULTILINE)
_DEFINED = re.compile(r'^define .*?(@"[^"]*"|@[-\w$.]+)\(', re.MULTILINE)
_CALLED = re.compile(r' call .*?(@"[^"]*"|@[-\w$.]+)\(')
_ROW = struct.Struct("<II")


# Instructions that LLVM makes no access of.
_SILENT = {"br", "switch", "ret", "unreachable", "getelementptr", "phi", "inttoptr", "ptrtoint", "extractvalue"}


class Table(NamedTuple):
    """`rows` are pairs of 32 bits: from which byte of the code on, which line; the last one ends it. The code's byte
    `offset` is where `symbol` is; no symbol: nothing is known."""

    symbol: str
    offset: int
    rows: bytes


def tells(instruction: str, slots: set[str]) -> bool:
    """Whether an instruction may access memory of the program, or LLVM may put an access in it: then its line is told.
    Slots on the stack are no such memory."""
    head, _, rest = instruction.partition(" = ")
    operation = (rest or head).split(" ", 1)[0]
    if operation in ("load", "store"):
        return instruction.rpartition(", ptr ")[2].partition(",")[0] not in slots
    return operation not in _SILENT and "@hcq." not in instruction and "@llvm.coro" not in instruction


def with_lines(llvm_ir: str) -> str:
    """A module with debug information in place of its marks."""
    if f"!{MARK}" not in llvm_ir or "!llvm.module.flags" in llvm_ir:
        return llvm_ir
    values = {number: int(line) for number, line in _NODE.findall(llvm_ir) if line}
    defined = set(_DEFINED.findall(llvm_ir))
    first = max(int(number) for number, _ in _NODE.findall(llvm_ir)) + 1
    file, unit, kind = first, first + 1, first + 2
    nodes = [
        f'!{file} = !DIFile(filename: "ptx", directory: "")',
        f"!{unit} = distinct !DICompileUnit(language: DW_LANG_C, file: !{file}, emissionKind: LineTablesOnly)",
        f"!{kind} = !DISubroutineType(types: !{{null}})",
    ]
    places: dict[int, int] = {}
    scope = 0

    def place(line: int) -> int:
        if line not in places:
            places[line] = first + len(nodes)
            nodes.append(f"!{places[line]} = !DILocation(line: {line}, scope: !{scope})")
        return places[line]

    lines = llvm_ir.split("\n")
    for n, text in enumerate(lines):
        if text.startswith("define "):
            scope = first + len(nodes)
            places = {}
            nodes.append(
                f'!{scope} = distinct !DISubprogram(name: "k", file: !{file}, scope: !{file}, unit: !{unit}, '
                f"type: !{kind}, spFlags: DISPFlagDefinition)"
            )
            lines[n] = f"{text.removesuffix('{')}!dbg !{scope} {{"
        elif f"!{MARK}" in text:
            lines[n] = _MARKED.sub(lambda mark: f", !dbg !{place(values[mark[1]])}", text)
        elif " call " in text and (called := _CALLED.search(text)) and called[1] in defined:
            lines[n] = f"{text}, !dbg !{place(0)}"  # LLVM asks for one where it may write a function into another
    flags = first + len(nodes)
    return "\n".join([
        *lines, *nodes, f'!{flags} = !{{i32 7, !"Dwarf Version", i32 4}}',
        f'!{flags + 1} = !{{i32 2, !"Debug Info Version", i32 3}}',
        f"!llvm.dbg.cu = !{{!{unit}}}", f"!llvm.module.flags = !{{!{flags}, !{flags + 1}}}", "",
    ])  # fmt: skip


def table(data: bytes) -> Table:
    """What an object says of its code."""
    elf = Object(data)
    section = elf.by_name.get(".debug_line")
    if section is None:
        return Table("", 0, b"")
    where = {offset: (elf.symbols[symbol], addend) for offset, _, symbol, addend in elf.relocations(section)}
    starts = {offset: symbol.value + addend for offset, (symbol, addend) in where.items()}
    code = {symbol.section for symbol, _ in where.values()}
    anchor = next((symbol for symbol in elf.symbols if symbol.is_function and symbol.section in code), None)
    if anchor is None or len(code) != 1:
        return Table("", 0, b"")
    rows: list[tuple[int, int]] = []
    for row in _rows(elf.contents(section), starts):
        if rows and rows[-1][0] == row[0]:
            rows[-1] = row
        elif not rows or rows[-1][1] != row[1]:
            rows.append(row)
    rows.sort(key=lambda row: row[0])
    return Table(anchor.name, anchor.value, b"".join(_ROW.pack(*row) for row in rows))


def _rows(data: bytes, starts: dict[int, int]) -> list[tuple[int, int]]:
    """(byte, line) for each row of a section's programs, in their order; line 0 where a sequence ends."""
    rows: list[tuple[int, int]] = []
    at = 0
    while at < len(data):
        length, _, header = struct.unpack_from("<IHI", data, at)
        end = at + 4 + length
        least, _, _, base, span, special = struct.unpack_from("<BBBbBB", data, at + 10)
        lengths = data[at + 16 : at + 15 + special]
        program = _Program(data, at + 10 + header, end, starts)
        program.run(least, base, span, special, lengths)
        rows += program.rows
        at = end
    return rows


class _Program:
    """A line-number program."""

    def __init__(self, data: bytes, at: int, end: int, starts: dict[int, int]) -> None:
        self.data, self.at, self.end, self.starts = data, at, end, starts
        self.rows: list[tuple[int, int]] = []
        self.address, self.line = 0, 1

    def run(self, least: int, base: int, span: int, special: int, lengths: bytes) -> None:
        while self.at < self.end:
            code = self._byte()
            if code >= special:
                self.address += (code - special) // span * least
                self.line += base + (code - special) % span
                self.rows.append((self.address, self.line))
            elif code == 0:
                self._extended()
            elif code == 1:  # copy
                self.rows.append((self.address, self.line))
            elif code == 2:  # advance_pc
                self.address += self._number() * least
            elif code == 3:  # advance_line
                self.line += self._number(signed=True)
            elif code == 8:  # const_add_pc
                self.address += (255 - special) // span * least
            elif code == 9:  # fixed_advance_pc
                self.address += struct.unpack_from("<H", self.data, self.at)[0]
                self.at += 2
            else:
                for _ in range(lengths[code - 1]):
                    self._number()

    def _extended(self) -> None:
        size = self._number()
        after = self.at + size
        code = self._byte()
        if code == 1:  # end_sequence
            self.rows.append((self.address, 0))
            self.address, self.line = 0, 1
        elif code == 2:  # set_address
            self.address = self.starts.get(self.at, 0)
        self.at = after

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _number(self, signed: bool = False) -> int:
        """LEB128."""
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value - (1 << shift) if signed and byte & 64 else value
