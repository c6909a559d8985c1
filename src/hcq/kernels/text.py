"""The form in the middle as text: `print_function` writes it for people, `parse` reads exactly that.

    kernel scale(x: ptr<f32, global>, n: i32) {
      %i = id : i32 {kind="global_id", dim=0}  ; scale.py:4:7
      %c = lt %i, %n : bool
      if %c {
        %v = load %x, %i : f32
        ...
        yield
      } else {
        yield
      }
      return
    }

One operation a line: results, code, operands, the results' types, attributes, blocks; after `;` the place in the user's
source. Names are the user's where they are free. What does not live here: what operations mean (ir).
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, Final

from hcq.errors import InvalidProgram
from hcq.kernels import types
from hcq.kernels.ir import Block, Function, Location, Op, Value
from hcq.kernels.verify import verify

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hcq.kernels.types import Space, Type

VERSION: Final = 1
"""The first line of a printed function says which form it has."""


def print_function(function: Function) -> str:
    """The text of a function."""
    return _Printer(function).text()


def parse(text: str) -> Function:
    """The function that a text describes, verified. Raises InvalidProgram with the line where it is none."""
    function = _Parser(text).function()
    verify(function)
    return function


class _Printer:
    def __init__(self, function: Function) -> None:
        self.function = function
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set()

    def text(self) -> str:
        parameters = ", ".join(f"{self.define(each)[1:]}: {each.type}" for each in self.function.parameters)
        head = [f"hcq.ir {VERSION} {json.dumps(self.function.file)}", f"kernel {self.function.name}({parameters}) {{"]
        return "\n".join([*head, *self.block(self.function.body, "  "), "}"]) + "\n"

    def define(self, value: Value) -> str:
        """Gives a value its name, which is free."""
        base = re.sub(r"\W", "_", value.name, flags=re.ASCII)
        name = base if base and not base[0].isdigit() else ""
        if not name or name in self.taken:
            prefix, number = (f"{name}_" if name else ""), len(self.taken) if not name else 1
            while f"{prefix}{number}" in self.taken:
                number += 1
            name = f"{prefix}{number}"
        self.taken.add(name)
        self.names[value] = f"%{name}"
        return self.names[value]

    def block(self, block: Block, indent: str) -> Iterable[str]:
        for op in block.ops:
            results = ", ".join(self.define(each) for each in op.results)
            line = f"{indent}{results} = {op.code}" if results else f"{indent}{op.code}"
            if op.operands:
                line += " " + ", ".join(self.names[each] for each in op.operands)
            if op.results:
                line += " : " + ", ".join(str(each.type) for each in op.results)
            if op.attributes:
                listed = ", ".join(f"{key}={_literal(value)}" for key, value in op.attributes.items())
                line += f" {{{listed}}}"
            place = _place(op.location)
            for number, inner in enumerate(op.blocks):
                arguments = ", ".join(f"{self.define(each)}: {each.type}" for each in inner.arguments)
                opening = (f" ({arguments})" if arguments else "") + " {"
                yield line + opening + place if number == 0 else f"{indent}}} else{opening}"
                place = ""
                yield from self.block(inner, indent + "  ")
            yield f"{indent}}}" if op.blocks else line + place


class _Parser:
    """Reads what `_Printer` writes, line by line."""

    _HEAD = re.compile(r'hcq\.ir (\d+) ("(?:[^"\\]|\\.)*")')
    _KERNEL = re.compile(r"kernel (\w+)\((.*)\) \{")
    _OP = re.compile(
        r"(?:(?P<results>%\w+(?:, %\w+)*) = )?(?P<code>\w+)(?: (?P<operands>%\w+(?:, %\w+)*))?"
        r"(?: : (?P<types>[\w<>]+(?:, [\w<>]+)*))?(?: \{(?P<attributes>[^{}]+)\})?"
        r"(?P<block>(?: \((?P<arguments>[^()]*)\))? \{)?(?:  ; (?P<place>.*))?"
    )
    _ELSE = re.compile(r"\} else(?: \((?P<arguments>[^()]*)\))? \{")
    _TYPED = re.compile(r"%?(\w+): (ptr<\w+, \w+>|\w+)")
    _ATTRIBUTE = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|[^,]+)(?:, |$)')

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.at = 0
        self.values: dict[str, Value] = {}

    def fail(self, why: str) -> InvalidProgram:
        shown = self.lines[self.at - 1].strip()[:100] if 0 < self.at <= len(self.lines) else "the end"
        return InvalidProgram(f"the text of a kernel, line {self.at}: {why}: {shown}")

    def line(self) -> str:
        if self.at >= len(self.lines):
            raise self.fail("it ends too early")
        self.at += 1
        return self.lines[self.at - 1].strip()

    def function(self) -> Function:
        head = self._HEAD.fullmatch(self.line())
        if head is None or int(head[1]) != VERSION:
            raise self.fail(f"expected hcq.ir {VERSION}")
        kernel = self._KERNEL.fullmatch(self.line())
        if kernel is None:
            raise self.fail("expected kernel NAME(PARAMETERS) {")
        parameters = self.typed(kernel[2])
        body = self.block([])
        if body[1] != "}" or any(each.strip() for each in self.lines[self.at :]):
            raise self.fail("expected } and the end")
        return Function(kernel[1], parameters, body[0], file=json.loads(head[2]))

    def typed(self, text: str | None) -> list[Value]:
        """`name: type` pairs, defined."""
        if not text:
            return []
        found = [self.define(match[1], self.type(match[2])) for match in self._TYPED.finditer(text)]
        if len(self._TYPED.sub("", text).replace(", ", "")) or not found:
            raise self.fail("expected NAME: TYPE")
        return found

    def define(self, name: str, type_: Type, value: Value | None = None) -> Value:
        if name in self.values:
            raise self.fail(f"%{name} is defined twice")
        value = value or Value(type_, name)
        value.name = "" if name.isdigit() else name
        self.values[name] = value
        return value

    def type(self, text: str) -> Type:
        pointed = re.fullmatch(r"ptr<(\w+), (\w+)>", text)
        lanes = re.fullmatch(r"(\w+?)x(\d+)", text)
        try:
            if pointed is not None:
                space: Space = pointed[2]  # type: ignore[assignment]  # pointer() refuses others
                return types.pointer(types.scalar(pointed[1]), space)
            if lanes is not None:
                return types.vector(types.scalar(lanes[1]), int(lanes[2]))
            return types.scalar(text)
        except TypeError as error:
            raise self.fail(str(error)) from None

    def block(self, arguments: list[Value]) -> tuple[Block, str]:
        """A block, and the line that ended it."""
        block = Block(arguments)
        while not (line := self.line()).startswith("}"):
            match = self._OP.fullmatch(line)
            if match is None:
                raise self.fail("this is no operation")
            try:
                operands = [self.values[each[1:]] for each in (match["operands"] or "").split(", ") if each]
            except KeyError as error:
                raise self.fail(f"%{error.args[0]} is not defined") from None
            results = [self.type(each[0]) for each in re.finditer(r"ptr<\w+, \w+>|\w+", match["types"] or "")]
            names = [each[1:] for each in (match["results"] or "").split(", ") if each]
            if len(names) != len(results):
                raise self.fail(f"{len(names)} results have {len(results)} types")
            blocks = self.blocks(match) if match["block"] else []
            op = Op(match["code"], operands, results, self.attributes(match["attributes"]), blocks)
            op.location = _read_place(match["place"])
            for name, value in zip(names, op.results, strict=True):
                self.define(name, value.type, value)
            block.ops.append(op)
        return block, line

    def blocks(self, match: re.Match[str]) -> list[Block]:
        blocks = []
        arguments = self.typed(match["arguments"])
        while True:
            block, end = self.block(arguments)
            blocks.append(block)
            if end == "}":
                return blocks
            another = self._ELSE.fullmatch(end)
            if another is None:
                raise self.fail("expected } or } else {")
            arguments = self.typed(another["arguments"])

    def attributes(self, text: str | None) -> dict[str, Any]:
        if not text:
            return {}
        if self._ATTRIBUTE.sub("", text):
            raise self.fail("expected NAME=VALUE")
        return {match[1]: self.literal(match[2]) for match in self._ATTRIBUTE.finditer(text)}

    def literal(self, text: str) -> Any:
        if text in ("true", "false"):
            return text == "true"
        try:
            if text.startswith('"'):
                return json.loads(text)
            return int(text) if re.fullmatch(r"-?\d+", text) else _read_float(text)
        except ValueError:
            raise self.fail(f"{text} is no value") from None


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        return value.hex() if math.isfinite(value) else "inf" if value > 0 else "-inf"
    return json.dumps(value)


def _read_float(text: str) -> float:
    return float(text) if text in ("nan", "inf", "-inf") else float.fromhex(text)


def _place(location: Location | None) -> str:
    chain = []
    while location is not None:
        chain.append(str(location))
        location = location.inlined_at
    return "  ; " + " < ".join(chain) if chain else ""


def _read_place(text: str | None) -> Location | None:
    location: Location | None = None
    for each in reversed((text or "").split(" < ")):
        match = re.fullmatch(r"(.*):(\d+):(\d+)", each)
        if match is not None:
            location = Location(match[1], int(match[2]), int(match[3]), location)
    return location
