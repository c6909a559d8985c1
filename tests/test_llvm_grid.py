"""Grid kernels in LLVM IR: work-items, barriers, local memory, whatever the control flow."""

from __future__ import annotations

import platform

import llvm_programs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvm_runner import Loaded

from hcq import Device
from hcq.drivers.cpu import llvm_host, llvm_loops
from hcq.drivers.cpu.compiler_llvm import LLVMCompiler
from hcq.errors import CompileError, InvalidProgram

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


# The order of what one item does


def test_an_items_own_writes_and_reads_keep_their_order_when_items_become_lanes():
    program = load(
        f"""
        define void @f(ptr %a, ptr %b) {{
          {X}
          %i = mul i32 %x, 2
          %j = add i32 %i, 1
          %p = getelementptr i32, ptr %a, i32 %i
          %q = getelementptr i32, ptr %a, i32 %j
          %r = getelementptr i32, ptr %b, i32 %i
          store i32 %x, ptr %p
          %v = load i32, ptr %r
          %w = mul i32 %v, 3
          store i32 %w, ptr %q
          ret void
        }}
        """
    )
    a = np.full((64, 2), -1, "i4")
    program.run("f", a, a, local_size=(64, 1, 1))  # the same memory twice: what is read was just written
    assert a.tolist() == [[x, 3 * x] for x in range(64)]


# An array is written at an index that was read from it, then read: found by the tests below.
SHUFFLED = [
    ("put", ("op", "xor", ("array", ("const", 38)), ("op", "xor", ("var", 1), ("var", 0))), ("array", ("n",))),
    ("put", ("array", ("var", 0)), ("const", 1)),
    ("set", 1, ("array", ("const", 31))),
]


def test_private_arrays_keep_the_order_of_accesses():
    check(SHUFFLED, (1, 1, 1), (9, 1, 1), -1)


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


# Local memory


def test_local_memory_in_constant_expressions_phis_and_intrinsics():
    program = load(
        f"""
        @a = internal addrspace(3) global [8 x i32] undef, align 64
        @"b odd" = internal addrspace(3) global {{ i8, [4 x i64] }} undef
        declare void @llvm.memcpy.p3.p0.i64(ptr addrspace(3), ptr, i64, i1)
        define void @f(ptr %out, ptr %in, i1 %which) {{
        entry:
          {X}
          %one = icmp eq i32 %x, 0
          br i1 %one, label %fill, label %meet
        fill:
          call void @llvm.memcpy.p3.p0.i64(ptr addrspace(3) @a, ptr %in, i64 32, i1 false)
          store i64 99, ptr addrspacecast (ptr addrspace(3) getelementptr inbounds ({{ i8, [4 x i64] }}, ptr addrspace(3) @"b odd", i64 0, i32 1, i64 2) to ptr)
          br label %meet
        meet:
          call void @hcq.barrier()
          br i1 %which, label %left, label %right
        left:
          br label %join
        right:
          br label %join
        join:
          %p = phi ptr addrspace(3) [ getelementptr inbounds ([8 x i32], ptr addrspace(3) @a, i64 0, i64 3), %left ], [ getelementptr inbounds ({{ i8, [4 x i64] }}, ptr addrspace(3) @"b odd", i64 0, i32 1, i64 2), %right ]
          %v = load i32, ptr addrspace(3) %p
          %q = getelementptr i32, ptr %out, i32 %x
          store i32 %v, ptr %q
          ret void
        }}
        """  # noqa: E501
    )
    assert program.functions["f"].scratch_group == 128
    out, values = np.zeros(5, "i4"), np.arange(10, 18, dtype="i4")
    program.run("f", out, values, True, local_size=(5, 1, 1))
    assert out.tolist() == [13] * 5
    program.run("f", out, values, False, local_size=(5, 1, 1))
    assert out.tolist() == [99] * 5


def test_a_kernel_is_given_only_the_local_memory_that_it_uses():
    program = load(
        """
        @small = internal addrspace(3) global [4 x i32] undef
        @large = internal addrspace(3) global [4096 x double] undef
        define void @a() {
          store i32 1, ptr addrspace(3) @small
          ret void
        }
        define void @b() {
          store i32 1, ptr addrspace(3) @large
          store i32 1, ptr addrspace(3) @small
          ret void
        }
        define void @c(ptr %p) {
          ret void
        }
        """
    )
    assert [program.functions[n].scratch_group for n in "abc"] == [64, 32832, 0]
    assert all(program.functions[n].scratch_item == 0 for n in "abc")


