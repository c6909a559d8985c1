"""Loading of objects: sections, symbols and relocations as compilers write them, and what is refused with a reason."""

from __future__ import annotations

import math
import os
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
from cpu_code import COMPILERS, launch, pack_kernargs, use_compiler

import hcq
from hcq import _native
from hcq.drivers.cpu import elf, object_library, toolchain
from hcq.drivers.cpu.library import EntryKind, Function, pack, unpack
from hcq.errors import InvalidProgram


@pytest.fixture(params=COMPILERS)
def compiler(request, monkeypatch):
    return use_compiler(request.param, monkeypatch)


def make(source, *flags):
    """A library compiled with further flags."""
    return object_library.make_library(toolchain.compile_object(toolchain.find_c_compiler(), source, flags).object)


EVERYTHING = """
#include <math.h>
#include <string.h>
#include <stdio.h>
static int counter = 5;
int zeroes[1000];
int shared_name = 17;
const char *const names[] = {"zero", "one", "two"};
static double (*const operations[])(double) = {sin, cos, exp};
static double (*changing[])(double) = {floor, ceil};
extern int nobody_has_this(void) __attribute__((weak));
__attribute__((noinline)) static int choose(int x) {
  switch (x) { case 0: return 7; case 1: return 11; case 2: return 13; case 3: return 17; case 4: return 19;
               case 5: return 23; case 6: return 1000; case 7: return 3; default: return -1; }
}
__attribute__((noinline)) double exported(double x) { return x * shared_name; }
void f(double *out, int n) {
  char text[32];
  out[0] = operations[n % 3](0.5);
  out[1] = strlen(names[n % 3]);
  out[2] = choose(n);
  out[3] = ++counter;
  zeroes[n] += 3;
  out[4] = zeroes[n] + zeroes[999];
  out[5] = exported(2);
  out[6] = nobody_has_this != 0;
  out[7] = snprintf(text, sizeof text, "%d-%s", n, names[1]);
  out[8] = changing[n % 2](1.5);
  memset(text, n, sizeof text);
  out[9] = text[31];
}
"""


@pytest.mark.parametrize(
    "flags", [(), ("-O0",), ("-O2", "-fplt"), ("-Os", "-fvisibility=default"), ("-mcmodel=large",)]
)
def test_objects_of_every_shape_run(compiler, flags):
    function = _native._Function(library := make(EVERYTHING, *flags), "f")
    for call in range(1, 3):
        out = np.zeros(10)
        function.run(pack_kernargs(library, "f", out, 4))
        assert out.tolist() == [math.cos(0.5), 3, 19, 5 + call, 3 * call, 34, 0, 5, 1, 4]


def test_each_load_has_variables_of_its_own(compiler):
    library = compiler.compile("static int n = 3; void f(int *out) { *out = n++; }")
    first, second = _native._Function(library, "f"), _native._Function(library, "f")
    out = np.zeros(1, "i4")
    for function, expected in ((first, 3), (first, 4), (second, 3), (first, 5)):
        function.run(struct.pack("<Q", out.ctypes.data))
        assert out[0] == expected


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            "int nowhere(int); int gone; void f(int *p) { *p = nowhere(1); }",
            "needs 'nowhere', which is defined neither",
        ),
        ("extern int a_(void), b_(void); void f(int *p) { *p = a_() + b_(); }", "'a_', 'b_'"),
        ("static _Thread_local int t = 4; void f(int *p) { *p = t++; }", "thread-local"),
        ("extern _Thread_local int t; void f(int *p) { *p = t; }", "thread-local variable 't'"),
        (
            "int rand(void), n; __attribute__((constructor)) void c(void) { n = rand(); } void f(int *p) { *p = n; }",
            "constructors",
        ),
        (
            """#include <hcq.h>
            static __attribute__((noinline)) void g(int *p) { HCQ_LOCAL int t; t = *p; hcq_barrier(); *p = t; }
            void (*table[2])(int *) = {g};
            HCQ_KERNEL void f(int *p) { table[*p](p); }""",
            "make it const",
        ),
    ],
)
def test_what_cannot_be_loaded_says_why(compiler, source, reason):
    library = compiler.compile(source)
    with pytest.raises(InvalidProgram, match=f"function 'f': cannot load the object: .*{reason}"):
        _native._Function(library, "f")


