"""Double precision in the directed rounding modes, in integers: sum of product and addend, quotient, square root.

What does not live here: rounding to nearest, which is the processor's own, and the choice between them (arithmetic.py).
"""

from __future__ import annotations

from hcq.cudacpu.lower.helpers import APART, Body, Code, call, intrinsic, leading_zeros, want
from hcq.cudacpu.lower.values.rounding import F64, pack

FRACTION, IMPLICIT = (1 << 52) - 1, 1 << 52


def fused(code: Code, a: str, b: str, addend: str, mode: str) -> str:
    """a * b + addend of doubles, rounded by `mode`."""
    symbol = want(
        code, f"fma.f64.{mode}", "double", "double %a, double %b, double %c", lambda body: _fused(body, mode), APART
    )
    return call(code, "double", symbol, f"double {a}", f"double {b}", f"double {addend}")


def quotient(code: Code, a: str, b: str, mode: str) -> str:
    """a / b of doubles, rounded by `mode`."""
    symbol = want(code, f"div.f64.{mode}", "double", "double %a, double %b", lambda body: _quotient(body, mode), APART)
    return call(code, "double", symbol, f"double {a}", f"double {b}")


def root(code: Code, a: str, mode: str) -> str:
    """The square root of a double, rounded by `mode`."""
    symbol = want(code, f"sqrt.f64.{mode}", "double", "double %a", lambda body: _root(body, mode), APART)
    return call(code, "double", symbol, f"double {a}")


def _taken_apart(c: Body, value: str) -> tuple[str, str, str]:
    """Sign (i1), mantissa (i64) and its exponent (i32) of a finite double."""
    bits = c.op(f"bitcast double {value} to i64")
    negative = c.op(f"icmp slt i64 {bits}, 0")
    exponent = c.op(f"lshr i64 {bits}, 52")
    exponent = c.op(f"and i64 {exponent}, 2047")
    fraction = c.op(f"and i64 {bits}, {FRACTION}")
    subnormal = c.op(f"icmp eq i64 {exponent}, 0")
    implicit = c.op(f"select i1 {subnormal}, i64 0, i64 {IMPLICIT}")
    mantissa = c.op(f"or i64 {fraction}, {implicit}")
    exponent = c.op(f"trunc i64 {exponent} to i32")
    exponent = intrinsic(c, "smax", "i32", exponent, "1")
    return negative, mantissa, c.op(f"sub i32 {exponent}, 1075")


def _normal(c: Body, value: str) -> tuple[str, str, str]:
    """Sign, a double in [1, 2) and the exponent (i32) of a finite double that is not zero."""
    negative, mantissa, exponent = _taken_apart(c, value)
    free = leading_zeros(c, "i64", mantissa)
    shift = c.op(f"sub i64 {free}, 11")
    mantissa = c.op(f"shl i64 {mantissa}, {shift}")
    fraction = c.op(f"and i64 {mantissa}, {FRACTION}")
    fraction = c.op(f"or i64 {fraction}, {1023 << 52}")
    short = c.op(f"trunc i64 {shift} to i32")
    exponent = c.op(f"sub i32 {exponent}, {short}")
    return negative, c.op(f"bitcast i64 {fraction} to double"), c.op(f"add i32 {exponent}, 52")


def _finite(c: Body, *values: str) -> str:
    """Whether all of them are finite."""
    total = "true"
    for value in values:
        magnitude = intrinsic(c, "fabs", "f64", value)
        each = c.op(f"fcmp olt double {magnitude}, 0x7FF0000000000000")
        total = c.op(f"and i1 {total}, {each}")
    return total