def test_items_add_atomically():
    program = load(
        f"""
        @sum = internal addrspace(3) global i32 undef
        define void @f(ptr %out) {{
          {X}
          %one = icmp eq i32 %x, 0
          br i1 %one, label %clear, label %go
        clear:
          store i32 0, ptr addrspace(3) @sum
          br label %go
        go:
          call void @hcq.barrier()
          %old = atomicrmw add ptr addrspace(3) @sum, i32 %x monotonic
          call void @hcq.barrier()
          br i1 %one, label %tell, label %done
        tell:
          %v = load i32, ptr addrspace(3) @sum
          %ignored = atomicrmw add ptr %out, i32 %v monotonic
          br label %done
        done:
          ret void
        }}
        """
    )
    out = np.zeros(1, "i4")
    program.run("f", out, global_size=(5, 2, 1), local_size=(100, 1, 1))
    assert out[0] == 10 * sum(range(100))


# What can't be


def test_what_cannot_be_a_kernel_is_refused_with_the_reason():
    refused("define void @f(ptr %a) {\n call void @hcq.barriers()\n ret void\n}\ndeclare void @hcq.barriers()",
            "@hcq.barriers can't be used")  # fmt: skip
    with pytest.raises(CompileError, match=r"@hcq.local_id is declared as i64 \(i32\); it is i32 \(i32\)"):
        LLVMCompiler(None).compile("declare i64 @hcq.local_id(i32)\ndefine void @f() {\n ret void\n}")
    refused("define void @hcq.mine() {\n ret void\n}", "@hcq.mine can't be used")
    refused("@hcq.data = global i32 0\ndefine void @f() {\n ret void\n}", "hcq.data can't be defined")
    refused(
        "define void @f() {\n call void @hcq.barrier()\n call void @f()\n ret void\n}",
        "@f reaches .* through @f, which can't be inlined",
    )
    refused(
        "define void @f(ptr %p) {\n store ptr @g, ptr %p\n ret void\n}\n"
        "define internal void @g() {\n call void @hcq.barrier()\n ret void\n}",
        "@f reaches .* through @g",
    )
    once = r"can only be called, and as declared"
    refused("define void @f(ptr %p) {\n store ptr @hcq.barrier, ptr %p\n ret void\n}", once)
    refused("define void @f(ptr %p) {\n %x = call i64 @hcq.local_id(i32 0)\n store i64 %x, ptr %p\n ret void\n}", once)
    refused("define void @f(ptr %p) {\n %x = call i32 @hcq.barrier(i32 0)\n store i32 %x, ptr %p\n ret void\n}", once)
    refused("@p = global ptr @f\ndefine void @f() {\n call void @hcq.barrier()\n ret void\n}",
            "@p holds the address of @f")  # fmt: skip


def test_local_memory_that_cannot_be_had_is_refused_with_the_reason():
    use = "define void @f() {\n store i32 1, ptr addrspace(3) @t\n ret void\n}"
    refused("@t = internal addrspace(3) global i32 7\n" + use, "@t can't have an initial value: write undef")
    refused("@t = internal addrspace(3) global i32 zeroinitializer\n" + use, "can't have an initial value")
    refused("@t = external addrspace(3) global [0 x i32]\n" + use, "@t has no size here")
    refused("@t = internal addrspace(3) global i32 undef, align 128\n" + use, "@t is aligned to 128 bytes; at most 64")
    refused("@t = internal addrspace(3) global i32 undef\n@p = global ptr addrspace(3) @t\n" + use,
            "@p holds the address of @t")  # fmt: skip
    refused(
        "@t = internal addrspace(3) global i32 undef\n"
        "define void @f(ptr %p) {\n store <2 x ptr addrspace(3)> <ptr addrspace(3) @t, ptr addrspace(3) null>, ptr %p\n"
        " ret void\n}",
        "@f: the address of local memory stands inside a constant",
    )
    refused(
        "define void @f(i32 %n) {\n %a = alloca i32, i32 %n\n call void @hcq.barrier()\n"
        " store i32 1, ptr %a\n call void @hcq.barrier()\n ret void\n}",
        "@f: a kernel with barriers can't have an alloca whose size varies",
    )