def test_code_that_must_lie_at_a_fixed_place_is_refused(compiler):
    library = make("int n[9]; int *f_(int i) { return &n[i]; } void f(void) {}", "-fno-pic", "-mcmodel=small")
    if "x86" not in os.uname().machine:
        pytest.skip("aarch64 code is position-independent anyway")
    with pytest.raises(InvalidProgram, match="-fPIC"):
        _native._Function(library, "f")


def test_an_unknown_relocation_is_named_by_its_number(compiler):
    made = unpack(compiler.compile("extern int rand(void); void f(int *p) { *p = rand(); }"))
    obj = elf.Object(made.object)
    text = next(section for section in obj.sections if section.type == elf.SHT_RELA and section.size)
    image = bytearray(made.object)
    struct.pack_into("<I", image, text.offset + 8, 199)  # the low half of r_info
    with pytest.raises(InvalidProgram, match=r"relocation type 199 in .* is not supported"):
        _native._Function(pack(bytes(image), list(made.functions)), "f")


def test_tables_of_functions_reach_each_groups_own_local_memory(compiler):
    library = compiler.compile("""
        #include <hcq.h>
        static __attribute__((noinline)) void put(int v) { HCQ_LOCAL int here[1]; here[0] = v; }
        static int *place(void) { HCQ_LOCAL int tile[4]; return tile; }
        static void (*const table[])(int) = {put, put};
        static int *(*const places[])(void) = {place};
        HCQ_KERNEL void f(int *out, int rounds) {
          int g = hcq_group_id(0), ok = 1;
          for (int i = 0; i < rounds; ++i) {
            table[i % 2](g);
            *(volatile int *)places[0]() = g + i;
            hcq_barrier();
            ok &= *(volatile int *)places[0]() == g + i;
            hcq_barrier();
          }
          out[g] = ok;
        }""")
    function = _native._Function(library, "f")
    out = np.zeros(16, "i4")
    kernargs = pack_kernargs(library, "f", out, 2000)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: function.run(kernargs, [16, 1, 1], [2, 1, 1], 4 * i, 4 * i + 4), range(4)))
    assert out.tolist() == [1] * 16


def test_functions_of_unknown_parameters_take_slots(compiler):
    params = ", ".join(f"long v{i}" for i in range(40))
    body = " ".join(f"out[{i}] = v{i};" for i in range(40))
    library = make(f"void f(long *out, {params}) {{ {body} }} void g(void) {{}}", "-g0")
    assert [function.params for function in unpack(library).functions] == [None, None]
    out = np.zeros(40, "i8")
    launch(library, "f", out, *range(-20, 20))
    assert out.tolist() == list(range(-20, 20))
    launch(library, "g")


