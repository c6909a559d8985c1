"""Reductions: sum, product, least, largest, mean, along any axes.

The order of adding depends on sizes alone: the same result on every device. Some hundred additions follow one another,
however many there are. What does not live here: where the extremes are (extremes), scans (scan), softmax and norms
(normalise).
"""

from __future__ import annotations

import builtins
import math
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import hcq
from hcq.kernels import types
from hcq.ops.launches import on_processor
from hcq.ops.shapes import axes_of, element, output, sum_element

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.kernels.types import Scalar
    from hcq.runtime.buffer import Buffer

ITEMS: Final = 256
"""Work-items of a group."""
PARTS: Final = 16
"""The values of a group's items become so many, and these one."""
STEPS: Final = 4
"""Rows of one part that are added up in one go where columns are reduced: parts that are in memory are read and written
that much less often. The order of adding is the same."""
CHUNK: Final = 16384
"""A row longer than this is reduced in pieces first."""
ROWS: Final = 128
"""A column longer than this is too."""
PIECES: Final = 32768
"""At most so many, else they are longer: some devices have no more than 65535 groups in a row."""
LEAST: Final = 4096
"""Elements that a processor's group takes at least, where there are that many."""
STRIP: Final = 4096
"""Neighbouring columns that a processor's group takes at most: the longer what it reads in one go, the faster."""
SPREAD: Final = 16
"""Groups to make of the columns of a small matrix, so that all cores have some."""


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

    chunk = CHUNK if inner == 1 else ROWS
    while -(-count // chunk) > PIECES:
        chunk *= 2
    pieces = -(-count // chunk)
    if pieces > 1:
        partial = empty((outer, pieces, inner), within.dtype, x.device)
        _launch(combine, within, partial, x, pieces, outer, count, chunk, inner, start, stream)
        return _step(combine, start, partial, outer, pieces, inner, within, out, stream)
    if out is None:
        out = empty((outer, inner), within.dtype, x.device)
    _launch(combine, within, out, x, 1, outer, count, builtins.max(count, 1), inner, start, stream)
    return out


def _launch(
    combine: Callable[..., Any],
    within: Scalar,
    out: Buffer,
    x: Buffer,
    pieces: int,
    outer: int,
    count: int,
    chunk: int,
    inner: int,
    start: Any,
    stream: Any,
) -> None:
    """`(outer, count, inner)` to `(outer, pieces, inner)`, each piece the result of `chunk` neighbours."""
    alone = on_processor(x)
    groups: tuple[int, ...]
    if inner == 1 and alone:
        each = builtins.max(1, LEAST // chunk)  # a group of little work is mostly its own cost
        groups = pieces, -(-outer // each)
        _rows_alone(combine, within)[groups, 1](out, x, outer, each, count, chunk, start, stream=stream)
    elif inner == 1:
        _rows(combine, within)[(pieces, outer), ITEMS](out, x, count, chunk, start, stream=stream)
    elif alone:
        width = builtins.min(STRIP, builtins.max(ITEMS, inner * outer * pieces // SPREAD))
        groups = -(-inner // width), pieces, outer
        _columns_alone(combine, within)[groups, 1](out, x, count, inner, width, chunk, start, stream=stream)
    else:
        groups = -(-inner // ITEMS), pieces, outer
        _columns(combine, within)[groups, ITEMS](out, x, count, inner, chunk, start, stream=stream)


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
def _columns_alone(combine: Callable[..., Any], T: Scalar) -> Any:
    """The form for processors: an item does `width` columns of a piece by vectors, in the order of `_columns`."""

    @hcq.kernel
    def reduce_columns_alone(
        out: hcq.ptr, x: hcq.ptr, count: hcq.i32, inner: hcq.i32, width: hcq.i32, chunk: hcq.i32, start: T
    ):  # fmt: skip
        parts = hcq.local(T, 4 * STRIP)
        left, first = hcq.group_id(0) * width, hcq.group_id(1) * chunk
        row = hcq.i64(hcq.group_id(2))
        here, long = hcq.minimum(width, inner - left), hcq.minimum(chunk, count - first)
        x = x + (row * count + first) * inner + left
        out = out + (row * hcq.num_groups(1) + hcq.group_id(1)) * inner + left
        for part in range(4):
            for i in range(here):
                parts[part * STRIP + i] = start
        many = long // (4 * STEPS) * (4 * STEPS)
        for k in range(0, many, 4 * STEPS):
            for part in range(4):
                for i in range(here):
                    total = parts[part * STRIP + i]
                    for j in hcq.static_range(0, 4 * STEPS, 4):
                        total = combine(total, T(x[(k + part + j) * inner + i]))
                    parts[part * STRIP + i] = total
        for k in range(many, long):
            part = k % 4 * STRIP
            for i in range(here):
                parts[part + i] = combine(parts[part + i], T(x[k * inner + i]))
        for i in range(here):
            ab = combine(parts[i], parts[STRIP + i])
            cd = combine(parts[2 * STRIP + i], parts[3 * STRIP + i])
            out[i] = out.dtype(combine(ab, cd))

    return reduce_columns_alone


@cache
def _columns(combine: Callable[..., Any], T: Scalar) -> Any:
    """An item reduces `chunk` neighbours of a column: every fourth, then the four parts."""

    @hcq.kernel
    def reduce_columns(
        out: hcq.ptr, x: hcq.ptr, count: hcq.i32, inner: hcq.i32, chunk: hcq.i32, start: T
    ):  # fmt: skip
        column, first = hcq.global_id(0), hcq.group_id(1) * chunk
        row = hcq.i64(hcq.group_id(2))
        x = x + (row * count + first) * inner
        if column < inner:
            a, b, c, d = start, start, start, start
            long = hcq.minimum(chunk, count - first)
            for k in range(0, long // 4 * 4, 4):
                a = combine(a, T(x[k * inner + column]))
                b = combine(b, T(x[(k + 1) * inner + column]))
                c = combine(c, T(x[(k + 2) * inner + column]))
                d = combine(d, T(x[(k + 3) * inner + column]))
            for k in range(long // 4 * 4, long):
                value = T(x[k * inner + column])
                if k % 4 == 0:
                    a = combine(a, value)
                elif k % 4 == 1:
                    b = combine(b, value)
                else:
                    c = combine(c, value)
            out[(row * hcq.num_groups(1) + hcq.group_id(1)) * inner + column] = out.dtype(
                combine(combine(a, b), combine(c, d))
            )

    return reduce_columns
