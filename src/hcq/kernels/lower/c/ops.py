"""The pure operations of ir.OPS as expressions of the C family, exact to the last bit, an element at a time.

Integers wrap because they are computed unsigned; floats stand one operation an expression, so that nothing can be
contracted; f16 and bf16 are held in f32 and rounded after every operation. What does not live here: helper functions
(prelude), statements (flow, writer).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from hcq.kernels import ir, types
from hcq.kernels.lower.c.prelude import HELD, STORED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.kernels.lower.c.prelude import Prelude
    from hcq.kernels.types import Scalar

_COMPARE: Final = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_BITS: Final = {"and": "&", "or": "|", "xor": "^"}
_WRAP: Final = {"add": "+", "sub": "-", "mul": "*"}
_ROUNDED: Final = frozenset({"add", "sub", "mul", "div", "sqrt", "fma"})


class Expressions:
    """Writes operations on names; helpers go to the prelude."""

    def __init__(self, prelude: Prelude) -> None:
        self.p = prelude
        self.d = prelude.dialect

    def literal(self, value: bool | float, element: Scalar) -> str:
        """A constant."""
        if element.kind == "b":
            return "1" if value else "0"
        if not element.is_float:
            return self.p.whole(int(value), element)
        held = self.p.held(element)
        if math.isfinite(value):
            text = float(value).hex() + ("f" if held == "f32" else "")
            return f"({text})" if text.startswith("-") else text
        text = self.d.nan if math.isnan(value) else self.d.infinity if value > 0 else f"(-{self.d.infinity})"
        return f"({held}){text}" if held != "f32" else text

    def write(self, code: str, source: Scalar, result: Scalar, operands: Sequence[str]) -> str:
        """An operation whose first operand is of one scalar type and whose result is of another (or the same)."""
        if code in ir.COMPARISONS:
            return f"{operands[0]} {_COMPARE[code]} {operands[1]}"
        if code == "select":
            return "{} ? {} : {}".format(*operands)
        if code == "cast":
            return self.cast(operands[0], source, result)
        if code == "bitcast":
            return self.bitcast(operands[0], source, result)
        if result.is_float:
            return self.real(code, result, operands)
        return self.whole(code, result, operands)

    def real(self, code: str, element: Scalar, operands: Sequence[str]) -> str:
        held = self.p.held(element)
        if code == "neg":
            return f"-{operands[0]}"
        if code in ("min", "max"):
            return f"{self.p.least(code, element)}({', '.join(operands)})"
        text = (self.d.f32 if held == "f32" else self.d.f64)[code].format(*operands)
        return f"{self.p.round(element)}({text})" if element in HELD and code in _ROUNDED else text

    def whole(self, code: str, element: Scalar, operands: Sequence[str]) -> str:
        if element.kind == "b":
            return self.boolean(code, operands)
        t, a = self.p.word(element.name), operands[0]
        u = self.p.word(f"u{max(element.bits, 32)}")
        if code in _WRAP:
            return f"({t})(({u}){a} {_WRAP[code]} ({u}){operands[1]})"
        if code in _BITS:
            return f"({t})({a} {_BITS[code]} {operands[1]})"
        if code in ("min", "max"):
            return f"{a} {'<' if code == 'min' else '>'} {operands[1]} ? {a} : {operands[1]}"
        if code in ("floordiv", "mod"):
            return f"{self.p.divide(code, element)}({', '.join(operands)})"
        if code in ("shl", "shr"):
            return f"{self.p.shift(code, element)}({', '.join(operands)})"
        if code == "neg":
            return f"({t})(0 - ({u}){a})"
        if code == "not":
            return f"({t})~{a}"
        if code == "abs":
            return a if element.kind == "u" else f"{a} < 0 ? ({t})(0 - ({u}){a}) : {a}"
        return f"{self.p.count(code, element)}({a})"

    def boolean(self, code: str, operands: Sequence[str]) -> str:
        if code == "not":
            return f"!{operands[0]}"
        sign = {"min": "&", "max": "|"}.get(code) or _BITS[code]
        return f"({self.p.word('bool')})({operands[0]} {sign} {operands[1]})"

    def cast(self, a: str, source: Scalar, target: Scalar) -> str:
        if source is target:
            return a
        if target.kind == "b":
            return f"{a} != 0"
        if not target.is_float:
            if source.is_float:
                return f"{self.p.to_integer(self.p.held(source), target)}({a})"
            return f"({self.p.word(target.name)}){a}"
        held, wanted = self.p.held(source), self.p.held(target)
        if target not in HELD:
            return a if held == wanted else f"({wanted}){a}"
        if held == "f64":
            a = f"{self.p.odd()}({a})"
        elif target is types.bf16 and source.is_integer and source.bits > 16:
            a = f"{self.p.short(source)}({a})"
        elif held != "f32":
            a = f"(f32){a}"
            self.p.word("f32")
        return f"{self.p.round(target)}({a})"

    def bitcast(self, a: str, source: Scalar, target: Scalar) -> str:
        if source is target:
            return a
        bits = f"{self.p.store(source)}({a})" if source in STORED else a
        before, after = STORED.get(source, source.name), STORED.get(target, target.name)
        if before != after:
            both = before[0] in "iu" and after[0] in "iu"
            bits = f"({self.p.word(after)}){bits}" if both else f"{self.p.bitcast(before, after)}({bits})"
        return f"{self.p.load(target)}({bits})" if target in STORED else bits

    def from_memory(self, text: str, element: Scalar) -> str:
        """A value from what is in memory."""
        if element is types.bool_:
            return f"{text} != 0"
        return f"{self.p.load(element)}({text})" if element in STORED else text

    def to_memory(self, name: str, element: Scalar) -> str:
        """What is put into memory for a value."""
        if element is types.bool_:
            return name
        return f"{self.p.store(element)}({name})" if element in STORED else name
