"""What the pure operations of ir.OPS give, on Python's numbers: the definition that all targets are compared with.

A bool is a bool, an integer an int of its type's range, a float a Python float that its type holds exactly, a vector a
tuple. Floats are computed exactly or in f64 and rounded once: f64 has more than twice the digits of f32 and two more,
so that + - * / and sqrt of narrower types come out as if rounded once. What does not live here: memory, control flow.
"""

from __future__ import annotations

import ctypes
import math
import operator
import struct
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from hcq.kernels import types
from hcq.kernels.types import Pointer, Scalar, Vector

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.kernels.types import Type

_DIGITS: Final = {"f16": (11, -24), "bf16": (8, -133), "f32": (24, -149), "f64": (53, -1074)}
"""Of each float type: binary digits of the significand, and the exponent of the least value above zero."""

_MAXIMA: Final = {"f16": 65504.0, "bf16": float.fromhex("0x1.fep+127"), "f32": float.fromhex("0x1.fffffep+127")}


@cache
def evaluator(code: str, operand: Type, result: Type) -> Callable[..., Any]:
    """A function that computes the operation `code`, whose first operand (of select: second) has type `operand`.

    Raises KeyError for operations that are not pure arithmetic (ids, memory, control flow).
    """
    if isinstance(operand, Pointer) or isinstance(result, Pointer):
        raise KeyError(code)
    if isinstance(operand, Vector) and code != "extract":
        return _lanes(code, operand.element, types.element_of(result))
    if code in ("cast", "bitcast"):
        convert = _cast if code == "cast" else _bitcast
        return convert(types.element_of(operand), types.element_of(result))
    element = types.element_of(operand)
    make = _FLOATS.get(code) if element.is_float else _INTEGERS.get(code)
    return (make or _ANY[code])(element)


def _lanes(code: str, operand: Scalar, result: Scalar) -> Callable[..., Any]:
    one = evaluator(code, operand, result)

    def each(*vectors: Any) -> tuple[Any, ...]:
        if code == "select" and isinstance(vectors[0], bool):
            return vectors[1] if vectors[0] else vectors[2]  # type: ignore[no-any-return]
        return tuple(map(one, *vectors))

    return each


def wrapper(type_: Scalar) -> Callable[[int], int]:
    """Takes an integer modulo 2^bits into the range of an integer type."""
    low, high = type_.range
    mask = (1 << type_.bits) - 1
    if type_.kind == "u":
        return lambda value: value & mask
    return lambda value: value if low <= value <= high else ((value - low) & mask) + low


def rounder(type_: Scalar) -> Callable[[float], float]:
    """Rounds a Python float to a float type: to the nearest, ties to even, past the largest to infinity."""
    if type_ is types.f64:
        return lambda value: value
    if type_ is types.f32:
        return lambda value: ctypes.c_float(value).value
    digits, least = _DIGITS[type_.name]
    largest = _MAXIMA[type_.name]

    def narrow(value: float) -> float:
        if value == 0 or not math.isfinite(value):
            return value
        if abs(value) > 2 * largest:
            return math.copysign(math.inf, value)
        quantum = max(math.frexp(value)[1] - digits, least)
        rounded = math.ldexp(round(math.ldexp(value, -quantum)), quantum)
        return math.copysign(rounded if abs(rounded) <= largest else math.inf, value)

    return narrow


