"""Loads, stores and atomic operations: spaces, widths, vectors, orders."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_host import HEAD, Loaded

from hcq.cudacpu import lower, ptx


def run(body: str, data: np.ndarray, *, before: str = "", shared: str = "", threads: int = 1, level: int = 1) -> Loaded:
    """Run one block of a kernel k(data) with %d as the address of data and %t as the thread's number."""
    loaded = Loaded(
        f"""{HEAD}{before}
        .visible .entry k(.param .u64 data) {{
            {shared}
            .reg .b64 %d, %a<9>; .reg .b32 %t, %r<20>; .reg .pred %p<9>; .reg .f32 %f<9>; .reg .f64 %fd<9>;
            .reg .b16 %h<9>; .reg .b128 %q<5>;
            ld.param.u64 %d, [data]; mov.u32 %t, %tid.x;
            {body}
            ret;
        }}""",
        level,
    )
    loaded.launch("k", data, block=(threads,))
    return loaded


def test_narrow_loads_are_extended_as_their_type_says_and_narrow_stores_leave_the_rest():
    data = np.array([0xFFFEFD80, 0, 0, 0, 0, 0x11111111], np.uint32)
    run(
        """ld.global.u8 %r1, [%d]; st.global.u32 [%d+4], %r1; ld.global.s8 %r1, [%d]; st.global.u32 [%d+8], %r1;
        ld.global.s16 %r1, [%d+2]; st.global.u32 [%d+12], %r1; ld.global.u16 %h1, [%d]; st.global.u16 [%d+16], %h1;
        st.global.u8 [%d+21], 0x2ff;""",
        data,
    )
    assert [hex(x) for x in data[1:]] == ["0x80", "0xffffff80", "0xfffffffe", "0xfd80", "0x1111ff11"]


def test_vectors_are_loaded_and_stored_with_their_elements_in_order():
    data = np.arange(16, dtype=np.uint32)
    run(
        """ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d]; st.global.v4.u32 [%d+16], {%r4, %r3, %r2, %r1};
        ld.global.nc.L1::no_allocate.v2.b64 {_, %a1}, [%d+32]; st.global.v2.b64 [%d+48], {%a1, 5};""",
        data,
    )
    assert list(data[4:8]) == [3, 2, 1, 0] and list(data[12:]) == [10, 11, 5, 0]


def test_a_float_that_a_b32_register_holds_is_moved_bit_by_bit():
    data = np.array([1.5, 2.5, 0, 0], np.float32)
    run("ld.global.b32 %r1, [%d]; ld.global.f32 %f1, [%d+4]; add.f32 %r2, %r1, %f1; st.global.b32 [%d+8], %r2;", data)
    assert data[2] == 4.0


def test_local_variables_are_each_thread_s_own_and_generic_addresses_reach_all_spaces():
    data = np.zeros(64, np.uint32)
    run(
        """mov.u64 %a1, buf; cvta.local.u64 %a2, %a1; st.local.u32 [%a1+4], %t; ld.u32 %r1, [%a2+4];
        mov.u32 %r2, s; cvt.u64.u32 %a3, %r2; cvta.shared.u64 %a4, %a3; st.u32 [%a4], 100; ld.shared.u32 %r3, [s];
        isspacep.shared %p1, %a4; isspacep.local %p2, %a2; isspacep.global %p3, %d; isspacep.shared %p4, %a2;
        selp.u32 %r4, 1000, 0, %p1; selp.u32 %r5, 2000, 0, %p2; selp.u32 %r6, 4000, 0, %p3; selp.u32 %r7, 8000, 0, %p4;
        cvta.to.shared.u64 %a5, %a4; cvt.u32.u64 %r8, %a5; sub.u32 %r8, %r8, %r2;
        add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r4; add.u32 %r1, %r1, %r5; add.u32 %r1, %r1, %r6;
        add.u32 %r1, %r1, %r7; add.u32 %r1, %r1, %r8; mad.wide.u32 %d, %t, 4, %d; st.global.u32 [%d], %r1;""",
        data,
        shared=".local .align 8 .b8 buf[16]; .shared .align 4 .b8 s[4];",
        threads=64,
    )
    assert (data == np.arange(64) + 7100).all()


