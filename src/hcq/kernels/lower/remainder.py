"""The remainder of floats (`rem`, C's fmod) by integer instructions, for targets whose own is not exact.

a is m 2^e and b is n 2^f; where e is not less than f, the remainder is (m 2^(e - f) mod n) 2^f, a few digits at a time.
What does not live here: % and // of the language, which are made of this (hcq.kernels.library).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hcq.kernels import types
from hcq.kernels.ir import Block, Builder, Value
from hcq.kernels.lower.rewrite import Rewriter

if TYPE_CHECKING:
    from hcq.kernels.ir import Function, Op
    from hcq.kernels.types import Scalar

_DIGITS: Final = {types.f32: 23, types.f64: 52}
"""Digits of a significand that are kept."""


def expand(function: Function) -> Function:
    """The function without `rem`; itself, if it has none."""
    if not any(op.code == "rem" for op in function.walk()):
        return function
    return _Expansion(function).run()


class _Expansion(Rewriter):
    def replace(self, op: Op) -> Value | None:
        return self.by_lanes(op, self.remainder) if op.code == "rem" else None

    def number(self, value: int) -> Value:
        return self.b.const(value, types.u64)

    def remainder(self, a: Value, b: Value) -> Value:
        """Of two numbers. f16 and bf16 in f32: what is left has no more digits than they have."""
        element = types.element_of(a.type)
        if element in _DIGITS:
            return self.exact(a, b, element)
        made = self.exact(self.b.cast(a, types.f32), self.b.cast(b, types.f32), types.f32)
        return self.b.cast(made, element)

    def exact(self, a: Value, b: Value, element: Scalar) -> Value:
        s, digits = self.b, _DIGITS[element]
        bits = types.u32 if element is types.f32 else types.u64
        sign = 1 << element.bits - 1
        raw = [s.cast(s.op("bitcast", (each,), (bits,)).result, types.u64) for each in (a, b)]
        sizes = [s.binary("and", each, self.number(sign - 1)) for each in raw]
        infinity = self.number((1 << element.bits - digits - 1) - 1 << digits)
        unknown = s.binary("or", s.binary("ge", sizes[0], infinity), s.binary("gt", sizes[1], infinity))
        unknown = s.binary("or", unknown, s.binary("eq", sizes[1], self.number(0)))
        small = s.binary("lt", sizes[0], sizes[1])
        (m, e), (n, f) = (self.parts(each, digits) for each in sizes)
        # Nothing is shifted where the result is known.
        known = s.binary("or", unknown, small)
        far = s.select(known, self.number(0), s.binary("sub", e, f))
        rest = s.binary("mod", self.reduced(m, n, far, 63 - digits), n)
        # Its first digit goes where a significand begins, unless that is below the least exponent.
        free = s.binary("sub", s.unary("clz", rest), self.number(63 - digits))
        below = s.binary("min", free, s.binary("sub", f, self.number(1)))
        exponent = s.binary("shl", s.binary("sub", s.binary("sub", f, below), self.number(1)), self.number(digits))
        made = s.binary("add", s.binary("shl", rest, below), exponent)
        made = s.select(s.binary("eq", rest, self.number(0)), rest, made)
        made = s.binary("or", made, s.binary("and", raw[0], self.number(sign)))
        result = s.op("bitcast", (s.cast(made, bits),), (element,)).result
        return s.select(unknown, s.const(float("nan"), element), s.select(small, a, result))

    def parts(self, size: Value, digits: int) -> tuple[Value, Value]:
        """The significand as a whole number, and the exponent, 1 of subnormal numbers."""
        s, one = self.b, self.number(1)
        exponent = s.binary("shr", size, self.number(digits))
        fraction = s.binary("and", size, self.number((1 << digits) - 1))
        is_subnormal = s.binary("eq", exponent, self.number(0))
        whole = s.binary("or", fraction, self.number(1 << digits))
        return s.select(is_subnormal, fraction, whole), s.select(is_subnormal, one, exponent)

    def reduced(self, m: Value, n: Value, far: Value, step: int) -> Value:
        """m 2^far mod n, or, where far is 0, m: as many digits a round as 64 bits hold."""
        arguments = [Value(types.u64, "rest"), Value(types.u64, "far")]
        outer, block = self.b, Block(arguments)
        self.b = s = Builder(block)
        s.location = outer.location
        rest, left = arguments
        over, on = Block(), Block()
        Builder(over).op("break", (rest,))
        Builder(on).op("yield")
        s.op("if", (s.binary("eq", left, self.number(0)),), (), (over, on))
        count = s.binary("min", left, self.number(step))
        following = s.binary("mod", s.binary("shl", rest, count), n)
        s.op("continue", (following, s.binary("sub", left, count)))
        self.b = outer
        return outer.op("loop", (m, far), (types.u64,), (block,)).result
