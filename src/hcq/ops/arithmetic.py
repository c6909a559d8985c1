"""The well-known maps: arithmetic, comparisons, and functions of one number.

All take `out` and `stream` as `map` does, and follow its rules. What does not live here: how a map is launched (map).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hcq
from hcq.kernels import types
from hcq.ops.elementwise import Operand, map
from hcq.ops.shapes import float_of, result_element

if TYPE_CHECKING:
    from hcq.runtime.buffer import Buffer

# In the kernel language


def _negative(a: Any) -> Any:
    return -a


def _absolute(a: Any) -> Any:
    return abs(a)


def _sqrt(a: Any) -> Any:
    return hcq.sqrt(a)


def _exp(a: Any) -> Any:
    return hcq.exp(a)


def _log(a: Any) -> Any:
    return hcq.log(a)


def _sin(a: Any) -> Any:
    return hcq.sin(a)


def _cos(a: Any) -> Any:
    return hcq.cos(a)


def _tanh(a: Any) -> Any:
    return hcq.tanh(a)


def _erf(a: Any) -> Any:
    return hcq.erf(a)


def _sigmoid(a: Any) -> Any:
    return 1.0 / (1.0 + hcq.exp(-a))


def _relu(a: Any) -> Any:
    return max(a, 0)


def _silu(a: Any) -> Any:
    return a / (1.0 + hcq.exp(-a))


def _gelu(a: Any) -> Any:
    return 0.5 * a * (1.0 + hcq.erf(a * 0.7071067811865476))


def _add(a: Any, b: Any) -> Any:
    return a + b


def _subtract(a: Any, b: Any) -> Any:
    return a - b


def _multiply(a: Any, b: Any) -> Any:
    return a * b


def _divide(a: Any, b: Any) -> Any:
    return a / b


def _power(a: Any, b: Any) -> Any:
    return a**b


def _minimum(a: Any, b: Any) -> Any:
    return min(a, b)


def _maximum(a: Any, b: Any) -> Any:
    return max(a, b)


def _equal(a: Any, b: Any) -> Any:
    return a == b


def _not_equal(a: Any, b: Any) -> Any:
    return a != b


def _less(a: Any, b: Any) -> Any:
    return a < b


def _less_equal(a: Any, b: Any) -> Any:
    return a <= b


def _greater(a: Any, b: Any) -> Any:
    return a > b


def _greater_equal(a: Any, b: Any) -> Any:
    return a >= b


def _where(c: Any, a: Any, b: Any) -> Any:
    return hcq.where(c != 0, a, b)


# For the host


def negative(x: Buffer, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """-x."""
    return map(_negative, x, out=out, stream=stream)


def absolute(x: Buffer, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """|x|."""
    return map(_absolute, x, out=out, stream=stream)


def sqrt(x: Buffer, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """The square root."""
    return map(_sqrt, x, out=out, computed=float_of(x), stream=stream)


def exp(x: Buffer, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """e**x."""
    return map(_exp, x, out=out, computed=float_of(x), stream=stream)


def log(x: Buffer, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """The natural logarithm."""
    return map(_log, x, out=out, computed=float_of(x), stream=stream)


def sin(x: Buffer, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """The sine of an angle in radians."""
    return map(_sin, x, out=out, computed=float_of(x), stream=stream)


def cos(x: Buffer, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """The cosine."""
    return map(_cos, x, out=out, computed=float_of(x), stream=stream)


def tanh(x: Buffer, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """The hyperbolic tangent."""
    return map(_tanh, x, out=out, computed=float_of(x), stream=stream)


def erf(x: Buffer, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """The error function."""
    return map(_erf, x, out=out, computed=float_of(x), stream=stream)


def sigmoid(x: Buffer, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """1 / (1 + exp(-x))."""
    return map(_sigmoid, x, out=out, computed=float_of(x), stream=stream)


def relu(x: Buffer, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """max(x, 0)."""
    return map(_relu, x, out=out, stream=stream)


def silu(x: Buffer, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """x sigmoid(x)."""
    return map(_silu, x, out=out, computed=float_of(x), stream=stream)


def gelu(x: Buffer, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """x times the normal distribution's integral up to x."""
    return map(_gelu, x, out=out, computed=float_of(x), stream=stream)


def add(x: Operand, y: Operand, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """x + y."""
    return map(_add, x, y, out=out, stream=stream)


def subtract(x: Operand, y: Operand, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """x - y."""
    return map(_subtract, x, y, out=out, stream=stream)


def multiply(x: Operand, y: Operand, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """x * y."""
    return map(_multiply, x, y, out=out, stream=stream)


def divide(x: Operand, y: Operand, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """x / y, in floats."""
    return map(_divide, x, y, out=out, computed=float_of(x, y), stream=stream)


def power(x: Operand, y: Operand, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """x**y."""
    return map(_power, x, y, out=out, stream=stream)


def minimum(x: Operand, y: Operand, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """The smaller; NaN if either is."""
    return map(_minimum, x, y, out=out, stream=stream)


def maximum(x: Operand, y: Operand, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """The larger; NaN if either is."""
    return map(_maximum, x, y, out=out, stream=stream)


def equal(x: Operand, y: Operand, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """x == y."""
    return map(_equal, x, y, out=out, dtype=types.bool_, stream=stream)


def not_equal(x: Operand, y: Operand, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """x != y."""
    return map(_not_equal, x, y, out=out, dtype=types.bool_, stream=stream)


def less(x: Operand, y: Operand, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """x < y."""
    return map(_less, x, y, out=out, dtype=types.bool_, stream=stream)


def less_equal(x: Operand, y: Operand, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """x <= y."""
    return map(_less_equal, x, y, out=out, dtype=types.bool_, stream=stream)


def greater(x: Operand, y: Operand, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """x > y."""
    return map(_greater, x, y, out=out, dtype=types.bool_, stream=stream)


def greater_equal(x: Operand, y: Operand, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """x >= y."""
    return map(_greater_equal, x, y, out=out, dtype=types.bool_, stream=stream)


def where(c: Buffer, x: Operand, y: Operand, out: Buffer | None = None, stream: Any = None) -> Buffer:
    """x where c is true (not 0), else y; the type is that of x and y."""
    return map(_where, c, x, y, out=out, computed=result_element((x, y)), stream=stream)
