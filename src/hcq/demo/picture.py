"""The kernels of `hcq demo`, in the kernel language, for every device that runs portable kernels.

A picture is three planes (red, green, blue) of width * height bytes, one after another. A work-group takes a band of
rows or a range of pixels; its inner loops run along a row, so that they vectorise. What does not live here: sizes
(plan).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hcq

if TYPE_CHECKING:
    from collections.abc import Sequence

TILE = 1024
BINS = 256


def kernels(weights: Sequence[int]) -> dict[str, Any]:
    """By name. `weights` are an odd number of whole numbers whose sum is 256: the blur's."""
    weights = tuple(weights)
    radius = len(weights) // 2

    @hcq.kernel
    def blur(blurred: hcq.ptr[hcq.u8], picture: hcq.ptr[hcq.u8], width: hcq.i32, height: hcq.i32, rows: hcq.i32):
        """Gaussian blur, separable: down the columns into a line of local memory, then along that line.

        One group takes `rows` rows of one plane. Sums stay below 2^24, so that floats hold them exactly, in any order.
        """
        line = hcq.local(hcq.f32, TILE + 2 * radius)
        along = hcq.local(hcq.f32, TILE)
        plane = hcq.i64(hcq.group_id(1)) * width * height
        picture = picture + plane
        blurred = blurred + plane
        first = hcq.group_id(0) * rows
        for x0 in range(0, width, TILE):
            size = min(TILE, width - x0)
            # line[i] belongs to column x0 - radius + i; those from `inside` to `outside` exist
            inside, outside = max(radius - x0, 0), min(size + 2 * radius, width - x0 + radius)
            for y in range(first, min(first + rows, height)):
                # One pass along the row for each pair of rows: few pointers a loop, so that it becomes vectors
                middle = picture + (y * width + x0 - radius)
                for i in range(inside, outside):
                    line[i] = hcq.f32(middle[i]) * weights[radius]
                for k in hcq.static_range(radius):
                    above = picture + (reflect(y + k - radius, height) * width + x0 - radius)
                    below = picture + (reflect(y + radius - k, height) * width + x0 - radius)
                    for i in range(inside, outside):
                        line[i] += (hcq.f32(above[i]) + hcq.f32(below[i])) * weights[k]
                for i in range(inside):
                    line[i] = line[2 * inside - 1 - i]
                for i in range(outside, size + 2 * radius):
                    line[i] = line[2 * outside - 1 - i]
                for i in range(size):
                    along[i] = line[i + radius] * weights[radius] + 32768  # a half, to round
                for k in hcq.static_range(radius):
                    for i in range(size):
                        along[i] += (line[i + k] + line[i + 2 * radius - k]) * weights[k]
                row = blurred + (y * width + x0)
                for i in range(size):
                    row[i] = hcq.u8(hcq.i32(along[i]) >> 16)

    return {each.__name__: each for each in (blur, luma, edges, histogram, equalising_table, equalise, triad)}


def reflect(at, size):
    """Position -1 is 0 again, -2 is 1, and so on: SciPy's mode 'reflect'. Pictures are larger than the radius."""
    return -1 - at if at < 0 else (2 * size - 1 - at if at >= size else at)


@hcq.kernel
def luma(bright: hcq.ptr[hcq.u8], picture: hcq.ptr[hcq.u8], pixels: hcq.i32, count: hcq.i32):
    """Brightness: 0.299 red + 0.587 green + 0.114 blue in 256ths. One group takes `count` pixels of `pixels`."""
    first = hcq.group_id(0) * count
    green, blue = picture + pixels, picture + 2 * hcq.i64(pixels)
    for i in range(first, min(first + count, pixels)):
        total = hcq.u16(picture[i]) * 77 + hcq.u16(green[i]) * 150 + hcq.u16(blue[i]) * 29 + 128
        bright[i] = hcq.u8(total >> 8)


def length(across, down):
    """The length of a gradient, rounded, at most 255."""
    return hcq.u8(min(hcq.i32(hcq.sqrt(hcq.f32(across * across + down * down)) + 0.5), 255))


def gradient(bright, above, here, below, left, x, right):
    """Sobel at column x of the row that begins at `here`; `left` and `right` are the columns beside it."""
    nw, n, ne = hcq.i32(bright[above + left]), hcq.i32(bright[above + x]), hcq.i32(bright[above + right])
    w, e = hcq.i32(bright[here + left]), hcq.i32(bright[here + right])
    sw, s, se = hcq.i32(bright[below + left]), hcq.i32(bright[below + x]), hcq.i32(bright[below + right])
    return length(ne + 2 * e + se - nw - 2 * w - sw, sw + 2 * s + se - nw - 2 * n - ne)


