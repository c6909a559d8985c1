"""Shapes of operands: broadcasting, axes, and where results go.

What does not live here: kernels.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from hcq.errors import LaunchError
from hcq.kernels import types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.kernels.types import Scalar
    from hcq.runtime.buffer import Buffer

Shape = tuple[int, ...]


def reshape(x: Buffer, shape: int | Sequence[int]) -> Buffer:
    """A view of `x` with another shape of as many elements; one size may be -1. Raises ValueError. Copies nothing."""
    wanted = [shape] if isinstance(shape, int) else list(shape)
    if wanted.count(-1) == 1:
        known = -math.prod(wanted)
        if known <= 0 or x.size % known:
            raise ValueError(f"{x.size} elements have no shape {tuple(wanted)}")
        wanted[wanted.index(-1)] = x.size // known
    if math.prod(wanted) != x.size or any(each < 0 for each in wanted):
        raise ValueError(f"{x.size} elements have no shape {tuple(wanted)}")
    view = x.view(x.size, x.dtype, 0)
    view._shape = tuple(wanted)
    return view


def element(x: Any) -> Scalar:
    """The kernel type of a buffer's elements, or of a number beside nothing."""
    if isinstance(x, (bool, int, float)):
        return types.of_weak(x)
    return types.of_dtype(x.dtype)


def result_element(operands: Sequence[Any]) -> Scalar:
    """The type that NumPy gives an operation on these buffers and numbers."""
    found: Scalar | None = None
    for each in operands:
        if not isinstance(each, (bool, int, float)):
            found = types.of_dtype(each.dtype) if found is None else types.promote(found, types.of_dtype(each.dtype))
    for each in operands:
        if isinstance(each, (bool, int, float)):
            found = types.of_weak(each, found)
    if found is None:
        raise TypeError("an operation needs a buffer among its operands")
    return found


def float_of(*operands: Any) -> Scalar:
    """The float type that a function of these is computed in: their own, or f64 for integers."""
    found = result_element(operands)
    return found if found.is_float else types.f64


def sum_element(x: Buffer) -> Scalar:
    """The type of sums and products over a buffer: 64 bits for bools and narrow integers, as NumPy's."""
    kind = element(x)
    return kind if kind.is_float or kind.bits == 64 else types.u64 if kind.kind == "u" else types.i64


def shape_of(x: Any) -> Shape:
    """A buffer's shape; a number has none."""
    return () if isinstance(x, (bool, int, float)) else tuple(x.shape)


def broadcast(*shapes: Shape) -> Shape:
    """The shape that all of these are stretched to. Raises ValueError, naming them, where there is none."""
    rank = max(map(len, shapes), default=0)
    result = []
    for place in range(rank):
        sizes = {each[place - rank + len(each)] for each in shapes if place - rank + len(each) >= 0} - {1}
        if len(sizes) > 1:
            raise ValueError(f"shapes {', '.join(map(str, shapes))} don't broadcast together")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def output(out: Buffer | None, like: Buffer, shape: Shape, type_: Scalar) -> Buffer:
    """Where the result goes: a new buffer on the device of `like`, or `out`, which must fit. Raises LaunchError."""
    if out is None:
        from hcq.runtime.buffer import empty

        return empty(shape, type_.dtype, like.device)
    if tuple(out.shape) != shape or out.device != like.device:
        raise LaunchError(
            f"out has shape {tuple(out.shape)} on {out.device}: this result has shape {shape} on {like.device}"
        )
    return out


def axes_of(rank: int, axis: int | Iterable[int] | None) -> tuple[int, ...]:
    """Axes counted from 0, in order; None is all. Raises ValueError for one that is not there, or twice, and TypeError
    for what is no whole number."""
    if axis is None:
        return tuple(range(rank))
    given = list(axis) if isinstance(axis, Iterable) else [axis]
    found = sorted(axis_of(rank, each) for each in given)
    if len(set(found)) < len(found):
        raise ValueError(f"axes {tuple(given)} of an array with {rank} axes: each is named once")
    return tuple(found)


def axis_of(rank: int, axis: int) -> int:
    """The same of one axis."""
    try:
        if isinstance(axis, bool):
            raise TypeError
        number = operator.index(axis)
    except TypeError:
        raise TypeError(f"an axis is a whole number, not {axis!r:.60}") from None
    if not -rank <= number < rank:
        raise ValueError(f"axis {number} of an array with {rank} axes")
    return number + rank if number < 0 else number


class Layout(NamedTuple):
    """How operands lie over a result: an inner run of `inner` elements, and `outer` sizes with a stride a run each.

    `steps` says of each operand whether it moves along the inner run (1) or stays (0); `strides` how many elements it
    moves from run to run, for each outer size.
    """

    inner: int
    outer: Shape
    steps: tuple[int, ...]
    strides: tuple[Shape, ...]


def layout(shape: Shape, operands: Sequence[Shape]) -> Layout:
    """The layout of operands that are broadcast to `shape`, with neighbouring axes joined where all allow it."""
    steps_of = [_strides(shape, each) for each in operands]
    runs: list[tuple[int, tuple[int, ...]]] = []  # size and each operand's stride, from the last axis on
    for axis in reversed(range(len(shape))):
        size, strides = shape[axis], tuple(each[axis] for each in steps_of)
        if size == 1:
            continue
        if runs and all(new == old * runs[-1][0] for new, old in zip(strides, runs[-1][1], strict=True)):
            runs[-1] = (runs[-1][0] * size, runs[-1][1])
        else:
            runs.append((size, strides))
    if not runs:
        runs = [(1, (0,) * len(operands))]
    outer = tuple(size for size, _ in reversed(runs[1:]))
    strides_out = tuple(tuple(each[1][k] for each in reversed(runs[1:])) for k in range(len(operands)))
    return Layout(runs[0][0], outer, runs[0][1], strides_out)


def _strides(shape: Shape, operand: Shape) -> list[int]:
    """Elements that an operand moves by along each axis of `shape`: 0 where it is stretched."""
    strides, step = [0] * len(shape), 1
    for back in range(1, len(operand) + 1):
        size = operand[-back]
        strides[-back] = 0 if size == 1 else step
        step *= size
    return strides
