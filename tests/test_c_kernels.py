"""Functions in C on the CPU devices: how arguments travel, what kernels see, and what is refused with a reason."""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cpu_code import COMPILERS, launch, use_compiler

from hcq import _native
from hcq.errors import CompileError, InvalidProgram


@pytest.fixture(params=COMPILERS)
def compiler(request, monkeypatch):
    return use_compiler(request.param, monkeypatch)


def test_a_plain_function_gets_buffers_then_values(compiler):
    library = compiler.compile("void f(float *a, const float *b, int n, float s) { while (n--) a[n] = b[n] * s; }")
    a, b = np.zeros(5, "f"), np.arange(5, dtype="f")
    launch(library, "f", a, b, 5, 1.5)
    assert a.tolist() == [0, 1.5, 3, 4.5, 6]


def test_arguments_beyond_the_registers_arrive(compiler):
    kinds = [
        ("int", "i"),
        ("float", "f"),
        ("double", "d"),
        ("signed char", "b"),
        ("unsigned short", "H"),
        ("long", "q"),
    ]
    params = ", ".join(f"{kinds[i % 6][0]} v{i}" for i in range(63))
    body = "".join(f"out[{i}] = v{i};" for i in range(63))
    library = compiler.compile(f"void f(double *out, {params}) {{ {body} }}")
    out = np.zeros(63)
    values = [-i if kinds[i % 6][1] != "H" else i for i in range(63)]
    launch(library, "f", out, *values)
    assert out.tolist() == values


def test_a_missing_function_is_named_with_those_that_are_there(compiler):
    library = compiler.compile("void scale(int *a) { *a = 1; } void shift(int *a) { *a = 2; }")
    with pytest.raises(InvalidProgram, match=r"no function 'scal' .*'scale'.*'shift'.*did you mean 'scale'"):
        _native._Function(library, "scal")


REDUCE = """
#include <hcq.h>
HCQ_KERNEL void sum(float *out, const float *in) {
  HCQ_LOCAL float tile[256];
  unsigned i = hcq_local_id(0);
  tile[i] = in[hcq_group_id(0) * 256 + i];
  for (unsigned half = 128; half > 0; half /= 2) {
    hcq_barrier();
    if (i < half) tile[i] += tile[i + half];
  }
  if (i == 0) out[hcq_group_id(0)] = tile[0];
}
"""


def test_a_barrier_in_a_loop_orders_the_items_of_a_group(compiler):
    library = compiler.compile(REDUCE)
    values = np.arange(8 * 256, dtype="f")
    out = np.zeros(8, "f")
    launch(library, "sum", out, values, groups=(8, 1, 1), items=(256, 1, 1))
    assert out.tolist() == values.reshape(8, 256).sum(axis=1).tolist()


def test_local_memory_is_each_groups_own_while_groups_run_side_by_side(compiler):
    function = _native._Function(compiler.compile(REDUCE), "sum")
    values = np.arange(64 * 256, dtype="f")
    out = np.zeros(64, "f")
    kernargs = struct.pack("<QQ", out.ctypes.data, values.ctypes.data)

    def run(first):
        for _ in range(20):
            function.run(kernargs, [64, 1, 1], [256, 1, 1], first, first + 16)

    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            out[:] = 0
            list(pool.map(run, range(0, 64, 16)))
            assert out.tolist() == values.reshape(64, 256).sum(axis=1).tolist()


def test_ids_and_sizes_cover_three_dimensions(compiler):
    library = compiler.compile("""
        #include <hcq.h>
        HCQ_KERNEL void ids(unsigned *out) {
          unsigned n = 1, at = 0;
          for (int d = 2; d >= 0; --d) {
            at = at * hcq_num_groups(d) * hcq_local_size(d) + hcq_group_id(d) * hcq_local_size(d) + hcq_local_id(d);
          }
          out[at] = at + 1000 * (hcq_local_id(3) == 0 && hcq_group_id(7) == 0 && hcq_num_groups(3) == 1
                                 && hcq_local_size(9) == 1) * n;
        }""")
    out = np.zeros(4 * 2 * 3 * 3 * 2 * 5, "u4")
    launch(library, "ids", out, groups=(4, 2, 3), items=(3, 2, 5))
    assert out.tolist() == [i + 1000 for i in range(out.size)]


