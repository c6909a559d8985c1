"""The pure operations of ir.OPS in SPIR-V, exact to the last bit, an element at a time.

f16 and bf16 are held in an f32, rounded after every operation, and converted by integer instructions: which way
SPIR-V's own conversion rounds is a driver's choice. Operators are kept off operands that they are undefined for. What
does not live here: memory, ids, control flow (spirv).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from hcq.kernels import ir, types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.kernels.lower.spirv_module import Module
    from hcq.kernels.types import Scalar

_BITS: Final = {"and": "BitwiseAnd", "or": "BitwiseOr", "xor": "BitwiseXor"}
_WHOLE: Final = {"add": "IAdd", "sub": "ISub", "mul": "IMul", **_BITS}
_BOOL: Final = {"and": "And", "min": "And", "or": "Or", "max": "Or", "xor": "NotEqual", "not": "Not"}
_REAL: Final = {"add": "FAdd", "sub": "FSub", "mul": "FMul", "div": "FDiv"}
_FUNCTIONS: Final = {"floor": "Floor", "ceil": "Ceil", "trunc": "Trunc", "round": "RoundEven", "sqrt": "Sqrt"}
_ROUNDED: Final = frozenset({"add", "sub", "mul", "div", "sqrt", "fma"})
_ORDER: Final = {"lt": "LessThan", "le": "LessThanEqual", "gt": "GreaterThan", "ge": "GreaterThanEqual"}


def kind(element: Scalar) -> str:
    """The module's name for the type that a value is held in."""
    if element.kind == "b":
        return "bool"
    return f"i{element.bits}" if element.is_integer else "f64" if element is types.f64 else "f32"


def stored(element: Scalar) -> str:
    """The module's name for the type of an element in memory."""
    return {types.bool_: "i8", types.f16: "i16", types.bf16: "i16"}.get(element) or kind(element)


