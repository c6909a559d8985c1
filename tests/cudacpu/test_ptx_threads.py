"""Threads that meet: barriers, operations of a warp, shared memory, and functions that reach them."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_host import HEAD, Loaded

from hcq.cudacpu import lower


@pytest.fixture(params=["threads", "regions"], autouse=True)
def form(request, monkeypatch):
    """Everything is run as coroutines, and in the form of regions where it has one."""
    monkeypatch.setattr(f"{__name__}.OPTIONS", lower.Options(regions=request.param == "regions"))
    return request.param


OPTIONS = lower.Options()


def kernel(body: str, *, before: str = "", shared: str = "") -> Loaded:
    """A module whose kernel k(out) has the thread's number in %t and the address of its word of out in %o."""
    return Loaded(
        f"""{HEAD}{before}
        .visible .entry k(.param .u64 out) {{
            {shared}
            .reg .b64 %o, %a<9>; .reg .b32 %t, %r<20>; .reg .pred %p<9>; .reg .f32 %f<9>;
            ld.param.u64 %o, [out];
            mov.u32 %t, %tid.x;
            mad.wide.u32 %o, %t, 4, %o;
            {body}
            ret;
        }}""",
        options=OPTIONS,
    )


def result(loaded: Loaded, threads: int = 64, **launch) -> np.ndarray:
    out = np.zeros(threads, np.uint32)
    loaded.launch("k", out, block=(threads,), **launch)
    return out


def test_a_barrier_lets_threads_read_what_others_wrote_to_shared_memory(form):
    loaded = kernel(
        """mov.u32 %r1, s; shl.b32 %r2, %t, 2; add.u32 %r3, %r1, %r2; st.shared.u32 [%r3], %t;
        bar.sync 0;
        mov.u32 %r4, %ntid.x; sub.u32 %r4, %r4, %t; sub.u32 %r4, %r4, 1; shl.b32 %r4, %r4, 2; add.u32 %r4, %r4, %r1;
        ld.shared.u32 %r5, [%r4]; st.global.u32 [%o], %r5;""",
        shared=".shared .align 4 .b8 s[256];",
    )
    assert loaded.kernels["k"].kind == form and loaded.kernels["k"].shared == 256
    assert (result(loaded) == np.arange(64)[::-1]).all()


def test_threads_that_returned_take_no_part_in_a_barrier():
    loaded = kernel("setp.gt.u32 %p1, %t, 9; @%p1 ret; bar.sync 0; st.global.u32 [%o], 7;")
    assert (result(loaded) == np.where(np.arange(64) < 10, 7, 0)).all()


def test_dynamic_shared_memory_begins_after_the_static_one():
    loaded = kernel(
        """mov.u32 %r1, d; mov.u32 %r2, %t; shl.b32 %r2, %r2, 2; add.u32 %r1, %r1, %r2; st.shared.u32 [%r1], %t;
        st.shared.u32 [s], 77; bar.sync 0; mov.u32 %r5, d; ld.shared.u32 %r6, [%r5+8]; mov.u32 %r7, %dynamic_smem_size;
        mov.u32 %r8, %total_smem_size; mad.lo.u32 %r6, %r5, 1000, %r6; mad.lo.u32 %r7, %r7, 1000, %r8;
        setp.eq.u32 %p1, %t, 0; selp.b32 %r6, %r6, %r7, %p1; st.global.u32 [%o], %r6;""",
        before=".extern .shared .align 16 .b8 d[];",
        shared=".shared .align 4 .b8 s[20];",
    )
    out = result(loaded, 8, dynamic=32)
    assert loaded.kernels["k"].shared == 32
    assert out[0] == 32 * 1000 + 2 and (out[1:] == 32 * 1000 + 64).all()


def test_barriers_that_count_and_reduce():
    loaded = kernel(
        """and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 1; bar.red.popc.u32 %r2, 1, %p1; bar.red.and.pred %p2, 1, !%p1;
        barrier.cta.red.or.pred %p3, 2, 64, %p1; selp.b32 %r3, 100, 0, %p2; selp.b32 %r4, 1000, 0, %p3;
        add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4; st.global.u32 [%o], %r2;"""
    )
    assert (result(loaded) == 1032).all()


