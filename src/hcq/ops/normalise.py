"""softmax, layer norm and RMS norm, along an axis.

A group does a row: what it needs of the row is added up in f32 (f64 for f64) by all items, then combined in two steps.
What does not live here: how another axis than the last is come to (axes).
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import hcq
from hcq.errors import LaunchError
from hcq.kernels import types
from hcq.ops.axes import along
from hcq.ops.shapes import element

if TYPE_CHECKING:
    from hcq.kernels.types import Scalar
    from hcq.runtime.buffer import Buffer

ITEMS: Final = 256
"""Work-items of a group."""
PARTS: Final = 16
"""A group's values become so many, and these one: two steps, where halves would take eight, each with a barrier."""


def softmax(x: Buffer, axis: int = -1, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """exp(x - m) / sum(exp(x - m)) along an axis, m the largest of a row. A row of -inf alone gives NaN."""

    def rows(out: Buffer, x: Buffer) -> None:
        count = x.shape[-1]
        _softmax(types.computed(element(out)))[x.size // count, ITEMS](out, x, count, stream=stream)

    return along(rows, x, axis, _floating(x), out, stream)


def layer_norm(
    x: Buffer,
    weight: Buffer | None = None,
    bias: Buffer | None = None,
    eps: float = 1e-5,
    axis: int = -1,
    out: Buffer | None = None,
    stream: Any = None,
) -> Buffer:
    """(x - mean) / sqrt(variance + eps) along an axis, times `weight`, plus `bias`, each of a row's length.

    The variance is that of the whole row, from differences to the mean. Raises LaunchError for other lengths.
    """

    def rows(out: Buffer, x: Buffer) -> None:
        count = x.shape[-1]
        _check(count, weight=weight, bias=bias)
        given = weight if weight is not None else x, bias if bias is not None else x
        kernel = _layer_norm(types.computed(element(out)), weight is not None, bias is not None)
        kernel[x.size // count, ITEMS](out, x, *given, count, float(eps), stream=stream)

    return along(rows, x, axis, _floating(x), out, stream)


def rms_norm(
    x: Buffer,
    weight: Buffer | None = None,
    eps: float = 1e-6,
    axis: int = -1,
    out: Buffer | None = None,
    stream: Any = None,
) -> Buffer:
    """x / sqrt(mean(x * x) + eps) along an axis, times `weight`. Raises LaunchError for one of another length."""

    def rows(out: Buffer, x: Buffer) -> None:
        count = x.shape[-1]
        _check(count, weight=weight)
        kernel = _rms_norm(types.computed(element(out)), weight is not None)
        given = weight if weight is not None else x
        kernel[x.size // count, ITEMS](out, x, given, count, float(eps), stream=stream)

    return along(rows, x, axis, _floating(x), out, stream)


def _floating(x: Buffer) -> Scalar:
    kind = element(x)
    if not kind.is_float:
        raise LaunchError(f"this takes floats, not {kind}: hcq.ops.cast converts")
    return kind


def _check(count: int, **given: Buffer | None) -> None:
    for name, each in given.items():
        if each is not None and each.size != count:
            raise LaunchError(f"{name} has {each.size} elements: rows have {count}")


def sum_of(a, b):
    return a + b


def larger_of(a, b):
    return max(a, b)


def combined(tile, lane, value, combine):
    """The values of all items of the group, combined, in every item; in the kernel language. `tile` is free again when
    all have left."""
    hcq.barrier()
    tile[lane] = value
    hcq.barrier()
    if lane < PARTS:
        total = tile[lane]
        for k in hcq.static_range(PARTS, ITEMS, PARTS):
            total = combine(total, tile[lane + k])
        tile[lane] = total
    hcq.barrier()
    if lane == 0:
        total = tile[0]
        for k in hcq.static_range(1, PARTS):
            total = combine(total, tile[k])
        tile[0] = total
    hcq.barrier()
    return tile[0]


@cache
def _softmax(S: Scalar) -> Any:
    @hcq.kernel
    def softmax(out: hcq.ptr, x: hcq.ptr, count: hcq.i32):
        tile = hcq.local(S, ITEMS)
        lane = hcq.local_id(0)
        row = hcq.i64(hcq.group_id(0)) * count
        x = x + row
        out = out + row
        largest = S(-math.inf)
        for k in range(0, count, ITEMS):
            if lane < count - k:
                largest = max(largest, S(x[k + lane]))
        largest = combined(tile, lane, largest, larger_of)
        total = S(0)
        for k in range(0, count, ITEMS):
            if lane < count - k:
                y = hcq.exp(S(x[k + lane]) - largest)
                total += y
                if out.dtype == S:  # a narrower type would round twice
                    out[k + lane] = y
        scale = 1 / combined(tile, lane, total, sum_of)
        for k in range(0, count, ITEMS):
            if lane < count - k:
                if out.dtype == S:
                    out[k + lane] = out[k + lane] * scale
                else:
                    out[k + lane] = out.dtype(hcq.exp(S(x[k + lane]) - largest) * scale)

    return softmax


@cache
def _layer_norm(S: Scalar, weighted: bool, biased: bool) -> Any:
    @hcq.kernel
    def layer_norm(out: hcq.ptr, x: hcq.ptr, weight: hcq.ptr, bias: hcq.ptr, count: hcq.i32, eps: S):
        tile = hcq.local(S, ITEMS)
        lane = hcq.local_id(0)
        row = hcq.i64(hcq.group_id(0)) * count
        x = x + row
        out = out + row
        total = S(0)
        for k in range(0, count, ITEMS):
            if lane < count - k:
                total += S(x[k + lane])
        mean = combined(tile, lane, total, sum_of) / S(count)
        total = S(0)
        for k in range(0, count, ITEMS):
            if lane < count - k:
                away = S(x[k + lane]) - mean
                total += away * away
        scale = 1 / hcq.sqrt(combined(tile, lane, total, sum_of) / S(count) + eps)
        for k in range(0, count, ITEMS):
            if lane < count - k:
                y = (S(x[k + lane]) - mean) * scale
                if weighted:
                    y = y * S(weight[k + lane])
                if biased:
                    y = y + S(bias[k + lane])
                out[k + lane] = out.dtype(y)

    return layer_norm


@cache
def _rms_norm(S: Scalar, weighted: bool) -> Any:
    @hcq.kernel
    def rms_norm(out: hcq.ptr, x: hcq.ptr, weight: hcq.ptr, count: hcq.i32, eps: S):
        tile = hcq.local(S, ITEMS)
        lane = hcq.local_id(0)
        row = hcq.i64(hcq.group_id(0)) * count
        x = x + row
        out = out + row
        total = S(0)
        for k in range(0, count, ITEMS):
            if lane < count - k:
                total += S(x[k + lane]) * S(x[k + lane])
        scale = 1 / hcq.sqrt(combined(tile, lane, total, sum_of) / S(count) + eps)
        for k in range(0, count, ITEMS):
            if lane < count - k:
                y = S(x[k + lane]) * scale
                if weighted:
                    y = y * S(weight[k + lane])
                out[k + lane] = out.dtype(y)

    return rms_norm
