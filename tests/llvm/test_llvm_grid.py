"""Grid kernels in LLVM IR: work-items, barriers, calls, launches. Memory, vectors and random control flow have files of
their own."""

from __future__ import annotations

import numpy as np
import pytest
from llvm_grids import DECLARED, REDUCE, X, load

from hcq import Device
from hcq.drivers.cpu.compiler_llvm import LLVMCompiler

# Ids


def test_every_item_of_every_group_sees_its_own_ids_and_all_sizes():
    names = ["group_id", "local_id", "local_size", "num_groups"]
    lines = [f"%v{n}{d} = call i32 @hcq.{name}(i32 {d})" for n, name in enumerate(names) for d in range(3)]
    lines += [
        "%gy = mul i32 %v02, %v31", "%gz = add i32 %gy, %v01", "%gr = mul i32 %gz, %v30", "%g = add i32 %gr, %v00",
        "%ly = mul i32 %v12, %v21", "%lz = add i32 %ly, %v11", "%lr = mul i32 %lz, %v20", "%l = add i32 %lr, %v10",
        "%s0 = mul i32 %v20, %v21", "%s = mul i32 %s0, %v22", "%f = mul i32 %g, %s", "%i = add i32 %f, %l",
        "%at = mul i32 %i, 12", "%mine = getelementptr i32, ptr %out, i32 %at",
    ]  # fmt: skip
    for k, (n, d) in enumerate((n, d) for n in range(4) for d in range(3)):
        lines += [f"%p{k} = getelementptr i32, ptr %mine, i32 {k}", f"store i32 %v{n}{d}, ptr %p{k}"]
    groups, sizes = (3, 2, 4), (5, 3, 2)
    out = np.full((4, 2, 3, 2, 3, 5, 12), -1, "i4")
    load("define void @f(ptr %out) {\n" + "\n".join(lines) + "\nret void\n}").run(
        "f", out, global_size=groups, local_size=sizes
    )
    for index in np.ndindex(out.shape[:-1]):
        gz, gy, gx, lz, ly, lx = index
        assert out[index].tolist() == [gx, gy, gz, lx, ly, lz, *sizes, *groups]


def test_a_dimension_may_be_computed_and_past_the_third_ids_are_0_and_sizes_1():
    program = load(
        f"""
        define void @f(ptr %out, i32 %d) {{
          {X}
          %at = mul i32 %x, 4
          %p0 = getelementptr i32, ptr %out, i32 %at
          %a = call i32 @hcq.local_id(i32 %d)
          store i32 %a, ptr %p0
          %p1 = getelementptr i32, ptr %p0, i32 1
          %b = call i32 @hcq.local_size(i32 %d)
          store i32 %b, ptr %p1
          %p2 = getelementptr i32, ptr %p0, i32 2
          %c = call i32 @hcq.num_groups(i32 7)
          store i32 %c, ptr %p2
          %p3 = getelementptr i32, ptr %p0, i32 3
          %e = call i32 @hcq.group_id(i32 -1)
          store i32 %e, ptr %p3
          ret void
        }}
        """
    )
    for d in range(4):
        out = np.full((5, 4), -1, "i4")
        program.run("f", out, d, local_size=(5, 1, 1))
        assert out.tolist() == [[x if d == 0 else 0, 5 if d == 0 else 1, 1, 0] for x in range(5)]


# Barriers


@pytest.mark.parametrize("items", [1, 2, 3, 64, 100, 255, 256, 1024])
def test_a_barrier_in_a_loop_reduces_in_local_memory(items):
    values = np.random.default_rng(items).integers(0, 100, (7, items)).astype("f")
    out = np.zeros(7, "f")
    load(REDUCE).run("reduce", out, values, global_size=(7, 1, 1), local_size=(items, 1, 1))
    assert out.tolist() == values.sum(1).tolist()


def test_items_that_return_early_do_not_hold_up_the_others():
    program = load(
        f"""
        @tile = internal addrspace(3) global [64 x i32] undef
        define void @f(ptr %out, i32 %n) {{
          {X}
          %in = icmp slt i32 %x, %n
          br i1 %in, label %go, label %out.of.range
        out.of.range:
          ret void
        go:
          %t = getelementptr i32, ptr addrspace(3) @tile, i32 %x
          store i32 %x, ptr addrspace(3) %t
          call void @hcq.barrier()
          %back0 = sub i32 %n, %x
          %back = sub i32 %back0, 1
          %u = getelementptr i32, ptr addrspace(3) @tile, i32 %back
          %v = load i32, ptr addrspace(3) %u
          %p = getelementptr i32, ptr %out, i32 %x
          store i32 %v, ptr %p
          ret void
        }}
        """
    )
    for n in (0, 1, 13, 64):
        out = np.full(64, -1, "i4")
        program.run("f", out, n, local_size=(64, 1, 1))
        assert out.tolist() == list(range(n))[::-1] + [-1] * (64 - n)


