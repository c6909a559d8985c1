"""Local memory in a kernel: globals in addrspace(3) become addresses within the group's scratch.

A global is a constant and stands in constant expressions; its address here is a value. So such expressions become
instructions of the entry block. What does not live here: everything else about kernels (llvm_grid).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from hcq.drivers.cpu import llvm_text as text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hcq.drivers.cpu.llvm_text import Instruction

_NAME = "@hcq.array."
_LOCAL = re.compile(r"@hcq\.array\.(\d+)")
_EXPRESSION = re.compile(
    r"\b(getelementptr|addrspacecast|ptrtoint|ptrtoaddr|inttoptr|bitcast|trunc|add|sub|xor)((?: \w+)*) \("
)
_BRACKETS = re.compile(r'"[^"]*"|[\[\]{}<>]|@hcq\.array\.\d+')
_LARGEST_ALIGN = 64  # of scratch memory


class Refused(Exception):
    """The kernel can't be lowered; the message says why, for a CompileError."""


class LocalArray(NamedTuple):
    """A global in addrspace(3), renamed to `hcq.array.N`: its size and alignment in bytes."""

    name: str
    size: int
    align: int


class Locals:
    """The local memory that one kernel uses: `bytes` of it, and the `entry` instructions that make its addresses."""

    def __init__(self, arrays: Mapping[int, LocalArray]) -> None:
        self.entry: list[str] = []
        self.bytes = 0
        self._arrays = arrays
        self._used: set[int] = set()
        self._expressions: dict[str, str] = {}

    def lower(self, i: Instruction) -> None:
        """Make an instruction use values where it used addresses of local memory. Raises Refused."""
        if _NAME not in i.text:
            return
        line = self._without_expressions(i.text)
        if i.op != "phi":  # whose ways stand in brackets
            depth = 0
            for token in _BRACKETS.findall(line):
                if token.startswith(_NAME) and depth:
                    raise Refused("the address of local memory stands inside a constant vector, array or struct")
                depth += (token in "[{<") - (token in "]}>") if len(token) == 1 else 0
        i.text = self._named(line)

    def _named(self, line: str) -> str:
        return _LOCAL.sub(lambda match: self._array(int(match[1])), line)

    def _without_expressions(self, line: str) -> str:
        at = 0
        while match := _EXPRESSION.search(line, at):
            end = text.closing(line, match.end() - 1) + 1
            if _NAME in line[match.end() : end]:
                name = self._expression(line[match.start() : end], match)
                line = line[: match.start()] + name + line[end:]
                at = match.start() + len(name)
            else:
                at = end
        return line

    def _expression(self, expression: str, match: re.Match[str]) -> str:
        if expression not in self._expressions:
            inner = expression[match.end() - match.start() : -1]
            operands = [self._named(self._without_expressions(o)) for o in text.arguments(inner)]
            if match[1] in ("add", "sub", "xor"):  # the expression repeats the type, the instruction does not
                operands[1] = operands[1].split(" ", 1)[1]
            name = f"%hcq.c.{len(self._expressions)}"
            self.entry.append(f"  {name} = {match[1]}{match[2]} {', '.join(operands)}")
            self._expressions[expression] = name
        return self._expressions[expression]

    def _array(self, number: int) -> str:
        if number not in self._used:
            self._used.add(number)
            array = self._arrays[number]
            if array.align > _LARGEST_ALIGN:
                raise Refused(f"local memory @{array.name} is aligned to {array.align} bytes; at most {_LARGEST_ALIGN}")
            offset = -(-self.bytes // _LARGEST_ALIGN) * _LARGEST_ALIGN
            self.bytes = offset + array.size
            self.entry += [
                f"  %hcq.array.at.{number} = getelementptr inbounds i8, ptr %hcq.local, i64 {offset}",
                f"  %hcq.array.{number} = addrspacecast ptr %hcq.array.at.{number} to ptr addrspace(3)",
            ]
        return f"%hcq.array.{number}"
