"""LLVM IR in, libraries out: what can be launched, how arguments travel, what is refused and how the message helps."""

from __future__ import annotations

import importlib.metadata
import os
import pickle
import platform
import struct
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cpu_code import launch

from hcq import Device, _native
from hcq.drivers.cpu import llvm_host, llvm_isolated
from hcq.drivers.cpu.compiler_llvm import LLVMCompiler
from hcq.drivers.cpu.library import EntryKind, ParamKind, unpack
from hcq.errors import CompileError, InvalidProgram, LaunchError


@pytest.fixture
def compiler():
    return LLVMCompiler(cachekey=None)


def functions(library):
    return {function.name: function for function in unpack(library).functions}


def test_a_plain_function_gets_buffers_then_values(compiler):
    library = compiler.compile(
        """
        define void @f(ptr %a, ptr %b, i32 %n, float %s) {
        entry:
          br label %loop
        loop:
          %i = phi i32 [ 0, %entry ], [ %next, %loop ]
          %from = getelementptr float, ptr %b, i32 %i
          %to = getelementptr float, ptr %a, i32 %i
          %x = load float, ptr %from
          %y = fmul float %x, %s
          store float %y, ptr %to
          %next = add i32 %i, 1
          %more = icmp slt i32 %next, %n
          br i1 %more, label %loop, label %done
        done:
          ret void
        }
        """
    )
    a, b = np.zeros(5, "f"), np.arange(5, dtype="f")
    launch(library, "f", a, b, 5, 1.5)
    assert a.tolist() == [0, 1.5, 3, 4.5, 6]


def test_every_kind_of_value_arrives_at_its_natural_alignment(compiler):
    kinds = ["i8", "double", "i16", "i1", "i64", "half", "float", "bfloat", "i32", "i8", "double"]
    stores = []
    for number, kind in enumerate(kinds):
        stores += [
            f"%p{number} = getelementptr i64, ptr %out, i32 {number}",
            f"store {kind} %v{number}, ptr %p{number}",
        ]
    params = ", ".join(f"{kind} %v{number}" for number, kind in enumerate(kinds))
    library = compiler.compile(f"define void @f(ptr %out, {params}) {{\n" + "\n".join(stores) + "\nret void\n}")
    function = functions(library)["f"]
    assert [p.name for p in function.params] == ["out", *(f"v{n}" for n in range(len(kinds)))]
    out = np.zeros((len(kinds), 8), "u1")
    launch(library, "f", out, -3, 2.5, -300, True, 1 << 60, 0.5, 1.25, 0x3FC0, -7, 100, -0.0)
    expected = [
        struct.pack(f"<{f}", v)
        for f, v in zip("bdh?qefHibd", [-3, 2.5, -300, True, 1 << 60, 0.5, 1.25, 0x3FC0, -7, 100, -0.0], strict=True)
    ]
    assert [bytes(row[: len(want)]) for row, want in zip(out, expected, strict=True)] == expected


def test_types_and_names_of_parameters_are_recorded(compiler):
    library = compiler.compile("define void @f(ptr %buf, i8 zeroext %u, i8 signext %s, i32 %0) {\n ret void\n}")
    params = functions(library)["f"].params
    assert [p.kind for p in params] == [ParamKind.POINTER, ParamKind.U8, ParamKind.I8, ParamKind.BITS32]
    assert [p.name for p in params] == ["buf", "u", "s", ""]


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ("define i32 @f() {\n ret i32 1\n}", "returns i32"),
        ("define void @f(i32 %n, ptr %a) {\n ret void\n}", "parameter 2 is a pointer after values"),
        ("define void @f(ptr %a, <4 x float> %v) {\n ret void\n}", "parameter 2 is <4 x float>"),
        ("define void @f(ptr %a, i128 %v) {\n ret void\n}", "parameter 2 is i128"),
        ("define void @f(ptr byval(i64) %a) {\n ret void\n}", "parameter 1 is byval"),
        ("define void @f(ptr %a, ...) {\n ret void\n}", "varying number"),
    ],
)
def test_a_function_that_cannot_be_launched_is_left_out_with_the_reason(compiler, definition, reason):
    library = compiler.compile(definition + "\ndefine void @g() {\n ret void\n}")
    assert reason in functions(library)["f"].refused
    assert not functions(library)["g"].refused
    with pytest.raises(InvalidProgram, match="f.*can't be launched.*" + reason.replace("<4", "<4")):
        _native._Function(library, "f")


