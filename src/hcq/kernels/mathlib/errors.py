"""erf and erfc.

For x >= 0, erfc(x) = exp(-x**2) R((x - c) / (x + c)) / (1 + 2 x). What does not live here: gamma functions, of which
there are none.
"""

from hcq.kernels.builtins import bitcast, copysign, fma, minimum, where
from hcq.kernels.mathlib.exponentials import exp
from hcq.kernels.mathlib.polynomials import polynomial


def tail(a, T):
    """erfc(a) for a >= 0."""
    t = minimum(a, T.ERFC_MAX)
    # exp(-t**2) needs t**2 to more than the digits: the upper half's square is exact.
    high = bitcast(bitcast(t, T.integer) & T.SPLIT_MASK, T.dtype)
    gauss = exp(-high * high, T) * exp((high - t) * (high + t), T)
    ratio = polynomial((t - T.ERFC_CENTER) / (t + T.ERFC_CENTER), T.ERFC)
    return gauss * (ratio / fma(t, 2.0, 1.0))


def erf(x, T):
    a = abs(x)
    return copysign(where(a < 1.0, fma(a, polynomial(a * a, T.ERF), a), 1.0 - tail(a, T)), x)


def erfc(x, T):
    a = abs(x)
    inner = 1.0 - fma(x, polynomial(a * a, T.ERF), x)
    y = tail(a, T)
    return where(a < 0.5, inner, where(x < 0.0, 2.0 - y, y))