def test_items_that_return_early_count_as_arrived(compiler):
    library = compiler.compile("""
        #include <hcq.h>
        HCQ_KERNEL void f(int *out, int keep) {
          HCQ_LOCAL int tile[64];
          int i = hcq_local_id(0);
          tile[i] = i;
          hcq_barrier();
          if (i % 3 == keep) return;
          out[i] += tile[(i + 1) % 64];
          hcq_barrier();
          if (i % 2) return;
          hcq_barrier();
          out[i] += 1000;
        }""")
    for keep in range(4):
        out = np.zeros(64, "i4")
        launch(library, "f", out, keep, items=(64, 1, 1))
        expected = [0 if i % 3 == keep else (i + 1) % 64 + 1000 * (i % 2 == 0) for i in range(64)]
        assert out.tolist() == expected


def test_barriers_work_in_helpers_recursion_and_uniform_conditions(compiler):
    library = compiler.compile("""
        #include <hcq.h>
        static __attribute__((noinline)) int depth(int *tile, int n) {
          if (n == 0) return 0;
          int i = hcq_local_id(0), next = tile[(i + 1) % hcq_local_size(0)];
          hcq_barrier();
          tile[i] = next;
          if (n % 2) hcq_barrier(); else { hcq_barrier(); hcq_barrier(); }
          return 1 + depth(tile, n - 1);
        }
        HCQ_KERNEL void f(int *out, int rounds) {
          HCQ_LOCAL int tile[100];
          int i = hcq_local_id(0);
          tile[i] = i;
          hcq_barrier();
          int n = depth(tile, rounds);
          out[i] = tile[i] * 100 + n;
        }""")
    out = np.zeros(100, "i4")
    launch(library, "f", out, 17, items=(100, 1, 1))
    assert out.tolist() == [(i + 17) % 100 * 100 + 17 for i in range(100)]


def test_values_in_vector_registers_survive_a_barrier(compiler):
    library = compiler.compile("""
        #include <hcq.h>
        HCQ_KERNEL void f(double *out, double a, float b) {
          int i = hcq_local_id(0);
          double v[8];
          for (int k = 0; k < 8; ++k) v[k] = a * i + k;
          float w = b + i;
          hcq_barrier();
          double s = w;
          for (int k = 0; k < 8; ++k) { s += v[k]; hcq_barrier(); }
          out[i] = s;
        }""")
    out = np.zeros(32)
    launch(library, "f", out, 0.5, 2.0, items=(32, 1, 1))
    assert out.tolist() == [8 * 0.5 * i + 28 + 2 + i for i in range(32)]


def test_the_largest_group_runs(compiler):
    library = compiler.compile(REDUCE.replace("256", "1024").replace("128", "512"))
    values = np.arange(2048, dtype="f") % 7
    out = np.zeros(2, "f")
    launch(library, "sum", out, values, groups=(2, 1, 1), items=(1024, 1, 1))
    assert out.tolist() == values.reshape(2, 1024).sum(axis=1).tolist()


def test_grid_kernels_take_arguments_of_every_kind_beyond_the_registers(compiler):
    library = compiler.compile("""
        #include <hcq.h>
        enum mode { OFF, ON };
        typedef const unsigned char byte;
        HCQ_KERNEL void f(double *out, const volatile void *p, signed char a, byte b, short c, unsigned short d, int e,
                          unsigned f, long g, unsigned long h, float i, double j, _Bool k, enum mode l, char m,
                          float x0, float x1, float x2, float x3, float x4, float x5, float x6, float x7) {
          double all[] = {a, b, c, d, e, f, g, h, i, j, k, l, m, x0, x1, x2, x3, x4, x5, x6, x7};
          hcq_barrier();
          if (hcq_local_id(0) == 3) for (int n = 0; n < 21; ++n) out[n] = all[n];
        }""")
    out = np.zeros(21)
    values = [-128, 255, -32768, 65535, -(2**31), 2**32 - 1, -(2**62), 2**63, 0.5, -1e300, True, 1, -3, *range(8)]
    launch(library, "f", out, out, *values, items=(4, 1, 1))
    assert out.tolist() == [float(value) for value in values]


def test_half_width_floats_travel_and_convert(compiler):
    source = """
        void f(_Float16 *out, float *wide, const _Float16 *in, int n, _Float16 scale, float x, _Float16 y, double z) {
          for (int i = 0; i < n; ++i) { out[i] = in[i] * scale; wide[i] = in[i]; }
          out[n] = x; out[n + 1] = y; out[n + 2] = z;
        }"""
    try:
        library = compiler.compile(source)
    except CompileError as error:
        if "_Float16 is not supported" in error.log:
            pytest.skip("this compiler has no _Float16 here")
        raise
    values = np.array([0.5, -2.25, 65504, 6e-8], np.float16)
    out, wide = np.zeros(7, np.float16), np.zeros(4, "f")
    launch(library, "f", out, wide, values, 4, 0.5, 1.1, -3.5, 1e-5)
    expected = [*(values * np.float16(0.5)), np.float16(1.1), np.float16(-3.5), np.float16(1e-5)]
    assert out.tolist() == [float(value) for value in expected]
    assert wide.tolist() == [float(value) for value in values]


