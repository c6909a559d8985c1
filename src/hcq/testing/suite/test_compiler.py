"""Compilers: libraries, the cache on disk as a compiler sees it, and what a refusal tells."""

import pickle

import pytest

from hcq import Compiler
from hcq.errors import CompileError
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import filled, printed, python, read


class Counting(Compiler):
    def __init__(self, cachekey=None):
        super().__init__(cachekey)
        self.calls = []

    def compile(self, src):
        self.calls.append(src)
        if src == "bad":
            raise CompileError("bad source", log="line 1: bad", source=src)
        return b"<" + src.encode() + b">"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HCQ_CACHE_DIR", str(tmp_path / "cache"))
    for variable in ("DISABLE_COMPILER_CACHE", "ASSERT_COMPILE"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path / "cache"


@promise("compiler.compile")
@needs("compiles", "computes")
def test_a_compiled_library_makes_a_program(dev, kernels):
    library = dev.compiler.compile(kernels.source("iota"))
    assert isinstance(library, bytes) and library
    out = filled(dev, [0] * 4)
    dev.runtime("iota", library)(out._buf, vals=(4, 7))
    assert read(out).tolist() == [7, 8, 9, 10]


@promise("compiler.compile", "device.program_shortcut")
@needs("compiles")
def test_program_is_compile_and_load_in_one(dev, kernels):
    program = dev.program("nothing", kernels.source("nothing"))
    assert program.name == "nothing"
    program(wait=True)


@pytest.mark.core
@promise("compiler.cached", "compiler.compile")
def test_the_second_time_nothing_is_compiled(driver, cache):
    first, second = Counting("suite"), Counting("suite")
    assert first.compile_cached("x") == first.compile_cached("x") == second.compile_cached("x") == b"<x>"
    assert first.calls == ["x"] and second.calls == []
    assert second.compile_cached("y") == b"<y>"
    other = Counting("other")
    assert other.compile_cached("x") == b"<x>" and other.calls == ["x"]


@pytest.mark.core
@promise("compiler.cachekey_none")
def test_without_a_key_nothing_is_kept(driver, cache):
    compiler = Counting(None)
    compiler.compile_cached("x")
    compiler.compile_cached("x")
    assert compiler.calls == ["x", "x"] and compiler.cachekey is None
    assert not cache.exists() or not any(path.is_file() and b"<x>" in path.read_bytes() for path in cache.rglob("*"))


@pytest.mark.core
@promise("cache.failed_not_kept", "compiler.error")
def test_a_failed_compile_is_not_kept(driver, cache):
    compiler = Counting("suite")
    for _ in range(2):
        with pytest.raises(CompileError, match="bad"):
            compiler.compile_cached("bad")
    assert compiler.calls == ["bad", "bad"]


@promise("compiler.pickle")
@needs("compiles")
def test_compilers_pickle(dev, kernels):
    compiler = pickle.loads(pickle.dumps(dev.compiler))
    assert type(compiler) is type(dev.compiler)
    library = compiler.compile_cached(kernels.source("nothing"))
    dev.runtime("nothing", library)(wait=True)


COUNT = """
import hcq
class C(hcq.Compiler):
    calls = 0
    def compile(self, src): C.calls += 1; return b"1"
def go():
    c = C("suite")
    try: [c.compile_cached("x") for _ in range(2)]
    except hcq.errors.CompileError as e: return "refused"
    return f"{C.calls} {c.cachekey}"
print(go())"""


@pytest.mark.core
@promise("compiler.disable", "compiler.assert_compile")
def test_the_variables_switch_the_cache(driver, tmp_path):
    def run(**variables):
        return printed(
            COUNT, env={"HCQ_CACHE_DIR": str(tmp_path), "DISABLE_COMPILER_CACHE": "", "ASSERT_COMPILE": "", **variables}
        )

    assert run(ASSERT_COMPILE="1") == "refused"
    assert run(DISABLE_COMPILER_CACHE="1") == "2 None"
    assert run(DISABLE_COMPILER_CACHE="0", ASSERT_COMPILE="0") == "1 suite"
    assert run(ASSERT_COMPILE="1") == "0 suite"


@pytest.mark.core
@promise("compiler.assert_compile")
def test_assert_compile_is_read_at_the_call(driver, cache, monkeypatch):
    compiler = Counting("suite")
    monkeypatch.setenv("ASSERT_COMPILE", "1")
    with pytest.raises(CompileError):
        compiler.compile_cached("x")
    monkeypatch.setenv("ASSERT_COMPILE", "0")
    assert compiler.compile_cached("x") == b"<x>"


@promise("compiler.error", "errors.no_assert")
@needs("compiles")
def test_a_refused_source_tells_the_log(dev, driver):
    if not driver.bad_source:
        pytest.skip("the driver brings no bad_source")
    with pytest.raises(CompileError) as refused:
        dev.compiler.compile_cached(driver.bad_source)
    assert refused.value.log.strip() and refused.value.log.strip() in str(refused.value)
    assert refused.value.source == driver.bad_source
    if "log" not in driver.lacks:
        assert any(character.isdigit() for character in refused.value.log)


@promise("compiler.empty_environment")
@needs("computes")
@pytest.mark.slow
def test_an_empty_environment_works(driver, kernels):
    source = kernels.source("iota")
    code = f"""
import os, sys
for name in list(os.environ): del os.environ[name]
{driver.setup}
import hcq, numpy as np
dev = hcq.Device[{driver.device!r}]
out = hcq.Buffer(dev.dname, 4, np.dtype("i4")).allocate()
dev.program("iota", {source!r})(out._buf, vals=(4, 3), wait=True)
print(out.numpy().tolist())"""
    done = python(code, env={"HOME": "", "HCQ_CACHE_DIR": "", "DISABLE_COMPILER_CACHE": "1"})
    assert done.stdout.strip() == "[3, 4, 5, 6]", done.stderr


@promise("compiler.warnings")
@needs("computes")
def test_warnings_are_shown_and_not_fatal(dev, driver, capfd, recwarn):
    if not driver.warning_source:
        pytest.skip("the driver brings no warning_source")
    name, source = driver.warning_source
    library = dev.compiler.compile(source)
    said = capfd.readouterr()
    assert said.err or any("warning" in str(warning.message) for warning in recwarn)
    assert dev.runtime(name, library).name == name
