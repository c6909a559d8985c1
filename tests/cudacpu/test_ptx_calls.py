"""Calls: by name, by address, recursion, parameters of every kind, and what the device's runtime has."""

from __future__ import annotations

import ctypes

import numpy as np
import ptx_host
import pytest
from ptx_host import HEAD, Loaded

from hcq.cudacpu import lower, ptx


def run(before: str, body: str, threads: int = 8) -> np.ndarray:
    loaded = Loaded(
        f"""{HEAD}{before}
        .visible .entry k(.param .u64 out) {{
            .reg .b64 %o, %a<9>; .reg .b32 %t, %r<20>; .reg .pred %p<9>; .reg .f32 %f<9>;
            ld.param.u64 %o, [out]; mov.u32 %t, %tid.x; mad.wide.u32 %o, %t, 4, %o;
            {body}
            st.global.u32 [%o], %r1; ret;
        }}"""
    )
    out = np.zeros(threads, np.uint32)
    loaded.launch("k", out, block=(threads,))
    return out


def test_a_structure_goes_in_and_comes_out_as_bytes():
    out = run(
        """.func (.param .align 8 .b8 r[16]) f(.param .align 8 .b8 s[16], .param .b32 n) {
            .reg .b32 %r<4>; .reg .b64 %a<3>;
            ld.param.u32 %r1, [s+4]; ld.param.b64 %a1, [s+8]; ld.param.b32 %r2, [n]; add.u32 %r1, %r1, %r2;
            st.param.b32 [r+0], %r1; st.param.b64 [r+8], %a1; ret;
        }""",
        """{ .param .align 8 .b8 param0[16]; .param .b32 param1; .param .align 8 .b8 retval0[16];
        st.param.v2.b32 [param0], {%t, %t}; st.param.b64 [param0+8], 1000; st.param.b32 [param1+0], 5;
        call.uni (retval0), f, (param0, param1); ld.param.b32 %r1, [retval0]; ld.param.b64 %a1, [retval0+8]; }
        cvt.u32.u64 %r2, %a1; add.u32 %r1, %r1, %r2;""",
    )
    assert (out == np.arange(8) + 1005).all()


def test_registers_can_be_parameters_and_results():
    out = run(
        """.func (.reg .u32 r) twice(.reg .u32 x) { add.u32 r, x, x; ret; }
        .func nothing() { ret; }""",
        "call nothing; call (%r1), twice, (%t); call (%r1), twice, (%r1);",
    )
    assert (out == np.arange(8) * 4).all()


def test_a_function_may_call_itself():
    out = run(
        """.func (.param .b32 r) fibonacci(.param .b32 n) {
            .reg .b32 %r<6>; .reg .pred %p1;
            ld.param.b32 %r1, [n]; setp.lt.u32 %p1, %r1, 2; @%p1 bra small;
            sub.u32 %r2, %r1, 1;
            { .param .b32 a; .param .b32 b; st.param.b32 [a], %r2; call (b), fibonacci, (a); ld.param.b32 %r3, [b]; }
            sub.u32 %r2, %r1, 2;
            { .param .b32 a; .param .b32 b; st.param.b32 [a], %r2; call (b), fibonacci, (a); ld.param.b32 %r4, [b]; }
            add.u32 %r1, %r3, %r4;
            small: st.param.b32 [r], %r1; ret;
        }""",
        "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %t; call (b), fibonacci, (a); ld.param.b32 %r1, [b]; }",
        threads=12,
    )
    assert list(out) == [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]


def test_a_function_is_called_by_an_address_that_a_table_holds():
    out = run(
        """.func (.param .b32 r) one(.param .b32 n) { st.param.b32 [r], 1; ret; }
        .func (.param .b32 r) more(.param .b32 n) {
            .reg .b32 %r1; ld.param.b32 %r1, [n]; add.u32 %r1, %r1, 100; st.param.b32 [r], %r1; ret; }
        .global .align 8 .u64 table[2] = {one, more};""",
        """and.b32 %r2, %t, 1; mov.u64 %a1, table; mad.wide.u32 %a1, %r2, 8, %a1; ld.global.u64 %a2, [%a1];
        { .param .b32 a; .param .b32 b; st.param.b32 [a], %t;
        proto: .callprototype (.param .b32 _) _ (.param .b32 _);
        call (b), %a2, (a), proto; ld.param.b32 %r1, [b]; }""",
    )
    assert list(out) == [1, 101, 1, 103, 1, 105, 1, 107]


