"""Rounding in every mode of PTX without the processor's rounding mode, which LLVM does not order with arithmetic.

A result is found as an exact value with a sticky bit (`odd`: a double rounded to odd, or `pack`: a wide integer times a
power of two) and then rounded once, by integers. Rounding to odd keeps every later rounding to two or more bits fewer
right (Boldo, Melquiond: When double rounding is odd). What does not live here: arithmetic (arithmetic.py, wide.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from hcq.cudacpu.lower.helpers import APART, PURE, Body, Code, call, intrinsic, leading_zeros, want


@dataclass(frozen=True)
class Format:
    """A float's bits. `largest` is the encoding of the largest finite number, `infinity` that of infinity (0: none)."""

    name: str
    bits: int
    mantissa: int
    bias: int
    nan: int
    infinity: int
    largest: int
    low: int = 0  # bits below the mantissa that are zero


F64 = Format("f64", 64, 52, 1023, 0x7FF8000000000000, 0x7FF << 52, (0x7FF << 52) - 1)
F32 = Format("f32", 32, 23, 127, 0x7FFFFFFF, 0xFF << 23, (0xFF << 23) - 1)
TF32 = Format("tf32", 32, 10, 127, 0x7FFFFFFF >> 13, 0xFF << 10, (0xFF << 10) - 1, low=13)
F16 = Format("f16", 16, 10, 15, 0x7FFF, 0x1F << 10, (0x1F << 10) - 1)
BF16 = Format("bf16", 16, 7, 127, 0x7FFF, 0xFF << 7, (0xFF << 7) - 1)
E5M2 = Format("e5m2", 8, 2, 15, 0x7F, 0x1F << 2, (0x1F << 2) - 1)
E4M3 = Format("e4m3", 8, 3, 7, 0x7F, 0, 0x7E)
E3M2 = Format("e3m2", 6, 2, 3, 0x1F, 0, 0x1F)  # without NaN: the largest number instead
E2M3 = Format("e2m3", 6, 3, 1, 0x1F, 0, 0x1F)
E2M1 = Format("e2m1", 4, 1, 1, 0x7, 0, 0x7)
FORMATS = {each.name: each for each in (F64, F32, TF32, F16, BF16, E5M2, E4M3, E3M2, E2M3, E2M1)}


def odd(code: Code, value: str, error: str, ir: str = "double") -> str:
    """`value` + `error` rounded to odd; `value` is that sum rounded to nearest. A NaN as error changes nothing."""
    kind = "i64" if ir == "double" else "i32"
    bits = code.op(f"bitcast {ir} {value} to {kind}")
    above = code.op(f"fcmp ogt {ir} {error}, 0.0")
    below = code.op(f"fcmp olt {ir} {error}, 0.0")
    inexact = code.op(f"or i1 {above}, {below}")
    negative = code.op(f"icmp slt {kind} {bits}, 0")
    outward = code.op(f"xor i1 {above}, {negative}")
    even = code.op(f"xor {kind} {bits}, 1")
    even = code.op(f"and {kind} {even}, 1")
    back = code.op(f"sub {kind} 0, {even}")
    step = code.op(f"select i1 {outward}, {kind} {even}, {kind} {back}")
    step = code.op(f"select i1 {inexact}, {kind} {step}, {kind} 0")
    bits = code.op(f"add {kind} {bits}, {step}")
    return code.op(f"bitcast {kind} {bits} to {ir}")


def sum_error(code: Code, a: str, b: str, total: str, ir: str = "double") -> str:
    """What the rounded sum `total` of a and b lacks (Knuth's two-sum): exact where nothing overflows."""
    part = code.op(f"fsub {ir} {total}, {a}")
    other = code.op(f"fsub {ir} {total}, {part}")
    left = code.op(f"fsub {ir} {a}, {other}")
    right = code.op(f"fsub {ir} {b}, {part}")
    return code.op(f"fadd {ir} {left}, {right}")


def narrow(code: Code, value: str, form: Format, mode: str, satfinite: bool = False) -> str:
    """The double `value` rounded to `form`: an integer of form.bits. NaN is the form's canonical one."""
    name = f"narrow.{form.name}.{mode}{'.satfinite' if satfinite else ''}"
    kind = f"i{form.bits}"
    symbol = want(
        code,
        name,
        kind,
        "double %x",
        lambda body: _narrow(body, form, mode, satfinite),
        PURE if mode == "rn" else APART,
    )
    return call(code, kind, symbol, f"double {value}")


def _narrow(c: Body, form: Format, mode: str, satfinite: bool) -> str:
    bits = c.op("bitcast double %x to i64")
    negative = c.op(f"icmp slt i64 {bits}, 0")
    exponent = c.op(f"lshr i64 {bits}, 52")
    exponent = c.op(f"and i64 {exponent}, 2047")
    fraction = c.op(f"and i64 {bits}, {(1 << 52) - 1}")
    subnormal = c.op(f"icmp eq i64 {exponent}, 0")
    implicit = c.op(f"select i1 {subnormal}, i64 0, i64 {1 << 52}")
    number = c.op(f"or i64 {fraction}, {implicit}")
    biased = c.op(f"select i1 {subnormal}, i64 1, i64 {exponent}")
    rounded = _body(c, form, mode, negative, number, biased, 64, 52 - form.mantissa, 1023)
    magnitude = c.op(f"and i64 {bits}, {(1 << 63) - 1}")
    infinite = c.op(f"icmp eq i64 {magnitude}, {0x7FF << 52}")
    at_infinity = form.largest if satfinite or not form.infinity else form.infinity
    rounded = _overflow(c, form, mode, satfinite, negative, rounded, 64)
    rounded = c.op(f"select i1 {infinite}, i64 {at_infinity}, i64 {rounded}")
    sign = c.op(f"select i1 {negative}, i64 {1 << (form.bits - 1 - form.low)}, i64 0")
    signed = c.op(f"or i64 {rounded}, {sign}")
    unordered = c.op("fcmp uno double %x, %x")
    result = c.op(f"select i1 {unordered}, i64 {form.nan}, i64 {signed}")
    return _placed(c, form, result, 64, unordered)


