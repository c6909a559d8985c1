"""A model of PTX's floating-point instructions: bits in, bits out, with exact rational numbers in between.

`evaluate("add.rz.ftz.f32", a, b)` is what the PTX ISA (9.7.3 to 9.7.6, 9.7.9.21 cvt) says that the instruction gives.
It knows nothing of how the translation does it. Where the manual leaves a NaN's bits open (9.7.3: payloads of f64) the
answer is `ANY_NAN`. Packed types are judged half by half (`disagreement`). Approximations (`ex2.approx` ...) aren't
here: test_approximations.py has their bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

__all__ = ["ANY_NAN", "FORMATS", "Format", "Number", "convert", "decode", "disagreement", "encode", "evaluate"]

ANY_NAN = -1


@dataclass(frozen=True)
class Format:
    """Bits of a float. `infinite`: it has infinities; if not, all ones (or nothing, `nan` None) is NaN."""

    name: str
    exponent: int
    mantissa: int
    bits: int
    nan: int | None
    infinite: bool = True
    low: int = 0  # unused bits below the mantissa (tf32)

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << (self.mantissa + self.low)

    @property
    def largest(self) -> int:
        if self.infinite:
            return self.infinity - (1 << self.low)
        return (self.sign - 1) if self.nan is None else (self.sign - 2)


FORMATS = {
    f.name: f
    for f in (
        Format("f64", 11, 52, 64, 0x7FF8000000000000),
        Format("f32", 8, 23, 32, 0x7FFFFFFF),
        Format("f16", 5, 10, 16, 0x7FFF),
        Format("bf16", 8, 7, 16, 0x7FFF),
        Format("tf32", 8, 10, 32, 0x7FFFFFFF, low=13),
        Format("e5m2", 5, 2, 8, 0x7F),
        Format("e4m3", 4, 3, 8, 0x7F, infinite=False),
        Format("e3m2", 3, 2, 6, None, infinite=False),
        Format("e2m3", 2, 3, 6, None, infinite=False),
        Format("e2m1", 2, 1, 4, None, infinite=False),
    )
}


@dataclass(frozen=True)
class Number:
    """A decoded float: NaN, an infinity, or an exact value whose zero has a sign."""

    negative: bool = False
    value: Fraction = Fraction(0)
    nan: bool = False
    infinite: bool = False

    @property
    def zero(self) -> bool:
        return not self.nan and not self.infinite and self.value == 0

    @property
    def finite(self) -> bool:
        return not self.nan and not self.infinite

    def negated(self) -> Number:
        return Number(not self.negative, -self.value, self.nan, self.infinite)

    def magnitude(self) -> Number:
        return Number(False, abs(self.value), self.nan, self.infinite)


NAN = Number(nan=True)


def power(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def decode(bits: int, form: Format, ftz: bool = False) -> Number:
    negative = bool(bits & form.sign)
    body = (bits & (form.sign - 1)) >> form.low
    exponent, mantissa = body >> form.mantissa, body & ((1 << form.mantissa) - 1)
    top = (1 << form.exponent) - 1
    if form.infinite and exponent == top:
        return Number(negative, nan=True) if mantissa else Number(negative, infinite=True)
    if not form.infinite and form.nan is not None and body == form.sign - 1:
        return Number(negative, nan=True)
    if exponent == 0:
        value = Fraction(0) if ftz else mantissa * power(1 - form.bias - form.mantissa)
    else:
        value = (mantissa + (1 << form.mantissa)) * power(exponent - form.bias - form.mantissa)
    return Number(negative, -value if negative else value)


def encode(number: Number, form: Format, mode: str = "rn", ftz: bool = False, satfinite: bool = False) -> int:
    """The bits of `number` rounded to `form`. A NaN is the canonical one; f64's is left open."""
    if number.nan:
        return ANY_NAN if form.name == "f64" else form.nan if form.nan is not None else form.largest
    sign = form.sign if number.negative else 0
    if number.infinite:
        return sign | (form.largest if satfinite or not form.infinite else form.infinity)
    body = _round(abs(number.value), form, mode, number.negative) << form.low
    if ftz and 0 < body < (1 << (form.mantissa + form.low)):
        body = 0
    if body > form.largest:
        upward = mode in ("rn", "rna") or (mode == "rm" if number.negative else mode == "rp")
        body = form.largest if satfinite or not upward or not form.infinite else form.infinity
    return sign | body


def _round(value: Fraction, form: Format, mode: str, negative: bool) -> int:
    """The body of a positive value, as if the exponent had no upper end."""
    if value == 0:
        return 0
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if power(exponent) > value:
        exponent -= 1
    exponent = max(exponent, 1 - form.bias)
    scaled = value / power(exponent - form.mantissa)
    whole = whole_number(scaled, mode, negative)
    return ((exponent + form.bias - 1) << form.mantissa) + whole


