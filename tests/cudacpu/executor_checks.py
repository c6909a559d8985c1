"""How the threads of a block run: barriers, operations of warps, waits for each other. Run by test_executor.py."""

from __future__ import annotations

import ctypes
import os
import threading

import numpy as np
from driver import cuda, kernel, launch, refused, run
from tier_checks import compiled

from hcq.cudacpu import loading

LANES = np.arange(32)
if os.environ.get("HCQ_TEST_CUDACPU_REGIONS") == "0":  # what could be in regions is a coroutine as well
    LOADER = loading.Loader(cuda.raw, compiled(regions=False))
    LOADER.install()
START = """
  .reg .pred %p<9>; .reg .b16 %h<5>; .reg .b32 %r<30>; .reg .b64 %d<12>; .reg .f32 %f<4>;
  ld.param.u64 %d1, [to];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %ctaid.x;
  mad.lo.u32 %r4, %r3, %r2, %r1;
  mul.wide.u32 %d2, %r4, 4;
  add.s64 %d2, %d1, %d2;
"""
STORE = """
  st.global.u32 [%d2], %r20;
  ret;
"""


def threads(body: str, parameters: str = "", before: str = "") -> ctypes.c_void_p:
    """A kernel that stores %r20 of each thread: %r1 tid, %r2 ntid, %r3 ctaid."""
    return kernel(f"{before}\n.visible .entry k(.param .u64 to{parameters}) {{\n{START}{body}{STORE}}}\n")


def outcome(made: ctypes.c_void_p, grid: int, block: int, *more: object, **options: object) -> np.ndarray:
    result = np.zeros(grid * block, np.uint32)
    run(made, grid, block, result, *more, **options)
    return result.reshape(grid, block)


REVERSE = """
  mov.u32 %r5, buffer;
  shl.b32 %r6, %r1, 2;
  add.u32 %r7, %r5, %r6;
  st.shared.u32 [%r7], %r4;
  bar.sync 0;
  sub.u32 %r8, %r2, %r1;
  sub.u32 %r8, %r8, 1;
  shl.b32 %r8, %r8, 2;
  add.u32 %r9, %r5, %r8;
  ld.shared.u32 %r20, [%r9];
"""


def check_a_barrier_orders_shared_memory():
    for before, shared in ((".shared .align 4 .b8 buffer[4096];", 0), (".extern .shared .align 4 .b8 buffer[];", 4096)):
        made = threads(REVERSE, before=before)
        for grid, block in ((1, 1), (3, 32), (5, 33), (40, 256), (2, 1024)):
            found = outcome(made, grid, block, shared=shared)
            assert (found == np.arange(grid * block).reshape(grid, block)[:, ::-1]).all(), (grid, block)


def check_threads_that_returned_take_no_part_in_barriers():
    made = threads(
        """
      setp.ge.u32 %p1, %r1, 40;
      @%p1 bra OUT;
      mov.u32 %r5, buffer;
      mov.u32 %r10, 1;
      atom.shared.add.u32 %r11, [buffer], %r10;
      bar.sync 0;
      ld.shared.u32 %r20, [buffer];
      st.global.u32 [%d2], %r20;
      OUT: ret;
    """,
        before=".shared .align 4 .b8 buffer[4];",
    )
    # Shared memory is not cleared: what counts is that all of those that are left read the same.
    found = outcome(made, 1, 128)[0]
    assert len(set(found[:40].tolist())) == 1 and (found[40:] == 0).all()


def check_barriers_with_a_number_and_a_count_let_warps_produce_and_consume():
    made = threads(
        """
      setp.lt.u32 %p1, %r1, 32;
      mov.u32 %r9, 0;
      mov.u32 %r20, 0;
      shl.b32 %r6, %r1, 2;
      and.b32 %r6, %r6, 127;
      mov.u32 %r5, buffer;
      add.u32 %r7, %r5, %r6;
    LOOP:
      @%p1 bra PRODUCE;
      bar.sync 1, 64;
      ld.shared.u32 %r8, [%r7];
      add.u32 %r20, %r20, %r8;
      bar.arrive 2, 64;
      bra NEXT;
    PRODUCE:
      setp.eq.u32 %p2, %r9, 0;
      @%p2 bra FIRST;
      bar.sync 2, 64;
    FIRST:
      mad.lo.u32 %r8, %r9, 100, %r1;
      st.shared.u32 [%r7], %r8;
      bar.arrive 1, 64;
    NEXT:
      add.u32 %r9, %r9, 1;
      setp.lt.u32 %p3, %r9, 10;
      @%p3 bra LOOP;
    """,
        before=".shared .align 4 .b8 buffer[128];",
    )
    found = outcome(made, 3, 64)
    assert (found[:, 32:] == LANES * 10 + 4500).all()