def _fused(c: Body, mode: str) -> str:
    sign_a, number_a, exponent_a = _taken_apart(c, "%a")
    sign_b, number_b, exponent_b = _taken_apart(c, "%b")
    sign_c, number_c, exponent_c = _taken_apart(c, "%c")
    sign_p = c.op(f"xor i1 {sign_a}, {sign_b}")
    left, right = c.op(f"zext i64 {number_a} to i128"), c.op(f"zext i64 {number_b} to i128")
    product = c.op(f"mul i128 {left}, {right}")
    exponent_p = c.op(f"add i32 {exponent_a}, {exponent_b}")
    no_product, no_addend = c.op(f"icmp eq i128 {product}, 0"), c.op(f"icmp eq i64 {number_c}, 0")
    exponent_p = c.op(f"select i1 {no_product}, i32 {exponent_c}, i32 {exponent_p}")
    exponent_c = c.op(f"select i1 {no_addend}, i32 {exponent_p}, i32 {exponent_c}")
    # The product stands at bit 64 of 256. The addend goes where its exponent says: at most 120 bits to the left, where
    # it no longer touches the product, and to the right with what falls off kept as one sticky bit.
    distance = c.op(f"sub i32 {exponent_c}, {exponent_p}")
    up = intrinsic(c, "smin", "i32", distance, "120")
    up = intrinsic(c, "smax", "i32", up, "0")
    down = c.op(f"sub i32 0, {distance}")
    down = intrinsic(c, "smin", "i32", down, "124")
    down = intrinsic(c, "smax", "i32", down, "0")
    addend = c.op(f"zext i64 {number_c} to i256")
    addend = c.op(f"shl i256 {addend}, 64")
    left_by, right_by = c.op(f"zext i32 {up} to i256"), c.op(f"zext i32 {down} to i256")
    addend = c.op(f"shl i256 {addend}, {left_by}")
    kept = c.op(f"lshr i256 {addend}, {right_by}")
    again = c.op(f"shl i256 {kept}, {right_by}")
    lost = c.op(f"icmp ne i256 {again}, {addend}")
    sticky = c.op(f"zext i1 {lost} to i256")
    addend = c.op(f"or i256 {kept}, {sticky}")
    product = c.op(f"zext i128 {product} to i256")
    product = c.op(f"shl i256 {product}, 64")
    base = c.op(f"sub i32 {exponent_c}, {up}")
    far = c.op(f"icmp sgt i32 {distance}, 120")
    base = c.op(f"select i1 {far}, i32 {base}, i32 {exponent_p}")
    base = c.op(f"sub i32 {base}, 64")
    against = c.op(f"xor i1 {sign_p}, {sign_c}")
    minus = c.op(f"sub i256 0, {addend}")
    addend = c.op(f"select i1 {against}, i256 {minus}, i256 {addend}")
    total = c.op(f"add i256 {product}, {addend}")
    turned = c.op(f"icmp slt i256 {total}, 0")
    minus = c.op(f"sub i256 0, {total}")
    total = c.op(f"select i1 {turned}, i256 {minus}, i256 {total}")
    negative = c.op(f"xor i1 {sign_p}, {turned}")
    # An exact zero has the sign of both, and in doubt + (- where the mode is towards minus infinity).
    zero = c.op(f"icmp eq i256 {total}, 0")
    zero_sign = c.op(f"{'or' if mode == 'rm' else 'and'} i1 {sign_p}, {sign_c}")
    negative = c.op(f"select i1 {zero}, i1 {zero_sign}, i1 {negative}")
    bits = pack(c, negative, total, base, 256, F64, mode)
    nearest = intrinsic(c, "fma", "f64", "%a", "%b", "%c")
    return _chosen(c, _finite(c, "%a", "%b", "%c"), bits, nearest)


def _chosen(c: Body, ordinary: str, bits: str, otherwise: str) -> str:
    found = c.op(f"bitcast i64 {bits} to double")
    return c.op(f"select i1 {ordinary}, double {found}, double {otherwise}")


def _with_remainder(c: Body, value: str, remainder: str) -> tuple[str, str]:
    """Four times the mantissa of a normal double, one more or less by the remainder's sign, and the exponent (i32)."""
    _, mantissa, exponent = _taken_apart(c, value)
    above, below = c.op(f"fcmp ogt double {remainder}, 0.0"), c.op(f"fcmp olt double {remainder}, 0.0")
    step = c.op(f"zext i1 {above} to i64")
    back = c.op(f"sext i1 {below} to i64")
    number = c.op(f"shl i64 {mantissa}, 2")
    number = c.op(f"add i64 {number}, {step}")
    return c.op(f"add i64 {number}, {back}"), c.op(f"sub i32 {exponent}, 2")


def _quotient(c: Body, mode: str) -> str:
    sign_a, number_a, exponent_a = _normal(c, "%a")
    sign_b, number_b, exponent_b = _normal(c, "%b")
    found = c.op(f"fdiv double {number_a}, {number_b}")
    minus = c.op(f"fneg double {found}")
    number, exponent = _with_remainder(c, found, intrinsic(c, "fma", "f64", minus, number_b, number_a))
    exponent = c.op(f"add i32 {exponent}, {exponent_a}")
    exponent = c.op(f"sub i32 {exponent}, {exponent_b}")
    bits = pack(c, c.op(f"xor i1 {sign_a}, {sign_b}"), number, exponent, 64, F64, mode)
    nearest = c.op("fdiv double %a, %b")
    there_a, there_b = c.op("fcmp one double %a, 0.0"), c.op("fcmp one double %b, 0.0")
    ordinary = c.op(f"and i1 {there_a}, {there_b}")
    ordinary = c.op(f"and i1 {ordinary}, {_finite(c, '%a', '%b')}")
    return _chosen(c, ordinary, bits, nearest)


def _root(c: Body, mode: str) -> str:
    _, number, exponent = _normal(c, "%a")
    uneven = c.op(f"and i32 {exponent}, 1")
    is_uneven = c.op(f"icmp eq i32 {uneven}, 1")
    double = c.op(f"fadd double {number}, {number}")
    number = c.op(f"select i1 {is_uneven}, double {double}, double {number}")
    half = c.op(f"ashr i32 {exponent}, 1")
    found = intrinsic(c, "sqrt", "f64", number)
    minus = c.op(f"fneg double {found}")
    whole, down = _with_remainder(c, found, intrinsic(c, "fma", "f64", minus, found, number))
    bits = pack(c, "false", whole, c.op(f"add i32 {half}, {down}"), 64, F64, mode)
    nearest = intrinsic(c, "sqrt", "f64", "%a")
    positive = c.op("fcmp ogt double %a, 0.0")
    ordinary = c.op(f"and i1 {positive}, {_finite(c, '%a')}")
    return _chosen(c, ordinary, bits, nearest)
