"""Control flow of a kernel in the C family: statements in statements, and the variables that pass values on.

What does not live here: what stands in a block (writer).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hcq.kernels import types
from hcq.kernels.accesses import access_words
from hcq.kernels.lower.blocks import BlockWriter
from hcq.kernels.lower.c.prelude import Prelude
from hcq.kernels.pointers import Origins
from hcq.kernels.types import Pointer, Vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.kernels.ir import Block, Function, Op, Value
    from hcq.kernels.lower.c.dialects import Dialect


class _Loop:
    """The loop that is being written: the variables it carries, and those of its results (the same, of a `for`)."""

    __slots__ = ("carried", "is_left", "results")

    def __init__(self, carried: list[list[str]], results: list[list[str]]) -> None:
        self.carried, self.results = carried, results
        self.is_left = False


class Flow(BlockWriter[list[str], str]):
    """Writes control flow. `names` are each value's variables, one an element; `wide` those of indices, an i64."""

    def __init__(self, function: Function, dialect: Dialect) -> None:
        super().__init__(function)
        self.d = dialect
        self.p = Prelude(dialect)
        self.lines: list[str] = []
        self.indent = "  "
        self.loops: list[_Loop] = []
        self.results: list[Sequence[Value]] = []
        self.count = 0
        words = zip(function.pointers, access_words(function), strict=True)
        self.only_read = {each for each, word in words if word == "r"}
        self.origins = Origins(function)

    # Lines and names

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def name(self, hint: str) -> str:
        self.count += 1
        return f"{re.sub(r'^[^A-Za-z]+|[^A-Za-z0-9]', '', hint) or 'v'}_{self.count}"

    def spelled(self, value: Value) -> str:
        if isinstance(value.type, Pointer):
            # What is only read says so: the CPU devices' libraries record it, and compilers may use it.
            const = "const " if self.origins.of(value) <= self.only_read else ""
            return const + self.p.pointer(value.type.element, value.type.space)
        return self.p.held(types.element_of(value.type)) + " "

    def declare(self, value: Value, texts: Sequence[str] | None = None) -> list[str]:
        """Variables for a value, one an element, with their first values if there are any."""
        lanes = value.type.lanes if isinstance(value.type, Vector) else 1
        name, spelled = self.name(value.name), self.spelled(value)
        names = [name] if lanes == 1 else [f"{name}_{lane}" for lane in range(lanes)]
        for each, text in zip(names, texts or [""] * lanes, strict=True):
            self.line(f"{spelled}{each}{' = ' if text else ''}{text};")
        return names

    def define(self, value: Value, texts: Sequence[str]) -> None:
        self.names[value] = self.declare(value, texts)
        self.widen(value)

    def widen(self, value: Value) -> None:
        """Names the index of a value that is there as it is; C converts it where it is used."""
        if value in self.needs.wide:
            self.p.word("i64")
            self.wide[value] = f"(i64){self.names[value][0]}"

    def passed(self, value: Value) -> list[str]:
        """The variables of a value that others are set to."""
        return [self.unqualified(value, each) for each in self.names[value]]

    def unqualified(self, value: Value, text: str) -> str:
        """A pointer without its const, which it may lose where ways meet; anything else as it is."""
        if not isinstance(value.type, Pointer) or self.origins.of(value).isdisjoint(self.only_read):
            return text
        return f"({self.p.pointer(value.type.element, value.type.space)}){text}"

    def assign(self, targets: Sequence[list[str]], values: Sequence[Value]) -> None:
        """Assigns values to variables all at once: through others where one is read after it is written."""
        pairs: list[tuple[str, str]] = []
        written: list[str] = []
        for places, value in zip(targets, values, strict=True):
            for name, source, text in zip(places, self.names[value], self.passed(value), strict=True):
                if name == source:
                    continue
                if source in written:
                    kept = self.name("next")
                    self.line(f"{self.spelled(value)}{kept} = {text};")
                    text = self.unqualified(value, kept)
                pairs.append((name, text))
                written.append(name)
        for name, text in pairs:
            self.line(f"{name} = {text};")

    # Blocks

    def inner(self, block: Block) -> bool:
        self.indent += "  "
        left = self.block(block)
        self.indent = self.indent[:-2]
        return left

    def on_if(self, op: Op) -> bool:
        targets = [self.declare(each) for each in op.results]
        self.results.append(op.results)
        for result, names in zip(op.results, targets, strict=True):
            self.names[result] = names
        self.line(f"if ({self.names[op.operands[0]][0]}) {{")
        left = self.inner(op.blocks[0])
        mark = len(self.lines)
        self.line("} else {")
        left = self.inner(op.blocks[1]) and left
        if len(self.lines) == mark + 1:
            self.lines.pop()
        self.line("}")
        self.results.pop()
        for each in op.results:
            self.widen(each)
        return left

    def on_yield(self, op: Op) -> bool:
        self.assign([self.names[each] for each in self.results[-1]], op.operands)
        return True

    def enter(self, arguments: Sequence[Value], initial: Sequence[Value]) -> list[list[str]]:
        """The variables that a loop carries."""
        carried = []
        for value, first in zip(arguments, initial, strict=True):
            self.names[value] = self.declare(value, self.passed(first))
            carried.append(self.names[value])
            self.widen(value)
        return carried

    def on_loop(self, op: Op) -> bool:
        (block,) = op.blocks
        results = [self.declare(each) for each in op.results]
        carried = self.enter(block.arguments, op.operands)
        self.line("for (;;) {")
        return self.round(op, carried, results)

    def on_for(self, op: Op) -> bool:
        """Python's range. An index of up to 32 bits runs in 64, where nothing overflows; one of 64 bits, in steps other
        than 1, runs beside a count of the rounds that are left."""
        (block,) = op.blocks
        index, step = block.arguments[0], op.attributes["step"]
        element = types.element_of(index.type)
        (start,), (stop,) = (self.names[each] for each in op.operands[:2])
        carried = self.enter(block.arguments[1:], op.operands[2:])
        at, sign, by = self.name(index.name or "i"), "<" if step > 0 else ">", f"{abs(step)}"
        move = f"{at} {'+' if step > 0 else '-'}= {by}"
        if element.bits == 64 and abs(step) != 1:
            t, u64, left = self.p.word(element.name), self.p.word("u64"), self.name("left")
            low, high = (start, stop) if step > 0 else (stop, start)
            self.line(f"{u64} {left} = {low} < {high} ? (({u64}){high} - ({u64}){low} - 1) / {by} + 1 : 0;")
            self.line(f"{t} {at} = {start};")
            moved = f"{at} = ({t})(({u64}){at} {'+' if step > 0 else '-'} {by})"
            self.line(f"for (; {left} != 0; {left}--, {moved}) {{")
        else:
            wide = self.p.word(element.name if element.bits == 64 else "i64")
            end = stop
            if not re.fullmatch(r"[\d]+", stop):
                end = self.name("stop")
                self.line(f"{wide} {end} = {stop};")
            self.line(f"for ({wide} {at} = {start}; {at} {sign} {end}; {move}) {{")
        self.names[index], self.wide[index] = [at], at
        if element.bits < 64 and index in self.needs.plain:
            self.indent += "  "
            self.names[index] = self.declare(index, [f"({self.p.word(element.name)}){at}"])
            self.indent = self.indent[:-2]
        return self.round(op, carried, carried)

    def round(self, op: Op, carried: list[list[str]], results: list[list[str]]) -> bool:
        """The body of a loop, and what follows it: its results."""
        self.loops.append(_Loop(carried, results))
        outer, self.results = self.results, []
        self.inner(op.blocks[0])
        if self.lines[-1] == f"{self.indent}  continue;":
            self.lines.pop()
        self.results = outer
        loop = self.loops.pop()
        self.line("}")
        for result, names in zip(op.results, results, strict=True):
            self.names[result] = names
            self.widen(result)
        return op.code == "loop" and not loop.is_left

    def on_continue(self, op: Op) -> bool:
        self.assign(self.loops[-1].carried, op.operands)
        self.line("continue;")
        return True

    def on_break(self, op: Op) -> bool:
        loop = self.loops[-1]
        self.assign(loop.results, op.operands)
        self.line("break;")
        loop.is_left = True
        return True

    def on_return(self, op: Op) -> bool:
        self.line("return;")
        return True
