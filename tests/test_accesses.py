"""prg.accesses: what a launch does to each buffer, as compilers find it out or users say it."""

from __future__ import annotations

import numpy as np
import pytest
from third_party.mini import MiniDevice
from third_party.suite import SOURCE

from hcq import Device
from hcq.drivers.cpu.library import EntryKind, Function, Param, ParamKind, pack, unpack
from hcq.errors import LaunchError

C_SOURCE = """
typedef const float *reads;
typedef float vec __attribute__((vector_size(16)));
struct point { float x, y; };
void f(float *out, const float *a, float *restrict b, const float *restrict c, reads d, const float *const e,
       volatile const int *g, void *h, const void *i, const vec *j, float (*k)[4], const struct point *l, int n) {}
"""

IR_SOURCE = """
define void @f(ptr %out, ptr %in, ptr %both, ptr readonly %said, ptr %unused, i32 %n) {
  %x = load i32, ptr %in
  store i32 %x, ptr %out
  %y = load i32, ptr %both
  store i32 %y, ptr %both
  ret void
}
define void @stacked(ptr %a) {
  %slot = alloca ptr
  store ptr %a, ptr %slot
  %p = load ptr, ptr %slot
  %x = load volatile i32, ptr %p
  ret void
}
"""


@pytest.fixture
def clang():
    return Device["CLANG"]


def test_c_pointers_to_const_are_read_and_others_written_too(clang):
    f = clang.program("f", C_SOURCE)
    #             out   a    b     c    d    e    g    h     i    j    k     l
    expected = ("rw", "r", "rw", "r", "r", "r", "r", "rw", "r", "r", "rw", "r")
    assert f.accesses == expected


def test_llvm_looks_at_the_code():
    llvm = Device["LLVM"]
    assert llvm.program("f", IR_SOURCE).accesses == ("w", "r", "rw", "r", "r")
    assert llvm.program("stacked", IR_SOURCE).accesses[0] in ("r", "rw")


def test_a_pointer_that_goes_elsewhere_counts_as_written():
    source = "declare i32 @puts(ptr)\ndefine void @f(ptr %a) {\n  %x = call i32 @puts(ptr %a)\n  ret void\n}\n"
    assert Device["LLVM"].program("f", source).accesses == ("rw",)


def test_what_nothing_recorded_is_not_known_and_can_be_told():
    null = Device["NULL"]
    prg = null.program("anything", "")
    assert prg.accesses is None
    prg.accesses = ["w", "r", None]
    assert prg.accesses == ("w", "r", None)
    prg.accesses = None
    assert prg.accesses is None


def test_what_is_told_is_checked(clang):
    f = clang.program("f", "void f(float *out, const float *a) {}")
    with pytest.raises(ValueError, match="takes 2"):
        f.accesses = ("r",)
    with pytest.raises(ValueError, match="'r', 'w', 'rw' or None"):
        f.accesses = ("r", "x")
    assert f.accesses == ("rw", "r")
    f.accesses = ("w", "r")
    assert f.accesses == ("w", "r")


def test_libraries_carry_accesses():
    params = (Param(ParamKind.POINTER, "a", "r"), Param(ParamKind.POINTER, "b", "w"), Param(ParamKind.POINTER, "c"))
    library = pack(bytes(64), [Function("f", EntryKind.PLAIN, params)], machine=62)
    assert unpack(library).functions[0].params == params


def test_signatures_name_every_kind_of_parameter():
    source = "define void @f(ptr %a, i8 %b, i16 %c, i32 %d, i64 %e, float %g, i1 %h) {\n  ret void\n}\n"
    kinds = [kind for kind, _ in Device["LLVM"].program("f", source).signature]
    assert kinds == ["pointer", "bits8", "bits16", "bits32", "bits64", "float32", "bool"]


def test_a_read_only_array_that_is_written_is_refused_before_anything_is_queued(clang):
    f = clang.program("f", "void f(int *out, const int *a) { out[0] = a[0] + 1; }")
    out, given = np.zeros(1, np.int32), np.full(1, 4, np.int32)
    given.flags.writeable = False
    f(out, given)
    assert out[0] == 5
    for launch in (f, f.prepare):
        with pytest.raises(LaunchError, match=r"array 0 is read-only, and f writes it"):
            launch(given, out)
    f.accesses = (None, "r")
    with pytest.raises(LaunchError, match="nothing says whether f writes it"):
        f(given, out)
    f.accesses = ("r", "r")  # the user's word: what is written after all goes to a copy
    f(given, out)
    assert given[0] == 4


def test_a_driver_in_python_refuses_a_read_only_array_that_is_written():
    Device.register("READING", MiniDevice)
    try:
        add = Device["READING"].program("add", SOURCE)
        sums, given = np.zeros(4, np.int32), np.arange(4, dtype=np.int32)
        given.flags.writeable = False
        for accesses, said in ((None, "nothing says"), (("w", "r", "r"), "array 0 is read-only, and add writes it")):
            add.accesses = accesses
            with pytest.raises(LaunchError, match=said):
                add(given, sums, sums, vals=(4,))
        add(sums, given, given, vals=(4,))
        assert sums.tolist() == [0, 2, 4, 6]
    finally:
        Device.close("READING")
        Device.unregister("READING")


def test_portable_kernels_in_c_say_which_buffers_they_only_read():
    """So a library of one tells it to graphs and checks, wherever it is loaded."""
    from hcq.testing.kernels.portable import add

    dev = Device["CLANG"]
    program = dev.program("add", add.source("c"))
    assert list(program.accesses) in (["rw", "r", "r"], ["w", "r", "r"])
