"""Operations along the last axis, along any: the axis is moved to the end and back.

That costs a transpose before and one after. What does not live here: the operations (normalise, sorting).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hcq.ops.rearrange import transpose
from hcq.ops.shapes import axis_of, output

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.kernels.types import Scalar
    from hcq.runtime.buffer import Buffer


def along(
    work: Callable[[Buffer, Buffer], None], x: Buffer, axis: int, kind: Scalar, out: Buffer | None, stream: Any
) -> Buffer:
    """What `work(result, given)` makes of `x` along an axis, in a result of its shape and of type `kind`. `work` goes
    along the last axis. Raises ValueError for an axis that is not there."""
    from hcq.runtime.buffer import empty

    if not x.shape:
        raise ValueError("a single number has no axis")
    place = axis_of(len(x.shape), axis)
    out = output(out, x, tuple(x.shape), kind)
    last = len(x.shape) - 1
    if place == last:
        work(out, x)
        return out
    there = (*(each for each in range(last + 1) if each != place), place)
    back = (*range(place), last, *range(place, last))
    given = transpose(x, there, stream=stream)
    result = empty(given.shape, out.dtype, x.device)
    work(result, given)
    return transpose(result, back, out=out, stream=stream)