def test_a_kernel_with_more_local_memory_than_the_limit_is_refused():
    device = Device["LLVM"]
    source = """
        @t = internal addrspace(3) global [262145 x i32] undef
        define void @f() {
          store i32 1, ptr addrspace(3) @t
          ret void
        }
        """
    library = LLVMCompiler(None).compile(DECLARED + source)
    with pytest.raises(InvalidProgram, match=r"function 'f' needs 10486\d\d bytes of local memory.* at most 1048576 "):
        device.runtime("f", library)


def test_debug_information_is_no_obstacle():
    program = load(
        f"""
        define void @f(ptr %out) !dbg !4 {{
          {X.strip()}, !dbg !7
            #dbg_value(i32 %x, !8, !DIExpression(), !7)
          call void @hcq.barrier(), !dbg !7
          %p = getelementptr i32, ptr %out, i32 %x, !dbg !7
          store i32 %x, ptr %p, align 4, !dbg !7
          ret void, !dbg !7
        }}
        !llvm.dbg.cu = !{{!0}}
        !llvm.module.flags = !{{!2, !3}}
        !0 = distinct !DICompileUnit(language: DW_LANG_C99, file: !1, emissionKind: FullDebug)
        !1 = !DIFile(filename: "k.c", directory: "/")
        !2 = !{{i32 2, !"Debug Info Version", i32 3}}
        !3 = !{{i32 7, !"Dwarf Version", i32 4}}
        !4 = distinct !DISubprogram(name: "f", file: !1, line: 1, type: !5, unit: !0, spFlags: DISPFlagDefinition)
        !5 = !DISubroutineType(types: !6)
        !6 = !{{}}
        !7 = !DILocation(line: 2, scope: !4)
        !8 = !DILocalVariable(name: "x", scope: !4, file: !1, type: !9)
        !9 = !DIBasicType(name: "int", size: 32, encoding: DW_ATE_signed)
        """
    )
    out = np.zeros(4, "i4")
    program.run("f", out, local_size=(4, 1, 1))
    assert out.tolist() == [0, 1, 2, 3]


# Speed that shows in the code


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


@pytest.mark.skipif(platform.machine() != "x86_64", reason="looks for x86 instructions")
def test_items_become_vector_lanes_though_arguments_may_alias(monkeypatch):
    if "+avx2" not in llvm_host.host().features.split(","):
        pytest.skip("this processor has no AVX2")
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


@pytest.mark.skipif(platform.machine() != "x86_64", reason="looks for x86 instructions")
def test_regions_between_barriers_vectorise_and_only_items_with_work_run(monkeypatch):
    if "+avx2" not in llvm_host.host().features.split(","):
        pytest.skip("this processor has no AVX2")
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


@pytest.mark.skipif(platform.machine() != "x86_64", reason="looks for x86 instructions")
def test_the_items_of_a_group_stay_together_through_reductions_that_follow_one_another(monkeypatch):
    if "+avx2" not in llvm_host.host().features.split(","):
        pytest.skip("this processor has no AVX2")
    code = assembly(TWICE, monkeypatch)
    for instruction in ("vmaxps", "vaddps", "vsubps", "vdivps"):
        assert any(instruction in line and "ymm" in line for line in code.splitlines()), instruction


@pytest.mark.skipif(platform.machine() != "x86_64", reason="looks for x86 instructions")
def test_items_become_lanes_though_all_divide_alike_before_a_guard(monkeypatch):
    if "+avx2" not in llvm_host.host().features.split(","):
        pytest.skip("this processor has no AVX2")
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


@pytest.mark.skipif(platform.machine() != "x86_64", reason="looks for x86 instructions")
def test_a_loop_in_each_item_vectorises_across_items(monkeypatch):
    if "+avx2" not in llvm_host.host().features.split(","):
        pytest.skip("this processor has no AVX2")
    code = assembly(PRODUCT, monkeypatch)
    assert any("vmulps" in line and "ymm" in line for line in code.splitlines())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="looks for x86 instructions")
