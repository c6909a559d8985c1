"""Where the extremes are: argmin and argmax, along an axis; the first of equal ones.

What does not live here: what they are (reduce).
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import hcq
from hcq.kernels import types
from hcq.ops.launches import group_for
from hcq.ops.shapes import axis_of, output

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.runtime.buffer import Buffer

ITEMS: Final = 256
"""Work-items of a group that looks through a row."""


def argmin(x: Buffer, axis: int = -1, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """Where the least is along an axis, the first of equal ones; i64. NaN counts as least, as in NumPy."""
    return _argument(_is_less, x, axis, out, stream)


def argmax(x: Buffer, axis: int = -1, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """Where the largest is along an axis, the first of equal ones; i64. NaN counts as largest, as in NumPy."""
    return _argument(_is_more, x, axis, out, stream)


def _is_less(a: Any, b: Any) -> Any:
    return (a < b) | ((a != a) & (b == b))


def _is_more(a: Any, b: Any) -> Any:
    return (a > b) | ((a != a) & (b == b))


def _argument(better: Callable[..., Any], x: Buffer, axis: int, out: Buffer | None, stream: Any) -> Buffer:
    place = axis_of(len(x.shape), axis)
    shape = tuple(x.shape)
    outer, count, inner = math.prod(shape[:place]), shape[place], math.prod(shape[place + 1 :])
    out = output(out, x, shape[:place] + shape[place + 1 :], types.i64)
    if inner == 1:
        _argument_rows(better)[outer, ITEMS](out, x, count, stream=stream)
    else:
        items = group_for(x, inner)
        _argument_columns(better)[(-(-inner // items), outer), items](out, x, count, inner, stream=stream)
    return out


@cache
def _argument_rows(better: Callable[..., Any]) -> Any:
    """A group looks through a row."""

    @hcq.kernel
    def argument_rows(out: hcq.ptr, x: hcq.ptr, count: hcq.i32):
        values = hcq.local(x.dtype, ITEMS)
        places = hcq.local(hcq.i32, ITEMS)
        lane, row = hcq.local_id(0), hcq.i64(hcq.group_id(0))
        x = x + row * count
        at = hcq.minimum(lane, count - 1)
        best = x[at]
        for k in range(ITEMS, count, ITEMS):
            if k + lane < count:
                value = x[k + lane]
                if better(value, best):
                    best = value
                    at = k + lane
        values[lane] = best
        places[lane] = at
        half = ITEMS // 2
        while half > 0:
            hcq.barrier()
            if lane < half:
                mine, other = values[lane], values[lane + half]
                earlier = (places[lane + half] < places[lane]) & ~better(mine, other)
                if better(other, mine) | earlier:
                    values[lane] = other
                    places[lane] = places[lane + half]
            half = half // 2
        if lane == 0:
            out[row] = out.dtype(places[0])

    return argument_rows


@cache
def _argument_columns(better: Callable[..., Any]) -> Any:
    """An item looks through a column."""

    @hcq.kernel
    def argument_columns(out: hcq.ptr, x: hcq.ptr, count: hcq.i32, inner: hcq.i32):
        column, row = hcq.global_id(0), hcq.i64(hcq.group_id(1))
        x = x + row * count * inner
        if column < inner:
            best = x[column]
            at = 0
            for k in range(1, count):
                value = x[k * inner + column]
                if better(value, best):
                    best = value
                    at = k
            out[row * inner + column] = out.dtype(at)

    return argument_columns