def test_a_barrier_of_some_threads_waits_for_those_that_arrive():
    loaded = kernel(
        """mov.u32 %r1, s; setp.lt.u32 %p1, %t, 32; @%p1 bra consumer;
        shl.b32 %r2, %t, 2; add.u32 %r2, %r1, %r2; st.shared.u32 [%r2], %t; bar.arrive 3, 64; bra done;
        consumer: bar.sync 3, 64; shl.b32 %r2, %t, 2; add.u32 %r2, %r1, %r2; ld.shared.u32 %r3, [%r2+128];
        st.global.u32 [%o], %r3;
        done:""",
        shared=".shared .align 4 .b8 s[256];",
    )
    assert (result(loaded)[:32] == np.arange(32, 64)).all()


def test_a_barrier_of_some_threads_does_not_wait_for_those_at_another():
    loaded = kernel(
        """setp.ge.u32 %p1, %t, 32; @%p1 bra OTHERS; bar.sync 1, 32; st.shared.u32 [s], 5; bar.sync 2, 64; bra JOIN;
        OTHERS: bar.sync 2, 64; JOIN: ld.shared.u32 %r1, [s]; st.global.u32 [%o], %r1;""",
        shared=".shared .align 4 .b8 s[4];",
    )
    assert (result(loaded) == 5).all()


def test_threads_that_loads_part_meet_at_operations_of_a_warp_as_the_mask_says():
    loaded = kernel(
        """ld.global.u32 %r1, [%o]; setp.ne.u32 %p1, %r1, 0; vote.sync.ballot.b32 %r2, %p1, -1; mov.u32 %r3, 1000;
        @!%p1 bra SKIP; redux.sync.add.u32 %r3, %t, %r2; shfl.sync.down.b32 %r4, %t, 1, 31, %r2;
        SKIP: st.global.u32 [%o], %r3;"""
    )
    out = (np.arange(64, dtype=np.uint32) % 3 == 0).astype(np.uint32)
    loaded.launch("k", out, block=(64,))
    numbers = np.arange(64)
    sums = [numbers[first : first + 32][numbers[first : first + 32] % 3 == 0].sum() for first in (0, 32)]
    assert (out == np.where(numbers % 3 == 0, np.repeat(sums, 32), 1000)).all()