def test_conversions_of_half_width_floats_round_as_ieee_says(compiler):
    # Passed as the float whose low bits they are, which is the register they travel in.
    library = compiler.compile("""
        extern float __extendhfsf2(float), __truncsfhf2(float), __truncdfhf2(double), __truncsfbf2(float),
                     __truncdfbf2(double), __extendbfsf2(float);
        union bits { float f; unsigned u; };
        static float in(unsigned short h) { union bits b = {.u = h}; return b.f; }
        static unsigned short out(float f) { union bits b = {.f = f}; return b.u; }
        void widen(float *half, float *brain) {
          for (int i = 0; i < 65536; ++i) half[i] = __extendhfsf2(in(i)), brain[i] = __extendbfsf2(in(i));
        }
        void narrow(unsigned short *half, unsigned short *half_d, unsigned short *brain, unsigned short *brain_d,
                    const float *x, const double *d, int n) {
          for (int i = 0; i < n; ++i) {
            half[i] = out(__truncsfhf2(x[i])), half_d[i] = out(__truncdfhf2(d[i]));
            brain[i] = out(__truncsfbf2(x[i])), brain_d[i] = out(__truncdfbf2(d[i]));
          }
        }""")
    every = np.arange(65536, dtype="u2")
    half, brain = np.zeros(65536, "f"), np.zeros(65536, "f")
    launch(library, "widen", half, brain)
    np.testing.assert_array_equal(half, every.view(np.float16).astype("f"))
    np.testing.assert_array_equal(brain, every.view(ml_dtypes.bfloat16).astype("f"))

    with np.errstate(all="ignore"):
        random = np.random.default_rng(1)
        exact = np.concatenate([half, brain])
        x = [random.integers(0, 2**32, 100_000, dtype="u8").astype("u4").view("f"), exact, (exact[:-1] + exact[1:]) / 2]
        x = np.concatenate([*x, np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(-np.inf))])
        x = x[~np.isnan(x)]
        d = np.nextafter(x.astype("d"), np.inf)
        expected = [x.astype(np.float16), d.astype(np.float16), x.astype(ml_dtypes.bfloat16)]
    got = [np.zeros(x.size, "u2") for _ in range(4)]
    launch(library, "narrow", *got, x, d, x.size)
    for mine, theirs in zip(got, expected, strict=False):
        np.testing.assert_array_equal(mine, theirs.view("u2"))
    # NumPy has no direct way from double to bfloat16: no neighbour may be nearer.
    widen = dict(enumerate(map(float, brain.tolist())))
    for bits, value in zip(got[3][::50].tolist(), d[::50].tolist(), strict=True):
        if math.isfinite(value) and math.isfinite(widen[bits]):
            around = [widen[bits + side & 0xFFFF] for side in (-1, 1)]
            assert all(abs(widen[bits] - value) <= abs(other - value) for other in around if math.isfinite(other))


def test_libraries_name_what_is_wrong_with_them(compiler):
    library = compiler.compile("void f(void) {}")
    image = unpack(library).object
    for broken, reason in [
        (b"", "not a CPU library"),
        (b"\x7fELF" + library[4:], "not a CPU library"),
        (library[:20], "ends within its header"),
        (library[:-1], "bytes instead of"),
        (library[:100] + bytes([library[100] ^ 1]) + library[101:], "checksum"),
        (pack(image, [Function("g", EntryKind.PLAIN)]), "which its object doesn't define"),
        (pack(image, [Function("f", EntryKind.PLAIN)], machine=40), "library for an unknown processor"),
        (pack(b"no object at all", [Function("f", EntryKind.PLAIN)], machine=unpack(library).machine), "isn't ELF"),
        (library[:8] + struct.pack("<I", 99) + library[12:], "format 99"),
        (pack(image, []), "it has none"),
    ]:
        with pytest.raises(InvalidProgram, match=reason):
            _native._Function(broken, "g" if b"g" in broken[48:70] else "f")


def test_group_entries_are_given_ids_and_scratch(compiler):
    made = toolchain.compile_object(
        toolchain.find_c_compiler(),
        """struct group { unsigned id[3], groups[3], size[3], reserved; unsigned char *scratch; };
        void f(const unsigned char *kernargs, const struct group *g) {
          unsigned *out = *(unsigned **)kernargs;
          unsigned at = (g->id[2] * g->groups[1] + g->id[1]) * g->groups[0] + g->id[0];
          for (int i = 0; i < 1000; ++i) g->scratch[i] = at;
          out[at] = g->scratch[999] + 100 * (g->size[0] + g->size[1] + g->size[2]) + 10000 * ((long)g->scratch % 64);
        }
        void p(const unsigned char *kernargs) { **(unsigned **)kernargs = 7; }""",
    )
    functions = [
        Function("f", EntryKind.GROUP, (), scratch_group=1024, scratch_item=16),
        Function("p", EntryKind.PACKED, ()),
    ]
    library = pack(made.object, functions)
    out = np.zeros(24, "u4")
    kernargs = struct.pack("<Q", out.ctypes.data)
    _native._Function(library, "f").run(kernargs, [2, 3, 4], [5, 6, 7])
    assert out.tolist() == [i + 1800 for i in range(24)]
    _native._Function(library, "p").run(kernargs)
    assert out[0] == 7
    greedy = pack(made.object, [Function("f", EntryKind.GROUP, (), scratch_item=1 << 20)])
    with pytest.raises(InvalidProgram, match="local memory"):
        _native._Function(greedy, "f")


