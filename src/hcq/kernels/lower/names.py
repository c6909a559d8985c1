"""What a kernel is called in its language: the user's name where every language can have it, else one made of it."""

from __future__ import annotations

import re
from typing import Final

_WORDS: Final = (
    "alignas alignof and asm atomic_int auto bfloat bool break case catch char class compl concept const "
    "constant constexpr continue decltype default delete device do double else enum explicit export extern "
    "false float for fragment friend global goto half if image1d_t image2d_t inline int kernel local long main "
    "metal mutable namespace new noexcept not nullptr operator or private protected ptrdiff_t public register "
    "reinterpret_cast restrict return sampler shader short signed size_t sizeof static struct switch template "
    "this thread threadgroup throw true try typedef typeid typename uchar uint ulong uniform union unsigned "
    "ushort using vertex virtual void volatile wchar_t while xor "
)
"""Words of C, C++, OpenCL C, CUDA C and Metal that a Python function may be called."""

_FUNCTIONS: Final = (
    "abort abs acos acosh acospi add_sat all any asin asinh asinpi assert atan atan2 atan2pi atanh atanpi "
    "barrier bitselect bswap calloc cbrt ceil clamp clock clz copysign cos cosh cospi cross ctz degrees "
    "determinant discard_fragment distance div dot drem erf erfc erfcinv erfinv exit exp exp10 exp2 expm1 "
    "extract_bits fabs faceforward fast_distance fast_length fast_normalize fdim ffs fill_n finite floor fma "
    "fmax fmin fmod fprintf fputs fract free frexp fwrite gamma hadd hypot i0 i1 ilogb index insert_bits "
    "isalpha isascii isdigit isequal isfinite isinf isnan isnormal j0 j1 jn labs ldexp ldiv length lgamma "
    "llabs llrint llround log log10 log1p log2 logb lrint lround mad mad24 mad_hi mad_sat malloc max max3 "
    "median3 memchr min min3 mix modf mul24 mul_hi mulhi nan nearbyint nextafter norm norm3d norm4d normalize "
    "normcdf normcdfinv popcount pow pown powr precise prefetch printf putc putchar puts radians rcbrt realloc "
    "reflect refract remainder remquo reverse_bits rhadd rhypot rindex rint rootn rotate round rsqrt saturate "
    "scalbln scalbn scanf select shuffle shuffle2 sign signbit significand sin sincos sinh sinpi smoothstep "
    "snprintf sprintf sqrt step strcat strchr strcmp strcpy strlen strncmp strncpy sub_sat tan tanh tanpi "
    "tgamma toascii tolower toupper transpose trunc upsample vec_step wait_group_events y0 y1 yn "
)
"""Functions that their compilers know without being told; in C also with an f or l at the end."""

_TAKEN: Final = frozenset(_WORDS.split()) | frozenset(
    each + end for each in _FUNCTIONS.split() for end in ("", "f", "l")
)
_OURS: Final = re.compile(
    r"hcq|_|HCQ|kernel_|m_|[iuf]\d+$|mem(cpy|set|move|cmp)$|(float|double|half|u?char|u?short|u?int|u?long)\d*$"
    r"|(a(tom|tomic|s|sync)|convert|get|half|native|quad|read|simd|sub_group|v(load|store)|work_group|write)(_|\d|[A-Z])"
)
"""Names of ours, and families of names in OpenCL C, CUDA C and Metal."""
_MACROS: Final = re.compile(
    r"NULL|EOF|EDOM|ERANGE|EILSEQ|NAN|INFINITY|BUFSIZ|NDEBUG|MAXFLOAT|DECIMAL_DIG|I|errno|linux|unix|i386|std(in|out|err)"
    r"|(HUGE|M|FP|FLT|DBL|LDBL|HALF|CHAR|CLK|CL|CLOCKS|RAND|EXIT|SEEK|SIG|SSIZE|CUDA|CUDART|METAL|MAX)_\w+"
    r"|U?(S?CHAR|SHRT|INT|LONG|LLONG|SIZE|PTRDIFF|WCHAR|WINT|SIG_ATOMIC|INT(PTR|MAX|(_LEAST|_FAST)?\d+))_(MAX|MIN|WIDTH|C)"
)
"""Macros of their headers, and of compilers that do not keep to the standard's names."""


def is_free(name: str) -> bool:
    """Whether a kernel or parameter can have this name in every language."""
    plain = re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) and name not in _TAKEN
    return bool(plain) and not _OURS.match(name) and not _MACROS.fullmatch(name)


def entry_name(name: str) -> str:
    """The name that a program is loaded by, for the kernel of that name, in every language. ASCII, never a word of the
    language; kernels of different names have different ones."""
    if is_free(name):
        return name
    return "kernel_" + re.sub(r"[^A-Za-z0-9]", lambda match: "__" if match[0] == "_" else f"_{ord(match[0]):x}_", name)