def check_barriers_reduce():
    for operation, expected in (("popc.u32", lambda n: (n + 2) // 3), ("and", lambda n: n == 1), ("or", lambda n: 1)):
        kind = operation if "." in operation else f"{operation}.pred"
        result = "%r20" if "." in operation else "%p2"
        after = "" if "." in operation else "selp.u32 %r20, 1, 0, %p2;"
        made = threads(f"""
          rem.u32 %r5, %r1, 3;
          setp.eq.u32 %p1, %r5, 0;
          bar.red.{kind} {result}, 0, %p1;
          {after}
        """)
        for block in (1, 31, 100):
            assert (outcome(made, 2, block) == int(expected(block))).all(), (operation, block)


def shuffled(mode: str, value: np.ndarray, b: int, c: int) -> tuple[np.ndarray, np.ndarray]:
    """PTX ISA, shfl.sync, its pseudocode."""
    bval, cval, segment = b & 31, c & 31, c >> 8 & 31
    found, inside = [], []
    for lane in range(32):
        most = (lane & segment) | (cval & ~segment & 31)
        least = lane & segment
        j = {"up": lane - bval, "down": lane + bval, "bfly": lane ^ bval}.get(mode, least | (bval & ~segment & 31))
        good = j >= most if mode == "up" else j <= most
        found.append(value[j if good else lane])
        inside.append(good)
    return np.array(found), np.array(inside)


def check_shuffles_follow_the_manual_s_pseudocode():
    value = LANES * 7 + 5
    for mode in ("up", "down", "bfly", "idx"):
        made = threads(
            f"""
          ld.param.u32 %r5, [b];
          ld.param.u32 %r6, [c];
          mad.lo.u32 %r7, %r1, 7, 5;
          shfl.sync.{mode}.b32 %r20|%p1, %r7, %r5, %r6, 0xffffffff;
          selp.u32 %r9, 0x10000, 0, %p1;
          or.b32 %r20, %r20, %r9;
        """,
            ", .param .u32 b, .param .u32 c",
        )
        for b in (0, 1, 5, 16, 31):
            for c in (0, 0x1F, 0x1C1F, 0x1800, 0x181F, 0x1010):
                expected, inside = shuffled(mode, value, b, c)
                found = outcome(made, 1, 32, b, c)[0]
                assert (found & 0xFFFF == expected).all(), (mode, b, c)
                assert (found >> 16 == inside).all(), (mode, b, c)


def check_warp_operations_of_a_part_of_a_warp_in_divergent_code():
    made = threads("""
      and.b32 %r5, %r1, 1;
      setp.eq.u32 %p1, %r5, 0;
      @%p1 bra EVEN;
      shfl.sync.idx.b32 %r20, %r1, 1, 0x1f, 0xaaaaaaaa;
      bra TOGETHER;
    EVEN:
      shfl.sync.idx.b32 %r20, %r1, 30, 0x1f, 0x55555555;
      shfl.sync.bfly.b32 %r6, %r1, 2, 0x1f, 0x55555555;
      shl.b32 %r6, %r6, 8;
      or.b32 %r20, %r20, %r6;
    TOGETHER:
      bar.warp.sync 0xffffffff;
    """)
    expected = np.where(LANES % 2, 1, 30 | (LANES ^ 2) << 8)
    found = outcome(made, 2, 64)
    assert (found[0, :32] == expected).all()


def check_votes_matches_and_reductions():
    def of(body: str, block: int = 32) -> np.ndarray:
        return outcome(threads(body), 1, block)[0]

    odd = "and.b32 %r5, %r1, 1; setp.eq.u32 %p1, %r5, 1;"
    assert (of(odd + "vote.sync.ballot.b32 %r20, %p1, 0xffffffff;") == 0xAAAAAAAA).all()
    for mode, expected in (("all", 0), ("any", 1), ("uni", 0)):
        assert (of(odd + f"vote.sync.{mode}.pred %p2, %p1, 0xffffffff; selp.u32 %r20, 1, 0, %p2;") == expected).all()
    found = of("and.b32 %r5, %r1, 3; match.any.sync.b32 %r20, %r5, 0xffffffff;")
    assert (found == (0x11111111 << (LANES & 3))).all()
    found = of("mov.u32 %r5, 9; match.all.sync.b32 %r20|%p1, %r5, 0xffffffff;")
    assert (found == 0xFFFFFFFF).all()
    found = of("match.all.sync.b32 %r20|%p1, %r1, 0xffffffff;")
    assert (found == 0).all()
    signed = LANES.astype(np.int32) * 3 - 40
    for operation, expected in (
        ("add.s32", signed.sum()),
        ("min.s32", signed.min()),
        ("max.s32", signed.max()),
        ("min.u32", signed.astype(np.uint32).min()),
        ("max.u32", signed.astype(np.uint32).max()),
        ("and.b32", np.bitwise_and.reduce(signed)),
        ("or.b32", np.bitwise_or.reduce(signed)),
        ("xor.b32", np.bitwise_xor.reduce(signed)),
    ):
        found = of(f"mad.lo.s32 %r5, %r1, 3, -40; redux.sync.{operation} %r20, %r5, 0xffffffff;")
        assert (found.astype(np.int32) == np.int64(expected).astype(np.int32)).all(), operation


def check_activemask_tells_who_stands_together():
    made = threads("""
      setp.lt.u32 %p1, %r1, 20;
      @%p1 bra LOW;
      activemask.b32 %r20;
      bra TOGETHER;
    LOW:
      activemask.b32 %r20;
    TOGETHER:
    """)
    found = outcome(made, 1, 40)[0]
    assert (found[:20] == 0xFFFFF).all() and (found[20:32] == 0xFFF00000).all() and (found[32:] == 0xFF).all()


SPIN = """
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra WAIT;
  setp.eq.u32 %p2, %r1, 31;
  mov.u32 %r7, 7;
  @%p2 st.volatile.shared.u32 [flag], %r7;
  mov.u32 %r20, 1;
  bra DONE;
WAIT:
  ld.volatile.shared.u32 %r20, [flag];
  setp.ne.u32 %p3, %r20, 7;
  @%p3 bra WAIT;
DONE:
"""


def check_a_thread_that_waits_for_another_s_write_lets_it_run():
    made = threads(
        """
      mov.u32 %r6, 0;
      st.volatile.shared.u32 [flag], %r6;
      bar.sync 0;
    """
        + SPIN,
        before=".shared .align 4 .b8 flag[4];",
    )
    assert outcome(made, 3, 32)[:, 0].tolist() == [7, 7, 7]


def check_blocks_of_a_cooperative_launch_wait_for_each_other():
    made = kernel(f"""
    .visible .entry k(.param .u64 to, .param .u64 counter) {{
    {START}
      ld.param.u64 %d5, [counter];
      bar.sync 0;
      setp.ne.u32 %p1, %r1, 0;
      @%p1 bra JOIN;
      mov.u32 %r5, 1;
      atom.global.add.u32 %r6, [%d5], %r5;
      mov.u32 %r7, %nctaid.x;
    WAIT:
      ld.volatile.global.u32 %r8, [%d5];
      setp.lt.u32 %p2, %r8, %r7;
      @%p2 bra WAIT;
    JOIN:
      bar.sync 0;
      ld.volatile.global.u32 %r20, [%d5];
    {STORE}}}
    """)
    counter = np.zeros(1, np.uint32)
    assert (outcome(made, 24, 64, counter, cooperative=True) == 24).all()
    error = refused(launch, made, 1 << 20, 1024, counter, counter, cooperative=True)
    assert error.name == "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"


def check_blocks_that_add_to_one_word_side_by_side_lose_nothing():
    made = kernel(f"""
    .visible .entry k(.param .u64 to, .param .u64 counters) {{
    {START}
      ld.param.u64 %d5, [counters];
      mov.u32 %r5, 0;
      mov.u32 %r20, %smid;
    MORE:
      red.global.add.u32 [%d5], 1;
      atom.global.inc.u32 %r6, [%d5+4], 0xFFFFFFFF;
      red.relaxed.gpu.global.add.u64 [%d5+8], 3;
      membar.gl;
      add.u32 %r5, %r5, 1;
      setp.lt.u32 %p1, %r5, 200;
      @%p1 bra MORE;
    {STORE}}}
    """)
    shared = 0  # launches whose blocks were not all run by one of the host's threads: only those can lose something
    for _ in range(60):
        counters = np.zeros(2, np.uint64)
        shared += len(np.unique(outcome(made, 64, 32, counters))) > 1
        assert counters[0] == 64 * 32 * 200 * (1 + (1 << 32)) and counters[1] == 3 * 64 * 32 * 200
        if shared == 10:
            break


def check_a_warp_does_not_wait_for_lanes_that_returned():
    made = threads("""
      setp.gt.u32 %p1, %r1, 19;
      @%p1 ret;
      bar.warp.sync -1;
      setp.lt.u32 %p2, %r1, 100;
      vote.sync.ballot.b32 %r20, %p2, -1;
    """)
    assert (outcome(made, 2, 32) == np.where(LANES < 20, (1 << 20) - 1, 0)).all()


def check_a_warp_s_barrier_waits_for_lanes_that_come_later():
    made = threads(
        """
      st.volatile.shared.u32 [flag], 0;
      st.volatile.shared.u32 [data], 0;
      bar.sync 0;
      setp.lt.u32 %p1, %r1, 16;
      @%p1 bra MEET;
      setp.gt.u32 %p2, %r1, 31;
      @%p2 bra SET;
    WAIT:
      ld.volatile.shared.u32 %r8, [flag];
      setp.eq.u32 %p3, %r8, 0;
      @%p3 bra WAIT;
      st.volatile.shared.u32 [data], 5;
    MEET:
      bar.warp.sync -1;
      ld.volatile.shared.u32 %r20, [data];
      bra JOIN;
    SET:
      st.volatile.shared.u32 [flag], 1;
      mov.u32 %r20, 7;
    JOIN:
    """,
        before=".shared .align 4 .b8 flag[4]; .shared .align 4 .b8 data[4];",
    )
    assert (outcome(made, 3, 64) == np.where(np.arange(64) < 32, 5, 7)).all()


def check_a_barrier_of_some_warps_does_not_wait_for_others():
    made = threads(
        """
      setp.ge.u32 %p1, %r1, 32;
      @%p1 bra OTHERS;
      bar.sync 1, 32;
      st.shared.u32 [s], 5;
    OTHERS:
      bar.sync 2, 64;
      ld.shared.u32 %r20, [s];
    """,
        before=".shared .align 4 .b8 s[4];",
    )
    assert (outcome(made, 2, 64) == 5).all()


def check_blocks_have_their_places_in_three_dimensions():
    made = kernel(f"""
    .visible .entry k(.param .u64 to) {{
    {START}
      mov.u32 %r5, %ctaid.y; mov.u32 %r6, %ctaid.z; mov.u32 %r7, %nctaid.x; mov.u32 %r8, %nctaid.y;
      mad.lo.u32 %r9, %r6, %r8, %r5; mad.lo.u32 %r9, %r9, %r7, %r3; mad.lo.u32 %r4, %r9, %r2, %r1;
      mul.wide.u32 %d2, %r4, 4; add.s64 %d2, %d1, %d2;
      bar.sync 0;
      mad.lo.u32 %r20, %r6, 100, %r5; mad.lo.u32 %r20, %r20, 100, %r3; add.u32 %r20, %r20, 1;
    {STORE}}}
    """)
    result = np.zeros((4, 3, 2, 32), np.uint32)
    run(made, (2, 3, 4), 32, result)
    z, y, x = np.indices((4, 3, 2))
    assert (result == (z * 10000 + y * 100 + x + 1)[..., None]).all()


def check_work_that_is_queued_returns_at_once():
    made = kernel(f"""
    .visible .entry k(.param .u64 to, .param .u64 flag) {{
    {START}
      ld.param.u64 %d5, [flag];
    WAIT:
      ld.volatile.global.u32 %r20, [%d5];
      setp.eq.u32 %p1, %r20, 0;
      @%p1 bra WAIT;
    {STORE}}}
    """)
    flag, result = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    release = threading.Timer(30, lambda: flag.fill(1))  # so that a launch that waits ends
    release.start()
    try:
        launch(made, 1, 1, result, flag)
        flag[0] = 5
        cuda.cuCtxSynchronize()
    finally:
        flag[0] = flag[0] or 1
        release.cancel()
    assert result[0] == 5


def check_many_blocks_use_the_machine_s_cores():
    # Each block waits until two multiprocessors, which are host threads, have been seen; at most 20 s.
    made = kernel(f"""
    .visible .entry k(.param .u64 to, .param .u64 seen) {{
    {START}
      ld.param.u64 %d5, [seen];
      mov.u32 %r5, %smid;
      mov.u32 %r6, 1;
      shl.b32 %r6, %r6, %r5;
      atom.global.or.b32 %r7, [%d5], %r6;
      mov.u64 %d6, %globaltimer;
      add.u64 %d6, %d6, 20000000000;
    WAIT:
      ld.volatile.global.u32 %r20, [%d5];
      popc.b32 %r8, %r20;
      mov.u64 %d7, %globaltimer;
      setp.gt.u64 %p2, %d7, %d6;
      @%p2 bra OUT;
      setp.lt.u32 %p1, %r8, 2;
      @%p1 bra WAIT;
    OUT:
    {STORE}}}
    """)
    if len(os.sched_getaffinity(0)) > 1:
        seen = np.zeros(1, np.uint32)
        outcome(made, 10000, 1, seen)
        assert bin(seen[0]).count("1") > 1
