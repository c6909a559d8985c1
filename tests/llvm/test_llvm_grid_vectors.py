"""Grid kernels in LLVM IR: what becomes vectors on the host, and that it is right."""

from __future__ import annotations

import numpy as np
import pytest
from llvm_grids import DECLARED, GLOBAL, REDUCE, load

from hcq.drivers.cpu import llvm_host
from hcq.drivers.cpu.compiler_llvm import LLVMCompiler


def needs(feature: str) -> None:
    """For tests that look for instructions of x86 processors that have this."""
    if f"+{feature}" not in llvm_host.host().features.split(","):
        pytest.skip(f"this processor has no {feature}")


def assembly(body: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the host is given for a module."""
    made = []
    emit = llvm_host.emit

    def keep(module):
        result = emit(module)
        with llvm_host.Session("") as session:
            made.append(llvm_host.host().machine.emit_assembly(session.parse(str(module))))
        return result

    monkeypatch.setattr(llvm_host, "emit", keep)
    LLVMCompiler(None).compile(DECLARED + body)
    return made[0]


def test_items_become_vector_lanes_though_arguments_may_alias(monkeypatch):
    needs("avx2")
    triad = f"""
        define void @triad(ptr %a, ptr %b, ptr %c, i32 %n) {{
          {GLOBAL}
          %in = icmp slt i32 %i, %n
          br i1 %in, label %go, label %done
        go:
          %pa = getelementptr float, ptr %a, i32 %i
          %pb = getelementptr float, ptr %b, i32 %i
          %pc = getelementptr float, ptr %c, i32 %i
          %vb = load float, ptr %pb
          %vc = load float, ptr %pc
          %m = fmul float %vc, 3.0
          %r = fadd float %m, %vb
          store float %r, ptr %pa
          br label %done
        done:
          ret void
        }}
        """
    code = assembly(triad, monkeypatch)
    assert any("vmulps" in line and "ymm" in line for line in code.splitlines())
    assert "gather" not in code


def test_regions_between_barriers_vectorise_and_only_items_with_work_run(monkeypatch):
    needs("avx2")
    body = REDUCE.replace("%low = icmp ult i32 %j, %n", "%low = icmp ult i32 %x, %half")
    code = assembly(body, monkeypatch)
    assert any("vaddps" in line and "ymm" in line for line in code.splitlines())
    assert "gather" not in code
    assert "vmaskmov" not in code


# Each group's values less the largest of them, over the sum of those: two reductions one after the other.
TWICE = """
@tile = internal addrspace(3) global [1024 x float] undef, align 16
define void @twice(ptr %out, ptr %in) {
entry:
  GLOBAL
  %half0 = lshr i32 %s, 1
  %p = getelementptr float, ptr %in, i32 %i
  %v = load float, ptr %p
  %t = getelementptr [1024 x float], ptr addrspace(3) @tile, i64 0, i32 %x
  store float %v, ptr addrspace(3) %t
  br label %head1
head1:
  %n1 = phi i32 [ %half0, %entry ], [ %half1, %next1 ]
  %more1 = icmp ugt i32 %n1, 0
  br i1 %more1, label %step1, label %between
step1:
  call void @hcq.barrier()
  %low1 = icmp ult i32 %x, %n1
  br i1 %low1, label %do1, label %next1
do1:
  %j1 = add i32 %x, %n1
  %q1 = getelementptr [1024 x float], ptr addrspace(3) @tile, i64 0, i32 %j1
  %a1 = load float, ptr addrspace(3) %q1
  %b1 = load float, ptr addrspace(3) %t
  %more.a = fcmp ogt float %a1, %b1
  %c1 = select i1 %more.a, float %a1, float %b1
  store float %c1, ptr addrspace(3) %t
  br label %next1
next1:
  %half1 = lshr i32 %n1, 1
  br label %head1
between:
  call void @hcq.barrier()
  %most = load float, ptr addrspace(3) @tile
  call void @hcq.barrier()
  %less = fsub float %v, %most
  store float %less, ptr addrspace(3) %t
  br label %head2
head2:
  %n2 = phi i32 [ %half0, %between ], [ %half2, %next2 ]
  %more2 = icmp ugt i32 %n2, 0
  br i1 %more2, label %step2, label %last
step2:
  call void @hcq.barrier()
  %low2 = icmp ult i32 %x, %n2
  br i1 %low2, label %do2, label %next2
do2:
  %j2 = add i32 %x, %n2
  %q2 = getelementptr [1024 x float], ptr addrspace(3) @tile, i64 0, i32 %j2
  %a2 = load float, ptr addrspace(3) %q2
  %b2 = load float, ptr addrspace(3) %t
  %c2 = fadd float %a2, %b2
  store float %c2, ptr addrspace(3) %t
  br label %next2
next2:
  %half2 = lshr i32 %n2, 1
  br label %head2
last:
  call void @hcq.barrier()
  %sum = load float, ptr addrspace(3) @tile
  %r = fdiv float %less, %sum
  %o = getelementptr float, ptr %out, i32 %i
  store float %r, ptr %o
  ret void
}
""".replace("GLOBAL", GLOBAL)


@pytest.mark.parametrize("items", [2, 64])
def test_reductions_follow_one_another(items):
    values = np.random.default_rng(items).integers(0, 99, 3 * items).astype("f")
    out = np.zeros_like(values)
    load(TWICE).run("twice", out, values, global_size=(3, 1, 1), local_size=(items, 1, 1))
    rows = values.reshape(3, items)
    less = rows - rows.max(1, keepdims=True)
    np.testing.assert_array_equal(out.reshape(3, items), less / less.sum(1, keepdims=True))


def test_the_items_of_a_group_stay_together_through_reductions_that_follow_one_another(monkeypatch):
    needs("avx2")
    code = assembly(TWICE, monkeypatch)
    for instruction in ("vmaxps", "vaddps", "vsubps", "vdivps"):
        assert any(instruction in line and "ymm" in line for line in code.splitlines()), instruction


def test_items_become_lanes_though_all_divide_alike_before_a_guard(monkeypatch):
    needs("avx2")
    code = assembly(
        f"""
        define void @rows(ptr %a, ptr %b, i32 %n, i32 %d, i32 %stride) {{
          {GLOBAL}
          %y = call i32 @hcq.group_id(i32 1)
          %zero = icmp eq i32 %d, 0
          %by = select i1 %zero, i32 1, i32 %d
          %part = srem i32 %y, %by
          %odd = icmp ne i32 %part, 0
          %more = select i1 %odd, i32 %by, i32 0
          %row = add i32 %part, %more
          %in = icmp slt i32 %i, %n
          br i1 %in, label %go, label %done
        go:
          %before = mul i32 %row, %stride
          %r = sext i32 %before to i64
          %w = sext i32 %i to i64
          %at = add nsw i64 %r, %w
          %pa = getelementptr float, ptr %a, i64 %at
          %pb = getelementptr float, ptr %b, i64 %at
          %v = load float, ptr %pb
          %m = fmul float %v, 3.0
          store float %m, ptr %pa
          br label %done
        done:
          ret void
        }}
        """,
        monkeypatch,
    )
    assert any("vmulps" in line and "ymm" in line for line in code.splitlines())
    assert "gather" not in code
    assert "pinsr" not in code


PRODUCT = """
define void @product(ptr %c, ptr %a, ptr %b, i32 %n) {
entry:
  GLOBAL
  %y = call i32 @hcq.local_id(i32 1)
  %gy = call i32 @hcq.group_id(i32 1)
  %sy = call i32 @hcq.local_size(i32 1)
  %firsty = mul i32 %gy, %sy
  %row = add i32 %firsty, %y
  %outx = icmp sge i32 %i, %n
  %outy = icmp sge i32 %row, %n
  %out = or i1 %outx, %outy
  br i1 %out, label %done, label %start
start:
  %some = icmp sgt i32 %n, 0
  br i1 %some, label %loop, label %store
loop:
  %k = phi i32 [ 0, %start ], [ %next, %loop ]
  %sum = phi float [ 0.0, %start ], [ %more, %loop ]
  %ra = mul i32 %row, %n
  %ia = add i32 %ra, %k
  %pa = getelementptr float, ptr %a, i32 %ia
  %va = load float, ptr %pa
  %rb = mul i32 %k, %n
  %ib = add i32 %rb, %i
  %pb = getelementptr float, ptr %b, i32 %ib
  %vb = load float, ptr %pb
  %ab = fmul float %va, %vb
  %more = fadd float %sum, %ab
  %next = add i32 %k, 1
  %go = icmp slt i32 %next, %n
  br i1 %go, label %loop, label %store
store:
  %total = phi float [ 0.0, %start ], [ %more, %loop ]
  %rc = mul i32 %row, %n
  %ic = add i32 %rc, %i
  %pc = getelementptr float, ptr %c, i32 %ic
  store float %total, ptr %pc
  br label %done
done:
  ret void
}
""".replace("GLOBAL", GLOBAL)


@pytest.mark.parametrize("local", [(1, 7), (3, 3), (8, 8), (64, 1)])
@pytest.mark.parametrize("n", [1, 5, 64, 70])
def test_a_guarded_loop_in_each_item_is_right_in_full_and_in_cut_groups(n, local):
    a, b = np.random.default_rng(n).integers(0, 9, (2, n, n)).astype("f")
    c = np.full((n, n), -1, "f")
    load(PRODUCT).run(
        "product", c, a, b, n, global_size=(-(-n // local[0]), -(-n // local[1]), 1), local_size=(*local, 1)
    )
    assert c.tolist() == (a @ b).tolist()


def test_a_loop_in_each_item_vectorises_across_items(monkeypatch):
    needs("avx2")
    code = assembly(PRODUCT, monkeypatch)
    assert any("vmulps" in line and "ymm" in line for line in code.splitlines())


def test_a_kernel_may_ask_for_wider_vectors(monkeypatch):
    needs("avx512vl")
    body = f"""
        define void @f(ptr %a) #0 {{
          {GLOBAL}
          %p = getelementptr float, ptr %a, i32 %i
          %v = load float, ptr %p
          %w = fmul float %v, 3.0
          store float %w, ptr %p
          ret void
        }}
        """
    assert "zmm" not in assembly(body + "attributes #0 = { nounwind }", monkeypatch)
    assert "zmm" in assembly(body + 'attributes #0 = { "prefer-vector-width"="512" }', monkeypatch)
