"""LLVM called without llvmlite.binding: the same functions, declared alike, and the same code of the same modules."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("llvmlite", reason="the LLVM device needs llvmlite")

from hcq.drivers.cpu import llvm_functions
from hcq.drivers.cpu.compiler_llvm import installed_version

pytestmark = pytest.mark.skipif(
    not (installed_version() or "").startswith(llvm_functions.RELEASES),
    reason="needs a release of llvmlite whose library is known",
)

PLAIN = "define void @plain(ptr %p, i32 signext %n, i1 zeroext %b) { store i32 %n, ptr %p ret void }"
GRID = """
%pair = type { float, i32 }
@table = internal constant [2 x i32] [i32 1, i32 2]
@tile = internal addrspace(3) global [64 x float] undef, align 16
declare i32 @hcq.local_id(i32)
declare void @hcq.barrier()
define internal float @half(float %v) noinline { %h = fmul float %v, 0.5 ret float %h }
define linkonce_odr void @grid(ptr noalias readonly %x, ptr %y, i64 %n) "prefer-vector-width"="128" {
  %i = call i32 @hcq.local_id(i32 0)
  %kept = alloca %pair
  %from = getelementptr float, ptr %x, i32 %i
  %v = load float, ptr %from
  %w = call float @half(float %v)
  store float %w, ptr %kept
  %into = getelementptr [64 x float], ptr addrspace(3) @tile, i32 0, i32 %i
  store float %w, ptr addrspace(3) %into
  call void @hcq.barrier()
  %j = xor i32 %i, 1
  %other = getelementptr [64 x float], ptr addrspace(3) @tile, i32 0, i32 %j
  %z = load float, ptr addrspace(3) %other
  %a = load float, ptr %kept
  %s = fadd float %z, %a
  %to = getelementptr float, ptr %y, i32 %i
  store float %s, ptr %to
  ret void
}
"""
REFUSED = (
    "this is no LLVM IR",
    "define void @f(ptr %p) { store i32 %q, ptr %p ret void }",
    "define void @f() { %x = add i32 %x, 1 ret void }",
    "define i32 @f(i32 %n) { ret i32 %n }",
    "define void @f(ptr byval(i32) %p) { ret void }",
    "declare void @f(i32, ...)\ndefine void @g(i32 %n, ...) { ret void }",
    'target triple = "aarch64-unknown-linux-gnu"\ndefine void @f() { ret void }',
    "declare i64 @hcq.local_id(i32)\ndefine void @f() { %i = call i64 @hcq.local_id(i32 0) ret void }",
)
MADE = """
import hashlib, json, sys
BEFORE
from hcq.drivers.cpu import llvm_functions, llvm_host
from hcq.drivers.cpu.compiler_llvm import LLVMCompiler
from hcq.errors import CompileError
compiler, made = LLVMCompiler(None), []
for source in json.load(sys.stdin):
    try:
        made.append(hashlib.sha256(compiler.compile(source)).hexdigest())
    except CompileError as error:
        made.append(str(error))
host = llvm_host.host()
print(json.dumps([llvm_host.binding().__name__, "llvmlite" in sys.modules, [*made, *host[:4]]]))
"""


def made_by(before=""):
    code = MADE.replace("BEFORE", before)
    sources = json.dumps([PLAIN, GRID, *REFUSED])
    done = subprocess.run([sys.executable, "-c", code], input=sources, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


UNKNOWN = """
from hcq.drivers.cpu import llvm_functions
llvm_functions.RELEASES = ("0.0.",)
"""


def test_llvm_makes_the_same_of_a_module_with_llvmlite_binding_and_without():
    name, imported, made = made_by()
    assert (name, imported) == ("hcq.drivers.cpu.llvm_library", False)
    assert len(made[0]) == len(made[1]) == 64
    for before in ("import llvmlite.binding", UNKNOWN):  # the second: a release whose library isn't known
        other, imported, same = made_by(before)
        assert (other, imported) == ("llvmlite.binding", True)
        assert same == made


def test_functions_are_declared_as_llvmlite_declares_them():
    import ctypes

    from llvmlite.binding.ffi import lib

    letters = {kind: letter for letter, kind in llvm_functions._TYPES.items() if letter}

    def letter(kind):
        return letters.get(kind, "p" if issubclass(kind, ctypes._Pointer) else "?")

    for name, declared in llvm_functions._FUNCTIONS.items():
        function = getattr(lib, f"LLVMPY_{name}")
        result, _, arguments = declared.partition(":")
        if function.argtypes is not None:  # llvmlite leaves it out where there is none, and here and there else
            assert arguments == "".join(map(letter, function.argtypes)), name
        if result and not (result == "i" and function.restype is ctypes.c_int):  # int is what it leaves out
            assert result == letter(function.restype), name


def test_what_belongs_to_llvm_is_freed_once_and_refused_afterwards():
    code = """
import ctypes
from hcq.drivers.cpu import llvm_host
with llvm_host.LOCK, llvm_host.Session("") as session:
    module = session.parse("@v = global i32 0")
    variable = module.get_global_variable("v")
    assert variable.name == "v" and str(variable.global_value_type) == "i32"
    try:
        module.get_global_variable("w")
    except NameError:
        pass
module.close()
try:
    str(module)
except ctypes.ArgumentError:
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "refused\n", "")
