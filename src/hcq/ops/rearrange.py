"""Moving elements: transposes, gather and scatter.

What does not live here: copies that broadcast (elementwise), sorting (sorting).
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import hcq
from hcq.errors import LaunchError, OutOfBoundsError
from hcq.ops.launches import on_processor
from hcq.ops.shapes import axis_of, element, output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.runtime.buffer import Buffer

SIDE: Final = 32
"""The side of a tile that is transposed by a group, in local memory."""
STRIP: Final = 16
TALL: Final = 512
"""Rows and columns that a processor's work-item turns: it reads some lines of each row, and writes whole ones."""
WIDE: Final = 8
"""Columns of a block of STRIP rows that is turned in registers."""
ROWS: Final = 8
"""How many of its rows the items of a group do at a time."""
ITEMS: Final = 256
"""Work-items of a group that moves runs."""
LONG: Final = 64
"""Elements of a slice from which on a processor's work-item moves slices whole; each does EACH."""
EACH: Final = 16


def transpose(x: Buffer, axes: Sequence[int] | None = None, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """`x` with its axes in another order, all reversed without one, as a new array. Raises ValueError.

    Axes that stay neighbours move together; what is left must be no more than four.
    """
    rank = len(x.shape)
    order = tuple(reversed(range(rank))) if axes is None else tuple(axis_of(rank, each) for each in axes)
    if sorted(order) != list(range(rank)):
        raise ValueError(f"{axes} is no order of {rank} axes")
    out = output(out, x, tuple(x.shape[each] for each in order), element(x))
    sizes, strides = _runs(tuple(x.shape), order)
    if len(sizes) > 4:
        raise LaunchError(f"transpose of shape {tuple(x.shape)} by {order} moves more than four runs of axes")
    if len(sizes) == 2 and strides[0] == 1:
        rows, columns = sizes[1], sizes[0]  # of x
        if on_processor(x):
            _transpose_strips()[(-(-rows // STRIP), -(-columns // TALL)), 1](out, x, rows, columns, stream=stream)
        else:
            tiles = -(-columns // SIDE), -(-rows // SIDE)
            _transpose_2()[tiles, (SIDE, ROWS)](out, x, rows, columns, stream=stream)
        return out
    sizes, strides = [1] * (4 - len(sizes)) + sizes, [0] * (4 - len(strides)) + strides
    groups = -(-sizes[3] // ITEMS), sizes[2], sizes[0] * sizes[1]
    _permute()[groups, ITEMS](out, x, sizes[1], sizes[2], sizes[3], *strides, stream=stream)
    return out


def _runs(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Sizes of the result's axes and how far `x` moves along each, neighbours joined."""
    steps = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
    sizes: list[int] = []
    strides: list[int] = []
    for each in order:
        if shape[each] == 1:
            continue
        if sizes and strides[-1] == steps[each] * shape[each]:
            sizes[-1] *= shape[each]
            strides[-1] = steps[each]
        else:
            sizes.append(shape[each])
            strides.append(steps[each])
    return sizes or [1], strides or [0]


@cache
def _transpose_2() -> Any:
    """A group turns a tile: both sides of the copy touch neighbouring elements."""

    @hcq.kernel
    def transpose_2(out: hcq.ptr, x: hcq.ptr, rows: hcq.i32, columns: hcq.i32):
        tile = hcq.local(x.dtype, SIDE * (SIDE + 1))
        lane, first = hcq.local_id(0), hcq.local_id(1)
        left, top = hcq.group_id(0) * SIDE, hcq.group_id(1) * SIDE
        for k in hcq.static_range(0, SIDE, ROWS):
            if left + lane < columns and top + first + k < rows:
                tile[(first + k) * (SIDE + 1) + lane] = x[(top + first + k) * columns + left + lane]
        hcq.barrier()
        for k in hcq.static_range(0, SIDE, ROWS):
            if top + lane < rows and left + first + k < columns:
                out[(left + first + k) * rows + top + lane] = tile[lane * (SIDE + 1) + first + k]

    return transpose_2


def lines_of(x, columns, c):
    """STRIP vectors of WIDE elements, one of each row; in the kernel language."""
    lines = ()
    for r in hcq.static_range(STRIP):
        lines = lines + (x.load(r * columns + c, lanes=WIDE),)  # type: ignore[assignment]
    return lines


def column_of(lines, k):
    """Element k of each of STRIP vectors, as a vector; in the kernel language."""
    a, b, c, d, e, f, g, h, i, j, m, n, o, p, q, r = lines
    return hcq.vec[a.dtype, STRIP](
        a[k], b[k], c[k], d[k], e[k], f[k], g[k], h[k], i[k], j[k], m[k], n[k], o[k], p[k], q[k], r[k]
    )


@cache
def _transpose_strips() -> Any:
    """The form for processors: an item turns blocks in registers."""

    @hcq.kernel
    def transpose_strips(out: hcq.ptr, x: hcq.ptr, rows: hcq.i32, columns: hcq.i32):
        top, left = hcq.group_id(0) * STRIP, hcq.group_id(1) * TALL
        high, wide = min(STRIP, rows - top), min(TALL, columns - left)
        x = x + (hcq.i64(top) * columns + left)
        out = out + (hcq.i64(left) * rows + top)
        whole = wide // WIDE * WIDE if high == STRIP else 0
        for c in range(0, whole, WIDE):
            lines = lines_of(x, columns, c)
            for k in hcq.static_range(WIDE):
                out.store((c + k) * rows, column_of(lines, k))
        for c in range(whole, wide):
            for r in range(high):
                out[c * rows + r] = x[r * columns + c]

    return transpose_strips


@cache
def _permute() -> Any:
    @hcq.kernel
    def permute(
        out: hcq.ptr, x: hcq.ptr, n1: hcq.i32, n2: hcq.i32, n3: hcq.i32,
        s0: hcq.i32, s1: hcq.i32, s2: hcq.i32, s3: hcq.i32,
    ):  # fmt: skip
        i3, i2, outer = hcq.global_id(0), hcq.group_id(1), hcq.group_id(2)
        i1, i0 = outer % n1, outer // n1
        if i3 < n3:
            out[(outer * n2 + i2) * n3 + i3] = x[i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3]

    return permute


def gather(x: Buffer, index: Buffer, axis: int = 0, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """The slices of `x` along `axis` that `index` names, as numpy.take: negative ones count from the end.

    The result has the shape of `index` in the place of that axis. Indices outside are undefined on most devices, an
    error on PYTHON, and under the checks, which wait to see them, an OutOfBoundsError. Else it doesn't block. Raises
    LaunchError for an index that is not of integers.
    """
    place = axis_of(len(x.shape), axis)
    before, count, after = _around(tuple(x.shape), place)
    _check(index, count)
    shape = (*x.shape[:place], *index.shape, *x.shape[place + 1 :])
    out = output(out, x, shape, element(x))
    if after >= LONG and on_processor(x):
        _gather_slices()[(-(-index.size // EACH), before), 1](out, x, index, index.size, count, after, stream=stream)
    else:
        groups = -(-after // ITEMS), index.size, before
        _gather()[groups, ITEMS](out, x, index, count, after, stream=stream)
    return out


def scatter(out: Buffer, index: Buffer, x: Buffer, axis: int = 0, stream: Any = None) -> Buffer:
    """`out[index] = x` along `axis`: the slices of `out` that `index`, of one axis, names become those of `x`.

    Indices must differ: two slices for one place would race. Negative ones count from the end; others outside are as in
    `gather`. Doesn't block. Raises LaunchError for shapes and types.
    """
    return _put(out, index, x, axis, False, stream)


def scatter_add(out: Buffer, index: Buffer, x: Buffer, axis: int = 0, stream: Any = None) -> Buffer:
    """`out[index] += x` along `axis`, by atomic additions, so that indices may repeat; elements of 32 or 64 bits.

    With floats the order of additions, and so the last bits, may differ from run to run. Otherwise as `scatter`.
    """
    if element(out).bits < 32:
        raise LaunchError(f"scatter_add takes elements of 32 or 64 bits, not {_shown(out)}")
    return _put(out, index, x, axis, True, stream)


def _put(out: Buffer, index: Buffer, x: Buffer, axis: int, add: bool, stream: Any) -> Buffer:
    place = axis_of(len(out.shape), axis)
    before, count, after = _around(tuple(out.shape), place)
    _check(index, count)
    wanted = (*out.shape[:place], *index.shape, *out.shape[place + 1 :])
    if tuple(x.shape) != wanted or element(x) is not element(out):
        raise LaunchError(f"into {_shown(out)} at {_shown(index)} go {wanted} of {element(out)}, not {_shown(x)}")
    groups = -(-after // ITEMS), index.size, before
    _scatter()[groups, ITEMS](out, x, index, count, after, add, stream=stream)
    return out


def _around(shape: tuple[int, ...], place: int) -> tuple[int, int, int]:
    return math.prod(shape[:place]), shape[place], math.prod(shape[place + 1 :])


def _check(index: Buffer, count: int) -> None:
    """Raises LaunchError for what is no index; under the checks, which wait for that, OutOfBoundsError for values."""
    from hcq.runtime import watch

    if not element(index).is_integer:
        raise LaunchError(f"an index is of integers, not {element(index)}")
    if not watch.active & watch.OBSERVED or watch.capturing() is not None or not index.size:
        return
    values = index.numpy()
    for value in (int(values.min()), int(values.max())):
        if not -count <= value < count:
            place = int((values == value).argmax())
            raise OutOfBoundsError(f"element {place} of the index is {value}: the axis has {count} places")


def _shown(x: Buffer) -> str:
    return f"{tuple(x.shape)} of {element(x)}"


@cache
def _gather() -> Any:
    @hcq.kernel
    def gather(out: hcq.ptr, x: hcq.ptr, index: hcq.ptr, count: hcq.i32, after: hcq.i32):
        i, k, before = hcq.global_id(0), hcq.group_id(1), hcq.i64(hcq.group_id(2))
        if i < after:
            at = hcq.i64(index[k])
            at = at + count if at < 0 else at
            out[(before * hcq.num_groups(1) + k) * after + i] = x[(before * count + at) * after + i]

    return gather


@cache
def _gather_slices() -> Any:
    """The form for processors: an item moves several slices."""

    @hcq.kernel
    def gather_slices(out: hcq.ptr, x: hcq.ptr, index: hcq.ptr, n: hcq.i32, count: hcq.i32, after: hcq.i32):
        first, before = hcq.group_id(0) * EACH, hcq.i64(hcq.group_id(1))
        for k in range(first, min(first + EACH, n)):
            at = hcq.i64(index[k])
            at = at + count if at < 0 else at
            source, target = (before * count + at) * after, (before * n + k) * after
            for i in range(after):
                out[target + i] = x[source + i]

    return gather_slices


@cache
def _scatter() -> Any:
    """`add`: by atomic additions, so that places may repeat."""

    @hcq.kernel
    def scatter(
        out: hcq.ptr, x: hcq.ptr, index: hcq.ptr, count: hcq.i32, after: hcq.i32, add: hcq.constexpr
    ):  # fmt: skip
        i, k, before = hcq.global_id(0), hcq.group_id(1), hcq.i64(hcq.group_id(2))
        if i < after:
            at = hcq.i64(index[k])
            at = at + count if at < 0 else at
            to = (before * count + at) * after + i
            value = x[(before * hcq.num_groups(1) + k) * after + i]
            if add:
                hcq.atomic_add(out, to, value)
            else:
                out[to] = value

    return scatter
