"""Reductions: sum, product, least, largest, mean, and where the extremes are, along any axes.

The order of adding depends on sizes alone: the same result on every device. Along a row some hundred additions follow
one another, however long it is, along other axes a quarter of the elements. What does not live here: scans (scan),
softmax and norms (normalise).
"""

from __future__ import annotations

import builtins
import math
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import hcq
from hcq.kernels import types
from hcq.ops.launches import group_for, on_processor
from hcq.ops.shapes import axes_of, axis_of, element, output, sum_element

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.kernels.types import Scalar
    from hcq.runtime.buffer import Buffer

ITEMS: Final = 256
"""Work-items of a group."""
PARTS: Final = 16
"""The values of a group's items become so many, and these one."""
STEPS: Final = 16
"""Rows that an item of `reduce_columns` adds up in one go, a multiple of 4: its parts, where they are in memory, are
read and written that much less often. The order of adding is the same."""
CHUNK: Final = 16384
"""A row longer than this is reduced in pieces first."""
LEAST: Final = 4096
"""Elements that a processor's group takes at least, where there are that many."""


def sum(x: Buffer, axis: Any = None, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """The sum. f16 and bf16 are summed in f32; bools and narrow integers give 64 bits, as NumPy's do."""
    wide = sum_element(x)
    return _reduce(_add, 0, x, axis, types.computed(wide), wide, out, stream)


def prod(x: Buffer, axis: Any = None, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """The product; types as for `sum`."""
    wide = sum_element(x)
    return _reduce(_multiply, 1, x, axis, types.computed(wide), wide, out, stream)


def min(x: Buffer, axis: Any = None, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """The least; NaN where there is one."""
    kind = element(x)
    return _reduce(_smaller, math.inf if kind.is_float else kind.range[1], x, axis, kind, kind, out, stream)


def max(x: Buffer, axis: Any = None, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """The largest; NaN where there is one."""
    kind = element(x)
    return _reduce(_larger, -math.inf if kind.is_float else kind.range[0], x, axis, kind, kind, out, stream)


def mean(x: Buffer, axis: Any = None, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """The mean; of integers in f64."""
    from hcq.ops.elementwise import map

    kind = element(x)
    wide = kind if kind.is_float else types.f64
    count = math.prod(x.shape[each] for each in axes_of(len(x.shape), axis))
    total = _reduce(_add, 0, x, axis, types.computed(wide), types.computed(wide), None, stream)
    target = output(out, x, tuple(total.shape), wide)
    return map(_over, total, float(count), out=target, stream=stream)


def _add(a: Any, b: Any) -> Any:
    return a + b


def _multiply(a: Any, b: Any) -> Any:
    return a * b


def _smaller(a: Any, b: Any) -> Any:
    return hcq.minimum(a, b)


def _larger(a: Any, b: Any) -> Any:
    return hcq.maximum(a, b)


def _over(a: Any, b: Any) -> Any:
    return a / b


def _reduce(
    combine: Callable[..., Any],
    start: int | float,
    x: Buffer,
    axis: Any,
    within: Scalar,
    result: Scalar,
    out: Buffer | None,
    stream: Any,
) -> Buffer:
    """Reduce axes, neighbouring ones together, the last first."""
    axes = axes_of(len(x.shape), axis)
    shape = tuple(x.shape)
    left = tuple(size for place, size in enumerate(shape) if place not in axes)
    runs: list[list[int]] = []
    for each in axes:
        if runs and runs[-1][-1] == each - 1:
            runs[-1].append(each)
        else:
            runs.append([each])
    out = output(out, x, left, result)
    value = float(start) if within.is_float else start
    now = x
    for run in reversed(runs or [[]]):
        outer = math.prod(shape[: run[0]]) if run else math.prod(shape)
        count = math.prod(shape[each] for each in run)
        inner = math.prod(shape[run[-1] + 1 :]) if run else 1
        last = run is runs[0] if runs else True
        now = _step(combine, value, now, outer, count, inner, within, out if last else None, stream)
        shape = shape[: run[0]] + shape[run[-1] + 1 :] if run else shape
    return out


def _step(
    combine: Callable[..., Any],
    start: Any,
    x: Buffer,
    outer: int,
    count: int,
    inner: int,
    within: Scalar,
    out: Buffer | None,
    stream: Any,
) -> Buffer:
    """`(outer, count, inner)` to `(outer, inner)`; `out` or a new buffer of the type that is computed in."""
    from hcq.runtime.buffer import empty

    pieces = -(-count // CHUNK) if inner == 1 else 1
    if pieces > 1:
        partial = empty((outer, pieces), within.dtype, x.device)
        _launch_rows(combine, within, partial, x, pieces, outer, count, CHUNK, start, stream)
        return _step(combine, start, partial, outer, pieces, 1, within, out, stream)
    if out is None:
        out = empty((outer, inner), within.dtype, x.device)
    if inner == 1:
        _launch_rows(combine, within, out, x, 1, outer, count, builtins.max(count, 1), start, stream)
    else:
        items = group_for(x, inner)
        groups = -(-inner // items), outer
        _columns(combine, within)[groups, items](out, x, count, inner, start, stream=stream)
    return out


def _launch_rows(
    combine: Callable[..., Any],
    within: Scalar,
    out: Buffer,
    x: Buffer,
    pieces: int,
    rows: int,
    count: int,
    chunk: int,
    start: Any,
    stream: Any,
) -> None:
    """`rows` rows of `count`, each cut into pieces of `chunk`."""
    if on_processor(x):
        each = builtins.max(1, LEAST // chunk)  # a group of little work is mostly its own cost
        groups = pieces, -(-rows // each)
        _rows_alone(combine, within)[groups, 1](out, x, rows, each, count, chunk, start, stream=stream)
    else:
        _rows(combine, within)[(pieces, rows), ITEMS](out, x, count, chunk, start, stream=stream)


@cache
def _rows_alone(combine: Callable[..., Any], T: Scalar) -> Any:
    """The form for processors: an item does a piece by vectors, and what a group of `_rows` does, in that order."""

    @hcq.kernel
    def reduce_rows_alone(
        out: hcq.ptr, x: hcq.ptr, rows: hcq.i32, each: hcq.i32, count: hcq.i32, chunk: hcq.i32, start: T
    ):  # fmt: skip
        parts = hcq.private(T, ITEMS)
        piece, first_row = hcq.group_id(0), hcq.group_id(1) * each
        for row in range(first_row, hcq.minimum(first_row + each, rows)):
            first = hcq.i64(row) * count + piece * chunk
            long = hcq.minimum(chunk, count - piece * chunk)
            # What is not used would stay as it starts.
            used = hcq.maximum(PARTS, hcq.minimum(ITEMS, (long + PARTS - 1) // PARTS * PARTS))
            for i in range(used):
                parts[i] = start
            whole = long // ITEMS * ITEMS
            for k in range(0, whole, ITEMS):
                for i in range(ITEMS):
                    parts[i] = combine(parts[i], T(x[first + k + i]))
            for i in range(long - whole):
                parts[i] = combine(parts[i], T(x[first + whole + i]))
            for k in range(PARTS, used, PARTS):
                for i in range(PARTS):
                    parts[i] = combine(parts[i], parts[k + i])
            total = parts[0]
            for i in hcq.static_range(1, PARTS):
                total = combine(total, parts[i])
            out[hcq.i64(row) * hcq.num_groups(0) + piece] = out.dtype(total)

    return reduce_rows_alone


@cache
def _rows(combine: Callable[..., Any], T: Scalar) -> Any:
    """A group reduces `chunk` neighbours of a row of `count`: each item every 256th, then 16 of them, then one."""

    @hcq.kernel
    def reduce_rows(out: hcq.ptr, x: hcq.ptr, count: hcq.i32, chunk: hcq.i32, start: T):
        tile = hcq.local(T, ITEMS)
        lane, piece = hcq.local_id(0), hcq.group_id(0)
        row = hcq.i64(hcq.group_id(1))
        x = x + row * count
        first = piece * chunk
        last = hcq.minimum(first + chunk, count)
        total = start
        for k in range(first, last, ITEMS):
            if lane < last - k:
                total = combine(total, T(x[k + lane]))
        tile[lane] = total
        hcq.barrier()
        if lane < PARTS:
            for k in hcq.static_range(PARTS, ITEMS, PARTS):
                total = combine(total, tile[lane + k])
            tile[lane] = total
        hcq.barrier()
        if lane == 0:
            for k in hcq.static_range(1, PARTS):
                total = combine(total, tile[k])
            out[row * hcq.num_groups(0) + piece] = out.dtype(total)

    return reduce_rows


@cache
def _columns(combine: Callable[..., Any], T: Scalar) -> Any:
    """An item reduces a column, in four parts that are combined at the end."""

    @hcq.kernel
    def reduce_columns(out: hcq.ptr, x: hcq.ptr, count: hcq.i32, inner: hcq.i32, start: T):
        column = hcq.global_id(0)
        row = hcq.i64(hcq.group_id(1))
        x = x + row * count * inner
        if column < inner:
            a, b, c, d = start, start, start, start
            whole, many = count // 4 * 4, count // STEPS * STEPS
            for k in range(0, many, STEPS):
                for j in hcq.static_range(0, STEPS, 4):
                    a = combine(a, T(x[(k + j) * inner + column]))
                    b = combine(b, T(x[(k + j + 1) * inner + column]))
                    c = combine(c, T(x[(k + j + 2) * inner + column]))
                    d = combine(d, T(x[(k + j + 3) * inner + column]))
            for k in range(many, whole, 4):
                a = combine(a, T(x[k * inner + column]))
                b = combine(b, T(x[(k + 1) * inner + column]))
                c = combine(c, T(x[(k + 2) * inner + column]))
                d = combine(d, T(x[(k + 3) * inner + column]))
            for k in range(whole, count):
                a = combine(a, T(x[k * inner + column]))
            out[row * inner + column] = out.dtype(combine(combine(a, b), combine(c, d)))

    return reduce_columns


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