def test_a_module_without_anything_to_launch_is_refused_with_the_reasons(compiler):
    with pytest.raises(CompileError, match=r"no function that could be launched.*@f: it returns i32"):
        compiler.compile("define i32 @f() {\n ret i32 1\n}")
    with pytest.raises(CompileError, match="none is defined"):
        compiler.compile("")


def test_a_function_calls_others_of_its_module_and_of_the_math_library(compiler):
    library = compiler.compile(
        """
        declare double @pow(double, double)
        @table = internal constant [3 x double] [double 1.0, double 2.0, double 3.0]
        @scale = internal global double 10.0
        define internal double @helper(double %x) noinline {
          %s = load double, ptr @scale
          %y = call double @pow(double %x, double %s)
          ret double %y
        }
        define void @f(ptr %out, i64 %i) {
          %p = getelementptr [3 x double], ptr @table, i64 0, i64 %i
          %x = load double, ptr %p
          %y = call double @helper(double %x)
          store double %y, ptr %out
          ret void
        }
        define void @set(double %x) {
          store double %x, ptr @scale
          ret void
        }
        """
    )
    out = np.zeros(1)
    launch(library, "f", out, 1)
    assert out[0] == 1024
    assert [f.kind for f in unpack(library).functions] == [EntryKind.PACKED, EntryKind.PACKED]


def test_an_undefined_function_is_named_when_the_program_is_loaded(compiler):
    library = compiler.compile("declare void @nowhere_to_be_found()\ndefine void @f() {\n"
                               " call void @nowhere_to_be_found()\n ret void\n}")  # fmt: skip
    with pytest.raises(InvalidProgram, match="nowhere_to_be_found"):
        _native._Function(library, "f")


def test_a_syntax_error_names_the_line_and_keeps_log_and_source(compiler):
    source = "define void @f() {\n  ret void\n}\ndefine void @g() {\n  retrn void\n}\n"
    with pytest.raises(CompileError, match="line 5, column 3: expected instruction opcode") as caught:
        compiler.compile(source)
    assert "retrn void" in caught.value.log
    assert caught.value.source == source


@pytest.mark.parametrize("source", ["void f(int *a) { *a = 1; }", "#include <hcq.h>\nint x = 1;\nvoid f(int *a) {}"])
def test_c_source_is_told_that_this_device_takes_llvm_ir(compiler, source):
    with pytest.raises(CompileError, match=r"takes LLVM IR.*CPU means LLVM where no C compiler is found"):
        compiler.compile(source)


def test_a_verifier_error_names_the_line(compiler):
    source = textwrap.dedent(
        """\
        define i32 @f(i1 %c) {
          br i1 %c, label %a, label %b
        a:
          %x = add i32 1, 2
          br label %b
        b:
          ret i32 %x
        }
        """
    )
    with pytest.raises(CompileError, match=r"line \d+: Instruction does not dominate all uses") as caught:
        compiler.compile(source)
    assert "%x" in caught.value.log


@pytest.mark.parametrize("source", [b"\xff\xfe", "define void @f() {\n ret void\n}\0garbage", "\ud800"])
def test_what_is_no_text_is_refused(compiler, source):
    with pytest.raises(CompileError):
        compiler.compile(source)


def test_a_module_for_another_processor_is_refused(compiler):
    with pytest.raises(CompileError, match="nvptx64"):
        compiler.compile('target triple = "nvptx64-nvidia-cuda"\ndefine void @f() {\n ret void\n}')


def test_a_module_for_no_processor_in_particular_is_for_this_one(compiler):
    """llvmlite's own builder of modules writes this triple where it was told none."""
    compiler.compile('target triple = "unknown-unknown-unknown"\ndefine void @f() {\n ret void\n}')


