"""A NaN's bits: canonical where arithmetic made it, its own where it was only loaded, moved and stored."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_host import Loaded

CANONICAL, PAYLOAD = 0x7FFFFFFF, 0xFF812345
HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 given, .param .u64 out, .param .u32 zero) {
.reg .pred %p<3>; .reg .f32 %f<20>; .reg .b32 %r<20>; .reg .b64 %d<4>;
ld.param.u64 %d0, [given]; ld.param.u64 %d1, [out]; ld.param.u32 %r0, [zero];
ld.global.f32 %f0, [%d0]; ld.global.b32 %r1, [%d0]; setp.eq.u32 %p0, %r0, 0;
"""
ARITHMETIC = {
    "stored as it is": "add.f32 %f1, %f0, %f0; st.global.f32 [%d1], %f1;",
    "stored as bits": "mul.f32 %f1, %f0, %f0; st.global.b32 [%d1], %f1;",
    "moved to an integer register": "add.f32 %f1, %f0, %f0; mov.b32 %r2, %f1; st.global.u32 [%d1], %r2;",
    "copied, then stored": "add.f32 %f1, %f0, %f0; mov.f32 %f2, %f1; st.global.f32 [%d1], %f2;",
    "copied into a register that was also loaded": (
        "ld.global.f32 %f2, [%d0]; add.f32 %f1, %f0, %f0; @%p0 mov.f32 %f2, %f1; st.global.f32 [%d1], %f2;"
    ),
    "chosen": "add.f32 %f1, %f0, %f0; selp.f32 %f2, %f1, %f0, %p0; st.global.f32 [%d1], %f2;",
    "stored in a vector": "fma.rn.f32 %f1, %f0, %f0, %f0; st.global.v2.f32 [%d1], {%f1, %f1};",
    "packed with others": "add.f32 %f1, %f0, %f0; mov.b64 %d2, {%f1, %f1}; st.global.b64 [%d1], %d2;",
    "summed in a loop": (
        "mov.f32 %f1, 0f00000000; mov.u32 %r3, 0;\nL: add.f32 %f1, %f1, %f0; add.u32 %r3, %r3, 1; "
        "setp.lt.u32 %p1, %r3, 3; @%p1 bra L; st.global.f32 [%d1], %f1;"
    ),
    "summed from what was loaded": (
        "ld.global.f32 %f1, [%d0]; mov.u32 %r3, 0;\nL: add.f32 %f1, %f1, %f0; add.u32 %r3, %r3, 1; "
        "setp.lt.u32 %p1, %r3, 3; @%p1 bra L; st.global.f32 [%d1], %f1;"
    ),
    "given a sign": "add.f32 %f1, %f0, %f0; copysign.f32 %f2, 0fBF800000, %f1; st.global.f32 [%d1], %f2;",
    "the larger of two": "max.f32 %f1, %f0, %f0; st.global.f32 [%d1], %f1;",
    "converted": "cvt.f32.f32 %f1, %f0; st.global.f32 [%d1], %f1;",
}
KEPT = {
    "loaded and stored": "st.global.f32 [%d1], %f0;",
    "copied": "mov.f32 %f1, %f0; mov.f32 %f2, %f1; st.global.f32 [%d1], %f2;",
    "copied into a register that is summed in": (
        "mov.f32 %f1, %f0; setp.ne.u32 %p1, %r0, 0; @%p1 add.f32 %f1, %f1, %f0; st.global.f32 [%d1], %f1;"
    ),
    "chosen beside a sum": "add.f32 %f1, %f0, %f0; selp.f32 %f2, %f0, %f1, %p0; st.global.f32 [%d1], %f2;",
    "from an integer register": "mov.b32 %f1, %r1; st.global.f32 [%d1], %f1;",
    "a constant": "mov.f32 %f1, 0fFF812345; st.global.f32 [%d1], %f1;",
}


def result(body: str, given: int) -> int:
    array, out = np.array([given], np.uint32), np.zeros(2, np.uint32)
    Loaded(f"{HEAD}{body}\nret; }}\n", 2).launch("k", array, out, np.uint32(0))
    return int(out[0])


@pytest.mark.parametrize("way", ARITHMETIC)
def test_a_nan_that_arithmetic_made_is_canonical_however_its_bits_are_seen(way: str) -> None:
    wanted = CANONICAL | 1 << 31 if way == "given a sign" else CANONICAL
    assert result(ARITHMETIC[way], PAYLOAD) == wanted


@pytest.mark.parametrize("way", KEPT)
def test_a_nan_that_is_only_moved_keeps_its_bits(way: str) -> None:
    assert result(KEPT[way], PAYLOAD) == PAYLOAD