def test_a_called_function_s_local_variables_are_of_that_call():
    out = run(
        """.func (.param .b32 r) deep(.param .b32 n) {
            .local .align 4 .b8 v[8]; .reg .b32 %r<6>; .reg .b64 %a<3>; .reg .pred %p1;
            ld.param.b32 %r1, [n]; mov.u64 %a1, v; cvta.local.u64 %a2, %a1; st.u32 [%a2+4], %r1;
            setp.eq.u32 %p1, %r1, 0; @%p1 bra end; sub.u32 %r2, %r1, 1;
            { .param .b32 a; .param .b32 b; st.param.b32 [a], %r2; call (b), deep, (a); ld.param.b32 %r3, [b]; }
            end: ld.local.u32 %r4, [v+4]; selp.u32 %r3, 0, %r3, %p1; add.u32 %r3, %r3, %r4;
            st.param.b32 [r], %r3; ret;
        }""",
        "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %t; call (b), deep, (a); ld.param.b32 %r1, [b]; }",
    )
    assert list(out) == [n * (n + 1) // 2 for n in range(8)]


def test_an_exit_in_a_function_ends_the_thread():
    out = run(
        ".func f() { .reg .b32 %r1; .reg .pred %p; mov.u32 %r1, %tid.x; setp.eq.u32 %p, %r1, 3; @%p exit; ret; }",
        "call f; mov.u32 %r1, 9;",
    )
    assert list(out) == [9, 9, 9, 0, 9, 9, 9, 9]


def test_a_branch_by_index_goes_where_its_table_says():
    out = run(
        "",
        """and.b32 %r2, %t, 3; table: .branchtargets a, b, c, a;
        brx.idx %r2, table;
        a: mov.u32 %r1, 10; bra.uni done;
        b: mov.u32 %r1, 20; bra.uni done;
        c: mov.u32 %r1, 30;
        done:""",
    )
    assert list(out) == [10, 20, 30, 10] * 2


def test_labels_of_nested_scopes_are_apart():
    out = run(
        "",
        """mov.u32 %r1, 0;
        { .reg .pred p; setp.lt.u32 p, %t, 4; @p bra L; add.u32 %r1, %r1, 1; L: }
        { .reg .pred p; setp.lt.u32 p, %t, 2; @!p bra L; add.u32 %r1, %r1, 10; L: }
        bra L; add.u32 %r1, %r1, 100; L:""",
    )
    assert list(out) == [10, 10, 0, 0, 1, 1, 1, 1]


def test_vprintf_gets_the_text_and_the_arguments_and_malloc_gives_memory():
    ptx_host.PRINTED.clear()
    out = run(
        """.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
        .extern .func (.param .b64 r) malloc(.param .b64 n);
        .extern .func free(.param .b64 p);
        .global .align 1 .b8 text[4] = {37, 100, 10};
        .func (.param .b32 r) say(.param .b32 n) {
            .local .align 8 .b8 v[8]; .reg .b32 %r<3>; .reg .b64 %a<4>;
            ld.param.b32 %r1, [n]; mov.u64 %a1, v; cvta.local.u64 %a2, %a1; st.local.u32 [v], %r1;
            mov.u64 %a3, text;
            { .param .b64 f; .param .b64 a; .param .b32 q; st.param.b64 [f], %a3; st.param.b64 [a], %a2;
            call.uni (q), vprintf, (f, a); ld.param.b32 %r2, [q]; }
            st.param.b32 [r], %r2; ret;
        }""",
        """{ .param .b32 a; .param .b32 b; st.param.b32 [a], %t; call (b), say, (a); ld.param.b32 %r1, [b]; }
        { .param .b64 n; .param .b64 q; st.param.b64 [n], 64; call (q), malloc, (n); ld.param.b64 %a1, [q]; }
        st.u32 [%a1+60], %t; ld.u32 %r2, [%a1+60]; add.u32 %r1, %r1, %r2;
        { .param .b64 n; st.param.b64 [n], %a1; call free, (n); }""",
        threads=4,
    )
    assert list(out) == [1, 2, 3, 4]
    assert [(b"%d\n", n) for n in range(4)] == ptx_host.PRINTED


def test_memory_of_alloca_is_there_until_the_function_ends():
    out = run(
        """.func (.param .b32 r) f(.param .b32 n) {
            .reg .b32 %r<3>; .reg .b64 %a<3>;
            ld.param.b32 %r1, [n]; stacksave.u64 %a2; alloca.u64 %a1, 16, 8; st.local.u32 [%a1+12], %r1;
            ld.local.u32 %r2, [%a1+12]; stackrestore.u64 %a2; st.param.b32 [r], %r2; ret; }""",
        "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %t; call (b), f, (a); ld.param.b32 %r1, [b]; }",
    )
    assert (out == np.arange(8)).all()


def test_a_kernel_may_have_any_name():
    loaded = Loaded(f"{HEAD}.visible .entry memcpy(.param .u64 out) {{ .reg .b64 %o; ld.param.u64 %o, [out];"
                    " st.global.u32 [%o], 3; ret; }")  # fmt: skip
    out = np.zeros(1, np.uint32)
    loaded.launch("memcpy", out)
    assert out[0] == 3 and ctypes.sizeof(ptx_host.Thread) == 104


def test_a_recursive_function_may_trap_and_then_exit_as_compilers_end_what_never_returns():
    out = run(
        """.func (.param .b32 r) f(.param .b32 n) {
            .reg .b32 %r<4>; .reg .pred %p<3>;
            ld.param.b32 %r1, [n]; setp.eq.u32 %p1, %r1, 0; @%p1 bra zero; setp.gt.u32 %p2, %r1, 99; @%p2 bra bad;
            sub.u32 %r2, %r1, 1;
            { .param .b32 a; .param .b32 b; st.param.b32 [a], %r2; call (b), f, (a); ld.param.b32 %r3, [b]; }
            add.u32 %r1, %r1, %r3;
            zero: st.param.b32 [r], %r1; ret;
            bad: trap; exit;
        }""",
        "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %t; call (b), f, (a); ld.param.b32 %r1, [b]; }",
    )
    assert list(out) == [n * (n + 1) // 2 for n in range(8)]


@pytest.mark.parametrize("name", ["vprintf", "malloc", "free", "__assertfail"])
def test_a_function_of_the_runtime_that_is_declared_with_other_parameters_is_refused(name):
    with pytest.raises(ptx.PtxError, match=rf"{name} has \d parameters, the call 0"):
        lower.translate(ptx.parse(f"{HEAD}.extern .func {name};\n.entry k() {{ call {name}; ret; }}"))
