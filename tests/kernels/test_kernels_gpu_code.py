"""Kernels for GPUs, without one: CUDA C through NVRTC, PTX through ptxas, AMD's objects; Metal as text alone.

What they compute is not tested here: the same writers' LLVM IR, C and OpenCL C run on the processor.
"""

import glob
import os
import shutil
import subprocess
import sys

import pytest
from kernel_makers import SCALARS, Maker, all_conversions, all_operations, block_sums, items, maker

import hcq
from hcq.kernels import lower
from hcq.kernels.types import bool_, f16, f32, f64, i32, pointer

FOLDERS = [each for each in sys.path if os.path.isdir(os.path.join(each, "nvidia"))]


OPTIONS = [b"--gpu-architecture=compute_80", b"--diag-suppress=177"]  # a value that is loaded and not used


def kernels():
    """Kernels that have every operation in them."""
    for type_ in SCALARS:
        for lanes in (1, 4):
            yield all_conversions(type_, lanes)[0]
            yield all_operations(type_, lanes, 64)[0]
    yield block_sums()
    yield everything_else()


def everything_else():
    """Ids, loops, private arrays, sub-groups, atomics, parameters of types that languages have in several ways."""
    m = maker("rest", h=f16, flag=bool_, n=i32, sums=pointer(f32))
    i = items(m)
    mine = m.b.op("private", (), (pointer(i32, "private"),), name="mine", count=4).result
    three = m.const(3)
    m.loop([], lambda k: m.b.store(mine, k, m.b.binary("mul", k, i)), bounds=(m.const(0), m["n"]), step=2)
    lane = m.b.op("subgroup", (), (i32,), kind="lane").result
    there = m.b.op("shuffle", (m.b.load(mine, m.b.binary("and", lane, three)), three), (i32,), how="xor").result
    m.b.op("barrier")
    m.b.store(m["out"], i, m.b.select(m["flag"], there, m.b.id("num_groups", 1)))
    m.b.op("atomic", (m["out"], m.const(0), m.b.id("local_size", 2)), (i32,), how="max")
    m.b.op("atomic", (m["out"], m.const(1), three, there), (i32,), how="cas")
    for how in ("add", "min"):
        m.b.op("atomic", (m["sums"], m.const(0), m.b.cast(m["h"], f32)), (f32,), how=how)
    return m.end()


@pytest.fixture(scope="module")
def ptxas(tmp_path_factory):
    packaged = (at for each in FOLDERS for at in glob.glob(f"{each}/nvidia/*/bin/ptxas"))
    found = next(packaged, None) or shutil.which("ptxas")  # NVRTC's own may be newer than the system's
    if not found:
        pytest.skip("PTX is checked by ptxas (pip install nvidia-cuda-nvcc)")
    file = tmp_path_factory.mktemp("ptx") / "kernel.ptx"

    def check(text):
        file.write_text(text)
        done = subprocess.run(
            [found, "-arch=sm_80", str(file), "-o", os.devnull], capture_output=True, text=True, timeout=100
        )
        if "Unsupported .version" in done.stderr:
            pytest.skip("ptxas is older than what wrote the PTX (pip install nvidia-cuda-nvcc)")
        assert done.returncode == 0, f"{done.stderr}\n{text}"

    return check


@pytest.fixture(scope="module")
def nvrtc():
    reason = "CUDA C is compiled by NVRTC (pip install cuda-bindings nvidia-cuda-nvrtc)"
    binding = pytest.importorskip("cuda.bindings.nvrtc", reason=reason)

    def compile_(text):
        _, program = binding.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], [])
        (error,) = binding.nvrtcCompileProgram(program, 2, OPTIONS)
        size = binding.nvrtcGetProgramLogSize(program)[1]
        log = bytearray(size)  # not b" " * size: where that is 1 it is a byte that all of Python shares
        binding.nvrtcGetProgramLog(program, log)
        assert not error and b"warning" not in log, f"{log.decode()}\n{text}"
        ptx = bytearray(binding.nvrtcGetPTXSize(program)[1])
        binding.nvrtcGetPTX(program, ptx)
        return ptx.rstrip(b"\0 ").decode()

    try:
        compile_("")
    except RuntimeError as error:
        pytest.skip(f"NVRTC can't be loaded: {error}")
    return compile_


def test_cuda_c_is_compiled_by_nvrtc_and_ptxas(nvrtc, ptxas):
    for function in kernels():
        ptx = nvrtc(lower.source(function, "cuda"))
        assert f".visible .entry {function.name}(" in ptx
        ptxas(ptx)


def test_cuda_c_contracts_nothing(nvrtc):
    m = Maker("f", out=pointer(f32), out2=pointer(f64), a=f32, b=f64)
    for out, value in (("out", m["a"]), ("out2", m["b"])):
        product = m.b.binary("mul", value, value)
        m.b.store(m[out], m.const(0), m.b.binary("add", product, value))
    assert "fma" not in nvrtc(lower.source(m.end(), "cuda"))


