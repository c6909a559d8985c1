"""Sorting along an axis, and histograms.

Sorting is by digits, the lowest first, of keys that order as the elements do: each pass counts digits, scans the
counts, and moves (key, place) pairs, without changing the order of equal digits. What does not live here: scans (scan).
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import hcq
from hcq.errors import LaunchError
from hcq.kernels import types
from hcq.ops.axes import along
from hcq.ops.launches import on_processor
from hcq.ops.scan import scan_rows
from hcq.ops.shapes import element, output

if TYPE_CHECKING:
    from hcq.kernels.types import Scalar
    from hcq.runtime.buffer import Buffer

# Work-items of a group, bits of a digit, and elements an item: processors run one item a group with long digits.
PROCESSOR: Final = (1, 8, 16384)
OTHERS: Final = (64, 4, 16)
LOCAL_BINS: Final = 2048
"""Up to so many bins a group counts in local memory first."""


def sort(x: Buffer, axis: int = -1, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """The elements in ascending order along an axis; NaN last, as in NumPy."""

    def rows(out: Buffer, x: Buffer) -> None:
        places = argsort(x, stream=stream)
        count = x.shape[-1]
        groups = -(-count // 256), x.size // count
        _take()[groups, 256](out, x, places, count, stream=stream)

    return along(rows, x, axis, element(x), out, stream)


def argsort(x: Buffer, axis: int = -1, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """The places of the elements in ascending order along an axis, equal ones in their own; i32."""
    return along(lambda out, x: _argsort(out, x, stream), x, axis, types.i32, out, stream)


def _argsort(out: Buffer, x: Buffer, stream: Any) -> None:
    """The same along the last axis."""
    from hcq.runtime.buffer import empty

    kind = element(x)
    count, rows = x.shape[-1], x.size // x.shape[-1]
    key = types.u64 if kind.bits == 64 else types.u32
    items, bits, each = PROCESSOR if on_processor(x) else OTHERS
    bins = 1 << bits
    chunk = items * min(each, -(-count // items))
    groups = -(-count // chunk)
    keys = [empty((rows, count), key.dtype, x.device) for _ in range(2)]
    # The last pass must end in `out`: passes take turns between it and another.
    passes = -(-max(kind.bits, 8) // bits)
    other = empty((rows, count), types.i32.dtype, x.device)
    places = [out, other] if passes % 2 == 0 else [other, out]
    _keys(key, types.scalar(f"u{max(kind.bits, 8)}"))[(-(-count // 256), rows), 256](
        keys[0], places[0], x, count, stream=stream
    )
    counts, starts = (empty((rows, bins * groups), types.i32.dtype, x.device) for _ in range(2))
    for number in range(passes):
        here, there = number % 2, 1 - number % 2
        shift = number * bits
        _count(items, bits)[(groups, rows), items](counts, keys[here], count, chunk, shift, stream=stream)
        scan_rows(starts, counts, rows, bins * groups, types.i32, True, stream)
        given = keys[there], places[there], keys[here], places[here], starts
        _move(items, bits)[(groups, rows), items](*given, count, chunk, shift, stream=stream)


@cache
def _keys(K: Scalar, W: Scalar) -> Any:
    """Keys whose order as unsigned numbers is that of the elements; -0.0 is 0.0, NaN comes last."""

    @hcq.kernel
    def sort_keys(keys: hcq.ptr, places: hcq.ptr[hcq.i32], x: hcq.ptr, count: hcq.i32):
        i, row = hcq.global_id(0), hcq.i64(hcq.group_id(1))
        if i < count:
            at = row * count + i
            value = x[at]
            key = K(0)
            if x.dtype.is_float:
                own = hcq.bitcast(value + 0.0, W)  # -0.0 becomes 0.0
                top = W(1) << (W.bits - 1)
                own = own ^ top if (own & top) == 0 else ~own
                if value != value:
                    own = ~W(0)
                key = K(own)
            elif x.dtype.kind == "i":
                key = K(hcq.bitcast(value, W) ^ (W(1) << (W.bits - 1)))
            else:
                key = K(value)
            keys[at] = key
            places[at] = i

    return sort_keys


@cache
def _count(items: int, bits: int) -> Any:
    """How often each digit is in each chunk: `counts[row][digit][group]`."""
    bins = 1 << bits

    @hcq.kernel
    def sort_count(counts: hcq.ptr[hcq.i32], keys: hcq.ptr, count: hcq.i32, chunk: hcq.i32, shift: hcq.i32):
        found = hcq.local(hcq.i32, bins * items)
        lane, group, row = hcq.local_id(0), hcq.group_id(0), hcq.i64(hcq.group_id(1))
        keys = keys + row * count
        counts = counts + row * bins * hcq.num_groups(0)
        for k in range(bins):
            found[k * items + lane] = 0
        each = chunk // items
        first = group * chunk + lane * each
        for k in range(first, min(first + each, count)):
            digit = hcq.i32((keys[k] >> keys.dtype(shift)) & (bins - 1))
            found[digit * items + lane] += 1
        hcq.barrier()
        for digit in range(lane, bins, items):
            total = 0
            for k in range(items):
                total += found[digit * items + k]
            counts[digit * hcq.num_groups(0) + group] = total

    return sort_count


@cache
def _move(items: int, bits: int) -> Any:
    """Every pair to its place: behind all of smaller digits, and those of the same digit that come before it."""
    bins = 1 << bits

    @hcq.kernel
    def sort_move(
        to_keys: hcq.ptr, to_places: hcq.ptr[hcq.i32], keys: hcq.ptr, places: hcq.ptr[hcq.i32],
        starts: hcq.ptr[hcq.i32], count: hcq.i32, chunk: hcq.i32, shift: hcq.i32,
    ):  # fmt: skip
        found = hcq.local(hcq.i32, bins * items)
        lane, group, row = hcq.local_id(0), hcq.group_id(0), hcq.i64(hcq.group_id(1))
        keys = keys + row * count
        places = places + row * count
        to_keys = to_keys + row * count
        to_places = to_places + row * count
        starts = starts + row * bins * hcq.num_groups(0)
        each = chunk // items
        first = group * chunk + lane * each
        if items > 1:
            for k in range(bins):
                found[k * items + lane] = 0
            for k in range(first, min(first + each, count)):
                digit = hcq.i32((keys[k] >> keys.dtype(shift)) & (bins - 1))
                found[digit * items + lane] += 1
            hcq.barrier()
        for digit in range(lane, bins, items):
            running = starts[digit * hcq.num_groups(0) + group]
            for k in range(items):
                own = 0
                if items > 1:
                    own = found[digit * items + k]
                found[digit * items + k] = running
                running += own
        hcq.barrier()
        for k in range(first, min(first + each, count)):
            key = keys[k]
            digit = hcq.i32((key >> keys.dtype(shift)) & (bins - 1))
            to = found[digit * items + lane]
            found[digit * items + lane] = to + 1
            to_keys[to] = key
            to_places[to] = places[k]

    return sort_move


@cache
def _take() -> Any:
    @hcq.kernel
    def sort_take(out: hcq.ptr, x: hcq.ptr, places: hcq.ptr[hcq.i32], count: hcq.i32):
        i, row = hcq.global_id(0), hcq.i64(hcq.group_id(1)) * count
        if i < count:
            out[row + i] = x[row + places[row + i]]

    return sort_take


def histogram(x: Buffer, bins: int, low: float, high: float, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """How many elements fall into each of `bins` equal parts of low to high, which the last part includes; i32.

    Elements outside, and NaN, are not counted. `out` is set, not added to. Raises ValueError for an empty range.
    """
    from hcq.ops.elementwise import fill

    if bins < 1 or not low < high or not math.isfinite(high - low):
        raise ValueError(f"no {bins} bins from {low} to {high}")
    if element(x).kind == "b":
        raise LaunchError("histogram takes numbers, not bools")
    out = output(out, x, (bins,), types.i32)
    fill(out, 0, stream=stream)
    each = max(1, min(64, -(-x.size // (256 * 64))))
    groups = -(-x.size // (256 * each))
    _histogram(min(bins, LOCAL_BINS), bins <= LOCAL_BINS)[groups, 256](
        out, x, x.size, each, bins, float(low), float(high), stream=stream
    )
    return out


@cache
def _histogram(room: int, local: bool) -> Any:
    @hcq.kernel
    def histogram(
        out: hcq.ptr[hcq.i32], x: hcq.ptr, count: hcq.i32, each: hcq.i32, bins: hcq.i32, low: hcq.f64, high: hcq.f64
    ):
        counts = hcq.local(hcq.i32, room)
        lane = hcq.local_id(0)
        if local:
            for k in range(lane, bins, 256):
                counts[k] = 0
            hcq.barrier()
        width = (high - low) / hcq.f64(bins)
        first = hcq.group_id(0) * 256 * each
        for k in range(each):
            at = first + k * 256 + lane
            if at < count:
                value = hcq.f64(x[at])
                if value >= low and value <= high:
                    place = min(hcq.i32((value - low) / (high - low) * hcq.f64(bins)), bins - 1)
                    # Rounding may have gone past an edge.
                    if value < low + hcq.f64(place) * width:
                        place -= 1
                    elif place < bins - 1 and value >= low + hcq.f64(place + 1) * width:
                        place += 1
                    if local:
                        hcq.atomic_add(counts, place, 1)
                    else:
                        hcq.atomic_add(out, place, 1)
        if local:
            hcq.barrier()
            for k in range(lane, bins, 256):
                if counts[k] != 0:
                    hcq.atomic_add(out, k, counts[k])

    return histogram
