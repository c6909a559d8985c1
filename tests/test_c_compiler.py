"""The C compiler of the CLANG device: which one is used, what it is given, what it says, and what the cache keys on."""

from __future__ import annotations

import importlib.util
import os
import pickle
import shutil
import stat
import subprocess
import sys
import warnings

import pytest
from cpu_code import COMPILERS, launch, use_compiler

import hcq
import hcq.drivers.cpu.toolchain as toolchain
from hcq import _native
from hcq.drivers.cpu.compiler_c import ClangCompiler, CompilerWarning
from hcq.errors import CompileError

pytestmark = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("clang", "gcc", "cc")), reason="no C compiler on this machine"
)


@pytest.fixture(params=COMPILERS)
def compiler(request, monkeypatch):
    return use_compiler(request.param, monkeypatch)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HCQ_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def wrapper(path, target, log):
    """A compiler that notes each of its runs in `log`."""
    path.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {target} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_a_refusal_carries_the_log_with_lines_and_the_source(compiler):
    source = "void f(int *p) {\n  *p = 1;\n  undeclared_thing = 2;\n}\n"
    with pytest.raises(CompileError, match="refused the source") as caught:
        compiler.compile(source)
    assert "<stdin>:3:" in caught.value.log
    assert "undeclared_thing" in caught.value.log
    assert caught.value.source == source


def test_warnings_are_shown_and_not_fatal(compiler):
    with pytest.warns(CompilerWarning, match="<stdin>:2:") as caught:
        library = compiler.compile("void f(int *p) {\n  p = 1.5 ? 3 : p;\n}")
    assert len(caught) == 1
    _native._Function(library, "f")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiler.compile("#include <hcq.h>\n#include <math.h>\nHCQ_KERNEL void f(int *p) { *p = 1; }")


@pytest.mark.parametrize("way", ["compile", "compile_cached", "program"])
def test_a_warning_points_at_the_line_that_asked(compiler, way, tmp_path, monkeypatch):
    monkeypatch.setenv("HCQ_CACHE_DIR", str(tmp_path))
    dev = hcq.Device["CLANG"]
    ask = {
        "compile": lambda source: compiler.compile(source),
        "compile_cached": lambda source: compiler.compile_cached(source),
        "program": lambda source: dev.program("f", source),
    }[way]
    with pytest.warns(CompilerWarning) as caught:
        ask(f"void f(int *p) {{\n  p = 1.5 ? 3 : p;\n}} // {way} {os.urandom(8).hex()}")
    assert [(made.filename, made.lineno) for made in caught] == [(__file__, ask.__code__.co_firstlineno)]


def test_nothing_is_included_that_the_source_does_not_include(compiler, tmp_path, monkeypatch):
    (tmp_path / "mine.h").write_text("#define ONE 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CPATH", str(tmp_path))
    for include in ('#include "mine.h"', "#include <mine.h>"):
        with pytest.raises(CompileError, match=r"mine\.h"):
            compiler.compile(f"{include}\nvoid f(int *p) {{ *p = ONE; }}")
    with pytest.raises(CompileError, match="uint32_t"):
        compiler.compile("void f(uint32_t *p) { *p = 1; }")


def test_sources_may_be_bytes_and_hold_any_text(compiler):
    compiler.compile("// größe \U0001f600 \ud800\nvoid f(void) {}".encode("utf-8", "surrogatepass"))
    compiler.compile("// größe \U0001f600 \ud800\nvoid f(void) {}")
    compiler.compile("void größe(void) {}")


def test_a_second_process_hits_without_running_the_compiler(cache, tmp_path, monkeypatch):
    log = tmp_path / "runs"
    wrapper(tmp_path / "mycc", shutil.which("cc"), log)
    monkeypatch.setenv("HCQ_CC", str(tmp_path / "mycc"))
    program = (
        "from hcq.drivers.cpu.compiler_c import ClangCompiler as C;"
        "C().compile_cached('void f(int *p) { *p = 1; }'); from hcq import cache; print(cache.stats().hits)"
    )
    for hits in ("0", "1", "1"):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == hits
        runs = len(log.read_text().splitlines())
        if hits == "0":
            first = runs
    assert runs == first


