"""cbrt and hypot. What does not live here: sqrt, which is an operation."""

import math

from hcq.kernels.builtins import bitcast, copysign, fma, maximum, minimum, sqrt, where


def cbrt(x, T):
    """A third of the bits is a guess to some 4 percent; two steps of Halley, and one of Newton for the last digit."""
    a = abs(x)
    tiny = a < T.LEAST_NORMAL
    u = where(tiny, a * 2.0 ** (3 * T.DIGITS), a)
    y = bitcast(bitcast(u, T.integer) // 3 + T.CBRT_BITS, T.dtype)
    y = halley(y, u)
    y = halley(y, u)
    if T.DIGITS > 23:
        y = halley(y, u)
    # u - y**3 to more than the digits
    square = y * y
    rest = fma(-square, y, u) - fma(y, y, -square) * y
    y = y + rest / (3.0 * square)
    y = where(tiny, y * 0.5**T.DIGITS, y)
    return where((a > 0.0) & (a < math.inf), copysign(y, x), x + x)


def halley(y, u):
    cube = y * y * y
    return y * ((cube + 2.0 * u) / (2.0 * cube + u))


def hypot(a, b, T):
    x, y = maximum(abs(a), abs(b)), minimum(abs(a), abs(b))
    t = y / where(x == 0.0, T.dtype(1), x)
    h = x * sqrt(fma(t, t, 1.0))
    return where((abs(a) == math.inf) | (abs(b) == math.inf), T.dtype(math.inf), h)
