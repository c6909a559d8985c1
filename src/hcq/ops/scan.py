"""Running sums along an axis.

A row is cut into chunks: their sums are scanned first, then each chunk, from what came before it. What does not live
here: sums that give one number (reduce).
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import hcq
from hcq.kernels import types
from hcq.ops.shapes import axes_of, element, output

if TYPE_CHECKING:
    from hcq.kernels.types import Scalar
    from hcq.runtime.buffer import Buffer

ITEMS: Final = 128
"""Work-items of a group."""
EACH: Final = 16
"""Neighbours that an item adds one after the other."""
CHUNK: Final = ITEMS * EACH


def cumsum(x: Buffer, axis: int = -1, exclusive: bool = False, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """The sums of all elements up to each along an axis; `exclusive`: of all before it, from 0.

    Types as for `sum`. `out` must not be `x`. Doesn't block.
    """
    (place,) = axes_of(len(x.shape), axis)
    kind = element(x)
    wide = kind if kind.is_float or kind.bits == 64 else types.u64 if kind.kind == "u" else types.i64
    out = output(out, x, tuple(x.shape), wide)
    shape = tuple(x.shape)
    outer, count, inner = math.prod(shape[:place]), shape[place], math.prod(shape[place + 1 :])
    within = types.f32 if wide.is_float and wide.bits < 32 else wide
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
        _chunk_sums(within)[(pieces, rows), ITEMS](sums, x, count, stream=stream)
        scan_rows(before, sums, rows, pieces, within, True, stream)
    _chunk_scan(within, exclusive, pieces > 1)[(pieces, rows), ITEMS](out, x, before, count, stream=stream)


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
            if at < count:
                total += T(x[at])
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


@cache
def _chunk_scan(T: Scalar, exclusive: bool, follows: bool) -> Any:
    @hcq.kernel
    def chunk_scan(out: hcq.ptr, x: hcq.ptr, before: hcq.ptr, count: hcq.i32):
        values = hcq.local(T, CHUNK)
        tile = hcq.local(T, 2 * ITEMS)
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
        total = T(0)
        for k in range(EACH):
            total += values[lane * EACH + k]
        tile[lane] = total
        # Each step adds what lies twice as far; the two halves of the tile take turns.
        source, reach = 0, 1
        while reach < ITEMS:
            hcq.barrier()
            other = tile[source + lane]
            if lane >= reach:
                other = tile[source + lane - reach] + other
            tile[ITEMS - source + lane] = other
            source = ITEMS - source
            reach = reach * 2
        hcq.barrier()
        running = T(0)
        if lane > 0:
            running = tile[source + lane - 1]
        if follows:
            running = running + before[row * hcq.num_groups(0) + piece]
        for k in range(EACH):
            value = values[lane * EACH + k]
            if exclusive:
                values[lane * EACH + k] = running
                running = running + value
            else:
                running = running + value
                values[lane * EACH + k] = running
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