def _placed(c: Body, form: Format, result: str, width: int, nan: str = "") -> str:
    """The integer of form.bits from one of `width`; tf32's mantissa goes to its place."""
    if width != form.bits:
        result = c.op(f"trunc i{width} {result} to i{form.bits}")
    if form.low:
        result = c.op(f"shl i{form.bits} {result}, {form.low}")
        if nan:
            result = c.op(f"select i1 {nan}, i{form.bits} {F32.nan}, i{form.bits} {result}")
    return result


def _body(
    c: Body, form: Format, mode: str, negative: str, number: str, biased: str, width: int, drop: int, bias: int
) -> str:
    """Exponent and mantissa of `number`, whose lowest `drop` bits at least go, rounded as if exponents had no end.

    `biased` is the exponent of the number's top bit, plus `bias`; both are of the given width.
    """
    kind = f"i{width}"
    least = bias + 1 - form.bias
    short = c.op(f"sub {kind} {least}, {biased}")
    missing = intrinsic(c, "smax", kind, short, "0")
    shift = c.op(f"add {kind} {missing}, {drop}")
    shift = intrinsic(c, "umin", kind, shift, str(width - 1))
    kept = c.op(f"lshr {kind} {number}, {shift}")
    back = c.op(f"shl {kind} {kept}, {shift}")
    rest = c.op(f"sub {kind} {number}, {back}")
    if mode in ("rn", "rna"):
        before = c.op(f"sub {kind} {shift}, 1")
        half = c.op(f"shl {kind} 1, {before}")
        if mode == "rn":
            lowest = c.op(f"and {kind} {kept}, 1")
            bound = c.op(f"sub {kind} {half}, {lowest}")
            up = c.op(f"icmp ugt {kind} {rest}, {bound}")
        else:
            up = c.op(f"icmp uge {kind} {rest}, {half}")
    else:
        inexact = c.op(f"icmp ne {kind} {rest}, 0")
        away = {"rz": "false", "rm": negative, "rp": c.op(f"xor i1 {negative}, true")}[mode]
        up = c.op(f"and i1 {inexact}, {away}")
    one = c.op(f"zext i1 {up} to {kind}")
    kept = c.op(f"add {kind} {kept}, {one}")
    over = intrinsic(c, "smax", kind, biased, str(least))
    over = c.op(f"sub {kind} {over}, {least}")
    over = c.op(f"shl {kind} {over}, {form.mantissa}")
    return c.op(f"add {kind} {over}, {kept}")


def _overflow(c: Body, form: Format, mode: str, satfinite: bool, negative: str, body: str, width: int) -> str:
    """What is beyond the largest finite number: infinity, or that number where the mode rounds towards zero."""
    kind = f"i{width}"
    top, most = str(form.infinity or form.largest), str(form.largest)
    if satfinite or mode == "rz":
        beyond = most
    elif mode in ("rn", "rna"):
        beyond = top
    else:
        first, second = (top, most) if mode == "rm" else (most, top)
        beyond = c.op(f"select i1 {negative}, {kind} {first}, {kind} {second}")
    over = c.op(f"icmp ugt {kind} {body}, {most}")
    return c.op(f"select i1 {over}, {kind} {beyond}, {kind} {body}")


def pack(code: Code, negative: str, number: str, exponent: str, width: int, form: Format, mode: str) -> str:
    """`number` (an integer of `width` bits below 2**(width - 2)) times 2**`exponent` (i32), rounded to `form`.

    A number of 0 gives a zero with the sign.
    """
    kind = f"i{form.bits}"
    symbol = want(
        code,
        f"pack{width}.{form.name}.{mode}",
        kind,
        f"i1 %negative, i{width} %number, i32 %exponent",
        lambda body: _pack(body, width, form, mode),
        attributes=APART,
    )
    return call(code, kind, symbol, f"i1 {negative}", f"i{width} {number}", f"i32 {exponent}")


def _pack(c: Body, width: int, form: Format, mode: str) -> str:
    kind = f"i{width}"
    free = leading_zeros(c, kind, "%number")
    shift = c.op(f"sub {kind} {free}, 2")
    number = c.op(f"shl {kind} %number, {shift}")  # its top bit is width - 3 now, so that a half is always above it
    wide = c.op(f"sext i32 %exponent to {kind}")
    biased = c.op(f"sub {kind} {wide}, {shift}")
    bias = 1 << 14
    biased = c.op(f"add {kind} {biased}, {width - 3 + bias}")
    biased = intrinsic(c, "smax", kind, biased, "1")
    rounded = _body(c, form, mode, "%negative", number, biased, width, width - 3 - form.mantissa, bias)
    rounded = _overflow(c, form, mode, False, "%negative", rounded, width)
    zero = c.op(f"icmp eq {kind} %number, 0")
    rounded = c.op(f"select i1 {zero}, {kind} 0, {kind} {rounded}")
    sign = c.op(f"select i1 %negative, {kind} {1 << (form.bits - 1 - form.low)}, {kind} 0")
    result = c.op(f"or {kind} {rounded}, {sign}")
    return _placed(c, form, result, width)
