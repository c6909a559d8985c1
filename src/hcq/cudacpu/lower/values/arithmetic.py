"""Sum, product, fused sum, quotient and square root of every float type, on values: what `add.rz.ftz.f32` computes.

Values: f32 is a float, f64 a double, f16 and bf16 an i16, tf32 an i32. PTX ISA 9.7.3 (f32, f64) and 9.7.4 (f16, bf16).
A NaN result of f32 is 0x7fffffff, of f16 and bf16 0x7fff; f64 passes an operand's NaN on (9.7.3: payloads are kept in
double precision and unspecified in single).
What does not live here: operands and opcodes (floats.py), approximations (approximate.py), conversions (convert.py).
"""

from __future__ import annotations

import platform
from functools import cache

import llvmlite.binding

from hcq.cudacpu.lower.helpers import Code, intrinsic, want
from hcq.cudacpu.lower.values import wide
from hcq.cudacpu.lower.values.rounding import BF16, F16, F32, narrow, odd, sum_error

IR = {"f32": "float", "f64": "double", "f16": "i16", "bf16": "i16", "tf32": "i32"}
NAN32 = "0x7FFFFFFFE0000000"  # 0x7fffffff, as LLVM writes floats
SMALLEST = {"f32": "0x3810000000000000", "f16": "0x3F10000000000000"}  # the smallest normal number
DIRECTED = frozenset(("rz", "rm", "rp"))


def add(code: Code, kind: str, mode: str, a: str, b: str) -> str:
    """a + b before .ftz, .sat and the like."""
    if mode not in DIRECTED:
        return code.op(f"fadd {IR[kind]} {a}, {b}")
    if kind == "f64":
        return wide.fused(code, a, "1.0", b, mode)
    return _sum(code, _double(code, a), _double(code, b), mode)


def subtract(code: Code, kind: str, mode: str, a: str, b: str) -> str:
    """a - b before .ftz, .sat and the like."""
    if mode not in DIRECTED:
        return code.op(f"fsub {IR[kind]} {a}, {b}")
    return add(code, kind, mode, a, code.op(f"fneg {IR[kind]} {b}"))


def multiply(code: Code, kind: str, mode: str, a: str, b: str) -> str:
    """a * b before .ftz, .sat and the like."""
    if mode not in DIRECTED:
        return code.op(f"fmul {IR[kind]} {a}, {b}")
    if kind == "f64":  # the zero that changes no zero of the product in this mode
        return wide.fused(code, a, b, "0.0" if mode == "rm" else "-0.0", mode)
    a, b = _double(code, a), _double(code, b)
    return _single(code, code.op(f"fmul double {a}, {b}"), mode)


def fused(code: Code, kind: str, mode: str, a: str, b: str, addend: str) -> str:
    """a * b + addend, rounded once, before .ftz, .sat and the like."""
    if mode not in DIRECTED:
        return intrinsic(code, "fma", kind, a, b, addend)
    if kind == "f64":
        return wide.fused(code, a, b, addend, mode)
    a, b, addend = _double(code, a), _double(code, b), _double(code, addend)
    return _sum(code, code.op(f"fmul double {a}, {b}"), addend, mode)


def divide(code: Code, kind: str, mode: str, a: str, b: str) -> str:
    """a / b before .ftz."""
    if mode not in DIRECTED:
        return code.op(f"fdiv {IR[kind]} {a}, {b}")
    if kind == "f64":
        return wide.quotient(code, a, b, mode)
    a, b = _double(code, a), _double(code, b)
    # What isn't a float is further from one than a double's rounding goes: no sticky bit is needed.
    return _single(code, code.op(f"fdiv double {a}, {b}"), mode)


def root(code: Code, kind: str, mode: str, a: str) -> str:
    """The square root of a before .ftz."""
    if mode not in DIRECTED:
        if kind == "f64":
            return intrinsic(code, "sqrt", kind, a)
        # Of integers, because LLVM takes a NaN chosen where a float is below zero to be the root's own.
        bits = code.op(f"bitcast float {a} to i32")
        none = code.op(f"icmp ugt i32 {bits}, {F32.infinity}")
        there = code.op(f"icmp ne i32 {bits}, {1 << 31}")
        none = code.op(f"and i1 {none}, {there}")
        return code.op(f"select i1 {none}, float {NAN32}, float {intrinsic(code, 'sqrt', kind, a)}")
    if kind == "f64":
        return wide.root(code, a, mode)
    return _single(code, intrinsic(code, "sqrt", "f64", _double(code, a)), mode)  # as above