def test_a_lane_s_number_is_within_its_warp():
    loaded = kernel(
        "mov.u32 %r1, %laneid; mov.u32 %r2, %warpid; mad.lo.u32 %r1, %r2, 100, %r1; st.global.u32 [%o], %r1;"
    )
    assert (result(loaded) == np.arange(64) // 32 * 100 + np.arange(64) % 32).all()


def test_a_match_of_all_gives_nothing_where_one_differs():
    loaded = kernel(
        """shr.u32 %r1, %t, 5; and.b32 %r2, %t, 31; setp.eq.u32 %p1, %r2, 3; selp.u32 %r3, 9, %r1, %p1;
        match.all.sync.b32 %r4|%p2, %r1, -1; match.all.sync.b32 %r5|%p3, %r3, -1; selp.u32 %r6, 1, 0, %p2;
        selp.u32 %r7, 2, 0, %p3; add.u32 %r6, %r6, %r7; popc.b32 %r4, %r4; popc.b32 %r5, %r5;
        mad.lo.u32 %r4, %r4, 100, %r5; mad.lo.u32 %r4, %r4, 10, %r6; st.global.u32 [%o], %r4;"""
    )
    assert (result(loaded) == 32001).all()


def test_operations_of_a_warp_are_of_lanes_that_exist_and_that_the_mask_names():
    loaded = kernel(
        """and.b32 %r1, %t, 31; setp.ge.u32 %p1, %r1, 8; setp.lt.u32 %p2, %r1, 100; mov.u32 %r2, 0; mov.u32 %r3, 0;
        vote.sync.ballot.b32 %r4, %p2, -1; redux.sync.add.u32 %r5, %t, -1; match.any.sync.b32 %r6, 7, -1;
        @%p1 vote.sync.ballot.b32 %r2, %p2, 0xFFFFFF00; @%p1 redux.sync.max.u32 %r3, %t, 0xFFFFFF00;
        vote.sync.all.pred %p3, %p2, -1; selp.u32 %r7, 1, 0, %p3;
        mad.wide.u32 %o, %t, 20, %o; st.global.u32 [%o], %r4; st.global.u32 [%o+4], %r5; st.global.u32 [%o+8], %r6;
        st.global.u32 [%o+12], %r2; st.global.u32 [%o+16], %r3;"""
    )
    out = np.zeros((48, 6), np.uint32)
    loaded.launch("k", out, block=(48,))
    for thread in range(48):
        lanes = range(32) if thread < 32 else range(16)
        there, upper = sum(1 << n for n in lanes), sum(1 << n for n in lanes if n >= 8)
        total, most = sum(32 * (thread // 32) + n for n in lanes), 32 * (thread // 32) + lanes[-1]
        took_part = thread % 32 >= 8
        wanted = [there, total, there, upper if took_part else 0, most if took_part else 0]
        assert out.ravel()[6 * thread : 6 * thread + 5].tolist() == wanted


@pytest.mark.parametrize(
    ("mode", "operands", "wanted"),
    [
        ("down", "%t, 4, 31", lambda lane: lane + 4 if lane + 4 < 32 else lane),
        ("up", "%t, 3, 0", lambda lane: lane - 3 if lane >= 3 else lane),
        ("bfly", "%t, 5, 31", lambda lane: lane ^ 5),
        ("idx", "%t, 9, 31", lambda lane: 9),
        ("idx", "%t, 1, 0x181f", lambda lane: lane & 24 | 1),
        ("down", "%t, 2, 0x1c1f", lambda lane: lane + 2 if lane % 4 < 2 else lane),
    ],
)
def test_a_shuffle_moves_values_between_lanes(mode, operands, wanted):
    loaded = kernel(f"shfl.sync.{mode}.b32 %r1|%p1, {operands}, -1; st.global.u32 [%o], %r1;")
    assert list(result(loaded, 32)) == [wanted(lane) for lane in range(32)]


def test_votes_matches_and_reductions_of_a_warp():
    loaded = kernel(
        """and.b32 %r1, %t, 3; setp.eq.u32 %p1, %r1, 0; vote.sync.ballot.b32 %r2, %p1, -1;
        vote.sync.any.pred %p2, %p1, -1; vote.sync.all.pred %p3, %p1, -1; vote.sync.uni.pred %p4, %p1, -1;
        match.any.sync.b32 %r3, %r1, -1; match.all.sync.b32 %r4|%p5, %r1, -1; redux.sync.add.s32 %r5, %t, -1;
        redux.sync.min.s32 %r6, -5, -1; redux.sync.max.u32 %r7, %t, -1; activemask.b32 %r8;
        setp.eq.u32 %p6, %t, 0; @%p6 st.global.u32 [%o], %r2;
        setp.eq.u32 %p6, %t, 1; @%p6 st.global.u32 [%o], %r3;
        setp.eq.u32 %p6, %t, 2; @%p6 st.global.u32 [%o], %r5;
        setp.eq.u32 %p6, %t, 3; @%p6 st.global.u32 [%o], %r6;
        setp.eq.u32 %p6, %t, 4; @%p6 st.global.u32 [%o], %r7;
        setp.eq.u32 %p6, %t, 5; @%p6 st.global.u32 [%o], %r8;
        selp.u32 %r9, 1, 0, %p2; selp.u32 %r10, 2, 0, %p3; selp.u32 %r11, 4, 0, %p4; selp.u32 %r12, 8, 0, %p5;
        or.b32 %r9, %r9, %r10; or.b32 %r9, %r9, %r11; or.b32 %r9, %r9, %r12; setp.eq.u32 %p6, %t, 6;
        @%p6 st.global.u32 [%o], %r9;
        elect.sync %r13|%p7, -1; setp.eq.u32 %p6, %t, 0; selp.u32 %r13, 9, 8, %p7; @!%p6 bra end; add.u32 %r13, %r13, 1;
        end: setp.eq.u32 %p6, %t, 7; @%p6 st.global.u32 [%o], %r13;"""
    )
    fours = sum(1 << n for n in range(0, 32, 4))
    assert [hex(x) for x in result(loaded, 32)[:8]] == [
        hex(x) for x in (fours, fours << 1, sum(range(32)), 0xFFFFFFFB, 31, 0xFFFFFFFF, 1, 8)
    ]


def test_a_shuffle_under_divergence_takes_those_that_the_mask_names():
    loaded = kernel(
        """setp.lt.u32 %p1, %t, 16; @%p1 bra low; shfl.sync.bfly.b32 %r1, %t, 1, 31, 0xffff0000; bra store;
        low: shfl.sync.bfly.b32 %r1, %t, 2, 31, 0x0000ffff;
        store: st.global.u32 [%o], %r1;"""
    )
    assert list(result(loaded, 32)) == [n ^ (2 if n < 16 else 1) for n in range(32)]


def test_a_function_with_a_barrier_is_written_into_its_callers_each_with_the_one_shared_variable():
    loaded = kernel(
        """{ .param .b32 p; .param .b32 q; st.param.b32 [p], %t; call (q), f, (p); ld.param.b32 %r1, [q]; }
        { .param .b32 p; .param .b32 q; st.param.b32 [p], %r1; call (q), f, (p); ld.param.b32 %r1, [q]; }
        st.global.u32 [%o], %r1;""",
        before="""
        .func (.param .b32 q) f(.param .b32 p) {
            .shared .align 4 .b32 s[32]; .reg .b32 %r<9>; .reg .pred %p1;
            ld.param.b32 %r1, [p]; mov.u32 %r2, %tid.x; shl.b32 %r2, %r2, 2; mov.u32 %r3, s; add.u32 %r2, %r2, %r3;
            st.shared.u32 [%r2], %r1; bar.sync 0; xor.b32 %r2, %r2, 4; ld.shared.u32 %r4, [%r2]; bar.sync 0;
            add.u32 %r4, %r4, 100; st.param.b32 [q], %r4; setp.eq.u32 %p1, %r4, 0; @%p1 bra out; ret; out: ret;
        }""",
    )
    assert loaded.kernels["k"].shared == 128
    assert (result(loaded, 32) == np.arange(32) + 200).all()


def test_a_loop_that_waits_for_another_thread_lets_it_run():
    loaded = kernel(
        """setp.ne.u32 %p1, %t, 0; @%p1 bra set;
        wait: ld.volatile.global.u32 %r1, [%o+4]; setp.eq.u32 %p2, %r1, 0; @%p2 bra wait;
        st.global.u32 [%o], %r1; ret;
        set: st.global.u32 [%o], 5;"""
    )
    assert loaded.kernels["k"].kind == "threads"
    assert list(result(loaded, 2)) == [5, 5]


def test_a_compare_and_swap_that_tries_again_needs_no_turns():
    loaded = kernel(
        """mul.wide.u32 %a1, %t, 4; sub.u64 %o, %o, %a1; ld.global.u32 %r1, [%o];
        again: add.u32 %r2, %r1, 1; atom.global.cas.b32 %r3, [%o], %r1, %r2; setp.ne.u32 %p1, %r3, %r1;
        mov.u32 %r1, %r3; @%p1 bra again;"""
    )
    assert loaded.kernels["k"].kind != "threads"
    assert result(loaded)[0] == 64


def test_an_mbarrier_ends_its_phase_when_all_have_arrived():
    loaded = kernel(
        """setp.ne.u32 %p1, %t, 0; @%p1 bra go; mbarrier.init.shared.b64 [m], 32; st.shared.u32 [s], 0;
        go: bar.sync 0;
        atom.shared.add.u32 %r1, [s], 1; mbarrier.arrive.shared.b64 %a1, [m];
        w: mbarrier.test_wait.shared.b64 %p2, [m], %a1; @!%p2 bra w;
        ld.shared.u32 %r2, [s]; bar.sync 0; atom.shared.add.u32 %r1, [s], 1;
        mbarrier.arrive.shared::cta.b64 _, [m];
        v: mbarrier.try_wait.parity.shared.b64 %p2, [m], 1; @!%p2 bra v;
        ld.shared.u32 %r3, [s]; mad.lo.u32 %r2, %r2, 1000, %r3; st.global.u32 [%o], %r2;""",
        shared=".shared .align 8 .b64 m; .shared .align 4 .b32 s;",
    )
    assert (result(loaded, 32) == 32064).all()


def test_asynchronous_copies_fill_what_their_source_does_not_give_with_zeros():
    loaded = kernel(
        """shl.b32 %r1, %t, 4; mov.u32 %r2, s; add.u32 %r1, %r1, %r2; mul.wide.u32 %a1, %t, 4; sub.u64 %a2, %o, %a1;
        st.shared.u32 [%r1+12], 9; cp.async.ca.shared.global [%r1], [data], 16, 8; cp.async.commit_group;
        cp.async.wait_group 0; bar.sync 0; ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [s]; add.u32 %r3, %r3, %r4;
        add.u32 %r3, %r3, %r5; add.u32 %r3, %r3, %r6; st.global.u32 [%o], %r3;""",
        before=".global .align 16 .u32 data[4] = {1, 20, 300, 4000};",
        shared=".shared .align 16 .b8 s[512];",
    )
    assert (result(loaded, 32) == 21).all()


def test_a_loop_that_waits_through_a_function_lets_others_run():
    loaded = kernel(
        """setp.ne.u32 %p1, %t, 0; @%p1 bra set;
        wait: { .param .b64 a; .param .b32 b; st.param.b64 [a], %o; call (b), look, (a); ld.param.b32 %r1, [b]; }
        setp.eq.u32 %p2, %r1, 0; @%p2 bra wait;
        st.global.u32 [%o], %r1; ret;
        set: st.global.u32 [%o], 5;""",
        before=""".func (.param .b32 b) look(.param .b64 a) { .reg .b64 %a; .reg .b32 %r; ld.param.b64 %a, [a];
        ld.acquire.gpu.global.u32 %r, [%a+4]; st.param.b32 [b], %r; ret; }""",
    )
    assert loaded.kernels["k"].kind == "threads"
    assert list(result(loaded, 2)) == [5, 5]


def test_bulk_copies_are_done_and_counted_by_the_mbarrier():
    loaded = kernel(
        """setp.ne.u32 %p1, %t, 0; @%p1 bra go; mbarrier.init.shared.b64 [m], 1; fence.mbarrier_init.release.cluster;
        mbarrier.arrive.expect_tx.shared.b64 _, [m], 128;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [data], 128, [m];
        go: bar.sync 0;
        w: mbarrier.try_wait.parity.shared::cta.b64 %p2, [m], 0; @!%p2 bra w;
        shl.b32 %r1, %t, 2; mov.u32 %r2, s; add.u32 %r1, %r1, %r2; ld.shared.u32 %r3, [%r1]; add.u32 %r3, %r3, 5;
        st.shared.u32 [%r1], %r3; bar.sync 0; @%p1 ret;
        cvta.to.global.u64 %a1, %o; fence.proxy.async.shared::cta;
        cp.async.bulk.global.shared::cta.bulk_group [%a1], [s], 128; cp.async.bulk.commit_group;
        cp.async.bulk.wait_group.read 0; setmaxnreg.inc.sync.aligned.u32 240;""",
        before=f".global .align 16 .u32 data[32] = {{{', '.join(str(n * n) for n in range(32))}}};",
        shared=".shared .align 8 .b64 m; .shared .align 128 .b8 s[128];",
    )
    assert list(result(loaded, 32)) == [n * n + 5 for n in range(32)]


def test_asynchronous_stores_are_counted_by_the_mbarrier_when_they_are_done():
    loaded = kernel(
        """setp.ne.u32 %p1, %t, 0; @%p1 bra go; mbarrier.init.shared.b64 [m], 1; st.shared.u32 [s+4], 1;
        st.bulk.weak.shared::cta [s+8], 8, 0;
        mbarrier.arrive.expect_tx.shared.b64 _, [m], 8;
        go: bar.sync 0; setp.ne.u32 %p1, %t, 1; @%p1 bra w; mov.u32 %r1, s; mov.u32 %r2, m;
        st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r1], 40, [%r2];
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r1+4], 7, [%r2];
        w: mbarrier.try_wait.parity.shared::cta.b64 %p2, [m], 0; @!%p2 bra w;
        ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [s]; add.u32 %r3, %r3, %r4; add.u32 %r3, %r3, %r6;
        st.global.u32 [%o], %r3;""",
        shared=".shared .align 8 .b64 m; .shared .align 16 .b32 s[4];",
    )
    assert (result(loaded, 32) == 48).all()


@pytest.mark.parametrize(
    ("operation", "values", "wanted"),
    [
        ("max", [1.5, -3.0, 2.0], 2.0), ("min", [1.5, -3.0, 2.0], -3.0), ("max.abs", [1.5, -3.0, 2.0], 3.0),
        ("min.abs", [1.5, -3.0, -1.0], 1.0), ("max", [float("nan"), -7.0, -8.0], -7.0), ("min", [-0.0, 0.0, 1.0], -0.0),
        ("min", [float("nan"), 7.0, 8.0], 7.0), ("max.NaN", [float("nan"), 7.0], float("nan")),
        ("max", [-0.0, 0.0], 0.0),
        ("min.NaN", [float("nan"), 7.0], float("nan")),
        ("max", [-float("nan")], float("nan")),
        ("max", [-float("inf"), -1e30], -1e30), ("min", [float("nan")], float("nan")),
    ],
)  # fmt: skip
def test_a_warp_s_reduction_of_floats(operation, values, wanted):
    loaded = kernel(f"ld.global.f32 %f1, [%o]; redux.sync.{operation}.f32 %f1, %f1, -1; st.global.f32 [%o], %f1;")
    out = np.array((values * 32)[:32], np.float32)
    loaded.launch("k", out, block=(32,))
    assert (out.view(np.uint32) == (np.float32(wanted).view(np.uint32) if wanted == wanted else 0x7FFFFFFF)).all()


def test_a_warp_that_alone_reduces_before_a_barrier_keeps_the_form(form):
    loaded = kernel(
        """cvt.rn.f32.u32 %f1, %t; setp.gt.u32 %p1, %t, 31; @%p1 bra after;
        shfl.sync.bfly.b32 %f2|%p2, %f1, 16, 31, -1; add.f32 %f1, %f1, %f2;
        setp.gt.u32 %p3, %t, 15; @%p3 bra inner; add.f32 %f1, %f1, 0f3F800000; inner:
        vote.sync.ballot.b32 %r1, %p3, -1; setp.ne.u32 %p4, %t, 0; @%p4 bra after; st.shared.u32 [s], %r1;
        after: bar.sync 0; ld.shared.u32 %r2, [s]; cvt.rzi.u32.f32 %r3, %f1; add.u32 %r2, %r2, %r3;
        st.global.u32 [%o], %r2;""",
        shared=".shared .b32 s;",
    )
    assert loaded.kernels["k"].kind == form
    lanes = np.arange(64)
    own = np.where(lanes < 32, lanes + (lanes ^ 16) + (lanes < 16), lanes)
    assert (result(loaded) == (0xFFFF0000 + own).astype(np.uint32)).all()


def test_a_kernel_with_hundreds_of_operations_of_a_warp_stays_a_coroutine(form):
    some, many = (kernel("shfl.sync.bfly.b32 %r1, %t, 1, 31, -1;" * n) for n in (2, 201))
    assert some.kernels["k"].kind == form and many.kernels["k"].kind == "threads"
