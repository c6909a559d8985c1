"""ex2, lg2, sin, cos, tanh of f32, and the gross reciprocals of f64: PTX's approximations, by polynomials in double.

They are nearer than PTX ISA 9.7.3 demands (ex2: 2 ulp, lg2: 2**-22, sin and cos: 2**-20.5 between -2 pi and 2 pi, tanh:
2**-11 of the value), mostly the nearest float, and they vectorise. No bits of a GPU's own approximation are promised.
Past 2**52 sin and cos have no right digits, as the manual leaves it, and stay within -1 and 1.
What does not live here: rcp, sqrt, rsqrt and div, which the processor rounds to nearest (floats.py).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from hcq.cudacpu.lower.helpers import Body, Code, call, intrinsic, want
from hcq.cudacpu.lower.values.arithmetic import NAN32

LN2 = math.log(2)
EX2 = [LN2**k / math.factorial(k) for k in range(11)]
LG2 = [2 / LN2 / k for k in range(1, 19, 2)]  # of ((m - 1) / (m + 1)) squared
SIN = [(-1) ** k / math.factorial(2 * k + 1) for k in range(8)]
COS = [(-1) ** k / math.factorial(2 * k) for k in range(9)]
HALF_PI, HALF_PI_REST = 1.5707963267948966, 6.123233995736766e-17
ROOT_HALF = 0x3FE6A09E667F3BCD  # bits of sqrt(1/2)


def approximation(code: Code, base: str, value: str) -> str:
    """ex2, lg2, sin, cos or tanh of a float."""
    writers: dict[str, Callable[[Body], str]] = {"ex2": _ex2, "lg2": _lg2, "sin": _sin, "cos": _cos, "tanh": _tanh}
    symbol = want(code, f"{base}.f32", "float", "float %x", writers[base])
    return call(code, "float", symbol, f"float {value}")


def gross(code: Code, base: str, value: str) -> str:
    """rcp.approx.ftz.f64 or rsqrt.approx.ftz.f64: of and to the upper 32 bits of a double."""
    symbol = want(code, f"{base}.gross", "double", "double %x", lambda body: _gross(body, base))
    return call(code, "double", symbol, f"double {value}")


def _constant(value: float) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _polynomial(c: Body, x: str, coefficients: list[float]) -> str:
    total = _constant(coefficients[-1])
    for each in reversed(coefficients[:-1]):
        total = intrinsic(c, "fma", "f64", total, x, _constant(each))
    return total


def _within(c: Body, x: str, low: float, high: float) -> str:
    """x clamped; NaN becomes `high`."""
    under = c.op(f"fcmp olt double {x}, {_constant(high)}")
    x = c.op(f"select i1 {under}, double {x}, double {_constant(high)}")
    over = c.op(f"fcmp ogt double {x}, {_constant(low)}")
    return c.op(f"select i1 {over}, double {x}, double {_constant(low)}")


def _power_of_two(c: Body, x: str) -> str:
    """2**x of a double between -200 and 200."""
    whole = intrinsic(c, "roundeven", "f64", x)
    rest = c.op(f"fsub double {x}, {whole}")
    bits = c.op(f"bitcast double {_polynomial(c, rest, EX2)} to i64")
    exponent = c.op(f"shl i64 {c.op(f'fptosi double {whole} to i64')}, 52")
    return c.op(f"bitcast i64 {c.op(f'add i64 {bits}, {exponent}')} to double")


def _unless_nan(c: Body, value: str, nan: str) -> str:
    return c.op(f"select i1 {nan}, float {NAN32}, float {value}")


def _ex2(c: Body) -> str:
    wide = c.op("fpext float %x to double")
    found = c.op(f"fptrunc double {_power_of_two(c, _within(c, wide, -200.0, 200.0))} to float")
    return _unless_nan(c, found, c.op("fcmp uno float %x, 0.0"))


def _lg2(c: Body) -> str:
    bits = c.op(f"bitcast double {c.op('fpext float %x to double')} to i64")
    exponent = c.op(f"ashr i64 {c.op(f'sub i64 {bits}, {ROOT_HALF}')}, 52")
    mantissa = c.op(f"sub i64 {bits}, {c.op(f'shl i64 {exponent}, 52')}")
    number = c.op(f"bitcast i64 {mantissa} to double")
    above, below = c.op(f"fadd double {number}, 1.0"), c.op(f"fsub double {number}, 1.0")
    part = c.op(f"fdiv double {below}, {above}")
    series = _polynomial(c, c.op(f"fmul double {part}, {part}"), LG2)
    found = intrinsic(c, "fma", "f64", part, series, c.op(f"sitofp i64 {exponent} to double"))
    result = c.op(f"fptrunc double {found} to float")
    infinite = c.op("fcmp oeq float %x, 0x7FF0000000000000")
    result = c.op(f"select i1 {infinite}, float %x, float {result}")
    result = _unless_nan(c, result, c.op("fcmp ult float %x, 0.0"))
    zero = c.op("fcmp oeq float %x, 0.0")
    return c.op(f"select i1 {zero}, float 0xFFF0000000000000, float {result}")


def _turned(c: Body, quarter: int) -> str:
    """The sine of x and `quarter` right angles."""
    wide = c.op("fpext float %x to double")
    turns = intrinsic(c, "roundeven", "f64", c.op(f"fmul double {wide}, {_constant(1 / HALF_PI)}"))
    minus = c.op(f"fneg double {turns}")
    rest = intrinsic(c, "fma", "f64", minus, _constant(HALF_PI), wide)
    rest = _within(c, intrinsic(c, "fma", "f64", minus, _constant(HALF_PI_REST), rest), -1.0, 1.0)
    c.declare("declare i64 @llvm.fptosi.sat.i64.f64(double)")
    count = call(c, "i64", "@llvm.fptosi.sat.i64.f64", f"double {turns}")
    if quarter:
        count = c.op(f"add i64 {count}, {quarter}")
    square = c.op(f"fmul double {rest}, {rest}")
    sine = c.op(f"fmul double {rest}, {_polynomial(c, square, SIN)}")
    uneven = c.op(f"trunc i64 {count} to i1")
    found = c.op(f"select i1 {uneven}, double {_polynomial(c, square, COS)}, double {sine}")
    back = c.op(f"trunc i64 {c.op(f'lshr i64 {count}, 1')} to i1")
    found = c.op(f"select i1 {back}, double {c.op(f'fneg double {found}')}, double {found}")
    result = c.op(f"fptrunc double {_within(c, found, -1.0, 1.0)} to float")
    magnitude = intrinsic(c, "fabs", "f32", "%x")
    return _unless_nan(c, result, c.op(f"fcmp ueq float {magnitude}, 0x7FF0000000000000"))


def _sin(c: Body) -> str:
    found = _turned(c, 0)
    tiny = c.op(f"fcmp olt float {intrinsic(c, 'fabs', 'f32', '%x')}, {_constant(2.0**-20)}")
    return c.op(f"select i1 {tiny}, float %x, float {found}")


def _cos(c: Body) -> str:
    return _turned(c, 1)


def _tanh(c: Body) -> str:
    wide = intrinsic(c, "fabs", "f64", c.op("fpext float %x to double"))
    exponent = c.op(f"fmul double {_within(c, wide, 0.0, 20.0)}, {_constant(2 / LN2)}")
    below = c.op(f"fadd double {_power_of_two(c, exponent)}, 1.0")
    found = c.op(f"fsub double 1.0, {c.op(f'fdiv double 2.0, {below}')}")
    square = c.op(f"fmul double {wide}, {wide}")
    near = c.op(f"fmul double {wide}, {_polynomial(c, square, [1.0, -1 / 3, 2 / 15])}")
    small = c.op(f"fcmp olt double {wide}, {_constant(2.0**-6)}")
    found = c.op(f"select i1 {small}, double {near}, double {found}")
    result = intrinsic(c, "copysign", "f32", c.op(f"fptrunc double {found} to float"), "%x")
    return _unless_nan(c, result, c.op("fcmp uno float %x, 0.0"))


def _gross(c: Body, base: str) -> str:
    bits = c.op("bitcast double %x to i64")
    value = _upper(c, bits)
    if base == "rsqrt":
        value = intrinsic(c, "sqrt", "f64", value)
    bits = c.op(f"bitcast double {c.op(f'fdiv double 1.0, {value}')} to i64")
    return _upper(c, bits)


def _upper(c: Body, bits: str) -> str:
    """A double of its upper 32 bits, subnormal numbers as zeros. A NaN is the canonical one."""
    value = c.op(f"bitcast i64 {c.op(f'and i64 {bits}, -4294967296')} to double")
    whole = c.op(f"bitcast i64 {bits} to double")
    tiny = c.op(f"fcmp olt double {intrinsic(c, 'fabs', 'f64', value)}, 0x0010000000000000")
    zero = intrinsic(c, "copysign", "f64", "0.0", value)
    value = c.op(f"select i1 {tiny}, double {zero}, double {value}")
    nan = c.op(f"fcmp uno double {whole}, 0.0")
    return c.op(f"select i1 {nan}, double 0x7FFFFFFF00000000, double {value}")
