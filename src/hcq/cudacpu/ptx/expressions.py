"""Constant expressions: C's operators over 64-bit integers, and floating-point literals."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable

from hcq.cudacpu.ptx.cursor import Cursor, integer
from hcq.cudacpu.ptx.errors import PtxError
from hcq.cudacpu.ptx.nodes import Immediate

Number = int | float

_LEVELS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda a, b: int(bool(a) or bool(b))},
    {"&&": lambda a, b: int(bool(a) and bool(b))},
    {"|": operator.or_},
    {"^": operator.xor},
    {"&": operator.and_},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {
        "<": lambda a, b: int(a < b),
        ">": lambda a, b: int(a > b),
        "<=": lambda a, b: int(a <= b),
        ">=": lambda a, b: int(a >= b),
    },
    {"<<": lambda a, b: a << (b & 63), ">>": lambda a, b: a >> (b & 63)},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": lambda a, b: _quotient(a, b), "%": lambda a, b: a - _quotient(a, b) * b},
)


def constant(cursor: Cursor) -> Immediate:
    """The constant that the expression here stands for."""
    token = cursor.token
    if token.kind == "float" or (token.text == "-" and cursor.peek().kind == "float"):
        return _float(cursor)
    value = _ternary(cursor)
    return Immediate(value)


def begins_constant(cursor: Cursor) -> bool:
    """Whether a constant expression can begin here."""
    token = cursor.token
    return token.kind in ("int", "float") or token.text in ("-", "+", "~", "!", "(", "WARP_SZ")


def _float(cursor: Cursor) -> Immediate:
    negative = cursor.take("-")
    text = cursor.next().text
    kind = text[:2].lower()
    if kind == "0f":
        bits, width = int(text[2:], 16), 32
        value = struct.unpack("<f", struct.pack("<I", bits))[0]
    elif kind == "0d":
        bits, width = int(text[2:], 16), 64
        value = struct.unpack("<d", struct.pack("<Q", bits))[0]
    else:
        value, width = float(text), 64
        bits = struct.unpack("<Q", struct.pack("<d", value))[0]
    if negative:
        value, bits = -value, bits ^ (1 << (width - 1))
    return Immediate(value, bits, width)


def _ternary(cursor: Cursor) -> int:
    condition = _binary(cursor, 0)
    if not cursor.take("?"):
        return condition
    yes = _ternary(cursor)
    cursor.expect(":")
    no = _ternary(cursor)
    return yes if condition else no


def _binary(cursor: Cursor, level: int) -> int:
    if level == len(_LEVELS):
        return _unary(cursor)
    value = _binary(cursor, level + 1)
    while cursor.token.kind == "mark" and cursor.token.text in _LEVELS[level]:
        sign = cursor.next()
        right = _binary(cursor, level + 1)
        if sign.text in "/%" and not right:
            raise PtxError("a constant expression divides by zero", sign.line)
        value = _wrap(_LEVELS[level][sign.text](value, right))
    return value


def _unary(cursor: Cursor) -> int:
    if cursor.take("-"):
        return _wrap(-_unary(cursor))
    if cursor.take("+"):
        return _unary(cursor)
    if cursor.take("~"):
        return _wrap(~_unary(cursor))
    if cursor.take("!"):
        return int(not _unary(cursor))
    if cursor.take("("):
        if cursor.token.text in (".s64", ".u64"):
            unsigned = cursor.next().text == ".u64"
            cursor.expect(")")
            value = _unary(cursor)
            return value & (2**64 - 1) if unsigned else value
        value = _ternary(cursor)
        cursor.expect(")")
        return value
    if cursor.token.text == "WARP_SZ":
        cursor.next()
        return 32
    if cursor.token.kind != "int":
        cursor.fail("a constant")
    return integer(cursor.next().text)


def _wrap(value: int) -> int:
    """To what 64 bits hold; what is above the signed ones stays unsigned, as a literal would."""
    return value if -(2**63) <= value < 2**64 else ((value + 2**63) & (2**64 - 1)) - 2**63


def _quotient(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient
