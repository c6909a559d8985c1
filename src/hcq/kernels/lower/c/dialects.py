"""The languages of the C family, one table each: how C, OpenCL C, CUDA C and Metal spell what kernels are made of.

Scalars are called i8 to u64, f32 and f64 in all of them, and m_NAME in memory, by typedefs at the head. What does not
live here: operations written from these (ops, prelude), statements (flow, writer).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


def _atomics(template: str, words: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Templates of atomic operations by `HOW_TYPE`."""
    hows = ("add", "min", "max", "and", "or", "xor", "exchange")
    return {f"{how}_{name}": template.format(words.get(how, how)) for how in hows for name in names}


class Dialect(NamedTuple):
    """One language. Templates have places for operands: {0}, {1}, {2}.

    `head` begins each text; `types` spell the typedefs; `alias` follows those of memory. `kernel` and `function` stand
    before a kernel's and a helper's name; `spaces` before a pointer's element, by space; `arrays` before an array's.
    `ids` are templates of a dimension, by kind. `f32` and `f64` give each operation, `counts` popcount and clz of u32
    and u64; `swap` compare-and-exchange of u32 and u64, by pointer, expected and new value; `fetch` what atomics there
    are besides. `long` ends constants of 64 bits. `scalars_by_reference`: numbers are passed in constant
    memory. `tail` follows a parameter, by its number; `inputs` are further parameters. `subgroup` and `shuffle` are
    empty where a language has no sub-groups. `is_on_processor`: items are called one
    after the other.
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
    inputs: tuple[str, ...] = ()
    is_on_processor: bool = False
    subgroup: Mapping[str, str] = {}
    shuffle: Mapping[str, str] = {}


C: Final = Dialect(
    name="c",
    head="""\
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("-ffp-contract=off")
#else
#pragma STDC FP_CONTRACT OFF
#pragma clang diagnostic ignored "-Weverything"
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
    is_on_processor=True,
)

OPENCL: Final = Dialect(
    name="opencl",
    # Division and square root of f32 are correctly rounded where a program is built with
    # -cl-fp32-correctly-rounded-divide-sqrt; f64 and 64-bit atomics are extensions of a device.
    head="""\
#pragma OPENCL FP_CONTRACT OFF
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#ifdef cl_khr_int64_base_atomics
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable
#endif
""",
    types={**_SHORT, **_FLOATS, "i8": "char", "u8": "uchar", "u16": "ushort"},
    kernel="__kernel void",
    function="static",
    spaces={"global": "__global ", "local": "__local ", "private": "__private "},
    arrays={"local": "__local ", "private": ""},
    ids={kind: f"(i32)get_{kind}({{0}})" for kind in ("group_id", "num_groups", "local_id", "local_size")},
    barrier="barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    f32={**_SAME, **_calls(_NAMED)},
    f64={**_SAME, **_calls(_NAMED)},
    infinity="INFINITY",
    nan="NAN",
    counts={"popcount": ("popcount({0})",) * 2, "clz": ("clz({0})",) * 2},
    bitcast="",
    half_from="  return vload_half(0, (const __private half *)&a);",
    half_to="  u16 bits;\n  vstore_half_rte(a, 0, (__private half *)&bits);\n  return bits;",
    swap={"u32": "{1} = atomic_cmpxchg({0}, {1}, {2})", "u64": "{1} = atom_cmpxchg({0}, {1}, {2})"},
    fetch={
        **_atomics("atomic_{0}({{0}}, {{1}})", {"exchange": "xchg"}, ("i32", "u32")),
        **_atomics("atom_{0}({{0}}, {{1}})", {"exchange": "xchg"}, ("i64", "u64")),
        "exchange_f32": "atomic_xchg({0}, {1})",
    },
    boolean_parameter="uchar",
    long="l",
)

_CUDA_ATOMICS: Final = dict(add="Add", min="Min", max="Max", xor="Xor", exchange="Exch", **{"and": "And", "or": "Or"})
_CUDA_LINEAR: Final = "((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x)"