def whole_number(value: Fraction, mode: str, negative: bool) -> int:
    """A positive value to an integer by a rounding mode of the signed value."""
    whole, rest = divmod(value, 1)
    up = {
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1),
        "rna": rest >= Fraction(1, 2),
        "rz": False,
        "rm": negative and rest > 0,
        "rp": not negative and rest > 0,
    }[mode]
    return int(whole) + up


def exact(value: Fraction, negative_zero: bool) -> Number:
    return Number(value < 0 or (value == 0 and negative_zero), value)


def add(a: Number, b: Number, mode: str) -> Number:
    if a.nan or b.nan or (a.infinite and b.infinite and a.negative != b.negative):
        return NAN
    if a.infinite or b.infinite:
        return a if a.infinite else b
    both, either = a.negative and b.negative, a.negative or b.negative
    return exact(a.value + b.value, either if mode == "rm" else both)


def multiply(a: Number, b: Number) -> Number:
    negative = a.negative != b.negative
    if a.nan or b.nan or (a.infinite and b.zero) or (b.infinite and a.zero):
        return NAN
    if a.infinite or b.infinite:
        return Number(negative, infinite=True)
    return exact(a.value * b.value, negative)


def divide(a: Number, b: Number) -> Number:
    negative = a.negative != b.negative
    if a.nan or b.nan or (a.infinite and b.infinite) or (a.zero and b.zero):
        return NAN
    if a.infinite or b.zero:
        return Number(negative, infinite=True)
    if b.infinite:
        return Number(negative)
    return exact(a.value / b.value, negative)


