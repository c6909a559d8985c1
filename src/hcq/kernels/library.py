"""What the language itself is made of, written in the language: // and % of floats, reductions over sub-groups.

What does not live here: exp, sin and the others (mathlib), and kernels people launch (hcq.ops).
"""

from __future__ import annotations

from typing import Any

from hcq.kernels.builtins import copysign, floor, fmod, shuffle_xor, subgroup_size, where


def floordiv(a: Any, b: Any) -> Any:
    """a // b as NumPy has it."""
    rest = fmod(a, b)
    quotient = (a - rest) / b
    quotient = where((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1, quotient)
    below = floor(quotient)
    below = where(quotient - below > 0.5, below + 1, below)
    below = where(quotient != 0, below, copysign(0.0, a / b))
    return where(b != 0, below, a / b)


def modulo(a: Any, b: Any) -> Any:
    """a % b as NumPy has it: the sign of b."""
    rest = fmod(a, b)
    moved = where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, where(rest != 0, rest, copysign(0.0, b)))
    return where(b != 0, moved, rest)


def power(a: Any, b: Any) -> Any:
    """a ** b of integers by squaring, wrapped; 0 where b is negative."""
    result = a.dtype(1)
    square, left = a, b
    while left > 0:
        if left % 2 == 1:
            result = result * square
        square = square * square
        left = left >> 1
    return where(b < 0, 0, result)


def subgroup_add(value: Any) -> Any:
    """The sum over the sub-group."""
    return by_halves(value, _sum)


def subgroup_min(value: Any) -> Any:
    """The least value of the sub-group."""
    return by_halves(value, min)


def subgroup_max(value: Any) -> Any:
    """The largest value of the sub-group."""
    return by_halves(value, max)


def _sum(a: Any, b: Any) -> Any:
    return a + b


def by_halves(value: Any, combine: Any) -> Any:
    """The values of the sub-group, combined with those ever nearer."""
    distance = subgroup_size() // 2
    while distance > 0:
        value = combine(value, shuffle_xor(value, distance))
        distance = distance // 2
    return value