CUDA: Final = Dialect(
    name="cuda",
    head="",
    types={**_LONG, **_FLOATS},
    kernel='extern "C" __global__ void __launch_bounds__(1024)',  # any group size may be launched
    function="static __device__ __forceinline__",
    spaces={"global": "", "local": "", "private": ""},
    arrays={"local": "__shared__ ", "private": ""},
    ids={
        "group_id": "(i32)blockIdx.{1}",
        "num_groups": "(i32)gridDim.{1}",
        "local_id": "(i32)threadIdx.{1}",
        "local_size": "(i32)blockDim.{1}",
    },
    barrier="__syncthreads();",
    # The compiler contracts operators, never these.
    f32={
        **_calls(_NAMED, after="f"),
        **{code: f"__f{code}_rn({{0}}, {{1}})" for code in _SAME},
        "sqrt": "__fsqrt_rn({0})",
        "fma": "__fmaf_rn({0}, {1}, {2})",
    },
    f64={
        **_calls(_NAMED),
        **{code: f"__d{code}_rn({{0}}, {{1}})" for code in _SAME},
        "sqrt": "__dsqrt_rn({0})",
        "fma": "__fma_rn({0}, {1}, {2})",
    },
    infinity="__int_as_float(0x7f800000)",
    nan="__int_as_float(0x7fc00000)",
    counts={"popcount": ("__popc({0})", "__popcll({0})"), "clz": ("__clz({0})", "__clzll({0})")},
    bitcast="",
    half_from='  f32 value;\n  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(a));\n  return value;',
    half_to='  u16 bits;\n  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(a));\n  return bits;',
    swap={
        "u32": "{1} = atomicCAS((unsigned *){0}, {1}, {2})",
        "u64": "{1} = atomicCAS((unsigned long long *){0}, {1}, {2})",
    },
    fetch={
        **_atomics("atomic{0}({{0}}, {{1}})", _CUDA_ATOMICS, ("i32", "u32", "u64")),
        "add_f64": "atomicAdd({0}, {1})",
        "exchange_f32": "atomicExch({0}, {1})",
    },
    subgroup={"size": "32", "lane": f"(i32)({_CUDA_LINEAR} % 32)", "index": f"(i32)({_CUDA_LINEAR} / 32)"},
    shuffle={
        "index": "__shfl_sync(__activemask(), {0}, {1})",
        **{how: f"__shfl_{how}_sync(__activemask(), {{0}}, {{1}})" for how in ("xor", "up", "down")},
    },
)

_METAL_ATOMIC: Final = "atomic_{{0}}_explicit(({{{{space}}}}atomic_{} *)({{{{0}}}}), {{{{1}}}}, memory_order_relaxed)"
_METAL_WORDS: Final = {how: f"fetch_{how}" for how in ("add", "min", "max", "and", "or", "xor")}

METAL: Final = Dialect(
    name="metal",
    head="""\
#include <metal_stdlib>
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
using namespace metal;
""",
    types={**_SHORT, "f32": "float", "i8": "char", "u8": "uchar", "u16": "ushort"},
    kernel="kernel void",
    function="static inline",
    spaces={"global": "device ", "local": "threadgroup ", "private": "thread "},
    arrays={"local": "threadgroup ", "private": ""},
    ids={kind: f"(i32)hcq_{kind}[{{0}}]" for kind in ("group_id", "num_groups", "local_id", "local_size")},
    barrier="threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);",
    f32={**_SAME, **_calls(_NAMED, "precise::"), **_calls({"abs": "fabs", "copysign": "copysign", "fma": "fma"})},
    f64={},
    infinity="INFINITY",
    nan="NAN",
    counts={"popcount": ("popcount({0})",) * 2, "clz": ("clz({0})",) * 2},
    bitcast="as_type<{0}>(a)",
    half_from="  return (f32)as_type<half>(a);",
    half_to="  return as_type<u16>((half)a);",
    # The weak exchange may fail without a reason.
    swap={
        "u32": "for (u32 wanted = {1}; !atomic_compare_exchange_weak_explicit(({space}atomic_uint *){0}, &{1}, {2}, "
        "memory_order_relaxed, memory_order_relaxed) && {1} == wanted;) {{}}"
    },
    fetch={
        **_atomics(_METAL_ATOMIC.format("int"), _METAL_WORDS, ("i32",)),
        **_atomics(_METAL_ATOMIC.format("uint"), _METAL_WORDS, ("u32",)),
    },
    boolean_parameter="uchar",
    long="l",
    scalars_by_reference=True,
    tail=" [[buffer({0})]]",
    inputs=(
        "uint3 hcq_group_id [[threadgroup_position_in_grid]]",
        "uint3 hcq_num_groups [[threadgroups_per_grid]]",
        "uint3 hcq_local_id [[thread_position_in_threadgroup]]",
        "uint3 hcq_local_size [[threads_per_threadgroup]]",
        "uint hcq_lane [[thread_index_in_simdgroup]]",
        "uint hcq_index [[simdgroup_index_in_threadgroup]]",
        "uint hcq_size [[threads_per_simdgroup]]",
    ),
    subgroup={kind: f"(i32)hcq_{kind}" for kind in ("size", "lane", "index")},
    shuffle={
        "index": "simd_shuffle({0}, (ushort)({1}))",
        **{how: f"simd_shuffle_{how}({{0}}, (ushort)({{1}}))" for how in ("xor", "up", "down")},
    },
)

DIALECTS: Final = {each.name: each for each in (C, OPENCL, CUDA, METAL)}