def test_a_front_ends_choice_of_processor_is_overridden(compiler):
    body = """
    define void @f(ptr noalias %a, ptr noalias %b, i64 %n) #0 {
    entry:
      br label %loop
    loop:
      %i = phi i64 [ 0, %entry ], [ %next, %loop ]
      %from = getelementptr float, ptr %b, i64 %i
      %to = getelementptr float, ptr %a, i64 %i
      %x = load float, ptr %from
      store float %x, ptr %to
      %next = add i64 %i, 1
      %more = icmp ult i64 %next, %n
      br i1 %more, label %loop, label %done
    done:
      ret void
    }
    attributes #0 = { nounwind "target-cpu"="x86-64" "target-features"="+sse2" "tune-cpu"="generic" }
    """
    chosen = unpack(compiler.compile(body)).object
    ours = unpack(compiler.compile(body[: body.index("attributes")] + "attributes #0 = { nounwind }")).object
    assert chosen == ours


def test_bytes_and_text_compile_alike_and_twice_the_same(compiler):
    source = "define void @f(ptr %a) {\n ret void\n}"
    assert compiler.compile(source) == compiler.compile(source.encode()) == LLVMCompiler(None).compile(source)


def test_compilers_pickle(compiler):
    again = pickle.loads(pickle.dumps(LLVMCompiler()))
    assert again.cachekey == "llvm"
    assert again.compile("define void @f() {\n ret void\n}") == compiler.compile("define void @f() {\n ret void\n}")


def test_the_key_names_the_version_that_is_installed(compiler):
    assert compiler.identity() == f"llvmlite {importlib.metadata.version('llvmlite')}"


def test_the_key_has_llvm_and_the_processor_without_importing_llvmlite():
    code = (
        "import sys; from hcq.drivers.cpu.compiler_llvm import LLVMCompiler as C; c = C();"
        "assert 'llvmlite 0' in c.identity(); assert len(c.key_parts()['target']) > 10;"
        "print('llvmlite' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_many_threads_compile_at_once(compiler):
    sources = [f"define void @f(ptr %a) {{\n store i32 {n}, ptr %a\n ret void\n}}" for n in range(24)]
    with ThreadPoolExecutor(8) as pool:
        libraries = list(pool.map(compiler.compile, sources))
    out = np.zeros(1, "i4")
    for n, library in enumerate(libraries):
        launch(library, "f", out)
        assert out[0] == n


def test_a_forked_child_compiles_while_the_parent_does(compiler):
    source = "define void @f(ptr %a) {\n store i32 7, ptr %a\n ret void\n}"
    with ThreadPoolExecutor(2) as pool:
        going = [pool.submit(compiler.compile, source) for _ in range(30)]
        children = []
        for _ in range(4):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    status = 0 if len(compiler.compile(source)) > 100 else 2
                finally:
                    os._exit(status)
            children.append(child)
        for child in children:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len({future.result() for future in going}) == 1


def test_names_that_need_quotes_can_be_launched(compiler):
    library = compiler.compile('define void @"a \\22strange\\22 näme"(ptr %a) {\n store i32 3, ptr %a\n ret void\n}')
    out = np.zeros(1, "i4")
    launch(library, 'a "strange" näme', out)
    assert out[0] == 3


def test_integers_of_the_ir_take_either_sign(compiler):
    library = compiler.compile(
        """
        define void @f(ptr %out, i8 %a, i32 %b, i64 %c) {
          %p = getelementptr i64, ptr %out, i32 1
          %q = getelementptr i64, ptr %out, i32 2
          store i8 %a, ptr %out
          store i32 %b, ptr %p
          store i64 %c, ptr %q
          ret void
        }
        """
    )
    device = Device["LLVM"]
    program = device.runtime("f", library)
    out = np.zeros(3, "u8")
    for values in [(-100, -5, -(2**63)), (200, 2**32 - 1, 2**64 - 1), (np.uint8(9), np.uint32(8), np.uint64(7))]:
        program(out, vals=values)
        assert out.tolist() == [int(values[0]) % 2**8, int(values[1]) % 2**32, int(values[2]) % 2**64]
    for values in [(256, 0, 0), (-129, 0, 0), (0, 0, 2**64), (0, np.int16(0), 0), (0, np.float32(0), 0)]:
        with pytest.raises(LaunchError):
            program(out, vals=values)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('%x = call i32 asm sideeffect "bogus $0", "=r"()', "invalid instruction mnemonic 'bogus'"),
        ('%x = call i32 asm sideeffect "", "={nowhere}"()', "couldn't allocate output register"),
        (
            "%x = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n store i32 %x, ptr %a",
            "Cannot select: intrinsic %llvm.nvvm",
        ),
        (
            "%v = load <vscale x 4 x i32>, ptr %a\n %w = mul <vscale x 4 x i32> %v, %v\n"
            " store <vscale x 4 x i32> %w, ptr %a",
            "scalable",
        ),
    ],
)
def test_what_ends_llvm_is_an_error_here(compiler, body, message):
    source = f"declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\ndefine void @f(ptr %a) {{\n {body}\n ret void\n}}"
    with pytest.raises(CompileError, match=message) as caught:
        compiler.compile(source)
    assert caught.value.source == source


