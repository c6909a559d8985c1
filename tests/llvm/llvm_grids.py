"""Grid kernels in LLVM IR that several test files share: declarations, a reduction, loading, refusals."""

from __future__ import annotations

import pytest
from llvm_runner import Loaded

from hcq.drivers.cpu.compiler_llvm import LLVMCompiler
from hcq.errors import CompileError

DECLARED = """
declare i32 @hcq.group_id(i32)
declare i32 @hcq.local_id(i32)
declare i32 @hcq.local_size(i32)
declare i32 @hcq.num_groups(i32)
declare void @hcq.barrier()
"""
X = "%x = call i32 @hcq.local_id(i32 0)\n"
GLOBAL = """
  %x = call i32 @hcq.local_id(i32 0)
  %g = call i32 @hcq.group_id(i32 0)
  %s = call i32 @hcq.local_size(i32 0)
  %first = mul i32 %g, %s
  %i = add i32 %first, %x
"""
# Sums of groups by halving in local memory: a barrier in a loop.
REDUCE = """
@tile = internal addrspace(3) global [1024 x float] undef, align 16
define void @reduce(ptr %out, ptr %in) {
entry:
  GLOBAL
  %p = getelementptr float, ptr %in, i32 %i
  %v = load float, ptr %p
  %t = getelementptr [1024 x float], ptr addrspace(3) @tile, i64 0, i32 %x
  store float %v, ptr addrspace(3) %t
  call void @hcq.barrier()
  br label %head
head:
  %n = phi i32 [ %s, %entry ], [ %half, %next ]
  %more = icmp ugt i32 %n, 1
  br i1 %more, label %step, label %last
step:
  %odd = add i32 %n, 1
  %half = lshr i32 %odd, 1
  %j = add i32 %x, %half
  %low = icmp ult i32 %j, %n
  br i1 %low, label %add, label %next
add:
  %q = getelementptr [1024 x float], ptr addrspace(3) @tile, i64 0, i32 %j
  %a = load float, ptr addrspace(3) %q
  %b = load float, ptr addrspace(3) %t
  %c = fadd float %a, %b
  store float %c, ptr addrspace(3) %t
  br label %next
next:
  call void @hcq.barrier()
  br label %head
last:
  %one = icmp eq i32 %x, 0
  br i1 %one, label %write, label %done
write:
  %r = load float, ptr addrspace(3) @tile
  %o = getelementptr float, ptr %out, i32 %g
  store float %r, ptr %o
  br label %done
done:
  ret void
}
""".replace("GLOBAL", GLOBAL)


def load(body: str) -> Loaded:
    return Loaded(DECLARED + body)


def refused(body: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        LLVMCompiler(None).compile(DECLARED + body)