def test_a_function_keeps_its_globals_between_launches_and_shares_them_between_groups(compiler):
    library = compiler.compile("""
        #include <hcq.h>
        static int calls = 40;
        HCQ_KERNEL void count(int *out) {
          HCQ_LOCAL int mine;
          mine = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
          hcq_barrier();
          out[hcq_group_id(0)] = mine;
        }""")
    function = _native._Function(library, "count")
    out = np.zeros(8, "i4")
    kernargs = struct.pack("<Q", out.ctypes.data)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: function.run(kernargs, [8, 1, 1], [1, 1, 1], i, i + 1), range(8)))
    assert sorted(out.tolist()) == list(range(41, 49))


def test_a_deep_recursion_fits_the_stack_of_items_without_barriers(compiler):
    library = compiler.compile("""
        #include <hcq.h>
        static __attribute__((noinline)) int sum(volatile char *below, int n) {
          volatile char here[200];
          here[n % 200] = n ? below[0] : 1;
          return n ? here[n % 200] + sum(here, n - 1) : 0;
        }
        HCQ_KERNEL void f(int *out) { volatile char c[1] = {1}; out[hcq_local_id(0)] = sum(c, 8000) != 12345; }""")
    out = np.zeros(4, "i4")
    launch(library, "f", out, items=(4, 1, 1))
    assert out.tolist() == [1] * 4


def test_a_missing_barrier_side_is_no_hang(compiler):
    library = compiler.compile("""
        #include <hcq.h>
        HCQ_KERNEL void f(int *out, int n) {
          for (int i = 0; i < (int)hcq_local_id(0) + n; ++i) hcq_barrier();
          out[hcq_local_id(0)] = 1;
        }""")
    out = np.zeros(64, "i4")
    launch(library, "f", out, 3, items=(64, 1, 1))
    assert out.all()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("struct s { int a, b; }; void f(int *p, struct s v) {}", "parameter v is a struct or union passed by value"),
        ("void f(int *p, long double v) {}", "parameter v is of type long double, which can't be passed"),
        ("void f(int n, int *p) {}", "parameter p is a pointer after a value"),
        ("void f(int *p, ...) {}", "variable number of arguments"),
        ("typedef float v4 __attribute__((vector_size(16))); void f(v4 v) {}", "parameter v is a vector"),
        ("struct s { int a[9]; }; struct s f(int *p) { return (struct s){{0}}; }", "it returns a struct"),
        ("#include <hcq.h>\nHCQ_KERNEL int f(int *p) { return 1; }", r"a kernel \(HCQ_KERNEL\) must return void"),
        ("#include <hcq.h>\nvoid f(int *p) { *p = hcq_group_id(1); }", "isn't marked HCQ_KERNEL"),
        ("#include <hcq.h>\nvoid f(int *p) { hcq_barrier(); }", "isn't marked HCQ_KERNEL"),
        ("#include <hcq.h>\nvoid f(int *p) { HCQ_LOCAL int t[2]; t[*p] = 1; *p = t[0]; }", "isn't marked HCQ_KERNEL"),
    ],
)
def test_what_cannot_be_launched_says_why(compiler, source, reason):
    library = compiler.compile(source + "\nvoid good(int *p) {}")
    with pytest.raises(InvalidProgram, match=f"function 'f' can't be launched: .*{reason}"):
        _native._Function(library, "f")
    with pytest.raises(InvalidProgram, match="'good'"):
        _native._Function(library, "other")
    _native._Function(library, "good")


def test_arguments_have_a_bound(compiler):
    params = ", ".join(f"long v{i}" for i in range(513))
    library = compiler.compile(f"void f({params}) {{}}")
    with pytest.raises(InvalidProgram, match="more than 4096 bytes"):
        _native._Function(library, "f")
    params = ", ".join(f"long v{i}" for i in range(511))
    library = compiler.compile(f"void f(long *out, {params}) {{ *out = v0 + v510; }}")
    out = np.zeros(1, "i8")
    launch(library, "f", out, *range(511))
    assert out[0] == 510
