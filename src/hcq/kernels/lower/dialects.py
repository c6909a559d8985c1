"""The languages of the C family, one table each: how C, OpenCL C, CUDA C and Metal spell what kernels are made of.

Scalars are called i8 to u64, f32 and f64 in all of them, and m_NAME in memory, by typedefs at the head. What does not
live here: operations written from these (c_ops, c_prelude), statements (c).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORDS: Final = {"i8": "signed char", "i16": "short", "i32": "int", "u8": "unsigned char", "u16": "unsigned short"}
_LONG: Final = {**_WORDS, "u32": "unsigned", "i64": "long long", "u64": "unsigned long long"}
_SHORT: Final = {**_WORDS, "u32": "uint", "i64": "long", "u64": "ulong"}
_FLOATS: Final = {"f32": "float", "f64": "double"}

_SAME: Final = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
}
_NAMED: Final = {
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "rint",
    "abs": "fabs",
    "copysign": "copysign",
    "fma": "fma",
    "rem": "fmod",
}
_ARGUMENTS: Final = {"fma": "({0}, {1}, {2})", "copysign": "({0}, {1})", "rem": "({0}, {1})"}


def _calls(names: Mapping[str, str], before: str = "", after: str = "") -> dict[str, str]:
    return {code: f"{before}{name}{after}{_ARGUMENTS.get(code, '({0})')}" for code, name in names.items()}


class Dialect(NamedTuple):
    """One language. Templates have places for operands: {0}, {1}, {2}.

    `head` begins each text; `types` spell the typedefs; `alias` follows those of memory. `kernel` and `function` stand
    before a kernel's and a helper's name; `spaces` before a pointer's element, by space; `arrays` before an array's.
    `ids` are templates of a dimension, by kind. `f32` and `f64` give each operation, `counts` popcount and clz of u32
    and u64; `swap` compare-and-exchange of u32 and u64, by pointer, expected and new value; `fetch` what atomics there
    are besides. `long` ends constants of 64 bits. `scalars_by_reference`: numbers are passed in constant
    memory.
    """

    name: str
    head: str
    types: Mapping[str, str]
    kernel: str
    function: str
    spaces: Mapping[str, str]
    arrays: Mapping[str, str]
    ids: Mapping[str, str]
    barrier: str
    f32: Mapping[str, str]
    f64: Mapping[str, str]
    infinity: str
    nan: str
    counts: Mapping[str, tuple[str, str]]
    bitcast: str
    half_from: str
    half_to: str
    swap: Mapping[str, str]
    fetch: Mapping[str, str]
    alias: str = ""
    boolean: str = "bool"
    long: str = "ll"
    boolean_parameter: str = "bool"
    scalars_by_reference: bool = False
    tail: str = ""


C: Final = Dialect(
    name="c",
    head="""\
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("-ffp-contract=off")
#else
#pragma STDC FP_CONTRACT OFF
#endif
#include <hcq.h>
""",
    types={**_LONG, **_FLOATS},
    kernel="HCQ_KERNEL void",
    function="static inline __attribute__((unused))",
    spaces={"global": "", "local": "", "private": ""},
    arrays={"local": "HCQ_LOCAL ", "private": ""},
    ids={kind: f"(i32)hcq_{kind}({{0}})" for kind in ("group_id", "num_groups", "local_id", "local_size")},
    barrier="hcq_barrier();",
    f32={**_SAME, **_calls(_NAMED, "__builtin_", "f")},
    f64={**_SAME, **_calls(_NAMED, "__builtin_")},
    infinity="__builtin_inff()",
    nan='__builtin_nanf("")',
    counts={
        "popcount": ("__builtin_popcount({0})", "__builtin_popcountll({0})"),
        "clz": ("__builtin_clz({0})", "__builtin_clzll({0})"),
    },
    bitcast="",
    # F16C's instructions by the names that gcc and clang share; aarch64's own; by hand elsewhere.
    half_from="""\
#if defined(__F16C__)
  typedef short hcq_v8 __attribute__((vector_size(16)));
  hcq_v8 v = {(short)a};
  return __builtin_ia32_vcvtph2ps(v)[0];
#elif defined(__aarch64__)
  union { u16 a; __fp16 b; } u;
  u.a = a;
  return (f32)u.b;
#else
  u32 size = a & 0x7fffu, sign = (u32)(a & 0x8000u) << 16;
  union { u32 a; f32 b; } u;
  if (size >= 0x7c00u) u.a = sign | 0x7f800000u | (size & 0x3ffu) << 13;
  else { u.a = size << 13; u.b *= 0x1p+112f; u.a |= sign; }
  return u.b;
#endif
""",
    half_to="""\
#if defined(__F16C__)
  typedef float hcq_v4 __attribute__((vector_size(16)));
  hcq_v4 v = {a};
  return (u16)__builtin_ia32_vcvtps2ph(v, 0)[0];
#elif defined(__aarch64__)
  union { __fp16 a; u16 b; } u;
  u.a = (__fp16)a;
  return u.b;
#else
  union { f32 a; u32 b; } u, r;
  u.a = a;
  u32 sign = u.b >> 16 & 0x8000u, size = u.b & 0x7fffffffu;
  if (size > 0x7f800000u) return (u16)(sign | 0x7e00u);
  if (size >= 0x477ff000u) return (u16)(sign | 0x7c00u);
  if (size < 0x38800000u) { r.b = size; r.a += 0.5f; return (u16)(sign | (r.b - 0x3f000000u)); }
  return (u16)(sign | (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13);
#endif
""",
    swap={
        "u32": "__atomic_compare_exchange_n({0}, &{1}, {2}, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)",
        "u64": "__atomic_compare_exchange_n({0}, &{1}, {2}, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)",
    },
    fetch={
        **{how: f"__atomic_fetch_{how}({{0}}, {{1}}, __ATOMIC_RELAXED)" for how in ("add", "and", "or", "xor")},
        "exchange": "__atomic_exchange_n({0}, {1}, __ATOMIC_RELAXED)",
    },
    alias=" __attribute__((may_alias))",
    boolean="_Bool",
    boolean_parameter="_Bool",
)
DIALECTS: Final = {each.name: each for each in (C,)}