@pytest.mark.skipif(platform.machine() != "x86_64", reason="has x86 assembly in it")
def test_inline_assembly_that_is_right_works(compiler):
    library = compiler.compile(
        """
        define void @f(ptr %out, i32 %n) {
          %r = call i32 asm "leal (${1:q},${1:q},2), $0", "=r,r,~{dirflag},~{fpsr},~{flags}"(i32 %n)
          store i32 %r, ptr %out
          ret void
        }
        """
    )
    out = np.zeros(1, "i4")
    launch(library, "f", out, 14)
    assert out[0] == 42


def test_names_do_not_make_a_module_unusual(compiler):
    module = """
        @gc = global i32 0
        @"asm sideeffect" = global i32 0
        define internal void @target(ptr %naked.asm) {
          ret void
        }
        define void @personality(ptr %acc) {
        succ:
          call void @target(ptr %acc)
          %vscale = load i32, ptr @gc, !annotation !0
          %i200 = add i32 %vscale, 1
          store i32 %i200, ptr %acc
          br label %acc.cc
        acc.cc:
          ret void
        }
        !0 = !{!"asm"}
        """
    with llvm_host.LOCK, llvm_host.Session(module) as session:
        assert llvm_isolated.ordinary(str(session.parse(module)))
    assert functions(compiler.compile(module))["personality"].refused == ""


def test_llvm_loads_ahead_of_a_compile_and_over_a_fork():
    code = """
import os, sys
from hcq.drivers.cpu.compiler_llvm import LLVMCompiler
compiler = LLVMCompiler(None)
compiler.load_ahead()
compiler.load_ahead()
child = os.fork()
assert compiler.compile("define void @f(ptr %p) { store i32 5, ptr %p ret void }")
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_program_that_ends_while_llvm_loads_ends_well():
    code = "from hcq.drivers.cpu.compiler_llvm import LLVMCompiler; LLVMCompiler(None).load_ahead()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_kept_library_needs_no_llvmlite_and_a_new_source_says_what_to_install(tmp_path):
    kept = "define void @f(ptr %a) {\\n store i32 9, ptr %a\\n ret void\\n}"
    code = f"""
import sys
from hcq.drivers.cpu import llvm_host, llvm_isolated
from hcq.drivers.cpu.compiler_llvm import LLVMCompiler
if sys.argv[1] == "without":
    sys.modules["llvmlite"] = None
    import importlib.metadata, hcq.drivers.cpu.compiler_llvm as module
    def version(name): raise importlib.metadata.PackageNotFoundError(name)
    importlib.metadata.version = version
from hcq import _native
_native._Function(LLVMCompiler().compile_cached("{kept}"), "f")
try:
    LLVMCompiler().compile_cached("define void @g() {{\\n ret void\\n}}")
except Exception as error:
    print(type(error).__name__, error)
"""
    environment = {**os.environ, "HCQ_CACHE_DIR": str(tmp_path / "cache")}
    for how, said in (("with", ""), ("without", "CompileError")):
        source = code if how == "without" else code[: code.index("try:")]
        done = subprocess.run(
            [sys.executable, "-c", source, how], capture_output=True, text=True, check=True, env=environment
        )
        assert done.stdout.startswith(said)
        assert how == "with" or "pip install llvmlite" in done.stdout
