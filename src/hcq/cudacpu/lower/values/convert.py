"""Values converted between integers and floats of every width, as cvt says (PTX ISA 9.7.9.21).

What does not live here: the rounding itself (rounding.py), the opcode, packed types and cvt.pack (cvt.py).
"""

from __future__ import annotations

from hcq.cudacpu.lower.helpers import Code, intrinsic
from hcq.cudacpu.lower.types import llvm, signed, width
from hcq.cudacpu.lower.values import arithmetic
from hcq.cudacpu.lower.values.arithmetic import IR, canonical, flushed, saturated, shrink, widen
from hcq.cudacpu.lower.values.rounding import FORMATS, narrow, pack

INTEGERS = tuple(f"{sign}{size}" for sign in "us" for size in (8, 16, 32, 64))
WHOLE = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
MODES = ("rn", "rz", "rm", "rp")
FLOATS = ("f16", "bf16", "f32", "f64")


def of_integer(code: Code, value: str, source: str, to: str, flags: frozenset[str]) -> str:
    """An integer as another one (lower bits, or clamped by .sat) or as a float."""
    if to in INTEGERS:
        return _integer(code, value, source, to, "sat" in flags)
    mode = next((each for each in MODES if each in flags), "rn")
    have, sign = width(source), signed(source)
    if to in ("f32", "f64") and (mode == "rn" or (to == "f64" and have < 64)):
        result = code.op(f"{'sitofp' if sign else 'uitofp'} {llvm(source)} {value} to {IR[to]}")
    elif have < 64:
        exact = code.op(f"{'sitofp' if sign else 'uitofp'} {llvm(source)} {value} to double")
        result = _rounded(code, exact, to, mode)
    else:
        number, negative = value, "false"
        if sign:
            negative = code.op(f"icmp slt i64 {value}, 0")
            minus = code.op(f"sub i64 0, {value}")
            number = code.op(f"select i1 {negative}, i64 {minus}, i64 {value}")
        number = code.op(f"zext i64 {number} to i128")
        bits = pack(code, negative, number, "0", 128, FORMATS[to], mode)
        result = code.op(f"bitcast i{width(to)} {bits} to {IR[to]}") if to in ("f32", "f64") else bits
    if "sat" in flags:
        return _saturated(code, to, result)
    return result


def _integer(code: Code, value: str, source: str, to: str, sat: bool) -> str:
    have, wanted = width(source), width(to)
    if sat:
        low = -(1 << (wanted - 1)) if signed(to) else 0
        high = (1 << (wanted - 1)) - 1 if signed(to) else (1 << wanted) - 1
        least, most = (-(1 << (have - 1)), (1 << (have - 1)) - 1) if signed(source) else (0, (1 << have) - 1)
        kind, letter = f"i{have}", "s" if signed(source) else "u"
        if low > least:
            value = intrinsic(code, f"{letter}max", kind, value, str(low))
        if high < most:
            value = intrinsic(code, f"{letter}min", kind, value, str(high))
    if have == wanted:
        return value
    if have > wanted:
        return code.op(f"trunc i{have} {value} to i{wanted}")
    return code.op(f"{'sext' if signed(source) else 'zext'} i{have} {value} to i{wanted}")


def to_integer(code: Code, value: str, source: str, to: str, flags: frozenset[str]) -> str:
    """A float rounded to an integer and clamped to its range. NaN is 0, or the highest bit for 64 bits and for f64."""
    ftz = "ftz" in flags and source == "f32"
    if source in ("f16", "bf16"):
        value = widen(code, source, value)
    wide = "f64" if source == "f64" else "f32"
    value = flushed(code, "f32", value, ftz)
    whole = next((WHOLE[each] for each in WHOLE if each in flags), "trunc")
    if whole != "trunc":  # which the conversion does itself
        value = intrinsic(code, whole, wide, value)
    return _whole(code, value, IR[wide], to, 1 << (width(to) - 1) if source == "f64" or width(to) == 64 else 0)