def round_exact(value: Fraction, type_: Scalar) -> float:
    """Rounds an exact value once to a float type: to the nearest, ties to even, past the largest to infinity. What is
    too small keeps its sign."""
    if value == 0:
        return 0.0
    digits, least = _DIGITS[type_.name]
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    quantum = max(exponent + 1 - digits, least)
    rounded = round(value / Fraction(2) ** quantum)
    try:
        result = math.copysign(math.ldexp(rounded, quantum), value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return result if abs(result) <= _MAXIMA.get(type_.name, math.inf) else math.copysign(math.inf, result)


# Integers and bools


def _wrapped(compute: Callable[..., int]) -> Callable[[Scalar], Callable[..., Any]]:
    def make(type_: Scalar) -> Callable[..., Any]:
        wrap = wrapper(type_)
        return lambda *operands: wrap(compute(*operands))

    return make


def _shift(left: bool) -> Callable[[Scalar], Callable[[int, int], int]]:
    def make(type_: Scalar) -> Callable[[int, int], int]:
        wrap, bits, mask = wrapper(type_), type_.bits, (1 << type_.bits) - 1

        def shift(a: int, b: int) -> int:
            count = b & mask
            if left:
                return wrap(a << count) if count < bits else 0
            return a >> min(count, bits)

        return shift

    return make


def _invert(type_: Scalar) -> Callable[[Any], Any]:
    return operator.not_ if type_.kind == "b" else _wrapped(operator.invert)(type_)


def _popcount(type_: Scalar) -> Callable[[int], int]:
    mask = (1 << type_.bits) - 1
    return lambda a: (a & mask).bit_count()


def _clz(type_: Scalar) -> Callable[[int], int]:
    mask = (1 << type_.bits) - 1
    return lambda a: type_.bits - (a & mask).bit_length()


_INTEGERS: Final[dict[str, Callable[[Scalar], Callable[..., Any]]]] = {
    "add": _wrapped(operator.add),
    "sub": _wrapped(operator.sub),
    "mul": _wrapped(operator.mul),
    "neg": _wrapped(operator.neg),
    "abs": _wrapped(abs),
    "floordiv": _wrapped(lambda a, b: a // b if b else 0),
    "mod": _wrapped(lambda a, b: a % b if b else 0),
    "and": lambda type_: operator.and_,
    "or": lambda type_: operator.or_,
    "xor": lambda type_: operator.xor,
    "not": _invert,
    "shl": _shift(left=True),
    "shr": _shift(left=False),
    "min": lambda type_: min,
    "max": lambda type_: max,
    "popcount": _popcount,
    "clz": _clz,
}

# Floats


def _rounded(compute: Callable[..., float]) -> Callable[[Scalar], Callable[..., float]]:
    def make(type_: Scalar) -> Callable[..., float]:
        if type_ is types.f64:
            return compute
        narrow = rounder(type_)
        return lambda *operands: narrow(compute(*operands))

    return make


def _divide(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _remainder(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b) or math.isinf(a) or b == 0:
        return math.nan
    return math.fmod(a, b)


def _root(a: float) -> float:
    return math.sqrt(a) if a >= 0 else a if a == 0 else math.nan


def _whole(compute: Callable[[float], int]) -> Callable[[Scalar], Callable[[float], float]]:
    def whole(a: float) -> float:
        return math.copysign(float(compute(a)), a) if math.isfinite(a) else a

    return lambda type_: whole


def _smaller(a: float, b: float) -> float:
    return math.nan if math.isnan(a) or math.isnan(b) else min(a, b)


def _larger(a: float, b: float) -> float:
    return math.nan if math.isnan(a) or math.isnan(b) else max(a, b)


def _fma(type_: Scalar) -> Callable[[float, float, float], float]:
    narrow = rounder(type_)
    computed = types.computed(type_)

    def fma(a: float, b: float, c: float) -> float:
        if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
            return a * b + c
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        if exact == 0:
            return a * b + c  # the sign of a zero follows from its terms; a product that underflowed has the right one
        return narrow(round_exact(exact, computed))

    return fma


_FLOATS: Final[dict[str, Callable[[Scalar], Callable[..., Any]]]] = {
    "add": _rounded(operator.add),
    "sub": _rounded(operator.sub),
    "mul": _rounded(operator.mul),
    "div": _rounded(_divide),
    "rem": _rounded(_remainder),
    "sqrt": _rounded(_root),
    "fma": _fma,
    "neg": lambda type_: operator.neg,
    "abs": lambda type_: abs,
    "min": lambda type_: _smaller,
    "max": lambda type_: _larger,
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "trunc": _whole(math.trunc),
    "round": _whole(round),
    "copysign": lambda type_: math.copysign,
}

# Both


def _choose(type_: Scalar) -> Callable[[bool, Any, Any], Any]:
    return lambda condition, a, b: a if condition else b


_ANY: Final[dict[str, Callable[[Scalar], Callable[..., Any]]]] = {
    "eq": lambda type_: operator.eq,
    "ne": lambda type_: operator.ne,
    "lt": lambda type_: operator.lt,
    "le": lambda type_: operator.le,
    "gt": lambda type_: operator.gt,
    "ge": lambda type_: operator.ge,
    "select": _choose,
}


def _cast(source: Scalar, target: Scalar) -> Callable[[Any], Any]:
    if target.kind == "b":
        return lambda a: a != 0
    if target.is_float:
        if source.is_float:
            return rounder(target)
        return lambda a: round_exact(Fraction(int(a)), target)
    if not source.is_float:
        wrap = wrapper(target)
        return lambda a: wrap(int(a))
    low, high = target.range

    def toward_zero(a: float) -> int:
        if math.isnan(a):
            return 0
        return low if a <= low else high if a >= high else math.trunc(a)

    return toward_zero


def _bitcast(source: Scalar, target: Scalar) -> Callable[[Any], Any]:
    return lambda a: decode(encode(a, source), target)


_CODES: Final = {"f16": "<e", "f32": "<f", "f64": "<d"}


def encode(value: Any, type_: Scalar) -> bytes:
    """The bytes of a value in memory, little-endian."""
    if type_ is types.bf16:
        return struct.pack("<f", value)[2:]
    if type_.is_float:
        return struct.pack(_CODES[type_.name], value)
    return int(value).to_bytes(type_.itemsize, "little", signed=type_.kind == "i")


def decode(data: bytes, type_: Scalar) -> Any:
    """The value that bytes in memory stand for; a bool is true if its byte is not 0."""
    if type_ is types.bf16:
        return struct.unpack("<f", b"\0\0" + data)[0]
    if type_.is_float:
        return struct.unpack(_CODES[type_.name], data)[0]
    number = int.from_bytes(data, "little", signed=type_.kind == "i")
    return number != 0 if type_.kind == "b" else number
