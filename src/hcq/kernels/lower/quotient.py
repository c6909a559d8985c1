"""Division and square root of floats, rounded correctly by integers, for devices whose own are a little off.

Significands are divided, or their root is taken, digit by digit, to more digits than are kept; one bit stands for all
that follow. What does not live here: which devices need it (probe).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from hcq.kernels import types
from hcq.kernels.ir import Block, Builder, Value
from hcq.kernels.lower.rewrite import Rewriter

if TYPE_CHECKING:
    from collections.abc import Container

    from hcq.kernels.ir import Function, Op
    from hcq.kernels.types import Scalar


class _Format(NamedTuple):
    """Digits kept of a significand, exponent of 1.0; digits of a quotient at once, how often; pairs of digits of a
    significand, of a root."""

    digits: int
    bias: int
    step: int
    steps: int
    pairs: int
    root: int


_FORMATS: Final = {types.f32: _Format(23, 127, 27, 1, 13, 26), types.f64: _Format(52, 1023, 11, 5, 27, 56)}


def expand(function: Function, words: Container[str]) -> Function:
    """The function without those of `div` and `sqrt` that `words` does not have: div32, div64, sqrt32, sqrt64. f16 and
    bf16 are computed in f32. Itself, where nothing is to be done."""
    if any(_is_wanted(op, words) for op in function.walk()):
        return _Expansion(function, words).run()
    return function


def _is_wanted(op: Op, words: Container[str]) -> bool:
    return op.code in ("div", "sqrt") and f"{op.code}{_computed(op.result).bits}" not in words


def _computed(value: Value) -> Scalar:
    return types.computed(types.element_of(value.type))


class _Expansion(Rewriter):
    def __init__(self, function: Function, words: Container[str]) -> None:
        super().__init__(function)
        self.words = words

    def replace(self, op: Op) -> Value | None:
        if not _is_wanted(op, self.words):
            return None
        return self.by_lanes(op, self.divided if op.code == "div" else self.root)

    def number(self, value: int) -> Value:
        return self.b.const(value, types.u64)

    def signed(self, value: int) -> Value:
        return self.b.const(value, types.i64)

    def divided(self, a: Value, b: Value) -> Value:
        s, element = self.b, _computed(a)
        form, narrow = _FORMATS[element], types.element_of(a.type)
        (asign, asize), (bsign, bsize) = (self.bits(each, element) for each in (a, b))
        (m, e), (n, f) = (self.parts(each, form) for each in (asize, bsize))
        sign = s.binary("xor", asign, bsign)
        quotient, rest = s.binary("floordiv", m, n), s.binary("mod", m, n)
        for _ in range(form.steps):
            rest = s.binary("shl", rest, self.number(form.step))
            digits = s.binary("floordiv", rest, n)
            quotient = s.binary("or", s.binary("shl", quotient, self.number(form.step)), digits)
            rest = s.binary("sub", rest, s.binary("mul", digits, n))
        scale = s.binary("sub", s.binary("sub", e, f), self.signed(form.step * form.steps))
        made = self.rounded(quotient, rest, scale, form)
        zero, infinity = self.number(0), self.number(self.infinity(form))
        azero, bzero = s.binary("eq", asize, zero), s.binary("eq", bsize, zero)
        afar, bfar = s.binary("eq", asize, infinity), s.binary("eq", bsize, infinity)
        made = s.select(s.binary("or", azero, bfar), zero, made)
        made = s.select(s.binary("or", afar, bzero), infinity, made)
        unknown = s.binary("or", s.binary("and", azero, bzero), s.binary("and", afar, bfar))
        for each in (asize, bsize):
            unknown = s.binary("or", unknown, s.binary("gt", each, infinity))
        return self.float(s.select(unknown, self.number(self.infinity(form) + 1), s.binary("or", made, sign)), narrow)

    def root(self, a: Value) -> Value:
        s, element = self.b, _computed(a)
        form, narrow = _FORMATS[element], types.element_of(a.type)
        sign, size = self.bits(a, element)
        m, e = self.parts(size, form)
        # a = m 2^(e - bias - digits), and that power is to be even.
        power = s.binary("sub", e, self.signed(form.bias + form.digits))
        odd = s.binary("and", power, self.signed(1))
        m = s.binary("shl", m, s.cast(odd, types.u64))
        half = s.binary("shr", power, self.signed(1))
        root, rest = self.digits(s.binary("shl", m, self.number(64 - 2 * form.pairs)), form)
        scale = s.binary("sub", half, self.signed(form.root - form.pairs))
        made = self.rounded(root, rest, scale, form)
        zero, infinity = self.number(0), self.number(self.infinity(form))
        made = s.select(s.binary("eq", size, infinity), infinity, made)
        below = s.binary("and", s.binary("ne", sign, zero), s.binary("ne", size, zero))
        unknown = s.binary("or", below, s.binary("gt", size, infinity))
        made = s.select(unknown, self.number(self.infinity(form) + 1), made)
        return self.float(s.select(s.binary("eq", size, zero), sign, made), narrow)

    def digits(self, number: Value, form: _Format) -> tuple[Value, Value]:
        """The root of what stands at the top of 64 bits, two of them for each of its digits, and what is left."""
        arguments = [Value(types.i32, "i"), *(Value(types.u64, name) for name in ("left", "rest", "root"))]
        outer, block = self.b, Block(arguments)
        self.b = s = Builder(block)
        s.location = outer.location
        _, left, rest, root = arguments
        one, two = self.number(1), self.number(2)
        rest = s.binary("or", s.binary("shl", rest, two), s.binary("shr", left, self.number(62)))
        less = s.binary("or", s.binary("shl", root, two), one)
        fits = s.binary("ge", rest, less)
        rest = s.select(fits, s.binary("sub", rest, less), rest)
        root = s.binary("or", s.binary("shl", root, one), s.cast(fits, types.u64))
        s.op("continue", (s.binary("shl", left, two), rest, root))
        self.b = outer
        zero = self.number(0)
        bounds = outer.const(0, types.i32), outer.const(form.root, types.i32)
        carried = [types.u64] * 3
        _, rest, root = outer.op("for", (*bounds, number, zero, zero), carried, (block,), step=1).results
        return root, rest

    # Floats by their bits

    def infinity(self, form: _Format) -> int:
        return (2 * form.bias + 1) << form.digits

    def bits(self, a: Value, element: Scalar) -> tuple[Value, Value]:
        """The sign and the rest, in 64 bits."""
        s = self.b
        whole = types.scalar(f"u{element.bits}")
        raw = s.cast(s.op("bitcast", (s.cast(a, element),), (whole,)).result, types.u64)
        top = 1 << element.bits - 1
        return s.binary("and", raw, self.number(top)), s.binary("and", raw, self.number(top - 1))

    def float(self, bits: Value, narrow: Scalar) -> Value:
        element = types.computed(narrow)
        whole = types.scalar(f"u{element.bits}")
        return self.b.cast(self.b.op("bitcast", (self.b.cast(bits, whole),), (element,)).result, narrow)

    def parts(self, size: Value, form: _Format) -> tuple[Value, Value]:
        """The significand with its first digit where it is kept, and the exponent, which subnormal numbers take below
        1."""
        s, hidden = self.b, 1 << form.digits
        exponent = s.cast(s.binary("shr", size, self.number(form.digits)), types.i64)
        fraction = s.binary("and", size, self.number(hidden - 1))
        free = s.binary("sub", s.unary("clz", fraction), self.number(63 - form.digits))
        subnormal = s.binary("eq", exponent, self.signed(0))
        whole = s.select(subnormal, s.binary("shl", fraction, free), s.binary("or", fraction, self.number(hidden)))
        return whole, s.select(subnormal, s.binary("sub", self.signed(1), s.cast(free, types.i64)), exponent)

    def rounded(self, number: Value, rest: Value, scale: Value, form: _Format) -> Value:
        """The bits of number 2^scale, to the nearest, ties to even; `rest` is not 0 where more follows."""
        s, zero, one, low = self.b, self.number(0), self.number(1), 63 - form.digits
        free = s.unary("clz", number)
        top = s.binary("or", s.binary("shl", number, free), s.cast(s.binary("ne", rest, zero), types.u64))
        exponent = s.binary("sub", s.binary("add", scale, self.signed(63 + form.bias)), s.cast(free, types.i64))
        under = s.binary("max", s.binary("sub", self.signed(1), exponent), self.signed(0))
        under = s.cast(s.binary("min", under, self.signed(63)), types.u64)
        kept = s.binary("shr", top, under)
        lost = s.binary("ne", s.binary("shl", kept, under), top)
        kept = s.binary("or", kept, s.cast(lost, types.u64))
        last = s.binary("and", s.binary("shr", kept, self.number(low)), one)
        made = s.binary("add", kept, s.binary("add", self.number((1 << low - 1) - 1), last))
        carries = s.binary("lt", made, kept)
        made = s.binary("shr", made, self.number(low))
        made = s.select(carries, s.binary("add", made, self.number(1 << form.digits + 1)), made)
        field = s.cast(s.binary("sub", s.binary("max", exponent, self.signed(1)), self.signed(1)), types.u64)
        made = s.binary("add", made, s.binary("shl", field, self.number(form.digits)))
        past = s.binary("ge", exponent, self.signed(2 * form.bias + 1))
        return s.select(past, self.number(self.infinity(form)), made)