def root(a: Number) -> Number:
    """The square root, with one sticky bit below 200 right ones."""
    if a.nan or (a.negative and not a.zero):
        return NAN
    if a.infinite or a.zero:
        return a
    shift = 2 * (200 + abs(a.value.numerator.bit_length() - a.value.denominator.bit_length()))
    scaled, rest = divmod(a.value.numerator << shift, a.value.denominator)
    found = isqrt(scaled)
    sticky = rest != 0 or found * found != scaled
    return Number(False, Fraction(2 * found + sticky, 1 << (shift // 2 + 1)))


def less(a: Number, b: Number) -> bool:
    """a < b where -0 < +0."""
    return key(a) < key(b)


def key(a: Number) -> tuple[int, Fraction, int]:
    return (0 if a.finite else -1 if a.negative else 1, a.value, 0 if a.negative else 1)


def extreme(a: Number, b: Number, largest: bool, propagate: bool) -> Number:
    if a.nan or b.nan:
        return NAN if propagate or (a.nan and b.nan) else b if a.nan else a
    return (b if less(a, b) else a) if largest else (b if less(b, a) else a)


def compare(kind: str, a: Number, b: Number) -> bool:
    unordered = a.nan or b.nan
    if kind == "num":
        return not unordered
    if kind == "nan":
        return unordered
    if len(kind) == 3:
        if unordered:
            return True
        kind = kind[:2]
    if unordered:
        return False
    x, y = key(a)[:2], key(b)[:2]
    return {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[kind]


def test(kind: str, bits: int, form: Format) -> bool:
    a = decode(bits, form)
    if kind in ("finite", "infinite", "number", "notanumber"):
        return {"finite": a.finite, "infinite": a.infinite, "number": not a.nan, "notanumber": a.nan}[kind]
    tiny = a.finite and not a.zero and abs(a.value) < power(1 - form.bias)
    return tiny if kind == "subnormal" else a.finite and not tiny


def finish(number: Number, form: Format, mode: str, flags: set[str]) -> int:
    """What the modifiers do to a result: .sat (NaN to +0), .relu (NaN stays), rounding, .ftz."""
    ftz = "ftz" in flags
    if "sat" in flags:
        if number.nan or number.negative:
            return 0
        one = Number(False, Fraction(1))
        number = one if less(one, number) else number
    if "relu" in flags and not number.nan and number.negative:
        return 0
    return encode(number, form, mode, ftz)


PACKED = {"f16x2": 16, "bf16x2": 16, "f32x2": 32}  # bits of each half
MODES = ("rn", "rz", "rm", "rp", "rna")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")


def evaluate(opcode: str, *operands: int) -> int:
    """What an instruction gives. Predicates are 0 and 1. Operands are bits of the instruction's type."""
    base, *rest = opcode.split(".")
    if base == "cvt":
        return convert(opcode, *operands)
    if rest[-2:-1] == ["f32"] and rest[-1] in ("f16", "bf16"):  # mixed: of halves and of an f32, which comes last
        halves = [convert(f"cvt.f32.{rest[-1]}", each) for each in operands[:-1]]
        return evaluate(".".join([base, *rest[:-1]]), *halves, operands[-1])
    form, flags = FORMATS[rest[-1]], set(rest[:-1])
    mode = next((m for m in MODES if m in flags), "rn")
    if base == "testp":
        return int(test(rest[0], operands[0], form))
    if base == "copysign":
        return (operands[0] & form.sign) | (operands[1] & (form.sign - 1))
    numbers = [decode(x, form, "ftz" in flags) for x in operands]
    if base == "setp":
        return int(compare(rest[0], numbers[0], numbers[1]))
    if base in ("neg", "abs"):
        if numbers[0].nan:
            return ANY_NAN
        return encode(numbers[0].negated() if base == "neg" else numbers[0].magnitude(), form)
    if base in ("min", "max"):
        result = _extreme_of(numbers, base == "max", flags)
        return encode(result, form)
    if base == "sub":
        result = add(numbers[0], numbers[1].negated(), mode)
    elif base == "add":
        result = add(numbers[0], numbers[1], mode)
    elif base == "mul":
        result = multiply(numbers[0], numbers[1])
    elif base in ("fma", "mad"):
        result = add(multiply(numbers[0], numbers[1]), numbers[2], mode)
    elif base == "div":
        result = divide(numbers[0], numbers[1])
    elif base == "rcp":
        result = divide(Number(False, Fraction(1)), numbers[0])
    elif base == "sqrt":
        result = root(numbers[0])
    else:
        raise ValueError(f"the model knows no {opcode}")
    return finish(result, form, mode, flags)


def _extreme_of(numbers: list[Number], largest: bool, flags: set[str]) -> Number:
    sign = numbers[0].negative != numbers[1].negative
    if "abs" in flags:
        numbers = [x.magnitude() for x in numbers]
    result = numbers[0]
    for x in numbers[1:]:
        result = extreme(result, x, largest, "NaN" in flags)
    if "xorsign" in flags and not result.nan and sign:
        result = result.negated()
    return result


def signed(bits: int, width: int, is_signed: bool) -> int:
    bits &= (1 << width) - 1
    return bits - (1 << width) if is_signed and bits >> (width - 1) else bits


def convert(opcode: str, a: int) -> int:
    """cvt (9.7.9.21) of one value. The answer is as wide as the destination type."""
    *flag_list, to, source = opcode.split(".")[1:]
    flags = set(flag_list)
    ftz, sat = "ftz" in flags, "sat" in flags
    if source in FORMATS:
        number = decode(a, FORMATS[source], ftz and source == "f32")
        if to in FORMATS:
            return _to_float(number, source, to, flags)
        width, is_signed = int(to[1:]), to[0] == "s"
        if number.nan:
            return 0 if source != "f64" and width != 64 else 1 << (width - 1)
        low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if is_signed else (0, (1 << width) - 1)
        if number.infinite:
            return (low if number.negative else high) & ((1 << width) - 1)
        mode = next(m[:2] for m in ("rni", "rzi", "rmi", "rpi") if m in flags)
        whole = whole_number(abs(number.value), mode, number.negative)
        return min(max(-whole if number.negative else whole, low), high) & ((1 << width) - 1)
    value = signed(a, int(source[1:]), source[0] == "s")
    if to in FORMATS:
        mode = next((m for m in MODES if m in flags), "rn")
        return finish(exact(Fraction(value), False), FORMATS[to], mode, flags)
    width, is_signed = int(to[1:]), to[0] == "s"
    if sat:
        low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if is_signed else (0, (1 << width) - 1)
        value = min(max(value, low), high)
    return value & ((1 << width) - 1)


def _to_float(number: Number, source: str, to: str, flags: set[str]) -> int:
    form = FORMATS[to]
    for m in ("rni", "rzi", "rmi", "rpi"):
        if m in flags and number.finite:
            whole = whole_number(abs(number.value), m[:2], number.negative)
            number = Number(number.negative, Fraction(-whole if number.negative else whole))
    mode = next((m for m in MODES if m in flags), "rn")
    if "sat" in flags or "relu" in flags:
        if number.negative and not number.nan:
            return 0
        if "sat" in flags:
            return finish(number, form, mode, flags - {"ftz"} | ({"ftz"} if to == "f32" and "ftz" in flags else set()))
    return encode(number, form, mode, "ftz" in flags and to == "f32", "satfinite" in flags)


def disagreement(opcode: str, kind: str, operands: tuple[int, ...], got: int) -> str:
    """Empty where an instruction with a destination of type `kind` may give `got`, else what it should give."""
    if kind in PACKED and opcode.endswith("x2"):
        narrow, bits, mask = opcode.removesuffix("x2"), PACKED[kind], (1 << PACKED[kind]) - 1
        low = disagreement(narrow, kind[:-2], tuple(x & mask for x in operands), got & mask)
        return low or disagreement(narrow, kind[:-2], tuple(x >> bits for x in operands), got >> bits)
    wanted = evaluate(opcode, *operands)
    if wanted == ANY_NAN and decode(got, FORMATS[kind]).nan:
        return ""
    return "" if got == wanted else f"{opcode} of {', '.join(map(hex, operands))} gave {got:#x}, not {wanted:#x}"
