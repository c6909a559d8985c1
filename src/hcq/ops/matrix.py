"""Matrix products, in two forms of one kernel's work.

`wide` is for processors: one work-item a group makes a strip of the result from vectors, with a panel of `b` and its
own sums in local memory. `tiled` is for devices that run many items together: each makes one element, and the group
shares tiles of both. What does not live here: convolution (convolve).
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import hcq
from hcq.errors import LaunchError
from hcq.kernels import types
from hcq.ops.launches import on_processor
from hcq.ops.shapes import broadcast, element, output

if TYPE_CHECKING:
    from hcq.kernels.types import Scalar
    from hcq.runtime.buffer import Buffer

# wide: rows and vectors of a block that is kept in registers, rows of a strip, depth of a panel
BLOCK_ROWS: Final = 4
BLOCK_VECTORS: Final = 2
STRIP_ROWS: Final = 128
DEPTH: Final = 128
# tiled: the side of a tile
SIDE: Final = 16


def matmul(a: Buffer, b: Buffer, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """The matrix product of the last two axes, with NumPy's broadcasting of those before them; both have two or more.

    Sums are in f32 for f16, bf16 and f32, else in the type itself; each product is added by fma, in order of the inner
    axis. The result has the type that NumPy promotes to. Doesn't block. Raises ValueError for shapes that don't fit.
    """
    if len(a.shape) < 2 or len(b.shape) < 2 or a.shape[-1] != b.shape[-2]:
        raise ValueError(f"no matrix product of shapes {tuple(a.shape)} and {tuple(b.shape)}")
    rows, depth, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    before = tuple(a.shape[:-2]), tuple(b.shape[:-2])
    batch = broadcast(*before)
    count = math.prod(batch)
    counts = [math.prod(each) for each in before]
    for each, own in zip(before, counts, strict=True):
        if math.prod(batch[len(batch) - len(each) :]) != own and own != 1:
            raise ValueError(f"matmul stretches the first of the leading axes, or all: {before[0]} and {before[1]}")
    kind = types.promote(element(a), element(b))
    if kind.kind == "b":
        raise LaunchError("matmul takes numbers, not bools")
    out = output(out, a, (*batch, rows, columns), kind)
    if out.size:
        sizes = rows, columns, depth, *counts
        if on_processor(a):
            lanes = 16 if kind.bits <= 32 else 8
            width = BLOCK_VECTORS * lanes
            groups = -(-columns // width), -(-rows // STRIP_ROWS), count
            wide(types.computed(kind), lanes)[groups, 1](out, a, b, *sizes, stream=stream)
        else:
            groups = -(-columns // SIDE), -(-rows // SIDE), count
            tiled(types.computed(kind))[groups, (SIDE, SIDE)](out, a, b, *sizes, stream=stream)
    return out


def multiply_add(x, y, z, S):
    """x * y + z, rounded once; in the kernel language."""
    if S.is_float:
        total = hcq.fma(x, y, z)
    else:
        total = x * y + z
    return total


def add_panel(sums, a, panel, strip, depth, deep, more, S, lanes):
    """Adds the product of `strip` rows of `a`, `deep` of their elements, and a panel of that depth to `sums`, which are
    0 unless there is `more`. In the kernel language. A row of `a` has `depth` elements, others have two vectors."""
    width = BLOCK_VECTORS * lanes
    block = hcq.private(S, BLOCK_ROWS * width)
    for row in range(0, strip, BLOCK_ROWS):
        for m in hcq.static_range(BLOCK_ROWS * BLOCK_VECTORS):
            before = hcq.vec[S, lanes](S(0))
            if more:
                before = sums.load(row * width + m * lanes, lanes=lanes)
            block.store(m * lanes, before)
        for k in range(deep):
            for m in hcq.static_range(BLOCK_ROWS):
                x = hcq.vec[S, lanes](S(a[min(row + m, strip - 1) * depth + k]))
                for v in hcq.static_range(BLOCK_VECTORS):
                    at = m * width + v * lanes
                    y = panel.load(k * width + v * lanes, lanes=lanes)
                    block.store(at, multiply_add(x, y, block.load(at, lanes=lanes), S))
        for m in hcq.static_range(BLOCK_ROWS * BLOCK_VECTORS):
            sums.store(row * width + m * lanes, block.load(m * lanes, lanes=lanes))


@cache
def wide(S: Scalar, lanes: int) -> Any:
    """The form for processors. Sums have type S."""
    width = BLOCK_VECTORS * lanes

    @hcq.kernel
    def matmul_wide(
        c: hcq.ptr, a: hcq.ptr, b: hcq.ptr,
        rows: hcq.i32, columns: hcq.i32, depth: hcq.i32, a_count: hcq.i32, b_count: hcq.i32,
    ):  # fmt: skip
        panel = hcq.local(S, DEPTH * width)
        sums = hcq.local(S, STRIP_ROWS * width)
        batch = hcq.i64(hcq.group_id(2))
        a = a + batch % a_count * rows * depth
        b = b + batch % b_count * depth * columns
        c = c + batch * rows * columns
        left, top = hcq.group_id(0) * width, hcq.group_id(1) * STRIP_ROWS
        here = min(width, columns - left)
        strip = min(STRIP_ROWS, rows - top)
        for start in range(0, depth, DEPTH):
            deep = min(DEPTH, depth - start)
            if here == width:
                for k in range(deep):
                    for v in hcq.static_range(BLOCK_VECTORS):
                        values = b.load((start + k) * columns + left + v * lanes, lanes=lanes)
                        panel.store(k * width + v * lanes, S(values))
            else:
                for k in range(deep):
                    for x in range(width):
                        value = S(0)
                        if x < here:
                            value = S(b[(start + k) * columns + left + x])
                        panel[k * width + x] = value
            add_panel(sums, a + hcq.i64(top) * depth + start, panel, strip, depth, deep, start > 0, S, lanes)
        for row in range(strip):
            to = (top + row) * columns + left
            if here == width:
                for v in hcq.static_range(BLOCK_VECTORS):
                    c.store(to + v * lanes, c.dtype(sums.load(row * width + v * lanes, lanes=lanes)))
            else:
                for x in range(here):
                    c[to + x] = c.dtype(sums[row * width + x])

    return matmul_wide


@cache
def tiled(S: Scalar) -> Any:
    """The form for devices that run many items together. Sums have type S."""

    @hcq.kernel
    def matmul_tiled(
        c: hcq.ptr, a: hcq.ptr, b: hcq.ptr,
        rows: hcq.i32, columns: hcq.i32, depth: hcq.i32, a_count: hcq.i32, b_count: hcq.i32,
    ):  # fmt: skip
        tile_a = hcq.local(S, SIDE * SIDE)
        tile_b = hcq.local(S, SIDE * SIDE)
        batch = hcq.i64(hcq.group_id(2))
        a = a + batch % a_count * rows * depth
        b = b + batch % b_count * depth * columns
        c = c + batch * rows * columns
        x, y = hcq.local_id(0), hcq.local_id(1)
        column, row = hcq.global_id(0), hcq.global_id(1)
        total = S(0)
        for start in range(0, depth, SIDE):
            value = S(0)
            if row < rows and start + x < depth:
                value = S(a[row * depth + start + x])
            tile_a[y * SIDE + x] = value
            value = S(0)
            if column < columns and start + y < depth:
                value = S(b[(start + y) * columns + column])
            tile_b[y * SIDE + x] = value
            hcq.barrier()
            for k in range(SIDE):
                total = multiply_add(tile_a[y * SIDE + k], tile_b[k * SIDE + x], total, S)
            hcq.barrier()
        if row < rows and column < columns:
            c[row * columns + column] = c.dtype(total)

    return matmul_tiled
