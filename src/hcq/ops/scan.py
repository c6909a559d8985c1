"""Running sums along an axis.

A row is cut into chunks: their sums are scanned first, then each chunk, from what came before it. Both have a form for
processors, where one item does a chunk; additions are in the same order. What does not live here: sums that give one
number (reduce).
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import hcq
from hcq.kernels import types
from hcq.ops.launches import on_processor
from hcq.ops.shapes import axis_of, output, sum_element

if TYPE_CHECKING:
    from hcq.kernels.types import Scalar
    from hcq.runtime.buffer import Buffer

EACH: Final = 8
"""Neighbours that are added up as a vector: each step adds what lies twice as far."""
ITEMS: Final = EACH * EACH
"""Work-items of a group: the sums of EACH items are scanned so too, and the EACH sums of those."""
CHUNK: Final = ITEMS * EACH
TOGETHER: Final = 8
"""Chunks that a processor's item does."""


def cumsum(x: Buffer, axis: int = -1, exclusive: bool = False, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """The sums of all elements up to each along an axis; `exclusive`: of all before it, from 0.

    Types as for `sum`. `out` must not be `x`. Doesn't block.
    """
    place = axis_of(len(x.shape), axis)
    wide = sum_element(x)
    out = output(out, x, tuple(x.shape), wide)
    shape = tuple(x.shape)
    outer, count, inner = math.prod(shape[:place]), shape[place], math.prod(shape[place + 1 :])
    within = types.computed(wide)
    if inner == 1:
        scan_rows(out, x, outer, count, within, exclusive, stream)
    else:
        groups = -(-inner // ITEMS), outer
        _columns(within, exclusive)[groups, ITEMS](out, x, count, inner, stream=stream)
    return out


def scan_rows(out: Buffer, x: Buffer, rows: int, count: int, within: Scalar, exclusive: bool, stream: Any) -> None:
    """Scan `rows` rows of `count` elements, added in the type `within`."""
    from hcq.runtime.buffer import empty

    pieces = -(-count // CHUNK)
    before = x
    if pieces > 1:
        sums, before = (empty((rows, pieces), within.dtype, x.device) for _ in range(2))
        if on_processor(x):
            _chunk_sums_alone(within)[(-(-pieces // TOGETHER), rows), 1](sums, x, count, pieces, stream=stream)
        else:
            _chunk_sums(within)[(pieces, rows), ITEMS](sums, x, count, stream=stream)
        scan_rows(before, sums, rows, pieces, within, True, stream)
    if on_processor(x):
        kernel = _chunk_scan_alone(within, exclusive, pieces > 1)
        kernel[(-(-pieces // TOGETHER), rows), 1](out, x, before, count, pieces, stream=stream)
    else:
        _chunk_scan(within, exclusive, pieces > 1)[(pieces, rows), ITEMS](out, x, before, count, stream=stream)


def running(v, T):
    """The sums of a vector's elements up to each; in the kernel language."""
    none = T(0)
    v = v + hcq.vec[T, EACH](none, v[0], v[1], v[2], v[3], v[4], v[5], v[6])
    v = v + hcq.vec[T, EACH](none, none, v[0], v[1], v[2], v[3], v[4], v[5])
    return v + hcq.vec[T, EACH](none, none, none, none, v[0], v[1], v[2], v[3])


def before_each(v, T):
    """What comes before each element of a vector of running sums; in the kernel language."""
    return hcq.vec[T, EACH](T(0), v[0], v[1], v[2], v[3], v[4], v[5], v[6])


def sum_of(x, T):
    """The sum of a chunk: every 64th element one after the other, then halves; in the kernel language."""
    parts = hcq.private(T, ITEMS)
    for i in hcq.static_range(0, ITEMS, EACH):
        parts.store(i, hcq.vec[T, EACH](T(0)))
    for k in range(0, CHUNK, ITEMS):
        for i in hcq.static_range(0, ITEMS, EACH):
            parts.store(i, parts.load(i, lanes=EACH) + T(x.load(k + i, lanes=EACH)))
    for half in hcq.static_range(3):
        for i in hcq.static_range(0, ITEMS >> (half + 1), EACH):
            other = parts.load((ITEMS >> (half + 1)) + i, lanes=EACH)
            parts.store(i, parts.load(i, lanes=EACH) + other)
    v = parts.load(0, lanes=EACH)
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]))


@cache
def _chunk_sums_alone(T: Scalar) -> Any:
    @hcq.kernel
    def chunk_sums_alone(sums: hcq.ptr, x: hcq.ptr, count: hcq.i32, pieces: hcq.i32):
        values = hcq.private(T, CHUNK)
        first, row = hcq.group_id(0) * TOGETHER, hcq.i64(hcq.group_id(1))
        for piece in range(first, min(first + TOGETHER, pieces)):
            chunk = x + (row * count + hcq.i64(piece) * CHUNK)
            here = count - piece * CHUNK
            if here >= CHUNK:
                sums[row * pieces + piece] = sum_of(chunk, T)
            else:
                for i in range(here):
                    values[i] = T(chunk[i])
                for i in range(here, CHUNK):
                    values[i] = T(0)
                sums[row * pieces + piece] = sum_of(values, T)

    return chunk_sums_alone


@cache
def _chunk_sums(T: Scalar) -> Any:
    @hcq.kernel
    def chunk_sums(sums: hcq.ptr, x: hcq.ptr, count: hcq.i32):
        tile = hcq.local(T, ITEMS)
        lane, piece, row = hcq.local_id(0), hcq.group_id(0), hcq.i64(hcq.group_id(1))
        x = x + row * count
        first = piece * CHUNK
        total = T(0)
        for k in range(EACH):
            at = first + k * ITEMS + lane
            value = T(0)
            if at < count:
                value = T(x[at])
            total += value
        tile[lane] = total
        half = ITEMS // 2
        while half > 0:
            hcq.barrier()
            if lane < half:
                tile[lane] += tile[lane + half]
            half = half // 2
        if lane == 0:
            sums[row * hcq.num_groups(0) + piece] = tile[0]

    return chunk_sums


def scanned(values, x, base, T, exclusive):
    """Writes the running sums of a chunk of `x`, from `base` on, into `values`; in the kernel language."""
    ends = hcq.private(T, ITEMS)
    for b in range(EACH):
        for i in hcq.static_range(EACH):
            v = running(T(x.load((b * EACH + i) * EACH, lanes=EACH)), T)
            values.store((b * EACH + i) * EACH, v)
            ends[b * EACH + i] = v[EACH - 1]
    totals = hcq.private(T, EACH)
    for b in range(EACH):
        w = running(ends.load(b * EACH, lanes=EACH), T)
        ends.store(b * EACH, before_each(w, T))
        totals[b] = w[EACH - 1]
    totals.store(0, base + before_each(running(totals.load(0, lanes=EACH), T), T))
    for b in range(EACH):
        start = totals[b] + ends.load(b * EACH, lanes=EACH)
        for i in hcq.static_range(EACH):
            v = values.load((b * EACH + i) * EACH, lanes=EACH)
            if exclusive:
                v = before_each(v, T)
            values.store((b * EACH + i) * EACH, start[i] + v)


@cache
def _chunk_scan_alone(T: Scalar, exclusive: bool, follows: bool) -> Any:
    @hcq.kernel
    def chunk_scan_alone(out: hcq.ptr, x: hcq.ptr, before: hcq.ptr, count: hcq.i32, pieces: hcq.i32):
        values = hcq.private(T, CHUNK)
        first, row = hcq.group_id(0) * TOGETHER, hcq.i64(hcq.group_id(1))
        for piece in range(first, min(first + TOGETHER, pieces)):
            chunk = x + (row * count + hcq.i64(piece) * CHUNK)
            to = out + (row * count + hcq.i64(piece) * CHUNK)
            here = count - piece * CHUNK
            base = T(0)
            if follows:
                base = before[row * pieces + piece]
            if here >= CHUNK:
                scanned(values, chunk, base, T, exclusive)
                for i in range(0, CHUNK, EACH):
                    to.store(i, out.dtype(values.load(i, lanes=EACH)))
            else:
                for i in range(here):
                    values[i] = T(chunk[i])
                for i in range(here, CHUNK):
                    values[i] = T(0)
                scanned(values, values, base, T, exclusive)
                for i in range(here):
                    to[i] = out.dtype(values[i])

    return chunk_scan_alone


@cache
def _chunk_scan(T: Scalar, exclusive: bool, follows: bool) -> Any:
    @hcq.kernel
    def chunk_scan(out: hcq.ptr, x: hcq.ptr, before: hcq.ptr, count: hcq.i32):
        values = hcq.local(T, CHUNK)
        ends = hcq.local(T, ITEMS)
        totals = hcq.local(T, EACH)
        lane, piece, row = hcq.local_id(0), hcq.group_id(0), hcq.i64(hcq.group_id(1))
        x = x + row * count
        out = out + row * count
        first = piece * CHUNK
        for k in range(EACH):
            at = k * ITEMS + lane
            value = T(0)
            if first + at < count:
                value = T(x[first + at])
            values[at] = value
        hcq.barrier()
        own = running(values.load(lane * EACH, lanes=EACH), T)
        ends[lane] = own[EACH - 1]
        hcq.barrier()
        if lane < EACH:
            w = running(ends.load(lane * EACH, lanes=EACH), T)
            ends.store(lane * EACH, before_each(w, T))
            totals[lane] = w[EACH - 1]
        hcq.barrier()
        if lane == 0:
            base = T(0)
            if follows:
                base = before[row * hcq.num_groups(0) + piece]
            totals.store(0, base + before_each(running(totals.load(0, lanes=EACH), T), T))
        hcq.barrier()
        if exclusive:
            own = before_each(own, T)
        values.store(lane * EACH, (totals[lane // EACH] + ends[lane]) + own)
        hcq.barrier()
        for k in range(EACH):
            at = k * ITEMS + lane
            if first + at < count:
                out[first + at] = out.dtype(values[at])

    return chunk_scan


@cache
def _columns(T: Scalar, exclusive: bool) -> Any:
    @hcq.kernel
    def scan_columns(out: hcq.ptr, x: hcq.ptr, count: hcq.i32, inner: hcq.i32):
        column, row = hcq.global_id(0), hcq.i64(hcq.group_id(1))
        x = x + row * count * inner
        out = out + row * count * inner
        if column < inner:
            running = T(0)
            for k in range(count):
                value = T(x[k * inner + column])
                if exclusive:
                    out[k * inner + column] = out.dtype(running)
                    running = running + value
                else:
                    running = running + value
                    out[k * inner + column] = out.dtype(running)

    return scan_columns