def test_ptx_of_llvm_is_taken_by_ptxas(ptxas):
    pytest.importorskip("llvmlite", reason="PTX is written by llvmlite")
    for function in kernels():
        text = lower.source(function, "ptx")
        assert f".visible .entry {function.name}(" in text
        ptxas(text)


def exchange():
    """Every way of exchanging values of a sub-group, of every type."""
    m = Maker("exchange", out=pointer(i32))
    b = m.b
    kinds = [b.op("subgroup", (), (i32,), kind=kind).result for kind in ("size", "lane", "index")]
    for each in SCALARS:
        for how in ("index", "xor", "up", "down"):
            value = b.cast(b.id("local_id", 0), each)
            other = b.op("shuffle", (value, m.const(1)), (each,), how=how).result
            b.store(m["out"], b.binary("add", kinds[1], kinds[2]), b.cast(other, i32))
    b.store(m["out"], m.const(0), kinds[0])
    return m.end()


def test_sub_groups_of_ptx_are_warps(ptxas):
    pytest.importorskip("llvmlite", reason="PTX is written by llvmlite")
    text = lower.source(exchange(), "ptx")
    for how in ("idx", "bfly", "up", "down"):
        assert f"shfl.sync.{how}.b32" in text
    assert "bar.sync" not in text and ".shared" not in text
    ptxas(text)


@pytest.mark.parametrize(("processor", "size"), [("gfx942", 64), ("gfx1100", 32)])
def test_sub_groups_of_amds_gpus_are_waves(processor, size):
    pytest.importorskip("llvmlite", reason="AMD's code is made by llvmlite")
    from hcq.kernels.lower.llvm import targets

    text = targets.assembly(lower.source(exchange(), "amdgpu"), targets.AMDGPU, processor)
    assert "ds_bpermute_b32" in text and "s_barrier" not in text
    assert (".amdhsa_wavefront_size32 1" in text) == (size == 32)  # older processors have no such line


def test_ptx_contracts_nothing():
    pytest.importorskip("llvmlite", reason="PTX is written by llvmlite")
    m = Maker("f", out=pointer(f32), a=f32)
    m.b.store(m["out"], m.const(0), m.b.binary("add", m.b.binary("mul", m["a"], m["a"]), m["a"]))
    text = lower.source(m.end(), "ptx", "sm_90")
    assert ".target sm_90" in text and "mul.rn.f32" in text and "add.rn.f32" in text and "fma" not in text


def test_amd_objects_are_made():
    pytest.importorskip("llvmlite", reason="AMD's code is made by llvmlite")
    from hcq.kernels.lower.llvm import targets

    for function in kernels():
        made = targets.code(lower.source(function, "amdgpu"), targets.AMDGPU)
        assert made[:4] == b"\x7fELF" and function.name.encode() in made


def test_what_a_target_cannot_have_is_a_compile_error():
    with pytest.raises(hcq.errors.CompileError, match="metal has no f64"):
        lower.source(all_operations(f64, 1, 64)[0], "metal")
    with pytest.raises(hcq.errors.CompileError, match="is no processor of nvptx"):
        lower.source(block_sums(), "ptx", "gfx90a")
    with pytest.raises(hcq.errors.CompileError, match="expected one of"):
        lower.source(block_sums(), "fortran")


METAL = """\
#include <metal_stdlib>
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
using namespace metal;
typedef int i32;
typedef long i64;
typedef float f32;
typedef f32 m_f32;

kernel void scale(device m_f32 *x [[buffer(0)]], constant f32 &factor [[buffer(1)]], constant i32 &n [[buffer(2)]], \
uint3 hcq_group_id [[threadgroup_position_in_grid]], uint3 hcq_num_groups [[threadgroups_per_grid]], \
uint3 hcq_local_id [[thread_position_in_threadgroup]], uint3 hcq_local_size [[threads_per_threadgroup]], \
uint hcq_lane [[thread_index_in_simdgroup]], uint hcq_index [[simdgroup_index_in_threadgroup]], \
uint hcq_size [[threads_per_simdgroup]]) {
"""


def test_metal_reads_as_it_should():
    """The text alone: there is no compiler for it here."""
    m = Maker("scale", x=pointer(f32), factor=f32, n=i32)
    i = items(m)
    m.when(
        m.b.binary("lt", i, m["n"]),
        lambda: m.b.store(m["x"], i, m.b.binary("mul", m["factor"], m.b.load(m["x"], i))),
    )
    text = lower.source(m.end(), "metal")
    assert text.startswith(METAL)
    assert "if (v_" in text and "x[global_id_0] = " in text
    for function in (all_operations(each, 2, 64)[0] for each in SCALARS if each is not f64):
        assert "f64" not in lower.source(function, "metal")
    assert "atomic_fetch_max_explicit((device atomic_int *)(out + 0" in lower.source(everything_else(), "metal")
