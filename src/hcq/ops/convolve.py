"""Two-dimensional convolution, as a matrix product over the windows of the picture.

What does not live here: the product (matrix).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import hcq
from hcq.errors import LaunchError
from hcq.ops.elementwise import map
from hcq.ops.matrix import matmul
from hcq.ops.shapes import element, output, reshape

if TYPE_CHECKING:
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

    `bias` has O elements. The windows are written out, KH * KW times the picture's size, and multiplied; sums as in
    `matmul`. Doesn't block. Raises ValueError for shapes that don't fit.
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
    from hcq.runtime.buffer import empty

    out = output(out, x, (count, outputs, high, wide), element(x))
    depth, area = inner * window[0] * window[1], high * wide
    windows = empty((count, groups, depth, area), x.dtype, x.device)
    sizes = channels, *size, *window, high, wide
    launch = -(-area // 256), channels * window[0] * window[1], count
    _unfold()[launch, 256](windows, x, *sizes, *steps, *pads, *gaps, stream=stream)
    product = reshape(out, (count, groups, outputs // groups, area))
    matmul(reshape(weight, (groups, outputs // groups, depth)), windows, out=product, stream=stream)
    if bias is not None:
        map(_plus, out, reshape(bias, (outputs, 1, 1)), out=out, stream=stream)
    return out


def _pair(value: Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def _plus(a: Any, b: Any) -> Any:
    return a + b


@cache
def _unfold() -> Any:
    """A row of the windows' matrix is one place of the window of one channel, over all windows."""

    @hcq.kernel
    def unfold(
        out: hcq.ptr, x: hcq.ptr, channels: hcq.i32, height: hcq.i32, width: hcq.i32, kh: hcq.i32, kw: hcq.i32,
        high: hcq.i32, wide: hcq.i32, sy: hcq.i32, sx: hcq.i32, py: hcq.i32, px: hcq.i32, dy: hcq.i32, dx: hcq.i32,
    ):  # fmt: skip
        i, row, n = hcq.global_id(0), hcq.group_id(1), hcq.i64(hcq.group_id(2))
        b, a, channel = row % kw, row // kw % kh, row // kw // kh
        if i < high * wide:
            y = i // wide * sy - py + a * dy
            z = i % wide * sx - px + b * dx
            value = out.dtype(0)
            if y >= 0 and y < height and z >= 0 and z < width:
                value = x[((n * channels + channel) * height + y) * width + z]
            out[(n * hcq.num_groups(1) + row) * (high * wide) + i] = value

    return unfold
