"""Kernels in SPIR-V for Vulkan: taken by spirv-val, printed, and what their modules say to a driver.

What they compute is tested on the VULKAN device.
"""

import json
import random
import re
import shutil
import subprocess

import numpy as np
import pytest
from kernel_makers import Maker, block_sums, items, maker
from kernel_writer import Kernel
from test_kernels_errors import load
from test_kernels_gpu_code import kernels

import hcq
from hcq import ops
from hcq.kernels import builtins, launch, lower
from hcq.kernels.lower.spirv.text import disassemble
from hcq.kernels.types import SCALARS, bool_, f16, f32, f64, i8, i32, pointer, u64


@pytest.fixture(scope="module")
def accepted(tmp_path_factory):
    """A function that has spirv-val look at a module."""
    tool = shutil.which("spirv-val")
    if tool is None:
        pytest.skip("SPIR-V is checked by spirv-val (apt install spirv-tools)")
    file = tmp_path_factory.mktemp("spirv") / "kernel.spv"

    def check(module):
        file.write_bytes(module)
        command = [tool, "--target-env", "vulkan1.3", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{disassemble(module)}"

    return check


def about(module):
    """What a module says of itself."""
    return json.loads(json.loads('"' + re.search(r'"hcq\.kernel (.*)"', disassemble(module))[1] + '"'))


@pytest.mark.parametrize(
    "target",
    [None, "kernargs", "nan32 nan64 rte32 rte64 denorm32 denorm64 fma32 fma64 mesa llvmpipe atomic_add32 atomic_add64"],
)
def test_modules_are_valid(accepted, target):
    for function in kernels():
        accepted(lower.source(function, "spirv", target))


def test_modules_of_the_library_are_valid(accepted):
    """Every kernel that these operations launched, and each function of floats."""
    pytest.importorskip("llvmlite", reason="the LLVM device needs llvmlite")
    from every_operation import all_of_them, arrays

    all_of_them(*arrays("LLVM"))
    x = hcq.array(np.arange(40, dtype="f2").reshape(5, 8), "LLVM")
    for work in (ops.argmin, ops.rms_norm, ops.cumsum, ops.sort):
        work(x)
    ops.histogram(hcq.array(np.arange(40, dtype="i4"), "LLVM"), bins=4, low=0, high=40)
    made = [each.ir for kernel in list(launch._live) for each in kernel._made.values()]
    from_ops = [function for function in made if "/ops/" in function.file]
    assert len(from_ops) > 10
    for function in from_ops:
        accepted(lower.source(function, "spirv"))


@pytest.mark.parametrize("name", [f for f in builtins.MATH if f not in builtins.TWO])
def test_modules_of_functions_of_floats_are_valid(accepted, name):
    function = getattr(hcq, name)

    @hcq.kernel
    def apply(x: hcq.ptr, y: hcq.ptr[hcq.f16]):
        i = hcq.global_id(0)
        x[i] = function(x[i]) + x.dtype(function(y[i]))

    for type_ in (f32, f64):
        accepted(lower.source(apply.ir(x=type_), "spirv"))


@pytest.mark.parametrize("seed", range(12))
def test_modules_of_random_kernels_are_valid(accepted, seed, tmp_path):
    module = load(tmp_path / f"random_{seed}.py", Kernel(random.Random(seed)).text(), f"random_{seed}")
    accepted(lower.source(module.kernel.ir(), "spirv", "nan32 rte32 mesa llvmpipe"))


def leaving(how):
    """Loops in a branch in a loop, which are left from inside; what follows is never come to."""
    m = maker(f"leave_{how}", n=i32)
    zero, one = m.const(0), m.const(1)

    def inner(k, total):
        last = m.b.binary("eq", k, one)
        m.when(last, lambda: m.b.op(how, () if how == "return" else (total,)), lambda: m.b.op("break", (k,)))
        return [total]

    def outer(k, total):
        m.when(m.b.binary("lt", k, one), lambda: m.b.op("continue", (k,)))
        return m.loop([total], inner, bounds=(zero, m["n"]))

    m.b.store(m["out"], items(m), m.loop([zero], outer, bounds=(zero, m["n"]))[0])
    m.loop([], lambda: m.b.op("return"), ())
    return m.end()


@pytest.mark.parametrize("how", ["break", "continue", "return"])
def test_control_flow_that_does_not_come_back_is_valid(accepted, how):
    accepted(lower.source(leaving(how), "spirv"))


def test_pointers_that_depend_on_conditions_are_valid(accepted):
    m = Maker("f", out=pointer(f32), x=pointer(f32), n=i32)
    for space, how in (("local", "local"), ("private", "private"), ("global", "")):
        kind = pointer(f32, space)
        a, b = (m["out"], m["x"]) if not how else (m.b.op(how, (), (kind,), name="a", count=n).result for n in (3, 5))
        yes = m.b.binary("lt", items(m), m["n"])
        (either,) = m.when(yes, lambda a=a: (a,), lambda b=b: (b,), (kind,))
        one = m.const(1)

        def body(k, pointer, kind=kind, one=one):
            return [m.b.op("offset", (pointer, one), (kind,)).result]

        (moved,) = m.loop([either], body, bounds=(m.const(0), one))
        m.b.store(moved, one, m.b.load(either, one))
        if space != "private":
            m.b.op("atomic", (moved, one, m.const(2.0, f32)), (f32,), how="add")
    accepted(lower.source(m.end(), "spirv"))


def test_modules_say_what_a_driver_has_to_know():
    m = Maker("größe", out=pointer(f64), x=pointer(i8), a=f16, flag=bool_, big=u64, small=i8)
    m.b.store(m["out"], items(m), m.b.cast(m.b.load(m["x"], items(m)), f64))
    module = lower.source(m.end(), "spirv")
    name = lower.entry_name("größe")
    assert about(module) == {
        "name": name,
        "arguments": "push",
        "argument_bytes": 33,  # two addresses, 2 bytes, 1, 5 that nothing is in, 8 and 1
        "push_bytes": 52,
        "buffers": ["out", "x"],
        "accesses": ["w", "r"],
        "values": ["a", "flag", "big", "small"],
        "value_types": ["f16", "boolean", "u64", "i8"],
        "local_bytes": 0,
    }
    assert f'OpEntryPoint GLCompute %2 "{name}"' in disassemble(module)
    assert about(lower.source(block_sums(), "spirv"))["local_bytes"] == 256


def test_arguments_go_to_memory_where_they_do_not_fit():
    many = {f"p{at}": pointer(f32) for at in range(14)}
    for more, place, size in (({}, "push", 128), ({"a": i8}, "memory", 24)):
        m = Maker("many", **many, **more)
        m.b.store(m["p13"], items(m), m.const(1.0, f32))
        said = about(lower.source(m.end(), "spirv"))
        assert (said["arguments"], said["push_bytes"]) == (place, size)
    assert about(lower.source(block_sums(), "spirv", "kernargs"))["arguments"] == "memory"


def test_capabilities_are_those_that_a_kernel_needs():
    def capabilities(function):
        return set(re.findall("OpCapability (.*)", disassemble(lower.source(function, "spirv"))))

    m = Maker("plain", out=pointer(i32))
    m.b.store(m["out"], items(m), m.const(1))
    least = capabilities(m.end())
    assert not least & {"Int8", "Int16", "Float64", "Int64Atomics", "VulkanMemoryModelDeviceScope"}
    for type_ in SCALARS:
        m = Maker("one", out=pointer(type_))
        m.b.store(m["out"], items(m), m.b.load(m["out"], m.const(0)))
        size = {8: {"Int8", "StorageBuffer8BitAccess"}, 16: {"Int16", "StorageBuffer16BitAccess"}}
        assert capabilities(m.end()) - least == ({"Float64"} if type_ is f64 else size.get(type_.bits, set()))


def test_what_spirv_cannot_have_is_a_compile_error():
    with pytest.raises(hcq.errors.CompileError, match=r"'fast' is no word of a SPIR-V target: .*rte32"):
        lower.source(block_sums(), "spirv", "fast rte32")


def test_the_text_is_that_of_spirv_dis(tmp_path):
    tool = shutil.which("spirv-dis")
    if tool is None:
        pytest.skip("our text is compared with that of spirv-dis (apt install spirv-tools)")
    for function in (block_sums(), *list(kernels())[-1:]):
        module = lower.source(function, "spirv")
        (tmp_path / "kernel.spv").write_bytes(module)
        command = [tool, "--raw-id", "--no-color", "--no-header", str(tmp_path / "kernel.spv")]
        theirs = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        ours = [line.split() for line in disassemble(module).splitlines()[1:]]
        for line, other in zip(ours, [each.split() for each in theirs.splitlines()], strict=True):
            assert line[: 3 if "=" in line else 1] == other[: 3 if "=" in other else 1]
            assert len(line) == len(other) or line[-1].isdecimal()  # masks: numbers, where theirs are words


def test_a_kernel_is_shown(tmp_path, capsys):
    from hcq.cli.kernel import show

    file = tmp_path / "shown.py"
    file.write_text("import hcq\n@hcq.kernel\ndef f(x: hcq.ptr[hcq.i32]):\n    x[hcq.global_id(0)] = 1\n")
    assert show(f"{file}:f", "spirv", []) == 0
    assert 'OpEntryPoint GLCompute %2 "f"' in capsys.readouterr().out
    with pytest.raises(hcq.errors.InvalidProgram, match="no SPIR-V module"):
        disassemble(b"hello")


def test_damaged_modules_are_refused_by_the_printer():
    module = lower.source(block_sums(), "spirv")
    chance = random.Random(3)
    for _ in range(300):
        damaged = bytearray(module)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(20, len(damaged))] = chance.randrange(256)
        try:
            assert disassemble(bytes(damaged)).startswith("; SPIR-V 1.5")
        except hcq.errors.InvalidProgram:
            pass
