"""The kernels that every worker runs, once for each language: the same work on the same data."""

from __future__ import annotations

import re

# One element: what is left is the cost of launching. c counts, so that every launch can be checked afterwards.
ADD_C = "void add(int* restrict a, int* restrict b, int* restrict c) { c[0] += a[0] + b[0]; }\n"
ADD_CL = "__kernel void add(__global int* a, __global int* b, __global int* c) { c[0] += a[0] + b[0]; }\n"

# Streaming: 2^24 floats in each of three arrays, 64 MiB each. In C a group takes 2^16 elements in one loop.
STREAM_COUNT = 1 << 24
STREAM_CHUNK = 1 << 16
STREAM_BYTES = 3 * 4 * STREAM_COUNT
TRIAD_HCQ = f"""#include <hcq.h>
HCQ_KERNEL void triad(float* restrict a, const float* restrict b, const float* restrict c, float s) {{
  long first = (long)hcq_group_id(0) * {STREAM_CHUNK};
  for (long i = first; i < first + {STREAM_CHUNK}; i++) a[i] = b[i] + s * c[i];
}}
"""
TRIAD_C = f"""void triad(float* restrict a, const float* restrict b, const float* restrict c) {{
  for (long i = 0; i < {STREAM_COUNT}; i++) a[i] = b[i] + 3.0f * c[i];
}}
"""
TRIAD_CL = """__kernel void triad(__global float* restrict a, __global const float* restrict b,
                   __global const float* restrict c, float s) {
  size_t i = get_global_id(0);
  a[i] = b[i] + s * c[i];
}
"""
# One element a work-item, as on a GPU.
STREAM_ITEMS = 1024
TRIAD_IR = f"""declare i32 @hcq.group_id(i32)
declare i32 @hcq.local_id(i32)
define void @triad(ptr noalias %a, ptr noalias %b, ptr noalias %c, float %s) {{
  %g = call i32 @hcq.group_id(i32 0)
  %l = call i32 @hcq.local_id(i32 0)
  %first = mul i32 %g, {STREAM_ITEMS}
  %index = add i32 %first, %l
  %i = zext i32 %index to i64
  %pa = getelementptr float, ptr %a, i64 %i
  %pb = getelementptr float, ptr %b, i64 %i
  %pc = getelementptr float, ptr %c, i64 %i
  %vb = load float, ptr %pb
  %vc = load float, ptr %pc
  %m = fmul float %s, %vc
  %r = fadd float %vb, %m
  store float %r, ptr %pa
  ret void
}}
"""

# Block reduction: 2^24 floats in blocks of 256, a tree in local memory with a barrier after every step.
BLOCK = 256
BLOCKS = STREAM_COUNT // BLOCK
REDUCE_BYTES = 4 * STREAM_COUNT
REDUCE_HCQ = """#include <hcq.h>
HCQ_KERNEL void reduce(float* sums, const float* x) {
  HCQ_LOCAL float local[256];
  unsigned i = hcq_local_id(0), g = hcq_group_id(0);
  local[i] = x[(long)g * 256 + i];
  hcq_barrier();
  for (unsigned s = 128; s > 0; s >>= 1) {
    if (i < s) local[i] += local[i + s];
    hcq_barrier();
  }
  if (i == 0) sums[g] = local[0];
}
"""
REDUCE_IR = """@tile = internal addrspace(3) global [256 x float] undef, align 64
declare i32 @hcq.group_id(i32)
declare i32 @hcq.local_id(i32)
declare void @hcq.barrier()
define void @reduce(ptr %sums, ptr %x) {
entry:
  %g = call i32 @hcq.group_id(i32 0)
  %i = call i32 @hcq.local_id(i32 0)
  %first = mul i32 %g, 256
  %index = add i32 %first, %i
  %at = zext i32 %index to i64
  %px = getelementptr float, ptr %x, i64 %at
  %v = load float, ptr %px
  %mine = getelementptr [256 x float], ptr addrspace(3) @tile, i32 0, i32 %i
  store float %v, ptr addrspace(3) %mine
  call void @hcq.barrier()
  br label %step
step:
  %s = phi i32 [ 128, %entry ], [ %half, %next ]
  %low = icmp ult i32 %i, %s
  br i1 %low, label %add, label %next
add:
  %j = add i32 %i, %s
  %other = getelementptr [256 x float], ptr addrspace(3) @tile, i32 0, i32 %j
  %p = load float, ptr addrspace(3) %mine
  %q = load float, ptr addrspace(3) %other
  %r = fadd float %p, %q
  store float %r, ptr addrspace(3) %mine
  br label %next
next:
  call void @hcq.barrier()
  %half = lshr i32 %s, 1
  %more = icmp ne i32 %half, 0
  br i1 %more, label %step, label %end
end:
  %one = icmp eq i32 %i, 0
  br i1 %one, label %write, label %done
write:
  %sum = load float, ptr addrspace(3) %mine
  %g64 = zext i32 %g to i64
  %ps = getelementptr float, ptr %sums, i64 %g64
  store float %sum, ptr %ps
  br label %done
done:
  ret void
}
"""
REDUCE_CL = """__kernel void reduce(__global float* sums, __global const float* x) {
  __local float tile[256];
  uint i = get_local_id(0), g = get_group_id(0);
  tile[i] = x[(size_t)g * 256 + i];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint s = 128; s > 0; s >>= 1) {
    if (i < s) tile[i] += tile[i + s];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (i == 0) sums[g] = tile[0];
}
"""

