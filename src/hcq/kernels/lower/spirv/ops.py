"""The pure operations of ir.OPS in SPIR-V, exact to the last bit, an element at a time.

Operators are kept off operands that they are undefined for. What does not live here: conversions (casts), memory,
ids (writer), control flow (flow).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hcq.kernels import ir
from hcq.kernels.lower.spirv.casts import Casts, kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.kernels.types import Scalar

_BITS: Final = {"and": "BitwiseAnd", "or": "BitwiseOr", "xor": "BitwiseXor"}
_WHOLE: Final = {"add": "IAdd", "sub": "ISub", "mul": "IMul", **_BITS}
_BOOL: Final = {"and": "And", "min": "And", "or": "Or", "max": "Or", "xor": "NotEqual", "not": "Not"}
_REAL: Final = {"add": "FAdd", "sub": "FSub", "mul": "FMul", "div": "FDiv"}
_FUNCTIONS: Final = {"floor": "Floor", "ceil": "Ceil", "trunc": "Trunc", "round": "RoundEven", "sqrt": "Sqrt"}
_ROUNDED: Final = frozenset({"add", "sub", "mul", "div", "sqrt", "fma"})
_ORDER: Final = {"lt": "LessThan", "le": "LessThanEqual", "gt": "GreaterThan", "ge": "GreaterThanEqual"}


class Arithmetic(Casts):
    """Writes operations on identities into a module."""

    def write(self, code: str, source: Scalar, result: Scalar, operands: Sequence[int], constant: int | None) -> int:
        """An operation whose (first; of select, second) operand is of one type and whose result of another, or the
        same. `constant` is the second operand where that is known."""
        if code == "cast":
            return self.cast(operands[0], source, result)
        if code == "bitcast":
            return self.bitcast(operands[0], source, result)
        if code in ir.COMPARISONS:
            return self.compare(code, source, *operands)
        if code == "select":
            return self.m.emit("OpSelect", self.m.type(kind(result)), *operands)
        if result.is_float:
            return self.real(code, result, operands)
        if result.kind == "b":
            return self.boolean(code, operands)
        return self.whole(code, result, operands, constant)

    # Floats

    def real(self, code: str, element: Scalar, operands: Sequence[int]) -> int:
        name = kind(element)
        if code == "neg":
            return self.op("FNegate", name, *operands)
        if code == "abs":
            return self.function("FAbs", name, *operands)
        if code in ("min", "max"):
            a, b = operands
            first = self.test(f"FOrd{'LessThan' if code == 'min' else 'GreaterThan'}", a, b)
            unknown = self.test("FUnordNotEqual", a, a)
            return self.choose(self.test("LogicalOr", first, unknown), a, b, name)
        if code == "copysign":
            return self.copysign(operands[0], operands[1], name)
        if code in _REAL:
            if self.zero is not None:  # of a difference one: two that are the same are known again
                kept = operands[1:] if code == "sub" else ()
                operands = [self.unknown(each, name) for each in operands[: 2 - len(kept)]] + list(kept)
            result = self.op(_REAL[code], name, *operands)
        elif code == "fma":
            result = self.function("Fma", name, *operands)
        else:
            result = self.function(_FUNCTIONS[code], name, *operands)
        self.m.decorate(result, "NoContraction")
        return self.rounded(result, element) if code in _ROUNDED else result

    def copysign(self, a: int, b: int, name: str) -> int:
        whole = "i" + name[1:]
        top = 1 << int(name[1:]) - 1
        bits = [self.op("Bitcast", whole, each) for each in (a, b)]
        size = self.op("BitwiseAnd", whole, bits[0], self.number(top - 1, whole))
        sign = self.op("BitwiseAnd", whole, bits[1], self.number(top, whole))
        return self.op("Bitcast", name, self.op("BitwiseOr", whole, size, sign))

    # Integers

    def boolean(self, code: str, operands: Sequence[int]) -> int:
        return self.test(f"Logical{_BOOL[code]}", *operands)

    def whole(self, code: str, element: Scalar, operands: Sequence[int], constant: int | None) -> int:
        name, signed = kind(element), element.kind == "i"
        if code in _WHOLE:
            return self.op(_WHOLE[code], name, *operands)
        if code in ("floordiv", "mod"):
            return self.divided(code, element, operands[0], operands[1], constant)
        if code in ("shl", "shr"):
            return self.shifted(code, element, operands[0], operands[1], constant)
        a = operands[0]
        if code in ("min", "max"):
            order = ("S" if signed else "U") + ("LessThan" if code == "min" else "GreaterThan")
            return self.choose(self.test(order, a, operands[1]), a, operands[1], name)
        if code == "neg":
            return self.op("SNegate", name, a)
        if code == "not":
            return self.op("Not", name, a)
        if code == "abs":
            return self.magnitude(a, element)
        return self.counted(code, element, a)

    def counted(self, code: str, element: Scalar, a: int) -> int:
        """popcount and clz: their instructions take 32 bits."""
        name = kind(element)
        if element.bits == 64:
            low, high = self.halves(a)
            counts = [self.count(code, each) for each in (low, high)]
            if code == "popcount":
                return self.op("UConvert", "i64", self.op("IAdd", "i32", *counts))
            below = self.op("IAdd", "i32", counts[0], self.number(32, "i32"))
            none = self.test("IEqual", high, self.number(0, "i32"))
            return self.op("UConvert", "i64", self.choose(none, below, counts[1], "i32"))
        if element.bits == 32:
            return self.count(code, a)
        count = self.count(code, self.op("UConvert", "i32", a))
        if code == "clz":
            count = self.op("ISub", "i32", count, self.number(32 - element.bits, "i32"))
        return self.op("UConvert", name, count)

    def count(self, code: str, a: int) -> int:
        if code == "popcount":
            return self.op("BitCount", "i32", a)
        return self.op("ISub", "i32", self.number(31, "i32"), self.function("FindUMsb", "i32", a))

    def halves(self, a: int) -> tuple[int, int]:
        """The lower and the upper 32 bits of a 64-bit integer."""
        upper = self.op("ShiftRightLogical", "i64", a, self.number(32, "i64"))
        return self.op("UConvert", "i32", a), self.op("UConvert", "i32", upper)

    def divided(self, code: str, element: Scalar, a: int, b: int, constant: int | None) -> int:
        name = kind(element)
        if constant is not None and constant > 0 and constant & (constant - 1) == 0:
            if code == "mod":
                return self.op("BitwiseAnd", name, a, self.number(constant - 1, name))
            shift = "ShiftRightArithmetic" if element.kind == "i" else "ShiftRightLogical"
            return self.op(shift, name, a, self.number(constant.bit_length() - 1, name))
        zero, one, by_zero = self.number(0, name), self.number(1, name), None
        if constant is None or constant == 0:
            by_zero = self.test("IEqual", b, zero)
            b = self.choose(by_zero, one, b, name)
        signed = element.kind == "i"
        by_minus = self.test("IEqual", b, self.number(-1, name)) if signed else 0
        divisor = self.choose(by_minus, one, b, name) if signed else b
        quotient = self.op("SDiv" if signed else "UDiv", name, a, divisor)
        # The remainder by hand: the instructions for it leave open what a negative operand gives.
        left = self.op("ISub", name, a, self.op("IMul", name, quotient, divisor))
        result = quotient if code == "floordiv" else left
        if signed:
            differ = self.test("SLessThan", self.op("BitwiseXor", name, left, divisor), zero)
            down = self.test("LogicalAnd", differ, self.test("INotEqual", left, zero))
            more = self.choose(down, divisor if code == "mod" else self.number(-1, name), zero, name)
            result = self.op("IAdd", name, result, more)
            instead = zero if code == "mod" else self.op("SNegate", name, a)
            result = self.choose(by_minus, instead, result, name)
        return result if by_zero is None else self.choose(by_zero, zero, result, name)

    def shifted(self, code: str, element: Scalar, a: int, b: int, constant: int | None) -> int:
        name, last = kind(element), self.number(element.bits - 1, kind(element))
        left = "ShiftLeftLogical" if code == "shl" else "ShiftRightLogical"
        if code == "shr" and element.kind == "i":
            left = "ShiftRightArithmetic"
        if constant is not None and 0 <= constant < element.bits:
            return self.op(left, name, a, b)
        inside = self.test("ULessThanEqual", b, last)
        count = self.choose(inside, b, last, name)
        made = self.op(left, name, a, count)
        return made if left == "ShiftRightArithmetic" else self.choose(inside, made, self.number(0, name), name)

    def compare(self, code: str, element: Scalar, a: int, b: int) -> int:
        if element.kind == "b":
            if code in ("eq", "ne"):
                return self.test("LogicalEqual" if code == "eq" else "LogicalNotEqual", a, b)
            if code in ("lt", "ge"):  # a < b: b and not a
                less = self.test("LogicalAnd", self.test("LogicalNot", a), b)
                return less if code == "lt" else self.test("LogicalNot", less)
            more = self.test("LogicalAnd", a, self.test("LogicalNot", b))
            return more if code == "gt" else self.test("LogicalNot", more)
        if element.is_float:
            if code == "ne":
                return self.test("FUnordNotEqual", a, b)
            return self.test("FOrdEqual" if code == "eq" else f"FOrd{_ORDER[code]}", a, b)
        if code in ("eq", "ne"):
            return self.test("IEqual" if code == "eq" else "INotEqual", a, b)
        return self.test(("S" if element.kind == "i" else "U") + _ORDER[code], a, b)