def test_items_leave_after_a_barrier_before_which_there_was_nothing_to_do():
    program = load(
        f"""
        define void @f(ptr %out, i32 %n) {{
          call void @hcq.barrier()
          {X}
          %in = icmp slt i32 %x, %n
          br i1 %in, label %go, label %done
        go:
          call void @hcq.barrier()
          %p = getelementptr i32, ptr %out, i32 %x
          store i32 %x, ptr %p
          br label %done
        done:
          ret void
        }}
        """
    )
    out = np.full(70, -1, "i4")
    program.run("f", out, 50, local_size=(70, 1, 1))
    assert out.tolist() == [*range(50), *[-1] * 20]


def test_items_may_meet_a_different_number_of_barriers():
    program = load(
        """
        define void @f(ptr %out) {
        entry:
          %x = call i32 @hcq.local_id(i32 0)
          br label %head
        head:
          %k = phi i32 [ 0, %entry ], [ %next, %body ]
          %sum = phi i32 [ 0, %entry ], [ %more, %body ]
          %go = icmp ult i32 %k, %x
          br i1 %go, label %body, label %done
        body:
          %more = add i32 %sum, %k
          call void @hcq.barrier()
          %next = add i32 %k, 1
          br label %head
        done:
          %p = getelementptr i32, ptr %out, i32 %x
          store i32 %sum, ptr %p
          ret void
        }
        """
    )
    out = np.full(40, -1, "i4")
    program.run("f", out, local_size=(40, 1, 1))
    assert out.tolist() == [sum(range(x)) for x in range(40)]


def test_values_of_every_type_live_across_a_barrier():
    types = {"i1": "?", "i8": "b", "i16": "h", "i64": "q", "float": "f", "double": "d", "half": "e"}
    before, after = [], []
    for n, kind in enumerate(types):
        before += [
            f"%a{n} = getelementptr [7 x {kind}], ptr %in{n}, i32 0, i32 %x",
            f"%v{n} = load {kind}, ptr %a{n}",
        ]
        after += [f"%b{n} = getelementptr {kind}, ptr %out{n}, i32 %x", f"store {kind} %v{n}, ptr %b{n}"]
    before += [
        "%vec = insertelement <4 x float> zeroinitializer, float %v4, i32 %x",
        "%pair = insertvalue { i8, double } { i8 1, double 0.0 }, double %v5, 1",
        "%named = insertvalue %both { i1 true, ptr null }, ptr %a0, 1",
    ]
    after += [
        "%e = extractelement <4 x float> %vec, i32 %x", "%f = extractvalue { i8, double } %pair, 1",
        "%q = extractvalue %both %named, 1", "%same = icmp eq ptr %q, %a0", "%w = fpext float %e to double",
        "%sum = fadd double %w, %f", "%r = select i1 %same, double %sum, double -1.0",
        "%last = getelementptr double, ptr %result, i32 %x", "store double %r, ptr %last",
    ]  # fmt: skip
    params = ", ".join(f"ptr %in{n}, ptr %out{n}" for n in range(len(types)))
    body = "\n".join([X, *before, "call void @hcq.barrier()", *after, "ret void"])
    program = load(f"%both = type {{ i1, ptr }}\ndefine void @f({params}, ptr %result) {{\n{body}\n}}")
    ins = [np.array([1, 0, 1, 1], c) if c == "?" else np.array([1, -2, 3, 4], c) for c in types.values()]
    outs = [np.zeros(4, c) for c in types.values()]
    result = np.zeros(4)
    program.run("f", *(a for pair in zip(ins, outs, strict=True) for a in pair), result, local_size=(4, 1, 1))
    assert all((a == b).all() for a, b in zip(ins, outs, strict=True))
    assert result.tolist() == [2, -4, 6, 8]


@pytest.mark.parametrize("barrier", ["", "call void @hcq.barrier()"])
def test_private_arrays_are_each_items_own(barrier):
    program = load(
        f"""
        define void @f(ptr %out, i32 %k) {{
          %mine = alloca [16 x i32], align 32
          {X}
          %p = getelementptr i32, ptr %mine, i32 %k
          store i32 %x, ptr %p
          {barrier}
          %v = load i32, ptr %p
          %aligned = ptrtoint ptr %mine to i64
          %low = and i64 %aligned, 31
          %low32 = trunc i64 %low to i32
          %w = add i32 %v, %low32
          %q = getelementptr i32, ptr %out, i32 %x
          store i32 %w, ptr %q
          ret void
        }}
        """
    )
    out = np.zeros(77, "i4")
    program.run("f", out, 5, local_size=(77, 1, 1))
    assert out.tolist() == list(range(77))