def widen(code: Code, kind: str, value: str) -> str:
    """The float with the value of an f16 or bf16."""
    if kind == "f16" and hardware_halves():
        return code.op(f"fpext half {code.op(f'bitcast i16 {value} to half')} to float")
    if kind == "f16":
        return _widened(code, value)
    bits = code.op(f"zext i16 {value} to i32")
    return code.op(f"bitcast i32 {code.op(f'shl i32 {bits}, 16')} to float")


def shrink(code: Code, kind: str, value: str) -> str:
    """A float rounded to nearest as f16 or bf16, with the canonical NaN."""
    unordered = code.op(f"fcmp uno float {value}, 0.0")
    if kind == "f16" and not hardware_halves():
        return narrow(code, _double(code, value), F16, "rn")
    if kind == "f16":
        short = code.op(f"bitcast half {code.op(f'fptrunc float {value} to half')} to i16")
    else:
        bits = code.op(f"bitcast float {value} to i32")
        lowest = code.op(f"and i32 {code.op(f'lshr i32 {bits}, 16')}, 1")
        bits = code.op(f"add i32 {bits}, {code.op(f'add i32 {lowest}, 32767')}")
        short = code.op(f"trunc i32 {code.op(f'lshr i32 {bits}, 16')} to i16")
    return code.op(f"select i1 {unordered}, i16 32767, i16 {short}")


@cache
def hardware_halves() -> bool:
    """Whether the processor converts f16 itself. Else LLVM calls the compiler's library for it, which is not here."""
    if platform.machine().lower() in ("aarch64", "arm64"):
        return True
    return bool(llvmlite.binding.get_host_cpu_features().get("f16c", False))


def half_functions(code: Code, kind: str) -> tuple[str, str]:
    """The symbols of `float widen(i16)` and `i16 shrink(float)` of f16 or bf16."""
    return (
        want(code, f"widen.{kind}", "float", "i16 %x", lambda c: widen(c, kind, "%x")),
        want(code, f"shrink.{kind}", "i16", "float %x", lambda c: shrink(c, kind, "%x")),
    )


def _widened(code: Code, value: str) -> str:
    """The float with the value of an f16, by integers: the exponent is 112 too low after a shift."""
    bits = code.op(f"zext i16 {value} to i32")
    body = code.op(f"shl i32 {code.op(f'and i32 {bits}, 32767')}, 13")
    number = code.op(f"fmul float {code.op(f'bitcast i32 {body} to float')}, 0x46F0000000000000")
    special = code.op(f"bitcast i32 {code.op(f'or i32 {body}, {F32.infinity}')} to float")
    infinite = code.op(f"icmp uge i32 {body}, {F16.infinity << 13}")
    number = code.op(f"select i1 {infinite}, float {special}, float {number}")
    sign = code.op(f"bitcast i32 {code.op(f'shl i32 {bits}, 16')} to float")
    return intrinsic(code, "copysign", "f32", number, sign)


def halves(code: Code, kind: str, base: str, flags: frozenset[str], operands: list[str]) -> str:
    """add, sub, mul or fma of f16 or bf16, rounded to nearest, with its modifiers.

    Sums and products are rounded to f32 first: it has more than twice the bits and two, so that the second rounding is
    right (Figueroa: When is double rounding innocuous). A fused sum is not so, hence it is rounded to odd.
    """
    if kind == "bf16" and base == "fma":
        a, b, addend = (_double(code, widen(code, kind, each)) for each in operands)
        product = code.op(f"fmul double {a}, {b}")
        total = code.op(f"fadd double {product}, {addend}")
        result = narrow(code, odd(code, total, sum_error(code, product, addend, total)), BF16, "rn")
        return _rectified(code, result) if "relu" in flags else result
    values = [flushed(code, kind, widen(code, kind, each), "ftz" in flags) for each in operands]
    if base == "fma":
        product = code.op(f"fmul float {values[0]}, {values[1]}")
        total = code.op(f"fadd float {product}, {values[2]}")
        total = odd(code, total, sum_error(code, product, values[2], total, "float"), "float")
    else:
        total = code.op(f"{ {'add': 'fadd', 'sub': 'fsub', 'mul': 'fmul'}[base] } float {values[0]}, {values[1]}")
    if "sat" in flags:
        total = saturated(code, "f32", total)
    result = shrink(code, kind, total)
    if "ftz" in flags:
        result = flushed_bits(code, result)
    return _rectified(code, result) if "relu" in flags else result