def test_addresses_of_constants_and_parameters_are_known_as_such():
    data = np.zeros(1, np.uint32)
    run(
        """mov.u64 %a1, c+8; mov.u64 %a2, g; cvta.param.u64 %a3, data; isspacep.const %p1, %a1; isspacep.const %p2, %a2;
        isspacep.param::entry %p3, %a3; isspacep.param %p4, %a1; selp.u32 %r1, 1, 0, %p1; selp.u32 %r2, 2, 0, %p2;
        selp.u32 %r3, 4, 0, %p3; selp.u32 %r4, 8, 0, %p4; add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3;
        add.u32 %r1, %r1, %r4; st.global.u32 [%d], %r1;""",
        data,
        before=".const .u32 c[3]; .global .u32 g;",
    )
    assert data[0] == 5


def test_globals_have_their_initial_values_and_addresses_of_others():
    data = np.zeros(10, np.uint32)
    loaded = run(
        """ld.const.u32 %r1, [c+4]; st.global.u32 [%d], %r1; ld.global.u64 %a1, [p]; ld.u8 %r2, [%a1];
        st.global.u32 [%d+4], %r2; ld.global.f32 %f1, [f]; st.global.f32 [%d+8], %f1; ld.global.u64 %a2, [m+8];
        ld.u16 %h1, [%a2+2]; st.global.u16 [%d+12], %h1; mov.u64 %a3, h+2; ld.global.s16 %r3, [%a3];
        st.global.u32 [%d+16], %r3; ld.global.u32 %r4, [z+12]; st.global.u32 [%d+20], %r4;
        ld.global.u32 %r4, [two+12]; st.global.u32 [%d+24], %r4;""",
        data,
        before=""".const .align 4 .u32 c[3] = {1, 0x22, 3};
        .global .align 1 .b8 s[4] = {104, 105};
        .global .u64 p = generic(s)+1;
        .global .f32 f = 0f3FC00000;
        .global .align 8 .b8 m[16] = {1, 2, 3, 4, 5, 6, 7, 8, 0xFF(h), 0xFF00(h), 0xFF0000(h), 0xFF000000(h),
            0xFF00000000(h), 0xFF0000000000(h), 0xFF000000000000(h), 0xFF00000000000000(h)};
        .global .align 4 .s16 h[2] = {-1, -2};
        .visible .global .align 4 .b8 z[16];
        .global .u32 two[2][2] = {{1, 2}, {3, 4}};""",
    )
    assert list(data[:7]) == [0x22, 105, 0x3FC00000, 0xFFFE, 0xFFFFFFFE, 0, 4]
    sizes = {each.name: (each.size, each.space) for each in loaded.translated.globals}
    assert sizes["z"] == (16, "global") and sizes["c"] == (12, "const")


@pytest.mark.parametrize("space", ["global", "shared", "global.cta", ""])
@pytest.mark.parametrize(
    ("operation", "type", "start", "operand", "wanted"),
    [
        ("add", "u32", 7, 5, 12), ("add", "s32", 7, -9, -2), ("add", "u64", 1 << 33, 1, (1 << 33) + 1),
        ("min", "s32", -3, 2, -3), ("min", "u32", 0xFFFFFFFF, 2, 2), ("max", "s64", -3, 2, 2), ("max", "u64", 9, 2, 9),
        ("and", "b32", 12, 10, 8), ("or", "b32", 12, 10, 14), ("xor", "b64", 12, 10, 6), ("exch", "b32", 12, 10, 10),
        ("inc", "u32", 5, 5, 0), ("inc", "u32", 4, 5, 5), ("dec", "u32", 0, 5, 5), ("dec", "u32", 6, 5, 5),
        ("dec", "u32", 3, 5, 2), ("exch", "b64", 12, 10, 10),
    ],
)  # fmt: skip
def test_an_atomic_operation_gives_the_old_value_and_leaves_the_new_one(space, operation, type, start, operand, wanted):
    bits = int(type[1:])
    mask = (1 << bits) - 1
    data = np.array([start & mask, 0, 0], np.uint64)
    r = "%r" if bits == 32 else "%a"
    where, scope = ("[s]", "shared") if space == "shared" else ("[%d]", space.split(".")[0])
    order = "relaxed.cta" if space.endswith("cta") else "acq_rel.gpu" if space == "global" else ""
    name = ".".join(x for x in ("atom", order, scope, operation, type) if x)
    run(
        f"""ld.global.b{bits} {r}1, [%d]; st.shared.b{bits} [s], {r}1; {name} {r}2, {where}, {operand};
        st.global.b{bits} [%d+8], {r}2; ld.{scope or "global"}.b{bits} {r}3, {where};
        st.global.b{bits} [%d+16], {r}3;""",
        data,
        shared=".shared .align 8 .b8 s[8];",
    )
    assert [int(x) for x in data[1:]] == [start & mask, wanted & mask]