def test_barriers_in_the_cases_of_a_switch():
    program = load(
        f"""
        define void @f(ptr %out, i32 %which) {{
          {X}
          switch i32 %which, label %other [ i32 0, label %a
                                            i32 1, label %b
                                            i32 2, label %never ]
        a:
          call void @hcq.barrier()
          br label %meet
        b:
          %twice = mul i32 %x, 2
          call void @hcq.barrier()
          call void @hcq.barrier()
          br label %meet
        never:
          unreachable
        other:
          br label %meet
        meet:
          %v = phi i32 [ %x, %a ], [ %twice, %b ], [ 7, %other ]
          %p = getelementptr i32, ptr %out, i32 %x
          store i32 %v, ptr %p
          ret void
        }}
        """
    )
    for which, expected in ((0, [0, 1, 2]), (1, [0, 2, 4]), (5, [7, 7, 7])):
        out = np.zeros(3, "i4")
        program.run("f", out, which, local_size=(3, 1, 1))
        assert out.tolist() == expected


# Functions that kernels call


def test_kernels_call_functions_that_use_ids_barriers_and_local_memory():
    program = load(
        """
        @tile = internal addrspace(3) global [64 x i32] undef
        define i32 @mine() noinline {
          %x = call i32 @hcq.local_id(i32 0)
          ret i32 %x
        }
        define internal i32 @neighbour(i32 %v) noinline optnone {
          %x = call i32 @mine()
          %s = call i32 @hcq.local_size(i32 0)
          %t = getelementptr i32, ptr addrspace(3) @tile, i32 %x
          store i32 %v, ptr addrspace(3) %t
          call void @hcq.barrier()
          %next = add i32 %x, 1
          %there = urem i32 %next, %s
          %u = getelementptr i32, ptr addrspace(3) @tile, i32 %there
          %r = load i32, ptr addrspace(3) %u
          call void @hcq.barrier()
          ret i32 %r
        }
        define internal i32 @plain(i32 %v) noinline {
          %r = mul i32 %v, 10
          ret i32 %r
        }
        define void @once(ptr %out) {
          %x = call i32 @mine()
          %v = call i32 @neighbour(i32 %x)
          %w = call i32 @plain(i32 %v)
          %p = getelementptr i32, ptr %out, i32 %x
          store i32 %w, ptr %p
          ret void
        }
        define void @twice(ptr %out) {
          %x = call i32 @mine()
          %v = call i32 @neighbour(i32 %x)
          %w = call i32 @neighbour(i32 %v)
          %p = getelementptr i32, ptr %out, i32 %x
          store i32 %w, ptr %p
          ret void
        }
        """
    )
    assert "returns i32" in program.functions["mine"].refused
    out = np.zeros(6, "i4")
    program.run("once", out, local_size=(6, 1, 1))
    assert out.tolist() == [10, 20, 30, 40, 50, 0]
    program.run("twice", out, local_size=(6, 1, 1))
    assert out.tolist() == [2, 3, 4, 5, 0, 1]


def test_a_kernel_may_call_another():
    program = load(
        f"""
        define void @inner(ptr %out, i32 %v) {{
          {X}
          %p = getelementptr i32, ptr %out, i32 %x
          store i32 %v, ptr %p
          ret void
        }}
        define void @outer(ptr %out) {{
          call void @inner(ptr %out, i32 5)
          ret void
        }}
        """
    )
    out = np.zeros(4, "i4")
    program.run("outer", out, local_size=(4, 1, 1))
    assert out.tolist() == [5, 5, 5, 5]
    program.run("inner", out, 6, local_size=(4, 1, 1))
    assert out.tolist() == [6, 6, 6, 6]


# On a device


def test_groups_of_a_launch_run_on_the_device():
    device = Device["LLVM"]
    program = device.runtime("reduce", LLVMCompiler(None).compile(DECLARED + REDUCE))
    values = np.random.default_rng(1).integers(0, 100, (3000, 192)).astype("f")
    out = np.zeros(3000, "f")
    program(out, values, global_size=(3000, 1, 1), local_size=(192, 1, 1))
    assert (out == values.sum(1)).all()
