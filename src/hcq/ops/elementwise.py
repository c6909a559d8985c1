"""Maps: each element of the result from the elements at its place, with NumPy's broadcasting; fill, cast and copy.

What does not live here: maps of well-known functions (arithmetic), and whatever looks at more than one place.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import hcq
from hcq.errors import LaunchError
from hcq.kernels import types
from hcq.ops.launches import group_for
from hcq.ops.shapes import broadcast, element, layout, output, result_element, shape_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.kernels.types import Scalar
    from hcq.runtime.buffer import Buffer

Operand = Any
"""A buffer, or a number: a bool, an int or a float."""


def map(
    function: Callable[..., Any],
    *operands: Any,
    out: Buffer | None = None,
    dtype: Any = None,
    computed: Any = None,
    stream: Any = None,
) -> Buffer:
    """`out[i] = function(operands[0][i], ...)` for one to three buffers or numbers, broadcast.

    `function` is in the kernel language (docs/kernels.md); it gets each operand in the type `computed`, by default the
    one that NumPy promotes them to. The result has that type, or `dtype`, or that of `out`. `out` may be one of the
    operands, where that has its shape. Doesn't block. Raises ValueError for shapes, LaunchError, CompileError.
    """
    if not 1 <= len(operands) <= 3:
        raise LaunchError(f"map takes one to three operands, not {len(operands)}")
    buffers = [each for each in operands if not isinstance(each, (bool, int, float))]
    within = result_element(operands) if computed is None else types.of_dtype(computed)
    shape = broadcast(*(shape_of(each) for each in operands))
    type_ = types.of_dtype(dtype) if dtype is not None else None
    out = output(out, buffers[0], shape, type_ or within)
    _launch(function, within, out, operands, stream)
    return out


def _launch(
    function: Callable[..., Any], computed: Scalar, out: Buffer, operands: tuple[Any, ...], stream: Any
) -> None:
    """One launch, or one for each index of leading axes past the third."""
    if out.size == 0:
        return
    placed = [each for each in operands if not isinstance(each, (bool, int, float))]
    plan = layout(tuple(out.shape), [shape_of(each) for each in operands])
    numbers = [each if isinstance(each, (bool, int, float)) else None for each in operands]
    if len(plan.outer) > 3:
        raise LaunchError(f"shapes {', '.join(str(shape_of(each)) for each in operands)} broadcast along too many axes")
    kinds = tuple(2 if number is not None else step for number, step in zip(numbers, plan.steps, strict=True))
    kernel = _kernel(function, len(operands), computed)
    outer = (1,) * (3 - len(plan.outer)) + plan.outer
    strides = [(0,) * (3 - len(plan.outer)) + each for each in plan.strides]
    values = [type_value(number, computed) for number in numbers]
    given = [each if number is None else placed[0] for each, number in zip(operands, numbers, strict=True)]
    items = group_for(out, plan.inner)
    groups = (-(-plan.inner // items), math.prod(outer), 1)
    kernel[groups, (items, 1, 1)](
        out, *given, *values, plan.inner, outer[1], outer[2], *sum(strides, ()), *kinds, len(plan.outer), stream=stream
    )


def type_value(number: Any, computed: Scalar) -> Any:
    """A number operand in the type that is computed in; zero where the operand is a buffer."""
    if number is None:
        return False if computed.kind == "b" else 0.0 if computed.is_float else 0
    return float(number) if computed.is_float else bool(number) if computed.kind == "b" else int(number)


@cache
def _kernel(function: Callable[..., Any], count: int, computed: Scalar) -> Any:
    """The kernel of a map. Of each operand `kind` says: 0 stays along a run, 1 moves, 2 is the number `v`."""
    T = computed

    def place(rank, row, d1, d2, s0, s1, s2):
        """Where an operand's run begins: row counts runs in `rank` outer sizes, of which d1 and d2 are the last."""
        if rank == 0:
            at = 0
        elif rank == 1:
            at = row * s2
        elif rank == 2:
            at = row // d2 * s1 + row % d2 * s2
        else:
            at = row // d2 // d1 * s0 + row // d2 % d1 * s1 + row % d2 * s2
        return at

    def operand(x, v, kind, at, i):
        if kind == 2:
            y = v
        elif kind == 1:
            y = T(x[at + i])
        else:
            y = T(x[at])
        return y

    if count == 1:

        @hcq.kernel
        def map_1(
            out: hcq.ptr, x: hcq.ptr, xv: T, n: hcq.i32, d1: hcq.i32, d2: hcq.i32,
            x0: hcq.i32, x1: hcq.i32, x2: hcq.i32, xk: hcq.constexpr, rank: hcq.constexpr,
        ):  # fmt: skip
            i, row = hcq.global_id(0), hcq.group_id(1)
            if i < n:
                u = operand(x, xv, xk, place(rank, row, d1, d2, x0, x1, x2), i)
                out[row * n + i] = out.dtype(function(u))

        return map_1

    if count == 2:

        @hcq.kernel
        def map_2(
            out: hcq.ptr, x: hcq.ptr, y: hcq.ptr, xv: T, yv: T, n: hcq.i32, d1: hcq.i32, d2: hcq.i32,
            x0: hcq.i32, x1: hcq.i32, x2: hcq.i32, y0: hcq.i32, y1: hcq.i32, y2: hcq.i32,
            xk: hcq.constexpr, yk: hcq.constexpr, rank: hcq.constexpr,
        ):  # fmt: skip
            i, row = hcq.global_id(0), hcq.group_id(1)
            if i < n:
                u = operand(x, xv, xk, place(rank, row, d1, d2, x0, x1, x2), i)
                v = operand(y, yv, yk, place(rank, row, d1, d2, y0, y1, y2), i)
                out[row * n + i] = out.dtype(function(u, v))

        return map_2

    @hcq.kernel
    def map_3(
        out: hcq.ptr, x: hcq.ptr, y: hcq.ptr, z: hcq.ptr, xv: T, yv: T, zv: T, n: hcq.i32, d1: hcq.i32, d2: hcq.i32,
        x0: hcq.i32, x1: hcq.i32, x2: hcq.i32, y0: hcq.i32, y1: hcq.i32, y2: hcq.i32,
        z0: hcq.i32, z1: hcq.i32, z2: hcq.i32, xk: hcq.constexpr, yk: hcq.constexpr, zk: hcq.constexpr,
        rank: hcq.constexpr,
    ):  # fmt: skip
        i, row = hcq.global_id(0), hcq.group_id(1)
        if i < n:
            u = operand(x, xv, xk, place(rank, row, d1, d2, x0, x1, x2), i)
            v = operand(y, yv, yk, place(rank, row, d1, d2, y0, y1, y2), i)
            w = operand(z, zv, zk, place(rank, row, d1, d2, z0, z1, z2), i)
            out[row * n + i] = out.dtype(function(u, v, w))

    return map_3


