"""PTX as compilers write it is parsed, translated, and does what it says."""

from __future__ import annotations

import numpy as np
from ptx_host import Loaded

ADD = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<11>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [c];
    ld.param.u32 %r2, [n];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r1, %r3, %r4, %r5;
    setp.ge.s32 %p1, %r1, %r2;
    @%p1 bra $L__BB0_2;
    cvta.to.global.u64 %rd4, %rd1;
    mul.wide.s32 %rd5, %r1, 4;
    add.s64 %rd6, %rd4, %rd5;
    add.s64 %rd8, %rd2, %rd5;
    ld.global.u32 %r6, [%rd6];
    ld.global.u32 %r7, [%rd8];
    add.s32 %r8, %r6, %r7;
    add.s64 %rd10, %rd3, %rd5;
    st.global.u32 [%rd10], %r8;
$L__BB0_2:
    ret;
}
"""


def test_a_vector_add_adds():
    a, b, c = np.arange(100, dtype=np.int32), np.arange(100, dtype=np.int32) * 7, np.zeros(100, np.int32)
    Loaded(ADD).launch("add", a, b, c, np.int32(90), grid=(4,), block=(32,))
    assert (c[:90] == (a + b)[:90]).all() and not c[90:].any()


def test_the_loop_over_the_threads_of_a_kernel_without_barriers_becomes_vectors():
    assert "x i32> @llvm.masked" in str(Loaded(ADD, level=3).module)


def test_a_load_from_constant_memory_keeps_the_loop_over_threads_parallel():
    text = ADD.replace(
        "ld.global.u32 %r7, [%rd8];", "mov.u64 %rd9, table; add.s64 %rd9, %rd9, %rd5; ld.const.u32 %r7, [%rd9];"
    )
    text = text.replace(".visible .entry", ".const .align 4 .u32 table[256];\n.visible .entry")
    loaded = Loaded(text, level=3)
    code = str(loaded.module)
    assert "@llvm.masked.store.v" in code and "vector.memcheck" not in code
