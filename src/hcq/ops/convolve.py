"""Two-dimensional convolution: the matrix product of weights and windows, which are gathered from the picture as panels
of the product need them.

What does not live here: products of matrices that are there (matrix).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import hcq
from hcq.errors import LaunchError
from hcq.kernels import types
from hcq.ops.launches import on_processor
from hcq.ops.matrix import BLOCK_VECTORS, DEPTH, SIDE, STRIP_ROWS, add_panel, multiply_add
from hcq.ops.shapes import element, output

if TYPE_CHECKING:
    from hcq.kernels.types import Scalar
    from hcq.runtime.buffer import Buffer

Pair = int | tuple[int, int]


def conv2d(
    x: Buffer,
    weight: Buffer,
    bias: Buffer | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    out: Buffer | None = None,
    stream: Any = None,
) -> Buffer:
    """x (N, C, H, W) with weight (O, C / groups, KH, KW): a result (N, O, OH, OW); nothing is flipped.

    `bias` has O elements. Sums are as in `matmul`, and rounded with the bias; no windows are written to memory. Doesn't
    block. Raises ValueError for shapes that don't fit.
    """
    if len(x.shape) != 4 or len(weight.shape) != 4:
        raise ValueError(f"conv2d takes (N, C, H, W) and (O, C, KH, KW), not {tuple(x.shape)}, {tuple(weight.shape)}")
    (count, channels, *size), (outputs, inner, *window) = x.shape, weight.shape
    steps, pads, gaps = _pair(stride), _pair(padding), _pair(dilation)
    if groups < 1 or channels != inner * groups or outputs % groups:
        raise ValueError(f"{channels} channels in {groups} groups don't fit weights of shape {tuple(weight.shape)}")
    if bias is not None and bias.size != outputs:
        raise LaunchError(f"bias has {bias.size} elements: there are {outputs} outputs")
    high, wide = (
        (length + 2 * pad - gap * (extent - 1) - 1) // step + 1
        for length, pad, gap, extent, step in zip(size, pads, gaps, window, steps, strict=True)
    )
    if min(*steps, *gaps) < 1 or min(pads) < 0 or high < 1 or wide < 1:
        raise ValueError(
            f"no window {tuple(window)} of stride {steps}, dilation {gaps} fits {tuple(size)} padded {pads}"
        )
    out = output(out, x, (count, outputs, high, wide), element(x))
    given = x, weight, bias if bias is not None else x
    sizes = groups, inner, *size, *window, outputs // groups, high, wide
    kind = element(x)
    if not out.size:
        return out
    if on_processor(x):
        lanes = 16 if kind.bits <= 32 else 8
        tiles = -(-high * wide // (BLOCK_VECTORS * lanes)), -(-outputs // groups // STRIP_ROWS), count * groups
        kernel, items = _windows_wide(types.computed(kind), lanes, steps[1] == 1, bias is not None), (1, 1)
    else:
        tiles = -(-high * wide // SIDE), -(-outputs // groups // SIDE), count * groups
        kernel, items = _windows_tiled(types.computed(kind), bias is not None), (SIDE, SIDE)
    kernel[tiles, items](out, *given, *sizes, *steps, *pads, *gaps, stream=stream)
    return out


def _pair(value: Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


@cache
def _windows_wide(S: Scalar, lanes: int, unit: bool, biased: bool) -> Any:
    """The form for processors, as `matrix.wide`: a panel is gathered from the picture. `unit`: windows lie next to each
    other along a row, so that a run of the picture becomes one of the panel."""
    width = BLOCK_VECTORS * lanes

    def gather(panel, row, z, run, wide, sx, offset):
        """The elements of a row of the picture for a run of windows from the z-th on; 0 beside the picture."""
        if unit:
            low, high = min(max(-(z + offset), 0), run), max(min(run, wide - z - offset), 0)
            start = row + (z + offset)
            if low == 0 and high == width:
                for v in hcq.static_range(BLOCK_VECTORS):
                    panel.store(v * lanes, S(start.load(v * lanes, lanes=lanes)))
            else:
                for i in range(low):
                    panel[i] = S(0)
                for i in range(low, high):
                    panel[i] = S(start[i])
                for i in range(max(low, high), run):
                    panel[i] = S(0)
        else:
            for i in range(run):
                at = (z + i) * sx + offset
                value = S(0)
                if at >= 0 and at < wide:
                    value = S(row[at])
                panel[i] = value

    @hcq.kernel
    def windows_wide(
        out: hcq.ptr, x: hcq.ptr, weight: hcq.ptr, bias: hcq.ptr,
        groups: hcq.i32, inner: hcq.i32, height: hcq.i32, width_of: hcq.i32, kh: hcq.i32, kw: hcq.i32,
        rows: hcq.i32, high: hcq.i32, wide: hcq.i32,
        sy: hcq.i32, sx: hcq.i32, py: hcq.i32, px: hcq.i32, dy: hcq.i32, dx: hcq.i32,
    ):  # fmt: skip
        panel = hcq.local(S, DEPTH * width)
        sums = hcq.local(S, STRIP_ROWS * width)
        batch, depth, area = hcq.i64(hcq.group_id(2)), inner * kh * kw, high * wide
        x = x + batch * inner * height * width_of
        weight = weight + batch % groups * rows * depth
        out = out + batch * rows * area
        left, top = hcq.group_id(0) * width, hcq.group_id(1) * STRIP_ROWS
        here = min(width, area - left)
        strip = min(STRIP_ROWS, rows - top)
        channel, a, b = 0, 0, 0  # of the panel's next row
        for start in range(0, depth, DEPTH):
            deep = min(DEPTH, depth - start)
            for k in range(deep):
                y, z, i = left // wide, left % wide, 0
                while i < here:
                    run = min(wide - z, here - i)
                    line = y * sy - py + a * dy
                    if line >= 0 and line < height:
                        row = x + (hcq.i64(channel) * height + line) * width_of
                        gather(panel + (k * width + i), row, z, run, width_of, sx, b * dx - px)
                    else:
                        for j in range(run):
                            panel[k * width + i + j] = S(0)
                    i += run
                    y += 1
                    z = 0
                for j in range(here, width):
                    panel[k * width + j] = S(0)
                b += 1
                if b == kw:
                    a, b = a + 1, 0
                if a == kh:
                    channel, a = channel + 1, 0
            add_panel(sums, weight + hcq.i64(top) * depth + start, panel, strip, depth, deep, start > 0, S, lanes)
        for row in range(strip):
            plus = S(0)
            if biased:
                plus = S(bias[batch % groups * rows + top + row])
            for i in range(here):
                total = sums[row * width + i]
                if biased:
                    total = total + plus
                out[(top + row) * area + left + i] = out.dtype(total)

    return windows_wide


@cache
def _windows_tiled(S: Scalar, biased: bool) -> Any:
    """The form for devices that run many items together, as `matrix.tiled`: a tile is gathered from the picture."""

    @hcq.kernel
    def windows_tiled(
        out: hcq.ptr, x: hcq.ptr, weight: hcq.ptr, bias: hcq.ptr,
        groups: hcq.i32, inner: hcq.i32, height: hcq.i32, width: hcq.i32, kh: hcq.i32, kw: hcq.i32,
        rows: hcq.i32, high: hcq.i32, wide: hcq.i32,
        sy: hcq.i32, sx: hcq.i32, py: hcq.i32, px: hcq.i32, dy: hcq.i32, dx: hcq.i32,
    ):  # fmt: skip
        tile_a = hcq.local(S, SIDE * SIDE)
        tile_b = hcq.local(S, SIDE * SIDE)
        batch, depth, area = hcq.i64(hcq.group_id(2)), inner * kh * kw, high * wide
        x = x + batch * inner * height * width
        weight = weight + batch % groups * rows * depth
        out = out + batch * rows * area
        i, j = hcq.local_id(0), hcq.local_id(1)
        pixel, row = hcq.global_id(0), hcq.global_id(1)
        y, z = pixel // wide * sy - py, pixel % wide * sx - px
        total = S(0)
        for start in range(0, depth, SIDE):
            value = S(0)
            if row < rows and start + i < depth:
                value = S(weight[row * depth + start + i])
            tile_a[j * SIDE + i] = value
            k = start + j
            line, at = y + k // kw % kh * dy, z + k % kw * dx
            value = S(0)
            if pixel < area and k < depth and line >= 0 and line < height and at >= 0 and at < width:
                value = S(x[(k // kw // kh * height + line) * width + at])
            tile_b[j * SIDE + i] = value
            hcq.barrier()
            for k in range(SIDE):
                total = multiply_add(tile_a[j * SIDE + k], tile_b[k * SIDE + i], total, S)
            hcq.barrier()
        if row < rows and pixel < area:
            if biased:
                total = total + S(bias[batch % groups * rows + row])
            out[row * area + pixel] = out.dtype(total)

    return windows_tiled
