"""exp, log, sin and the others, written in the kernel language from operations that are exact on every device.

So they give the same bits everywhere, and vectorise where arithmetic does. Each takes its arguments and a format, F32
or F64: `hcq.exp(x)` in a kernel is `exp(x, F32)` inlined, by the type of x; f16 and bf16 are computed in f32, and then
rounded. `ACCURACY` states the error of each. Functions have no types of their own: those of the operands are theirs.

Polynomials are minimax fits on the reduced range (weighted least squares iterated, 50 digits), their coefficients
rounded to the format one after the other. Reductions are those of Cody and Waite, done by fma. What does not live here:
sqrt, fma, floor and whatever else is an operation (hcq.kernels.ir).
"""

from hcq.kernels.mathlib.angles import acos, asin, atan, atan2, cos, sin, tan
from hcq.kernels.mathlib.errors import erf, erfc
from hcq.kernels.mathlib.exponentials import acosh, asinh, atanh, cosh, exp, exp2, expm1, sinh, tanh
from hcq.kernels.mathlib.formats import F32, F64
from hcq.kernels.mathlib.logarithms import log, log1p, log2, log10, pow
from hcq.kernels.mathlib.roots import cbrt, hypot

FORMATS = {"f32": F32, "f64": F64}
"""The format of each type that functions are computed in."""

FUNCTIONS = {
    each.__name__: each
    for each in (
        *(exp, exp2, expm1, log, log2, log10, log1p, pow, sinh, cosh, tanh, asinh, acosh, atanh),
        *(sin, cos, tan, asin, acos, atan, atan2, erf, erfc, cbrt, hypot),
    )
}
"""All of them, by the name they have in kernels."""

ACCURACY = {
    **dict.fromkeys(("cbrt",), 0.6),
    **dict.fromkeys(("log", "log10", "log1p", "exp", "log2", "exp2", "erf"), 1.1),
    **dict.fromkeys(("pow", "acos", "sin", "cos", "cosh", "asinh"), 1.7),
    **dict.fromkeys(("expm1", "acosh", "atanh", "atan", "hypot"), 2),
    **dict.fromkeys(("sinh", "tanh", "asin", "atan2"), 2.6),
    **dict.fromkeys(("tan", "erfc"), 3.5),
}
"""The error in units in the last place, in both formats, that no point tried against mpmath passes. Angles up to 10**5;
results that are subnormal may be off by two of the least numbers instead."""