def test_a_kernel_may_ask_for_wider_vectors(monkeypatch):
    if "+avx512vl" not in llvm_host.host().features.split(","):
        pytest.skip("this processor has no AVX-512")
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


# On a device


def test_groups_of_a_launch_run_on_the_device():
    device = Device["LLVM"]
    program = device.runtime("reduce", LLVMCompiler(None).compile(DECLARED + REDUCE))
    values = np.random.default_rng(1).integers(0, 100, (3000, 192)).astype("f")
    out = np.zeros(3000, "f")
    program(out, values, global_size=(3000, 1, 1), local_size=(192, 1, 1))
    assert (out == values.sum(1)).all()


# Any control flow: random kernels beside a plain model

sizes = st.tuples(st.integers(1, 19), st.integers(1, 3), st.integers(1, 3))
groups = st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 2))
some = settings(max_examples=max(settings().max_examples // 2, 10))


def check(program, group_counts, local, n, bare=False):
    items = local[0] * local[1] * local[2]
    total = items * group_counts[0] * group_counts[1] * group_counts[2]
    source = llvm_programs.module(program, items, bare)
    out = np.zeros(total * llvm_programs.VARIABLES, "u4")
    Loaded(source).run("f", out, n, global_size=group_counts, local_size=local)
    expected = np.array(llvm_programs.run(program, group_counts, local, n), "u4")
    np.testing.assert_array_equal(out, expected)  # names what differs at once, where a diff of lists takes minutes


# Items leave for code that others reach by a branch that all take alike.
LEAVING = [
    ("if", ("eq", ("n",), ("const", 0)),
        [("return", ("ult", ("const", 40), ("n",)))],
        [("if", ("ult", ("id", "local", 0), ("const", 1)), [], [("put", ("const", 1), ("const", -1))])]),
    ("return", ("ugt", ("array", ("const", 13)), ("const", 1))),
    ("if", ("slt", ("n",), ("const", 9)), [("set", 2, ("const", 1))], [("barrier",)]),
]  # fmt: skip


@pytest.mark.parametrize("n", [0, 6, 9, 50])
def test_items_may_leave_for_where_all_others_go_later(n):
    check(LEAVING, (1, 1, 1), (5, 1, 1), n)


# Some items go round a loop, and leave, past a barrier that others come to.
PASSING = [
    ("loop", ("op", "and", ("op", "add", ("const", 1), ("id", "local", 0)), ("const", 3)),
        [("if", ("eq", ("const", 0), ("id", "local", 2)), [("set", 0, ("const", 0))], [("barrier",)])]),
]  # fmt: skip


@pytest.mark.parametrize("local", [(1, 1, 2), (3, 2, 2), (1, 1, 1)])
def test_items_may_leave_past_a_barrier_that_others_come_to(local):
    check(PASSING, (1, 1, 1), local, 0)


@some
@given(program=llvm_programs.statements(together=True), group_counts=groups, local=sizes, n=st.integers(-4, 9))
def test_items_that_meet_at_the_same_barriers_see_each_other(program, group_counts, local, n):
    check(program, group_counts, local, n)


@some
@given(program=llvm_programs.statements(together=False), group_counts=groups, local=sizes, n=st.integers(-4, 9))
def test_items_keep_their_own_values_across_barriers_that_not_all_reach(program, group_counts, local, n):
    check(program, group_counts, local, n)


@pytest.fixture(scope="module")
def every_loop_together():
    """Every innermost loop without a barrier is gone round together, whether that is worth it or not."""

    def all_innermost(pieces, _definitions):
        found = llvm_loops.natural_loops(pieces)
        inner = (h for h, body in found.items() if not any(o != h and o in body for o in found))
        return {h for h in inner if not any(pieces[p].barrier for p in found[h])}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llvm_loops, "worth_sharing", all_innermost)
        yield


@some
@given(program=llvm_programs.loops(), group_counts=groups, local=sizes, n=st.integers(-4, 9))
def test_a_group_goes_round_loops_together(every_loop_together, program, group_counts, local, n):
    check(program, group_counts, local, n, bare=True)


@some
@given(program=llvm_programs.statements(together=True), group_counts=groups, local=sizes, n=st.integers(-4, 9))
def test_a_group_goes_round_loops_together_between_barriers(every_loop_together, program, group_counts, local, n):
    check(program, group_counts, local, n)