def _whole(code: Code, value: str, ir: str, to: str, nan: int) -> str:
    """A float or double truncated to an integer and clamped. (LLVM's own llvm.fptosi.sat is no vector operation.)"""
    sign, bits = signed(to), width(to)
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if sign else (0, (1 << bits) - 1)
    low, end = f"{float(least):.1f}", f"{float(most + 1):.1f}"
    above = code.op(f"fcmp ogt {ir} {value}, {low}")
    over = code.op(f"fcmp oge {ir} {value}, {end}")
    within = code.op(f"select i1 {above}, {ir} {value}, {ir} {low}")
    within = code.op(f"select i1 {over}, {ir} {low}, {ir} {within}")
    kind = f"i{max(bits, 32)}"
    number = code.op(f"{'fptosi' if sign else 'fptoui'} {ir} {within} to {kind}")
    number = code.op(f"select i1 {over}, {kind} {most}, {kind} {number}")
    unordered = code.op(f"fcmp uno {ir} {value}, 0.0")
    number = code.op(f"select i1 {unordered}, {kind} {nan}, {kind} {number}")
    return code.op(f"trunc {kind} {number} to i{bits}") if bits < 32 else number


def to_float(code: Code, value: str, source: str, to: str, flags: frozenset[str]) -> str:
    """A float as a float of the same or another type; .rni and the like round it to a whole number first."""
    mode = next((each for each in (*MODES, "rna") if each in flags), "rn")
    if source in ("f16", "bf16"):
        value = widen(code, source, value)
    wide = "f64" if source == "f64" else "f32"
    value = flushed(code, "f32", value, "ftz" in flags and source == "f32")
    whole = next((WHOLE[each] for each in WHOLE if each in flags), None)
    if whole:
        value = intrinsic(code, whole, wide, value)
    if "relu" in flags:
        value = _rectified(code, wide, value)
    if "sat" in flags:
        value = saturated(code, wide, value)
    if to == "f64":
        return value if wide == "f64" else code.op(f"fpext float {value} to double")
    if to == "f32":
        if wide == "f64":
            value = _rounded(code, value, to, mode)
        value = flushed(code, "f32", value, "ftz" in flags)
        return canonical(code, value)
    if wide == "f32" and mode == "rn" and to in ("f16", "bf16") and "satfinite" not in flags:
        return shrink(code, to, value)
    if wide == "f32":
        value = code.op(f"fpext float {value} to double")
    return narrow(code, value, FORMATS[to], mode, "satfinite" in flags)


def short_float(code: Code, value: str, kind: str) -> str:
    """The float with the value of one of 8, 6 or 4 bits (e4m3, e5m2, e3m2, e2m3, e2m1) in the lower bits of an i16."""
    if kind == "e5m2":  # the upper half of an f16
        return widen(code, "f16", code.op(f"shl i16 {value}, 8"))
    form = FORMATS[kind]
    body = code.op(f"and i16 {value}, {(1 << (form.bits - 1)) - 1}")  # a float's exponent, too low, and mantissa
    bits = code.op(f"shl i32 {code.op(f'zext i16 {body} to i32')}, {23 - form.mantissa}")
    scale = f"0x{1023 + 127 - form.bias << 52:016X}"
    number = code.op(f"fmul float {code.op(f'bitcast i32 {bits} to float')}, {scale}")
    sign = code.op(f"shl i32 {code.op(f'zext i16 {value} to i32')}, {32 - form.bits}")
    number = intrinsic(code, "copysign", "f32", number, code.op(f"bitcast i32 {sign} to float"))
    if kind != "e4m3":
        return number
    nan = code.op(f"icmp eq i16 {body}, 127")
    return code.op(f"select i1 {nan}, float 0x7FF8000000000000, float {number}")


def _rounded(code: Code, value: str, to: str, mode: str) -> str:
    """A double as `to`."""
    if to == "f32" and mode == "rn":
        return code.op(f"fptrunc double {value} to float")
    bits = narrow(code, value, FORMATS[to], mode)
    return code.op(f"bitcast i32 {bits} to float") if to == "f32" else bits


def _rectified(code: Code, kind: str, value: str) -> str:
    """+0 for what is negative; NaN stays."""
    negative = code.op(f"fcmp ole {IR[kind]} {value}, 0.0")
    return code.op(f"select i1 {negative}, {IR[kind]} 0.0, {IR[kind]} {value}")


def _saturated(code: Code, kind: str, value: str) -> str:
    if kind in ("f32", "f64"):
        return saturated(code, kind, value)
    return shrink(code, kind, arithmetic.saturated(code, "f32", widen(code, kind, value)))