# The ten-line kernel that is compiled. `tag` makes every source new.
TEN_LINES_C = """void f{tag}(float* restrict out, const float* restrict a, const float* restrict b, int n) {{
  for (int i = 0; i < n; i++) {{
    float x = a[i] * 2.0f + b[i];
    float y = x > 0.0f ? x : -x;
    y = y * y + 1.0f;
    if (y > 100.0f) y = 100.0f + {tag}.0f;
    float z = y / (1.0f + x * x);
    out[i] = z - a[i];
  }}
}}
"""
TEN_LINES_CL = """__kernel void f{tag}(__global float* restrict out, __global const float* restrict a,
                   __global const float* restrict b, int n) {{
  int i = get_global_id(0);
  if (i < n) {{
    float x = a[i] * 2.0f + b[i];
    float y = x > 0.0f ? x : -x;
    y = y * y + 1.0f;
    if (y > 100.0f) y = 100.0f + {tag}.0f;
    float z = y / (1.0f + x * x);
    out[i] = z - a[i];
  }}
}}
"""
# Ten operations over an array, with typed pointers' successor (opaque pointers): LLVM 15 and later.
TEN_LINES_IR = """define void @f{tag}(ptr noalias %out, ptr noalias %a, ptr noalias %b, i32 %n) {{
entry:
  %any = icmp sgt i32 %n, 0
  br i1 %any, label %loop, label %done
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %at = sext i32 %i to i64
  %pa = getelementptr float, ptr %a, i64 %at
  %pb = getelementptr float, ptr %b, i64 %at
  %po = getelementptr float, ptr %out, i64 %at
  %va = load float, ptr %pa
  %vb = load float, ptr %pb
  %twice = fmul float %va, 2.0
  %x = fadd float %twice, %vb
  %positive = fcmp ogt float %x, 0.0
  %minus = fsub float 0.0, %x
  %y = select i1 %positive, float %x, float %minus
  %square = fmul float %y, %y
  %more = fadd float %square, 1.0
  %big = fcmp ogt float %more, 100.0
  %top = select i1 %big, float {tag}.0, float %more
  %xx = fmul float %x, %x
  %below = fadd float %xx, 1.0
  %z = fdiv float %top, %below
  %r = fsub float %z, %va
  store float %r, ptr %po
  %next = add nsw i32 %i, 1
  %again = icmp slt i32 %next, %n
  br i1 %again, label %loop, label %done
done:
  ret void
}}
"""
# The same for LLVM 14 (tinygrad 0.9.2's llvmlite): typed pointers.
TEN_LINES_IR_TYPED = re.sub(r"\bptr\b", "float*", TEN_LINES_IR)