def test_compare_and_swap_of_16_32_64_and_128_bits():
    room = np.zeros(12, np.uint64)
    data = room[room.ctypes.data // 8 % 2 :][:10]  # aligned to 16
    data[:6] = (5, 6, 7, 8, 9, 10)
    run(
        """atom.global.cas.b32 %r1, [%d], 5, 50; atom.global.cas.b64 %a1, [%d+8], 5, 50;
        mov.b16 %h1, 7; mov.b16 %h2, 70; atom.global.cas.b16 %h3, [%d+16], %h1, %h2;
        mov.b128 %q1, {9, 10}; mov.b64 %a2, 90; mov.b64 %a3, 100; mov.b128 %q2, {%a2, %a3};
        atom.global.cas.b128 %q3, [%d+32], %q1, %q2; mov.b128 {%a4, %a5}, %q3; st.global.u64 [%d+48], %a4;
        st.global.u64 [%d+56], %a5; st.global.u32 [%d+64], %r1; st.global.u64 [%d+72], %a1;""",
        data,
    )
    assert list(data) == [50, 6, 70, 8, 90, 100, 9, 10, 5, 6]


@pytest.mark.parametrize("space", ["global", "shared"])
def test_compare_and_swap_leaves_what_differs(space):
    data = np.array([5, 6, 0, 0], np.uint32)
    at = "%d" if space == "global" else "s"
    run(
        f"""ld.global.v2.u32 {{%r1, %r2}}, [%d]; st.{space}.v2.u32 [{at}], {{%r1, %r2}};
        atom.{space}.cas.b32 %r3, [{at}], 4, 50; atom.{space}.cas.b32 %r4, [{at}+4], 6, 60;
        ld.{space}.v2.u32 {{%r5, %r6}}, [{at}]; st.global.v4.u32 [%d], {{%r5, %r6, %r3, %r4}};""",
        data,
        shared=".shared .align 8 .b8 s[8];",
    )
    assert list(data) == [5, 60, 5, 6]


def test_addresses_of_shared_and_local_memory_are_not_global():
    data = np.zeros(1, np.uint32)
    run(
        """mov.u64 %a1, buf; cvta.local.u64 %a1, %a1; mov.u64 %a2, s; cvta.shared.u64 %a2, %a2;
        isspacep.global %p1, %a1; isspacep.global %p2, %a2; isspacep.global %p3, %d; selp.u32 %r1, 1, 0, %p1;
        selp.u32 %r2, 2, 0, %p2; selp.u32 %r3, 4, 0, %p3; add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3;
        st.global.u32 [%d], %r1;""",
        data,
        shared=".local .align 8 .b8 buf[16]; .shared .align 4 .b8 s[4];",
    )
    assert data[0] == 4


def test_atomic_floats_of_all_widths_add_and_halves_of_a_pair_each_round():
    data = np.zeros(8, np.float32)
    data[0], data[1:2].view(np.float16)[:] = 1.5, (1.0, 2048.0)
    data[2:3].view(np.uint16)[:] = (0x3F80, 0x4000)  # bf16: 1, 2
    data[4:6].view(np.float64)[:] = 0.25
    run(
        """atom.global.add.f32 %f1, [%d], 0f3F000000; red.global.add.noftz.f16x2 [%d+4], 0x3C003C00;
        red.global.add.noftz.bf16x2 [%d+8], 0x3F803F80; atom.global.add.f64 %fd1, [%d+16], 0d3FF0000000000000;
        st.global.f32 [%d+12], %f1; red.relaxed.gpu.global.add.v2.f32 [%d+24], {%f1, %f1};""",
        data,
    )
    assert data[0] == 2 and data[3] == 1.5 and data[4:6].view(np.float64)[0] == 1.25 and list(data[6:]) == [1.5, 1.5]
    assert list(data[1:2].view(np.float16)) == [2.0, 2048.0]  # 2049 lies between two halves: to the even one
    assert list(data[2:3].view(np.uint16)) == [0x4000, 0x4040]


def test_atomics_of_many_threads_lose_nothing():
    data = np.zeros(4, np.uint32)
    run(
        "red.global.add.u32 [%d], 1; atom.global.inc.u32 %r1, [%d+4], 9; red.global.max.u32 [%d+8], %t;",
        data,
        threads=256,
        level=3,
    )
    assert list(data[:3]) == [256, 6, 255]


def test_a_kernel_s_parameters_lie_where_ptx_says():
    loaded = Loaded(
        f"""{HEAD}.visible .entry k(.param .u8 a, .param .align 8 .b8 s[12], .param .f64 d, .param .u64 out) {{
            .reg .b64 %o; .reg .b32 %r<5>; .reg .f64 %d;
            ld.param.u64 %o, [out]; ld.param.u8 %r1, [a]; ld.param.u32 %r2, [s+8]; ld.param.f64 %d, [d];
            st.global.u32 [%o], %r1; st.global.u32 [%o+4], %r2; st.global.f64 [%o+8], %d;
            ld.param.v2.u32 {{%r3, %r4}}, [s]; add.u32 %r3, %r3, %r4; st.global.u32 [%o+16], %r3; ret;
        }}"""
    )
    kernel = loaded.kernels["k"]
    assert kernel.params == ((0, 1, 1), (8, 12, 8), (24, 8, 8), (32, 8, 8)) and kernel.param_bytes == 40
    out = np.zeros(6, np.uint32)
    loaded.launch("k", np.uint8(200), np.array([1, 2, 3], np.uint32).tobytes(), np.float64(1.5), out)
    assert list(out[:2]) == [200, 3] and out[2:4].view(np.float64)[0] == 1.5 and out[4] == 3


def test_special_registers_say_where_a_thread_is():
    names = (
        "tid.x", "tid.y", "tid.z", "ntid.x", "ctaid.y", "nctaid.y", "laneid", "warpid", "nwarpid", "lanemask_lt",
        "lanemask_ge", "tid.w",
    )  # fmt: skip
    body = "".join(f"mov.u32 %r1, %{name}; st.global.u32 [%o+{4 * n}], %r1;" for n, name in enumerate(names))
    loaded = Loaded(
        f"""{HEAD}.visible .entry k(.param .u64 out) {{
            .reg .b64 %o; .reg .b32 %r<9>; .reg .v4 .u32 %v;
            ld.param.u64 %o, [out]; mov.u32 %r1, %ctaid.y; mov.u32 %r2, %tid.z; mad.lo.u32 %r1, %r1, 1, 0;
            mov.v4.u32 %v, %tid;
            mad.lo.u32 %r3, %r1, 2, %v.z; mad.lo.u32 %r3, %r3, 3, %v.y; mad.lo.u32 %r3, %r3, 2, %v.x;
            mad.wide.u32 %o, %r3, 48, %o; {body} ret;
        }}"""
    )
    data = np.zeros((2, 2, 3, 2, 12), np.uint32)
    loaded.launch("k", data, grid=(1, 2), block=(2, 3, 2))
    for b, z, y, x in np.ndindex(2, 2, 3, 2):
        lane = x + 2 * y + 6 * z
        lower = (1 << lane) - 1
        assert list(data[b, z, y, x]) == [x, y, z, 2, b, 2, lane, 0, 1, lower, 0xFFFFFFFF ^ lower, 0]


@pytest.mark.parametrize(
    ("text", "most"),
    [
        (".shared .b8 s[{}]; .entry k() {{ .reg .u32 %r; mov.u32 %r, s; ret; }}", 48 << 10),
        (".entry k() {{ .shared .b8 s[{}]; .reg .u32 %r; mov.u32 %r, s; ret; }}", 48 << 10),
        (".const .b8 c[{}]; .entry k() {{ ret; }}", 64 << 10),
        (".entry k(.param .b8 p[{}]) {{ ret; }}", 32764),
        (".entry k() {{ .local .b8 s[{}]; ret; }}", 512 << 10),
        (".func f() {{ .local .b8 s[{}]; ret; }} .entry k() {{ call f; ret; }}", 512 << 10),
        (".func f() {{ .local .b8 s[{}]; bar.sync 0; ret; }} .entry k() {{ call f; ret; }}", 512 << 10),
    ],
)
def test_memory_that_no_gpu_has_is_refused_with_its_line(text, most):
    for count in (most, most + 1, 1 << 60):
        module = ptx.parse(HEAD + text.format(count))
        if count == most:
            assert lower.translate(module).kernels
            continue
        with pytest.raises(ptx.PtxError, match=rf"has {count} bytes of \.\w+ memory, at most {most} can be"):
            lower.translate(module)