class Arithmetic:
    """Writes operations on identities into a module.

    `in_halves`: 32-bit integers are sign-extended half by half. `zero` is an i32 that is 0 at run time, where compilers
    must not know floats (docs/design/spirv.md, words `mesa` and `llvmpipe`); None elsewhere.
    """

    def __init__(self, module: Module, in_halves: bool = False) -> None:
        self.m = module
        self.in_halves = in_halves
        self.zero: int | None = None

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

    # Helpers

    def literal(self, value: bool | float, element: Scalar) -> int:
        """A constant."""
        name = kind(element)
        if name == "f64":
            return self.m.constant(name, 0x7FF8 << 48 if value != value else _bits("<d", value))
        if name == "f32":
            return self.m.constant(name, 0x7FC00000 if value != value else _bits("<f", value))
        return self.m.constant(name, int(value))

    def op(self, code: str, name: str, *operands: int) -> int:
        """`Op` and the code, of a result type by its name."""
        return self.m.emit(f"Op{code}", self.m.type(name), *operands)

    def function(self, code: str, name: str, *operands: int) -> int:
        """An extended instruction."""
        return self.m.emit("OpExtInst", self.m.type(name), self.m.extended, code, *operands)

    def number(self, value: int, name: str) -> int:
        return self.m.constant(name, value)

    def thirty_two(self, value: int) -> int:
        return self.number(value, "i32")

    def test(self, code: str, *operands: int) -> int:
        return self.op(code, "bool", *operands)

    def choose(self, condition: int, a: int, b: int, name: str) -> int:
        return self.op("Select", name, condition, a, b)

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

    def unknown(self, value: int, name: str) -> int:
        """A number as it is, in a way that no compiler sees through."""
        if self.zero is None:
            return value
        whole = "i" + name[1:]
        nothing = self.zero if whole == "i32" else self.op("UConvert", whole, self.zero)
        if name == whole:
            return self.op("BitwiseOr", whole, value, nothing)
        return self.op("Bitcast", name, self.op("BitwiseOr", whole, self.op("Bitcast", whole, value), nothing))

    def extended(self, value: int, element: Scalar) -> int:
        """An integer in 64 bits."""
        if element.bits == 64:
            return value
        if not self.in_halves or element is not types.i32:
            return self.op("SConvert" if element.kind == "i" else "UConvert", "i64", value)
        signs = self.op("ShiftRightArithmetic", "i32", value, self.thirty_two(31))
        two = self.m.made("OpTypeVector", self.m.type("i32"), 2)
        return self.op("Bitcast", "i64", self.m.emit("OpCompositeConstruct", two, value, signs))

    def copysign(self, a: int, b: int, name: str) -> int:
        whole = "i" + name[1:]
        top = 1 << int(name[1:]) - 1
        bits = [self.op("Bitcast", whole, each) for each in (a, b)]
        size = self.op("BitwiseAnd", whole, bits[0], self.number(top - 1, whole))
        sign = self.op("BitwiseAnd", whole, bits[1], self.number(top, whole))
        return self.op("Bitcast", name, self.op("BitwiseOr", whole, size, sign))

    def rounded(self, value: int, element: Scalar) -> int:
        """An f32 as what f16 or bf16 makes of it; others as they are."""
        if element not in (types.f16, types.bf16):
            return value
        return self.from_bits(self.to_bits(value, element), element)

    def to_bits(self, value: int, element: Scalar) -> int:
        """The bits of an f16 or bf16 held in an f32, as an i32 of 16 bits."""
        raw = self.op("Bitcast", "i32", value)
        unknown = self.test("FUnordNotEqual", value, value)
        n = self.thirty_two
        if element is types.bf16:
            high = self.op("ShiftRightLogical", "i32", raw, n(16))
            last = self.op("BitwiseAnd", "i32", high, n(1))
            carried = self.op("IAdd", "i32", raw, self.op("IAdd", "i32", last, n(0x7FFF)))
            nearest = self.op("ShiftRightLogical", "i32", carried, n(16))
            return self.choose(unknown, self.op("BitwiseOr", "i32", high, n(0x40)), nearest, "i32")
        sign = self.op("BitwiseAnd", "i32", self.op("ShiftRightLogical", "i32", raw, n(16)), n(0x8000))
        size = self.op("BitwiseAnd", "i32", raw, n(0x7FFFFFFF))
        # A normal number: the exponent moved, 13 digits rounded away.
        odd = self.op("BitwiseAnd", "i32", self.op("ShiftRightLogical", "i32", size, n(13)), n(1))
        moved = self.op("IAdd", "i32", self.op("IAdd", "i32", size, n(0xFFF - 0x38000000)), odd)
        normal = self.op("ShiftRightLogical", "i32", moved, n(13))
        # A small one: in units of 2^-24, the last digit of 1/2 as an f32, whose addition rounds.
        half = self.op("FAdd", "f32", self.op("Bitcast", "f32", size), self.number(0x3F000000, "f32"))
        self.m.decorate(half, "NoContraction")
        small = self.op("ISub", "i32", self.op("Bitcast", "i32", half), n(0x3F000000))
        made = self.choose(self.test("ULessThan", size, n(0x38800000)), small, normal, "i32")
        made = self.choose(self.test("UGreaterThanEqual", size, n(0x477FF000)), n(0x7C00), made, "i32")
        made = self.choose(unknown, n(0x7E00), made, "i32")
        return self.op("BitwiseOr", "i32", made, sign)

    def from_bits(self, bits: int, element: Scalar) -> int:
        """The f32 that holds the f16 or bf16 of these 16 bits, in an i32."""
        n = self.thirty_two
        if element is types.bf16:
            return self.op("Bitcast", "f32", self.op("ShiftLeftLogical", "i32", bits, n(16)))
        sign = self.op("ShiftLeftLogical", "i32", self.op("BitwiseAnd", "i32", bits, n(0x8000)), n(16))
        size = self.op("BitwiseAnd", "i32", bits, n(0x7FFF))
        wide = self.op("ShiftLeftLogical", "i32", size, n(13))
        special = self.test("UGreaterThanEqual", size, n(0x7C00))
        bias = self.choose(special, n(0x70000000), n(0x38000000), "i32")
        normal = self.op("IAdd", "i32", wide, bias)
        # A subnormal f16 is a whole number of 2^-24.
        tiny = self.op("FMul", "f32", self.op("ConvertUToF", "f32", size), self.number(0x33800000, "f32"))
        self.m.decorate(tiny, "NoContraction")
        small = self.test("ULessThan", size, n(0x400))
        made = self.choose(small, self.op("Bitcast", "i32", tiny), normal, "i32")
        return self.op("Bitcast", "f32", self.op("BitwiseOr", "i32", made, sign))

    def to_memory(self, value: int, element: Scalar) -> int:
        """A value as it is in memory."""
        if element is types.bool_:
            return self.choose(value, self.number(1, "i8"), self.number(0, "i8"), "i8")
        if element in (types.f16, types.bf16):
            return self.op("UConvert", "i16", self.to_bits(value, element))
        return value

    def from_memory(self, value: int, element: Scalar) -> int:
        """A value from what is in memory."""
        if element is types.bool_:
            return self.test("INotEqual", value, self.number(0, "i8"))
        if element in (types.f16, types.bf16):
            return self.from_bits(self.op("UConvert", "i32", value), element)
        return value

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
            negative = self.test("SLessThan", a, self.number(0, name)) if signed else 0
            return self.choose(negative, self.op("SNegate", name, a), a, name) if signed else a
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

    # Conversions

    def cast(self, a: int, old: Scalar, new: Scalar) -> int:
        if old is new:
            return a
        before, after = kind(old), kind(new)
        if new is types.bool_:
            zero = self.number(0, before)
            return self.test("FUnordNotEqual" if old.is_float else "INotEqual", a, zero)
        if old is types.bool_:
            return self.choose(a, self.literal(1, new), self.literal(0, new), after)
        if old.is_float:
            return self.between_floats(a, old, new) if new.is_float else self.saturated(a, old, new)
        if new.is_float:
            return self.to_float(a, old, new)
        if old.bits == new.bits:
            return a
        if new.bits == 64:
            return self.extended(a, old)
        return self.op("SConvert" if old.kind == "i" else "UConvert", after, a)

    def between_floats(self, a: int, old: Scalar, new: Scalar) -> int:
        before, after = kind(old), kind(new)
        if before == after:
            return self.rounded(a, new)
        if after == "f64" or new is types.f32:
            return self.op("FConvert", after, a)
        return self.rounded(self.odd(a), new)

    def odd(self, value: int) -> int:
        """An f64 as an f32, rounded to odd: rounding that to fewer digits is as good as rounding the f64."""
        near = self.op("FConvert", "f32", value)
        back = self.op("FConvert", "f64", near)
        inexact = self.test(
            "LogicalAnd", self.test("FUnordNotEqual", back, value), self.test("FOrdEqual", value, value)
        )
        past = self.test("FOrdGreaterThan", self.function("FAbs", "f64", back), self.function("FAbs", "f64", value))
        raw = self.op("Bitcast", "i32", near)
        less = self.choose(past, self.number(-1, "i32"), self.number(0, "i32"), "i32")
        last = self.choose(inexact, self.number(1, "i32"), self.number(0, "i32"), "i32")
        return self.op("Bitcast", "f32", self.op("BitwiseOr", "i32", self.op("IAdd", "i32", raw, less), last))

    def saturated(self, a: int, old: Scalar, new: Scalar) -> int:
        """A float as an integer, toward zero and held to the range, NaN as 0."""
        before, after = kind(old), kind(new)
        digits = 53 if old is types.f64 else 24
        like = types.f64 if old is types.f64 else types.f32
        low, high = new.range
        most = high - (high >> digits)  # the largest that the float has: the upper digits
        least, top = self.literal(float(low), like), self.literal(float(most), like)
        held = self.choose(self.test("FOrdGreaterThanEqual", a, least), a, least, before)
        held = self.choose(self.test("FOrdLessThan", held, top), held, top, before)
        made = self.op("ConvertFToS" if new.kind == "i" else "ConvertFToU", after, held)
        if most != high:
            made = self.choose(self.test("FOrdGreaterThan", a, top), self.number(high, after), made, after)
        return self.choose(self.test("FUnordNotEqual", a, a), self.number(0, after), made, after)

    def to_float(self, a: int, old: Scalar, new: Scalar) -> int:
        """From an integer. f32 rounds once; what f16 makes of an integer past 2^24 is infinite either way."""
        if new is types.bf16 and old.bits > 16:
            a = self.shortened(a, old)
        made = self.op("ConvertSToF" if old.kind == "i" else "ConvertUToF", kind(new), a)
        return self.rounded(made, new)

    def shortened(self, a: int, old: Scalar) -> int:
        """An integer that an f32 holds, and that bf16 makes the same of: digits past the 14th may become one bit."""
        name = kind(old)
        size = self.whole("abs", old, (a,), None)
        cut = self.number(0, name)
        for count in range(10, old.bits - 20, 10):
            past = self.test("UGreaterThanEqual", size, self.number(1 << count + 14, name))
            cut = self.choose(past, self.number(count, name), cut, name)
        unit = self.op("ShiftLeftLogical", name, self.number(1, name), cut)
        below = self.op("ISub", name, unit, self.number(1, name))
        lost = self.test("INotEqual", self.op("BitwiseAnd", name, a, below), self.number(0, name))
        kept = self.op("BitwiseAnd", name, a, self.op("Not", name, below))
        return self.op("BitwiseOr", name, kept, self.choose(lost, unit, self.number(0, name), name))

    def bitcast(self, a: int, old: Scalar, new: Scalar) -> int:
        raw = self.to_memory(a, old)
        if stored(old) != stored(new):
            raw = self.op("Bitcast", stored(new), raw)
        return self.from_memory(raw, new)


def _bits(code: str, value: float) -> int:
    return int.from_bytes(struct.pack(code, value), "little")
