"""exp and what follows from it: exp2, expm1, the hyperbolic functions and their inverses.

What does not live here: logarithms and pow.
"""

import math

from hcq.kernels.builtins import copysign, fma, maximum, minimum, rint, sqrt, where
from hcq.kernels.mathlib.logarithms import log, log1p
from hcq.kernels.mathlib.polynomials import as_integer, polynomial, power_of_two, scaled


def exp(x, T):
    """exp(n ln 2 + r) = 2**n exp(r), with |r| <= ln 2 / 2."""
    t = minimum(maximum(x, T.EXP_MIN), T.EXP_MAX)
    n = rint(t * T.LOG2E_HI)
    r = fma(n, -T.LN2_LO, fma(n, -T.LN2_HI, t))
    return scaled(fma(r * r, polynomial(r, T.EXP), r) + 1.0, as_integer(n, T), T)


def exp2(x, T):
    t = minimum(maximum(x, T.EXP2_MIN), T.EXP2_MAX)
    n = rint(t)
    f = t - n
    r = f * T.LN2_HI
    # What f * ln 2 lost by rounding is added to the linear term.
    lost = fma(f, T.LN2_LO, fma(f, T.LN2_HI, -r))
    return scaled(fma(r * r, polynomial(r, T.EXP), r + lost) + 1.0, as_integer(n, T), T)


def expm1(x, T):
    """2**n (exp(r) - 1) + (2**n - 1); by halves, since 2**n alone may be out of range."""
    t = minimum(maximum(x, T.EXPM1_MIN), T.EXP_MAX)
    n = rint(t * T.LOG2E_HI)
    r = fma(n, -T.LN2_LO, fma(n, -T.LN2_HI, t))
    half = power_of_two(as_integer(n, T) - 1, T)
    y = fma(fma(r * r, polynomial(r, T.EXP), r), half, half - 0.5)
    return copysign(y + y, x)


def sinh(x, T):
    a = abs(x)
    t = expm1(a, T)
    small = 0.5 * (t + t / (t + 1.0))
    h = exp(0.5 * a, T)
    return copysign(where(a < T.EXP_MAX - 2.0, small, 0.5 * h * h), x)


def cosh(x, T):
    a = abs(x)
    e = exp(a, T)
    h = exp(0.5 * a, T)
    return where(a < T.EXP_MAX - 2.0, 0.5 * e + 0.5 / e, 0.5 * h * h)


def tanh(x, T):
    t = expm1(2.0 * minimum(abs(x), T.TANH_MAX), T)
    return copysign(t / (t + 2.0), x)


def asinh(x, T):
    a = abs(x)
    squared = a * a
    small = log1p(a + squared / (1.0 + sqrt(squared + 1.0)), T)
    return copysign(where(a < T.LARGE, small, log(a, T) + T.LN2_HI), x)


def acosh(x, T):
    t = x - 1.0
    small = log1p(t + sqrt(fma(t, t, 2.0 * t)), T)
    return where(x < 1.0, T.dtype(math.nan), where(x < T.LARGE, small, log(x, T) + T.LN2_HI))


def atanh(x, T):
    a = abs(x)
    return copysign(0.5 * log1p(2.0 * a / (1.0 - a), T), x)