@hcq.kernel
def edges(edge: hcq.ptr[hcq.u8], bright: hcq.ptr[hcq.u8], width: hcq.i32, height: hcq.i32, rows: hcq.i32):
    """Edges: that of every pixel; beyond the border stands what is at it. One group takes `rows` rows."""
    first = hcq.group_id(0) * rows
    for y in range(first, min(first + rows, height)):
        here = y * width
        above, below = max(y - 1, 0) * width, min(y + 1, height - 1) * width
        edge[here] = gradient(bright, above, here, below, 0, 0, min(1, width - 1))
        for x in range(1, width - 1):
            edge[here + x] = gradient(bright, above, here, below, x - 1, x, x + 1)
        last = width - 1
        edge[here + last] = gradient(bright, above, here, below, max(last - 1, 0), last, last)


@hcq.kernel
def histogram(counts: hcq.ptr[hcq.u32], bright: hcq.ptr[hcq.u8], pixels: hcq.i32, count: hcq.i32):
    """How often each brightness occurs, group by group: counts[group * 256 + value]. Four tables side by side, because
    neighbours are often equal and would wait for one another. One group takes `count` pixels of `pixels`."""
    table = hcq.local(hcq.u32, 4 * BINS)
    first = hcq.group_id(0) * count
    last = min(first + count, pixels)
    for i in range(4 * BINS):
        table[i] = 0
    whole = first + (last - first) // 4 * 4
    for i in range(first, whole, 4):
        for k in hcq.static_range(4):
            table[k * BINS + hcq.i32(bright[i + k])] += 1
    for i in range(whole, last):
        table[hcq.i32(bright[i])] += 1
    for i in range(BINS):
        total = table[i] + table[BINS + i] + table[2 * BINS + i] + table[3 * BINS + i]
        counts[hcq.group_id(0) * BINS + i] = total


@hcq.kernel
def equalising_table(shift: hcq.ptr[hcq.i32], counts: hcq.ptr[hcq.u32], groups: hcq.i32, pixels: hcq.i32):
    """What equalising adds to each brightness: shift[value], from the counts of `groups` groups over `pixels` pixels.
    One group of 256 work-items, one a brightness: a running sum in local memory, in eight steps with barriers."""
    sums = hcq.local(hcq.u32, 2 * BINS)
    darkest = hcq.local(hcq.i32, BINS)
    value = hcq.local_id(0)
    mine = hcq.u32(0)
    for group in range(groups):
        mine += counts[group * BINS + value]
    sums[value] = mine
    darkest[value] = value if mine > 0 else BINS - 1
    hcq.barrier()
    now, step = 0, 1
    while step < BINS:
        total = sums[now + value]
        if value >= step:
            total += sums[now + value - step]
        sums[BINS - now + value] = total
        if value % (2 * step) == 0:
            darkest[value] = min(darkest[value], darkest[value + step])
        now = BINS - now
        step = step * 2
        hcq.barrier()
    below = hcq.i64(sums[now + darkest[0]])
    spread = pixels - below
    upto = max(hcq.i64(sums[now + value]) - below, 0)
    shift[value] = hcq.i32((upto * 255 + spread // 2) // spread) - value if spread > 0 else 0


@hcq.kernel
def equalise(
    equalised: hcq.ptr[hcq.u8], picture: hcq.ptr[hcq.u8], bright: hcq.ptr[hcq.u8], shift: hcq.ptr[hcq.i32],
    pixels: hcq.i32, count: hcq.i32,
):  # fmt: skip
    """Equalised picture: every colour of a pixel moves by what its brightness moves. One group takes `count` pixels.
    What pixels move by stands in local memory first: a buffer might be what is written, and no loop became vectors."""
    table = hcq.local(hcq.i32, BINS)
    by = hcq.local(hcq.i16, TILE)
    for i in range(BINS):
        table[i] = shift[i]
    first = hcq.group_id(0) * count
    last = min(first + count, pixels)
    for start in range(first, last, TILE):
        size = min(TILE, last - start)
        here = bright + start
        for i in range(size):
            by[i] = hcq.i16(table[hcq.i32(here[i])])
        for plane in hcq.static_range(3):
            of, to = picture + (plane * hcq.i64(pixels) + start), equalised + (plane * hcq.i64(pixels) + start)
            for i in range(size):
                to[i] = hcq.u8(min(max(hcq.i16(of[i]) + by[i], 0), 255))


@hcq.kernel
def triad(
    a: hcq.ptr[hcq.f32], b: hcq.ptr[hcq.f32], c: hcq.ptr[hcq.f32], scalar: hcq.f32, size: hcq.i32, count: hcq.i32
):
    """a = b + scalar * c, over `size` floats: what a kernel gets out of this memory at best. A group takes `count`."""
    first = hcq.group_id(0) * count
    for i in range(first, min(first + count, size)):
        a[i] = b[i] + scalar * c[i]
