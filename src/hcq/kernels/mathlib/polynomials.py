"""What all functions are made of: polynomials, and powers of two.

What does not live here: coefficients (formats).
"""

from hcq.kernels.builtins import bitcast, fma, static_range


def polynomial(x, coefficients):
    """coefficients[0] + coefficients[1] * x + ..., by Horner's rule."""
    total = fma(x, coefficients[len(coefficients) - 1], coefficients[len(coefficients) - 2])
    for k in static_range(len(coefficients) - 3, -1, -1):
        total = fma(total, x, coefficients[k])
    return total


def as_integer(n, T):
    """A whole number of a float, no further from 0 than 2**(DIGITS - 2), as an integer: any integer for NaN.

    A conversion that holds to the range costs several times as much.
    """
    return bitcast(n + T.WHOLE, T.integer) - bitcast(T.dtype(T.WHOLE), T.integer)


def power_of_two(n, T):
    """2**n for an integer n whose power is a normal number."""
    return bitcast((n + T.BIAS) << T.DIGITS, T.dtype)


def scaled(y, n, T):
    """y * 2**n, in two steps, so that neither is out of range where the result is not."""
    half = n >> 1
    return y * power_of_two(half, T) * power_of_two(n - half, T)