def fill(out: Buffer, value: bool | int | float, stream: Any = None) -> Buffer:
    """Set every element of `out` to `value`, converted to its type."""
    kind = element(out)
    items = group_for(out, out.size)
    _fill(kind)[-(-out.size // items), items](out, type_value(value, kind), out.size, stream=stream)
    return out


@cache
def _fill(kind: Scalar) -> Any:
    T = kind

    @hcq.kernel
    def fill(out: hcq.ptr[T], value: T, n: hcq.i64):
        first = hcq.i64(hcq.group_id(0)) * hcq.local_size(0)
        if hcq.local_id(0) < n - first:
            out[first + hcq.local_id(0)] = value

    return fill


def cast(x: Buffer, dtype: Any, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """`x` in another type: floats to integers toward zero and held to the range, NaN as 0; else as NumPy."""
    return map(_identity, x, out=out, dtype=dtype, stream=stream)


def copy(x: Buffer, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """`x`, broadcast to the shape of `out` and in its type. `hcq.copy` copies bytes, and between devices."""
    return map(_identity, x, out=out, stream=stream) if out is None else _broadcast(x, out, stream)


def _broadcast(x: Buffer, out: Buffer, stream: Any) -> Buffer:
    if broadcast(tuple(x.shape), tuple(out.shape)) != tuple(out.shape):
        raise ValueError(f"shape {tuple(x.shape)} is not stretched to {tuple(out.shape)}")
    _launch(_identity, element(x), out, (x,), stream)
    return out


def _identity(x: Any) -> Any:
    return x
