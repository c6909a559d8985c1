"""log, log2, log10, log1p and pow.

x = 2**k m with m between sqrt(1/2) and sqrt(2); f = m - 1 is exact, s = f / (2 + f), and
log(1 + f) = 2 s + s**3 P(s**2) = f - s (f - s**2 P). What does not live here: exponentials, save that of pow.
"""

import math

from hcq.kernels.builtins import bitcast, floor, fma, maximum, minimum, rint, where
from hcq.kernels.mathlib.polynomials import as_integer, polynomial, scaled


def exponent_and_fraction(x, T):
    """k and f, both as floats, for an x that is positive and finite."""
    tiny = x < T.LEAST_NORMAL
    u = where(tiny, x * 2.0 ** (T.DIGITS + 1), x)
    bits = bitcast(u, T.integer) - T.ROOT_HALF_BITS
    k = bits >> T.DIGITS
    m = bitcast(bits - (k << T.DIGITS) + T.ROOT_HALF_BITS, T.dtype)
    return T.dtype(k) - where(tiny, T.dtype(T.DIGITS + 1), T.dtype(0)), m - 1.0


def log_fraction(f, T):
    """log(1 + f) - f."""
    s = f / (2.0 + f)
    z = s * s
    half = 0.5 * f * f
    # log(1 + f) - f = -f**2 / 2 + s (f**2 / 2 + s**2 P): exact to more digits than f alone needs.
    return fma(s, fma(z, polynomial(z, T.LOG), half), -half)


def of_any(x, y):
    """y where x is positive and finite, else what a logarithm of x is."""
    return where(x > 0.0, where(x < math.inf, y, x), where(x == 0.0, -math.inf, math.nan))


def log(x, T):
    k, f = exponent_and_fraction(x, T)
    return of_any(x, fma(k, T.LN2_HI, f + fma(k, T.LN2_LO, log_fraction(f, T))))


def log2(x, T):
    k, f = exponent_and_fraction(x, T)
    rest = log_fraction(f, T)
    high = f * T.LOG2E_HI
    low = fma(f, T.LOG2E_HI, -high) + fma(f, T.LOG2E_LO, rest * T.LOG2E_HI)
    return of_any(x, k + (high + low))


def log10(x, T):
    k, f = exponent_and_fraction(x, T)
    rest = fma(k, T.LOG10_2_LO, fma(f, T.LOG10E_LO, log_fraction(f, T) * T.LOG10E_HI))
    return of_any(x, fma(k, T.LOG10_2_HI, fma(f, T.LOG10E_HI, rest)))


def log1p(x, T):
    """log of u = 1 + x as rounded, and what the rounding lost, as a part of u."""
    u = 1.0 + x
    lost = where(x < 1.0, x - (u - 1.0), 1.0 - (u - x))
    k, f = exponent_and_fraction(u, T)
    y = fma(k, T.LN2_HI, f + (fma(k, T.LN2_LO, log_fraction(f, T)) + lost / u))
    inside = where(u > 0.0, where(x < math.inf, y, x), where(u == 0.0, -math.inf, math.nan))
    return where(x == 0.0, x, inside)


def pow(a, b, T):
    """2**(b log2 |a|), the logarithm and the product to twice the digits; signs and edges as C's Annex F has them."""
    size = abs(a)
    k, f = exponent_and_fraction(size, T)
    # s = f / (2 + f) to twice the digits
    u = 2.0 + f
    u_low = f - (u - 2.0)
    s = f / u
    s_low = fma(-s, u_low, fma(-s, u, f)) / u
    # s**3 P(s**2) to a little more than the digits: its first term is two thirds of s**3
    z = s * s
    cube = z * s
    cube_low = fma(z, s, -cube) + fma(s, s, -z) * s + 3.0 * z * s_low
    third = cube * T.TWO_THIRDS_HI
    third_low = (
        fma(cube, T.TWO_THIRDS_HI, -third)
        + cube_low * T.TWO_THIRDS_HI
        + cube * fma(z, polynomial(z, T.POW), T.TWO_THIRDS_LO)
    )
    # log(1 + f) = 2 s + third, then log2
    log_high = 2.0 * s + third
    log_low = (2.0 * s - log_high + third) + (2.0 * s_low + third_low)
    part = log_high * T.LOG2E_HI
    part_low = fma(log_high, T.LOG2E_HI, -part) + fma(log_high, T.LOG2E_LO, log_low * T.LOG2E_HI)
    high = k + part
    low = (part - (high - k)) + part_low
    # Where the result is 0 or infinite anyway, b is held to what keeps the product finite.
    exponent = minimum(maximum(b, -T.POW_MAX), T.POW_MAX)
    product = exponent * high
    rest = fma(exponent, high, -product) + exponent * low
    t = minimum(maximum(product, T.EXP2_MIN), T.EXP2_MAX)
    n = rint(t)
    f2 = (t - n) + where(t == product, rest, T.dtype(0))
    r = f2 * T.LN2_HI
    lost = fma(f2, T.LN2_LO, fma(f2, T.LN2_HI, -r))
    core = scaled(fma(r * r, polynomial(r, T.EXP), r + lost) + 1.0, as_integer(n, T), T)
    grows = (size > 1.0) == (b > 0.0)
    edge = (size == 0.0) | (size == math.inf) | (abs(b) == math.inf)
    magnitude = where(edge, where(grows, T.dtype(math.inf), T.dtype(0)), core)
    magnitude = where((size == 1.0) | (b == 0.0), T.dtype(1), magnitude)
    whole = floor(b) == b
    odd = whole & (abs(b) < math.inf) & (2.0 * floor(0.5 * b) != b)
    negative = bitcast(a, T.integer) < 0
    signed = where(negative & odd, -magnitude, magnitude)
    result = where((a < 0.0) & (size < math.inf) & ~whole, T.dtype(math.nan), signed)
    unknown = ((a != a) & (b != 0.0)) | ((b != b) & (a != 1.0))
    return where(unknown, T.dtype(math.nan), result)