def test_loading_and_dropping_leaves_nothing_behind(compiler):
    source = """
        #include <hcq.h>
        int data[50000] = {1};
        HCQ_KERNEL void f(int *out) {
          HCQ_LOCAL int t[4096];
          t[hcq_local_id(0)] = data[1];
          hcq_barrier();
          *out = t[0];
        }"""
    library = compiler.compile(source)
    out = np.zeros(1, "i4")
    kernargs = struct.pack("<Q", out.ctypes.data)

    def once():
        _native._Function(library, "f").run(kernargs, [4, 1, 1], [8, 1, 1])

    def held():
        with open("/proc/self/statm") as statm, open("/proc/self/maps") as maps:
            return int(statm.read().split()[1]), len(maps.readlines()), len(os.listdir("/proc/self/fd"))

    for _ in range(50):
        once()
    pages, maps, files = held()
    for _ in range(500):
        once()
    after = held()
    assert after[0] - pages < 512
    assert after[1] - maps <= 2
    assert after[2] == files


FORK = """
import os, struct, sys
import numpy as np
import hcq.errors
from hcq import _native
library = open(sys.argv[1], "rb").read()
out = np.zeros(1, "i4")
def run(function):
    function.run(struct.pack("<Q", out.ctypes.data), [2, 1, 1], [4, 1, 1])
    return out[0]
inherited = _native._Function(library, "f")
assert run(inherited) == 8
child = os.fork()
if child == 0:
    try:
        run(inherited)
        os._exit(1)
    except hcq.errors.ForkedDeviceError:
        pass
    fresh = [_native._Function(library, "f") for _ in range(20)]
    assert all(run(function) == 8 for function in fresh)
    del inherited, fresh
    os._exit(7)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7
others = [_native._Function(library, "f") for _ in range(20)]
assert all(run(function) == 8 for function in [inherited, *others])
"""


def test_a_forked_child_loads_anew_and_harms_nothing(compiler, tmp_path):
    library = compiler.compile("""
        #include <hcq.h>
        HCQ_KERNEL void f(int *out) {
          HCQ_LOCAL int t;
          t = 2;
          hcq_barrier();
          if (hcq_local_id(0) == 0) *out = t * hcq_local_size(0);
        }""")
    path = tmp_path / "f.lib"
    path.write_bytes(library)
    done = subprocess.run([sys.executable, "-c", FORK, str(path)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("count", "loads"), [(1 << 18, True), ((1 << 18) + 1, False), (67108864, False)])
def test_a_c_program_with_more_local_memory_than_the_limit_is_refused(compiler, count, loads):
    device = hcq.Device["CLANG"]
    library = compiler.compile(f"""
        #include <hcq.h>
        HCQ_KERNEL void f(int *out) {{ HCQ_LOCAL int t[{count}]; t[*out] = 7; hcq_barrier(); *out = t[out[1]]; }}""")
    if loads:
        assert count * 4 == device.limits.local_memory_bytes
        device.runtime("f", library)
        return
    limit = device.limits.local_memory_bytes
    with pytest.raises(InvalidProgram, match=rf"function 'f'.* {count * 4} bytes of local memory.* at most {limit} "):
        device.runtime("f", library)


@pytest.mark.parametrize("name", ["CLANG", "LLVM"])
def test_a_program_without_a_library_is_refused(name):
    with pytest.raises(InvalidProgram, match="'k' needs a library"):
        hcq.Device[name].runtime("k", None)
