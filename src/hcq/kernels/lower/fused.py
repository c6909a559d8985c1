"""a * b + c rounded once (`fma`), from what every target has, for those whose own may round twice.

f32: the product is exact in f64, the sum is rounded there to odd, and then to f32 as if at once. f64: by integers, in
128 bits. What does not live here: which targets need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hcq.kernels import types
from hcq.kernels.ir import Function, Value
from hcq.kernels.lower.rewrite import Rewriter

if TYPE_CHECKING:
    from collections.abc import Collection

    from hcq.kernels.ir import Op
    from hcq.kernels.types import Scalar

_SIGN: Final = 1 << 63
_INFINITY: Final = 0x7FF << 52
_HIDDEN: Final = 1 << 52

Wide = tuple[Value, Value]
"""A whole number of 128 bits: its upper and its lower half."""


def expand(function: Function, elements: Collection[Scalar]) -> Function:
    """The function without `fma` of f32 and f64, as far as `elements` names them; itself, if it has none of these. f16
    and bf16 are computed in f32."""
    for op in function.walk():
        if op.code == "fma" and _computed(op) in elements:
            return _Expansion(function, elements).run()
    return function


def function() -> Function:
    """a * b + c of f64 as a function by itself, which ends by a yield of the result."""
    made = Function("fma", [Value(types.f64, name) for name in "abc"])
    body = _Expansion(made, ())
    made.body = body.b.block
    body.b.op("yield", (body.double(*made.parameters),))
    return made


def _computed(op: Op) -> Scalar:
    return types.computed(types.element_of(op.result.type))


class _Expansion(Rewriter):
    def __init__(self, function: Function, elements: Collection[Scalar]) -> None:
        super().__init__(function)
        self.elements = elements

    def replace(self, op: Op) -> Value | None:
        if op.code != "fma" or _computed(op) not in self.elements:
            return None
        return self.by_lanes(op, self.double if _computed(op) is types.f64 else self.single)

    def single(self, *numbers: Value) -> Value:
        """Of f32, f16 and bf16."""
        s = self.b
        a, b, c = (s.cast(each, types.f64) for each in numbers)
        product = s.binary("mul", a, b)
        total = s.binary("add", product, c)
        # What the sum lost (Knuth's two-sum), exactly.
        back = s.binary("sub", total, product)
        lost = s.binary("add", s.binary("sub", product, s.binary("sub", total, back)), s.binary("sub", c, back))
        zero = s.const(0.0, types.f64)
        below, above = s.binary("lt", lost, zero), s.binary("gt", lost, zero)
        bits = s.op("bitcast", (total,), (types.u64,)).result
        away = s.select(s.binary("lt", total, zero), above, below)  # the sum is further from 0 than it should be
        odd = s.binary("or", s.binary("sub", bits, s.cast(away, types.u64)), self.number(1))
        bits = s.select(s.binary("or", below, above), odd, bits)
        rounded = s.cast(s.op("bitcast", (bits,), (types.f64,)).result, types.f32)
        return s.cast(rounded, types.element_of(numbers[0].type))

    # f64

    def number(self, value: int) -> Value:
        return self.b.const(value, types.u64)

    def double(self, *numbers: Value) -> Value:
        s, zero, one = self.b, self.number(0), self.number(1)
        raw = [s.op("bitcast", (each,), (types.u64,)).result for each in numbers]
        sizes = [s.binary("and", each, self.number(_SIGN - 1)) for each in raw]
        signs = [s.binary("and", each, self.number(_SIGN)) for each in raw]
        (ma, ea), (mb, eb), (mc, ec) = (self.parts(each) for each in sizes)
        # Both numbers with their first digit at bit 124 or 125, so that a sum stays below bit 127.
        high, low = self.product(ma, mb)
        high = s.binary("or", s.binary("shl", high, self.number(20)), s.binary("shr", low, self.number(44)))
        product = high, s.binary("shl", low, self.number(20))
        third = s.binary("shl", mc, self.number(8)), zero
        # Powers of two that they count: of the product ea + eb - 2170, of the third ec - 1147.
        power = s.binary("sub", s.binary("add", ea, eb), s.const(2170, types.i64))
        other = s.binary("sub", ec, s.const(1147, types.i64))
        other = s.select(s.binary("eq", mc, zero), power, other)
        none = s.const(0, types.i64)
        product = self.shifted(product, s.binary("max", s.binary("sub", other, power), none))
        third = self.shifted(third, s.binary("max", s.binary("sub", power, other), none))
        power = s.binary("max", power, other)
        sign = s.binary("xor", signs[0], signs[1])
        same = s.binary("eq", sign, signs[2])
        less = self.difference(product, third)
        negative = s.binary("and", s.unary("not", same), s.binary("ge", less[0], self.number(_SIGN)))
        more = self.total(product, third)
        turned = self.difference((zero, zero), less)
        size = [
            s.select(same, both, s.select(negative, minus, plain))
            for both, plain, minus in zip(more, less, turned, strict=True)
        ]
        sign = s.select(negative, signs[2], sign)
        # The 64 bits from the first digit on; the last one stands for all that follow.
        wide = s.binary("ne", size[0], zero)
        free = s.unary("clz", s.select(wide, size[0], size[1]))
        top = s.binary("shl", s.select(wide, size[0], size[1]), free)
        rest = s.select(wide, s.binary("shl", size[1], free), zero)
        carried = s.select(wide, s.binary("shr", size[1], s.binary("sub", self.number(64), free)), zero)
        top = s.binary("or", s.binary("or", top, carried), s.cast(s.binary("ne", rest, zero), types.u64))
        # The power of two of the first digit: bit 127 of what was wide, 63 of the rest.
        first = s.select(wide, s.const(127 + 1023, types.i64), s.const(63 + 1023, types.i64))
        exponent = s.binary("sub", s.binary("add", power, first), s.cast(free, types.i64))
        under = s.binary(
            "min", s.binary("max", s.binary("sub", s.const(1, types.i64), exponent), none), self.signed(63)
        )
        kept = s.binary("shr", top, s.cast(under, types.u64))
        back = s.binary("shl", kept, s.cast(under, types.u64))
        kept = s.binary("or", kept, s.cast(s.binary("ne", back, top), types.u64))
        # To the nearest, ties to even: half of a last digit less one, and one where that is odd.
        last = s.binary("and", s.binary("shr", kept, self.number(11)), one)
        made = s.binary("add", kept, s.binary("add", self.number(0x3FF), last))
        overflows = s.binary("lt", made, kept)
        made = s.binary("shr", made, self.number(11))
        made = s.select(overflows, s.binary("add", made, self.number(1 << 53)), made)
        field = s.binary("sub", s.binary("max", exponent, self.signed(1)), self.signed(1))
        made = s.binary("add", made, s.binary("shl", s.cast(field, types.u64), self.number(52)))
        made = s.select(s.binary("ge", exponent, self.signed(2047)), self.number(_INFINITY), made)
        exact = s.op("bitcast", (s.binary("or", made, sign),), (types.f64,)).result
        # Zeros, infinities and NaN follow from the rounded product; so does a sum that is exactly 0.
        plain = s.binary("add", s.binary("mul", numbers[0], numbers[1]), numbers[2])
        special = s.binary("eq", s.binary("or", *size), zero)
        for each in sizes:
            special = s.binary("or", special, s.binary("ge", each, self.number(_INFINITY)))
        for each in sizes[:2]:
            special = s.binary("or", special, s.binary("eq", each, zero))
        return s.select(special, plain, exact)

    def signed(self, value: int) -> Value:
        return self.b.const(value, types.i64)

    def parts(self, size: Value) -> tuple[Value, Value]:
        """The significand with its first digit at bit 52, and the exponent, which subnormal numbers take below 1."""
        s = self.b
        exponent = s.cast(s.binary("shr", size, self.number(52)), types.i64)
        fraction = s.binary("and", size, self.number(_HIDDEN - 1))
        free = s.binary("sub", s.unary("clz", fraction), self.number(11))
        subnormal = s.binary("eq", exponent, self.signed(0))
        whole = s.select(subnormal, s.binary("shl", fraction, free), s.binary("or", fraction, self.number(_HIDDEN)))
        return whole, s.select(subnormal, s.binary("sub", self.signed(1), s.cast(free, types.i64)), exponent)

    def product(self, a: Value, b: Value) -> Wide:
        """Of two numbers of 53 bits."""
        s, half, mask = self.b, self.number(32), self.number(0xFFFFFFFF)
        (al, ah), (bl, bh) = ((s.binary("and", each, mask), s.binary("shr", each, half)) for each in (a, b))
        lowest = s.binary("mul", al, bl)
        middle = s.binary("add", s.binary("mul", al, bh), s.binary("mul", ah, bl))
        middle = s.binary("add", middle, s.binary("shr", lowest, half))
        low = s.binary("or", s.binary("and", lowest, mask), s.binary("shl", middle, half))
        return s.binary("add", s.binary("mul", ah, bh), s.binary("shr", middle, half)), low

    def shifted(self, number: Wide, by: Value) -> Wide:
        """Shifted right; the last bit stands for all that are lost. Shifts of 64 and more, and of less than none, give
        0: so each half of the sum below is there where it belongs."""
        s, (high, low) = self.b, number
        count = s.cast(by, types.u64)
        left, past = s.binary("sub", self.number(64), count), s.binary("sub", count, self.number(64))
        moved = s.binary("or", s.binary("shl", high, left), s.binary("shr", high, past))
        lower, upper = s.binary("or", s.binary("shr", low, count), moved), s.binary("shr", high, count)
        back = s.binary("or", s.binary("shr", lower, left), s.binary("shl", lower, past))
        back = s.binary("or", back, s.binary("shl", upper, count))
        lost = s.binary("or", s.binary("ne", back, high), s.binary("ne", s.binary("shl", lower, count), low))
        return upper, s.binary("or", lower, s.cast(lost, types.u64))

    def total(self, a: Wide, b: Wide) -> Wide:
        s = self.b
        low = s.binary("add", a[1], b[1])
        carry = s.cast(s.binary("lt", low, a[1]), types.u64)
        return s.binary("add", s.binary("add", a[0], b[0]), carry), low

    def difference(self, a: Wide, b: Wide) -> Wide:
        s = self.b
        borrow = s.cast(s.binary("lt", a[1], b[1]), types.u64)
        return s.binary("sub", s.binary("sub", a[0], b[0]), borrow), s.binary("sub", a[1], b[1])