def test_another_compiler_or_version_is_another_key(cache, tmp_path, monkeypatch):
    real = shutil.which("cc")
    for version in ("one 1.0", "one 1.1"):
        script = f'#!/bin/sh\n[ "$1" = --version ] && echo {version} && exit\nexec {real} "$@"\n'
        path = tmp_path / version.replace(" ", "")
        path.write_text(script)
        path.chmod(0o755)
        monkeypatch.setenv("HCQ_CC", str(path))
        assert version in ClangCompiler().identity()


def test_the_key_has_the_processors_features_and_flags():
    parts = ClangCompiler().key_parts()
    assert parts["target"].startswith(os.uname().machine)
    assert "-O3" in parts["flags"]
    assert parts["hcq.h"]
    assert len(_native.cpu_features().split()) > 3


def test_without_a_compiler_the_cache_answers_and_a_miss_says_what_to_do(cache, tmp_path, monkeypatch):
    kept = ClangCompiler().compile_cached("void f(int *p) { *p = 5; }")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    toolchain._find.cache_clear()
    try:
        assert toolchain.find_c_compiler() is None
        assert ClangCompiler().identity() is None
        assert ClangCompiler().compile_cached("void f(int *p) { *p = 5; }") == kept
        with pytest.raises(
            CompileError, match=r"no C compiler .*install clang or gcc .*hcq\[clang\].*HCQ_CC.*LLVM.*'CPU'"
        ):
            ClangCompiler().compile_cached("void g(int *p) { *p = 6; }")
        monkeypatch.setenv("HCQ_CC", "no-such-compiler 'open")
        with pytest.raises(CompileError, match="no program that can be run"):
            ClangCompiler().compile("void g(void) {}")
    finally:
        toolchain._find.cache_clear()


def test_a_compiler_given_with_arguments_or_relative_to_here_is_used(tmp_path, monkeypatch):
    log = tmp_path / "runs"
    wrapper(tmp_path / "mycc", shutil.which("cc"), log)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HCQ_CC", "./mycc -DVALUE=77")
    toolchain._find.cache_clear()
    library = ClangCompiler(None).compile("int value = VALUE; void f(void) {}")
    _native._Function(library, "f")
    assert "-DVALUE=77" in log.read_text()
    assert "-DVALUE=77" in ClangCompiler().identity()


def test_a_compiler_that_writes_nothing_is_named(monkeypatch):
    monkeypatch.setenv("HCQ_CC", "true")
    with pytest.raises(CompileError, match="true wrote no object file"):
        ClangCompiler(None).compile("void f(int *a) {}")


def test_compilers_pickle(compiler):
    again = pickle.loads(pickle.dumps(ClangCompiler()))
    assert again.cachekey == ClangCompiler().cachekey
    assert again.identity() == ClangCompiler().identity()


def test_compiling_twice_gives_the_same_bytes(compiler):
    source = "#include <hcq.h>\nHCQ_KERNEL void f(int *p) { HCQ_LOCAL int t; t = *p; hcq_barrier(); *p = t + 1; }"
    assert compiler.compile(source) == compiler.compile(source)


def test_the_zig_wheel_serves_where_it_is_installed(monkeypatch):
    spec = importlib.util.find_spec("ziglang")
    if spec is None:
        pytest.skip("the ziglang package is not installed")
    monkeypatch.setenv("HCQ_CC", f"{spec.submodule_search_locations[0]}/zig cc")
    import numpy as np

    out = np.zeros(4, "f")
    library = ClangCompiler(None).compile("#include <math.h>\nvoid f(float *p, float x) { p[3] = sqrtf(x); }")
    launch(library, "f", out, 9.0)
    assert out[3] == 3