def flushed(code: Code, kind: str, value: str, ftz: bool = True) -> str:
    """A float with `kind`'s subnormal numbers made zeros of the same sign."""
    if not ftz:
        return value
    magnitude = intrinsic(code, "fabs", "f32", value)
    tiny = code.op(f"fcmp olt float {magnitude}, {SMALLEST[kind]}")
    zero = intrinsic(code, "copysign", "f32", "0.0", value)
    return code.op(f"select i1 {tiny}, float {zero}, float {value}")


def flushed_bits(code: Code, value: str) -> str:
    """An f16 (i16) with subnormal numbers made zeros of the same sign."""
    exponent = code.op(f"and i16 {value}, {0x7C00}")
    tiny = code.op(f"icmp eq i16 {exponent}, 0")
    sign = code.op(f"and i16 {value}, -32768")
    return code.op(f"select i1 {tiny}, i16 {sign}, i16 {value}")


def saturated(code: Code, kind: str, value: str) -> str:
    """Clamped to [+0, 1]; NaN becomes +0."""
    ir = IR[kind]
    above = code.op(f"fcmp ogt {ir} {value}, 0.0")
    below = code.op(f"fcmp olt {ir} {value}, 1.0")
    most = code.op(f"select i1 {below}, {ir} {value}, {ir} 1.0")
    return code.op(f"select i1 {above}, {ir} {most}, {ir} 0.0")


def extreme(code: Code, base: str, kind: str, a: str, b: str, propagate: bool) -> str:
    """min or max of two floats or doubles, -0 below +0; `propagate`: NaN where either is, else where both are.

    Not by llvm.minimumnum, which LLVM 22 compiles wrongly for x86 where one operand is known to be no NaN: it gives the
    other's NaN.
    """
    ir, whole = IR[kind], "i64" if kind == "f64" else "i32"
    first = code.op(f"fcmp {'olt' if base == 'min' else 'ogt'} {ir} {a}, {b}")
    chosen = code.op(f"select i1 {first}, {ir} {a}, {ir} {b}")
    bits = [code.op(f"bitcast {ir} {each} to {whole}") for each in (a, b)]
    zero = code.op(f"{'or' if base == 'min' else 'and'} {whole} {bits[0]}, {bits[1]}")  # of two zeros the right one
    equal = code.op(f"fcmp oeq {ir} {a}, {b}")
    chosen = code.op(f"select i1 {equal}, {ir} {code.op(f'bitcast {whole} {zero} to {ir}')}, {ir} {chosen}")
    # So far it is b where either is NaN.
    other = code.op(f"fcmp uno {ir} {a if propagate else b}, 0.0")
    return code.op(f"select i1 {other}, {ir} {a}, {ir} {chosen}")


def extreme_function(code: Code, base: str) -> str:
    """The symbol of `float f(float, float)`: min or max, NaN where both are."""
    parameters = "float %a, float %b"
    return want(code, f"{base}.f32", "float", parameters, lambda c: extreme(c, base, "f32", "%a", "%b", False))


def canonical(code: Code, value: str) -> str:
    """An f32 whose NaN is the canonical one."""
    unordered = code.op(f"fcmp uno float {value}, 0.0")
    return code.op(f"select i1 {unordered}, float {NAN32}, float {value}")


def finished(code: Code, kind: str, flags: frozenset[str], value: str) -> str:
    """An f32 or f64 result with what .ftz and .sat do to it."""
    if kind == "f64":
        return value
    if "ftz" in flags:
        value = flushed(code, kind, value)
    return saturated(code, kind, value) if "sat" in flags else value


def _rectified(code: Code, value: str) -> str:
    """0 for a negative f16 or bf16 (i16) that is no NaN; NaN is canonical, and so positive, already."""
    return intrinsic(code, "smax", "i16", value, "0")


def _double(code: Code, value: str) -> str:
    return code.op(f"fpext float {value} to double")


def _single(code: Code, value: str, mode: str) -> str:
    return code.op(f"bitcast i32 {narrow(code, value, F32, mode)} to float")


def _sum(code: Code, a: str, b: str, mode: str) -> str:
    """The f32 nearest by `mode` to the sum of two doubles, each of which is exact and of single range or its square."""
    total = code.op(f"fadd double {a}, {b}")
    exact = odd(code, total, sum_error(code, a, b, total))
    if mode == "rm":  # an exact zero is -0 unless both are +0
        zero = code.op(f"fcmp oeq double {total}, 0.0")
        signs = [code.op(f"bitcast double {each} to i64") for each in (a, b)]
        either = code.op(f"or i64 {signs[0]}, {signs[1]}")
        sign = code.op(f"bitcast i64 {either} to double")
        signed = intrinsic(code, "copysign", "f64", "0.0", sign)
        exact = code.op(f"select i1 {zero}, double {signed}, double {exact}")
    return _single(code, exact, mode)
