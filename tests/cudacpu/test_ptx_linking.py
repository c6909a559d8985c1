"""Modules of PTX that are linked: shared names meet, each module's own stay apart, clashes are told of."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_host import HEAD, Loaded

from hcq.cudacpu import ptx

MAIN = f"""{HEAD}.file 1 "main.cu"
.extern .func (.param .b32 r) f(.param .b32 x);
.extern .global .align 4 .u32 shared_word;
.extern .shared .align 8 .b8 dyn[];
.global .u32 own = 5;
.func (.param .b32 r) helper(.param .b32 x) {{
    .reg .b32 %r<3>; ld.param.b32 %r1, [x]; ld.global.u32 %r2, [own]; add.u32 %r1, %r1, %r2; st.param.b32 [r], %r1;
    ret; }}
.visible .entry k(.param .u64 out) {{
    .reg .b64 %o; .reg .b32 %r<5>; ld.param.u64 %o, [out];
    {{ .param .b32 a; .param .b32 b; st.param.b32 [a], 1; call (b), helper, (a); ld.param.b32 %r1, [b]; }}
    {{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), f, (a); ld.param.b32 %r1, [b]; }}
    ld.global.u32 %r2, [shared_word]; st.global.u32 [%o], %r1; st.global.u32 [%o+4], %r2;
    .loc 1 12 0
    st.shared.u32 [dyn], 1; ret; }}
"""
OTHER = f"""{HEAD}.file 1 "other.cu"
.visible .global .align 4 .u32 shared_word = 77;
.extern .shared .align 32 .b8 dyn[];
.global .u32 own = 100;
.func (.param .b32 r) helper(.param .b32 x) {{
    .reg .b32 %r<3>; ld.param.b32 %r1, [x]; ld.global.u32 %r2, [own]; add.u32 %r1, %r1, %r2; st.param.b32 [r], %r1;
    bra helper; helper: ret; }}
.visible .func (.param .b32 r) f(.param .b32 x) {{
    .reg .b32 %r1; .loc 1 7 0
    {{ .param .b32 a; .param .b32 b; ld.param.b32 %r1, [x]; st.param.b32 [a], %r1; call (b), helper, (a);
    ld.param.b32 %r1, [b]; }}
    st.param.b32 [r], %r1; ret; }}
"""


@pytest.mark.parametrize("texts", [(MAIN, OTHER), (OTHER, MAIN)])
def test_what_one_module_defines_another_uses_and_each_has_its_own_static_names(texts):
    linked = ptx.link([ptx.parse(text) for text in texts])
    assert sorted(linked.files.values()) == ["main.cu", "other.cu"] and len(linked.files) == 2
    loaded = Loaded(linked)
    out = np.zeros(2, np.uint32)
    loaded.launch("k", out, dynamic=8)
    assert list(out) == [106, 77]


def test_a_name_that_two_modules_define_is_told_of_and_a_weak_one_gives_way():
    one = f"{HEAD}.visible .func f() {{ ret; }}"
    with pytest.raises(ptx.PtxError, match="f is defined in two modules"):
        ptx.link([ptx.parse(one), ptx.parse(one)])
    linked = ptx.link([ptx.parse(f"{HEAD}.weak .func f() {{ trap; }}"), ptx.parse(one)])
    (function,) = linked.functions
    assert function.linkage == "visible"


def test_a_variable_that_no_module_defines_is_told_of_with_its_line():
    with pytest.raises(ptx.PtxError, match=r"line 4: missing is declared \.extern"):
        Loaded(f"{HEAD}.extern .global .u32 missing;")
