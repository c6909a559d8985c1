"""sin, cos, tan and their inverses.

Angles are reduced by pi / 2 in parts, which holds up to some 10**5; beyond, results lose digits, the same ones on every
device. What does not live here: hyperbolic functions (exponentials).
"""

from hcq.kernels.builtins import bitcast, copysign, fma, maximum, minimum, rint, sqrt, where
from hcq.kernels.mathlib.polynomials import polynomial


def reduced(x, T):
    """The quadrant, and sine and cosine of the angle in it."""
    n = rint(x * T.TWO_OVER_PI)
    r = fma(n, -T.HALF_PI_3, fma(n, -T.HALF_PI_2, fma(n, -T.HALF_PI_1, x)))
    z = r * r
    sine = fma(z * r, polynomial(z, T.SIN), r)
    cosine = fma(z * z, polynomial(z, T.COS), fma(z, -0.5, 1.0))
    return T.integer(n), sine, cosine


def sin(x, T):
    q, sine, cosine = reduced(x, T)
    y = where((q & 1) != 0, cosine, sine)
    return where(x == 0.0, x, where((q & 2) != 0, -y, y))


def cos(x, T):
    q, sine, cosine = reduced(x, T)
    y = where((q & 1) != 0, sine, cosine)
    return where(((q + 1) & 2) != 0, -y, y)


def tan(x, T):
    q, sine, cosine = reduced(x, T)
    odd = (q & 1) != 0
    return where(x == 0.0, x, where(odd, -cosine, sine) / where(odd, sine, cosine))


def atan_of_part(t, T):
    """atan for 0 <= t <= 1. In f64 the upper part is brought below tan(pi / 8) first."""
    if T.DIGITS > 23:
        upper = t > T.TAN_EIGHTH_PI
        u = where(upper, (t - 1.0) / (t + 1.0), t)
        z = u * u
        p = fma(z * u, polynomial(z, T.ATAN), u)
        y = where(upper, 0.5 * T.HALF_PI_HI + (p + 0.5 * T.HALF_PI_LO), p)
    else:
        z = t * t
        y = fma(z * t, polynomial(z, T.ATAN), t)
    return y


def atan(x, T):
    a = abs(x)
    over = a > 1.0
    p = atan_of_part(where(over, 1.0 / a, a), T)
    return copysign(where(over, T.HALF_PI_HI - (p - T.HALF_PI_LO), p), x)


def atan2(y, x, T):
    a, b = abs(y), abs(x)
    large, small = maximum(a, b), minimum(a, b)
    ratio = small / where(large == 0.0, T.dtype(1), large)
    p = atan_of_part(where((small == large) & (large != 0.0), T.dtype(1), ratio), T)
    p = where(a > b, T.HALF_PI_HI - (p - T.HALF_PI_LO), p)
    p = where(bitcast(x, T.integer) < 0, T.PI_HI - (p - T.PI_LO), p)
    return copysign(p, y)


def asin_of_part(a, T):
    """asin for 0 <= a <= 1/2, or asin(sqrt((1 - a) / 2)) above."""
    over = a > 0.5
    z = where(over, 0.5 * (1.0 - a), a * a)
    s = where(over, sqrt(z), a)
    return fma(z * s, polynomial(z, T.ASIN), s)


def asin(x, T):
    a = abs(x)
    p = asin_of_part(a, T)
    return copysign(where(a > 0.5, T.HALF_PI_HI - (2.0 * p - T.HALF_PI_LO), p), x)


def acos(x, T):
    p = asin_of_part(abs(x), T)
    inner = T.HALF_PI_HI - (copysign(p, x) - T.HALF_PI_LO)
    return where(x > 0.5, 2.0 * p, where(x < -0.5, T.PI_HI - (2.0 * p - T.PI_LO), inner))
