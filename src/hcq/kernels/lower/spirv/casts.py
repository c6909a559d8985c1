"""What SPIR-V's values are held as, and how they become each other: conversions, and the bits of what is in memory.

f16 and bf16 are held in an f32, rounded after every operation, and converted by integer instructions: which way
SPIR-V's own conversion rounds is a driver's choice. What does not live here: other operations (ops).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from hcq.kernels import types

if TYPE_CHECKING:
    from hcq.kernels.lower.spirv.module import Module
    from hcq.kernels.types import Scalar


def kind(element: Scalar) -> str:
    """The module's name for the type that a value is held in."""
    if element.kind == "b":
        return "bool"
    return f"i{element.bits}" if element.is_integer else "f64" if element is types.f64 else "f32"


def stored(element: Scalar) -> str:
    """The module's name for the type of an element in memory."""
    return {types.bool_: "i8", types.f16: "i16", types.bf16: "i16"}.get(element) or kind(element)


class Casts:
    """Writes conversions of identities into a module.

    `in_halves`: 32-bit integers are sign-extended half by half. `zero` is an i32 that is 0 at run time, where compilers
    must not know floats (docs/design/spirv.md, words `mesa` and `llvmpipe`); None elsewhere.
    """

    def __init__(self, module: Module, in_halves: bool = False) -> None:
        self.m = module
        self.in_halves = in_halves
        self.zero: int | None = None

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

    def magnitude(self, a: int, element: Scalar) -> int:
        """An integer without its sign; the least one wraps to itself."""
        if element.kind == "u":
            return a
        name = kind(element)
        negative = self.test("SLessThan", a, self.number(0, name))
        return self.choose(negative, self.op("SNegate", name, a), a, name)

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
        like = types.computed(old)
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
        size = self.magnitude(a, old)
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
