"""What compilers write is taken: NVRTC at several architectures, with and without debug information, and LLVM."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_host import Loaded, llvm

from hcq.cudacpu import lower, ptx
from hcq.cudacpu.compiler import PtxCompiler

SOURCE = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
struct S { float x; int y; double z; };
__device__ float table[4] = {1, 2, 3, 4.5f};
__constant__ int numbers[3];
__device__ const char* text = "hi";
__device__ __noinline__ float f(S s, int k) { return s.x + s.y * k + s.z; }
typedef float (*F)(S, int);
__device__ F pointer = f;
struct Base { int n; __device__ Base(int n) : n(n) {} __device__ virtual int get(int k) { return n + k; } };
struct Other : Base { __device__ Other(int n) : Base(n) {} __device__ int get(int k) override { return n * k; } };
__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
template <class T> __global__ void add(const T* a, const T* b, T* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
template __global__ void add(const double*, const double*, double*, int);
template __global__ void add(const __half*, const __half*, __half*, int);
template __global__ void add(const __nv_bfloat16*, const __nv_bfloat16*, __nv_bfloat16*, int);
extern "C" __global__ void reduce(float* a, S s, int n) {
  __shared__ float sh[64];
  extern __shared__ float dyn[];
  int t = threadIdx.x;
  sh[t] = a[t] * numbers[n];
  __syncthreads();
  for (int o = 32; o; o >>= 1) { if (t < o) sh[t] += sh[t + o]; __syncthreads(); }
  dyn[t] = sh[0] + f(s, t) + pointer(s, n);
  __syncwarp();
  float v = __shfl_down_sync(~0u, dyn[t ^ 1], 3);
  if (__any_sync(~0u, v > 3)) printf("%d %s\n", n, text);
  if (t == 0) a[0] = v + table[n];
  atomicAdd(a + 1, v);
}
extern "C" __global__ void mixed(int* out, unsigned long long* words, int n) {
  Base one(n); Other two(n);
  Base* all[2] = {&one, &two};
  int t = threadIdx.x, local[16];
  for (int i = 0; i < 16; i++) local[(i * t) & 15] = i;
  int sum = fibonacci(t & 7) + all[t & 1]->get(t);
  for (int i = 0; i < n; i++) sum += local[i & 15];
  switch (t) { case 0: sum += 3; break; case 1: sum *= 5; break; case 2: sum ^= 9; break; case 3: sum -= n; break;
               case 4: sum += numbers[0]; break; case 5: sum /= n; break; default: sum %= 7; }
  atomicMax(words, (unsigned long long)sum);
  atomicCAS(words + 1, 0ull, 1ull);
  out[t] = __popc(sum) + __clz(t) + __ffs(sum) + __brev(t) + __byte_perm(sum, t, 0x5410) + __vabsdiffu4(sum, t);
}
"""


def nvrtc(architecture: int, *options: str) -> str:
    cuda = pytest.importorskip("cuda.bindings.nvrtc", reason="the compiler NVRTC is not installed (hcq[cuda])")
    if architecture not in cuda.nvrtcGetSupportedArchs()[1]:
        pytest.skip(f"this NVRTC doesn't know compute_{architecture}")
    pathfinder = pytest.importorskip("cuda.pathfinder", reason="cuda-pathfinder is not installed (hcq[cuda])")
    include = pathfinder.find_nvidia_header_directory("cudart")
    status, program = cuda.nvrtcCreateProgram(SOURCE.encode(), b"source.cu", 0, [], [])
    assert int(status) == 0
    given = [f"--gpu-architecture=compute_{architecture}", *options, *([f"-I{include}"] if include else [])]
    (status,) = cuda.nvrtcCompileProgram(program, len(given), [each.encode() for each in given])
    if int(status):
        log = bytearray(cuda.nvrtcGetProgramLogSize(program)[1])
        cuda.nvrtcGetProgramLog(program, log)
        raise AssertionError(log.decode())
    text = bytearray(cuda.nvrtcGetPTXSize(program)[1])
    cuda.nvrtcGetPTX(program, text)
    cuda.nvrtcDestroyProgram(program)
    return text.decode().rstrip("\0")


@pytest.mark.parametrize("options", [(), ("-lineinfo", "-rdc=true"), ("-G",)], ids=["plain", "linked", "debug"])
@pytest.mark.parametrize("architecture", [75, 90, 100, 120])
def test_what_nvrtc_writes_is_taken(architecture, options):
    module = ptx.parse(nvrtc(architecture, *options))
    translated = lower.translate(module, lower.Options(capability=architecture))
    llvm().parse_assembly(translated.llvm_ir).verify()
    kinds = {each.name: each.kind for each in translated.kernels}
    assert kinds["reduce"] == "threads" and kinds["mixed"] == "loop" and len(kinds) == 5
    assert {each.name for each in translated.globals} >= {"table", "numbers"}


IR = """
target triple = "nvptx64-nvidia-cuda"
@tile = internal addrspace(3) global [64 x float] undef, align 4
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
declare float @llvm.fma.f32(float, float, float)
define float @twice(float %x) noinline { %y = fadd float %x, %x
  ret float %y }
define ptx_kernel void @reverse(ptr addrspace(1) %out, i64 %n) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %at = getelementptr float, ptr addrspace(1) %out, i32 %t
  %x = load float, ptr addrspace(1) %at
  %y = call float @twice(float %x)
  %mine = getelementptr [64 x float], ptr addrspace(3) @tile, i32 0, i32 %t
  store float %y, ptr addrspace(3) %mine
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %other = sub i32 63, %t
  %theirs = getelementptr [64 x float], ptr addrspace(3) @tile, i32 0, i32 %other
  %z = load float, ptr addrspace(3) %theirs
  %w = call float @llvm.fma.f32(float %z, float 2.0, float 1.0)
  store float %w, ptr addrspace(1) %at
  ret void
}
"""


@pytest.mark.parametrize("processor", ["sm_70", "sm_90"])
def test_what_llvm_writes_is_taken_and_right(processor):
    binding = llvm()
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    machine = binding.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(cpu=processor, opt=2)
    loaded = Loaded(machine.emit_assembly(binding.parse_assembly(IR)))
    out = np.arange(64, dtype=np.float32)
    loaded.launch("reverse", out, np.int64(64), block=(64,))
    assert (out == np.arange(64)[::-1] * 4 + 1).all()


def test_the_code_of_many_kernels_is_made_for_each_alone():
    kernels = "".join(f".visible .entry k{n}() {{ trap; }}\n" for n in range(20))
    image = PtxCompiler(80, cachekey=None).image(f".version 8.0\n.target sm_80\n.address_size 64\n{kernels}")
    assert image.later and [each.name for each in image.kernels] == [f"k{n}" for n in range(20)]
    (one,) = image.part("k7").kernels
    assert one.name == "k7" and not any(b"ptx.k8" in each for each in image.part("k7").objects)
    assert not any(b"ptx.k7" in each for each in image.objects)
