"""Grid kernels in LLVM IR: local memory, private arrays in order, atomics, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from llvm_grids import DECLARED, X, load, refused

from hcq import Device
from hcq.drivers.cpu.compiler_llvm import LLVMCompiler
from hcq.errors import CompileError, InvalidProgram

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
