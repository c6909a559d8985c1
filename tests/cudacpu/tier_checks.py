"""Kernels in regions do what the same kernels do as coroutines, bit for bit. Run by test_executor.py."""

from __future__ import annotations

import math

import numpy as np
from driver import HEAD, cuda, kernel, run

import hcq.cudacpu
from hcq.cudacpu import compiler, fatbin, loading
from hcq.cudacpu.image import Image

START = """
  .reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %d<20>; .reg .f32 %f<9>;
  ld.param.u64 %d1, [to];
  ld.param.u64 %d3, [from];
  ld.param.u32 %r0, [n];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %ctaid.x;
  mad.lo.u32 %r4, %r3, %r2, %r1;
  mul.wide.u32 %d2, %r4, 4;
  add.s64 %d4, %d3, %d2;
  add.s64 %d2, %d1, %d2;
  mov.u32 %r5, buffer;
  shl.b32 %r6, %r1, 2;
  add.u32 %r7, %r5, %r6;
"""
kinds_made: list[str] = []


def compiled(regions: bool):
    """What makes images of one tier; notes the kinds of the kernels."""

    def compile_image(data: bytes, capability: int, check: bool, memory: int) -> Image:
        source = compiler.join(fatbin.texts(data, capability))
        image = compiler.PtxCompiler(capability, check, regions, memory=memory).image(source)
        kinds_made.extend(each.kind for each in image.kernels)
        return image

    return compile_image


def both(body: str, grid: int, block: int | tuple[int, ...], n: int, words: int = 0) -> np.ndarray:
    """What a kernel gives, in both tiers: an array of one word a thread, or of `words`."""
    threads = grid * math.prod((block,) if isinstance(block, int) else block)
    source = np.random.default_rng(threads + abs(n)).integers(0, 1 << 32, threads + 4096, np.uint32)
    text = HEAD + ".visible .entry k(.param .u64 to, .param .u64 from, .param .u32 n) {\n"
    text += ".shared .align 4 .b8 buffer[8192];\n" + START + body + "\n}\n"
    found = []
    for regions in (True, False):
        loader = loading.Loader(cuda.raw, compiled(regions))
        loader.install()
        kinds_made.clear()
        result = np.zeros(words or threads, np.uint32)
        run(kernel(text), grid, block, result, source, n)
        assert kinds_made[0] == "regions" if regions else kinds_made[0] in ("threads", "loop")
        found.append(result)
    hcq.cudacpu._loader.install()
    np.testing.assert_array_equal(found[0], found[1])
    assert found[0].any()
    return found[0]


def check_sums_by_halving():
    body = """
      ld.global.u32 %r8, [%d4];
      st.shared.u32 [%r7], %r8;
      shr.u32 %r9, %r2, 1;
    LOOP:
      bar.sync 0;
      setp.ge.u32 %p1, %r1, %r9;
      @%p1 bra NEXT;
      shl.b32 %r10, %r9, 2;
      add.u32 %r10, %r7, %r10;
      ld.shared.u32 %r11, [%r10];
      ld.shared.u32 %r12, [%r7];
      add.u32 %r12, %r12, %r11;
      st.shared.u32 [%r7], %r12;
    NEXT:
      shr.u32 %r9, %r9, 1;
      setp.ne.u32 %p2, %r9, 0;
      @%p2 bra LOOP;
      bar.sync 0;
      ld.shared.u32 %r13, [buffer];
      st.global.u32 [%d2], %r13;
      ret;
    """
    for grid, block in ((1, 2), (3, 64), (2, 1024)):
        both(body, grid, block, 0)


def check_addresses_that_step_from_round_to_round():
    body = """
      mov.u32 %r8, 0;
      mov.u32 %r20, 0;
      mul.wide.u32 %d6, %r1, 8;
      add.s64 %d6, %d3, %d6;
      shl.b32 %r15, %r2, 2;
      cvt.u64.u32 %d7, %r15;
    LOOP:
      ld.global.u32 %r9, [%d6];
      ld.global.u32 %r10, [%d4];
      st.shared.u32 [%r7], %r9;
      bar.sync 0;
      sub.u32 %r11, %r2, %r1;
      shl.b32 %r11, %r11, 2;
      add.u32 %r11, %r5, %r11;
      ld.shared.u32 %r12, [%r11+-4];
      mad.lo.u32 %r20, %r20, 31, %r12;
      add.u32 %r20, %r20, %r10;
      bar.sync 0;
      add.s64 %d6, %d6, 12;
      add.s64 %d4, %d4, %d7;
      add.u32 %r8, %r8, 1;
      setp.lt.u32 %p1, %r8, %r0;
      @%p1 bra LOOP;
      cvt.u32.u64 %r21, %d6;
      cvt.u32.u64 %r22, %d3;
      sub.u32 %r21, %r21, %r22;
      add.u32 %r20, %r20, %r21;
      st.global.u32 [%d2], %r20;
      ret;
    """
    for block, n in ((32, 1), (33, 5), (256, 9)):
        both(body, 2, block, n)


def check_threads_that_ask_for_no_number_of_theirs_are_no_fewer():
    body = """
      add.u32 %r8, %r0, 0;
    LOOP:
      atom.global.add.u32 %r9, [%d1], 2;
      add.u32 %r8, %r8, -1;
      setp.gt.s32 %p1, %r8, 0;
      @%p1 bra LOOP;
      ret;
    """
    for block in (1, 33, (4, 3, 5)):
        threads = 3 * math.prod((block,) if isinstance(block, int) else block)
        assert both(body, 3, block, 7, words=1) == [14 * threads]


def check_threads_that_leave_and_counts_of_their_own():
    body = """
      setp.ge.u32 %p1, %r1, %r0;
      @%p1 ret;
      ld.global.u32 %r8, [%d4];
      and.b32 %r9, %r8, 7;
      mov.u32 %r20, 1;
      st.shared.u32 [%r7], %r8;
    OWN:
      mad.lo.u32 %r20, %r20, 1664525, %r8;
      add.u32 %r9, %r9, -1;
      setp.gt.s32 %p2, %r9, 0;
      @%p2 bra OWN;
      bar.sync 0;
      sub.u32 %r10, %r0, %r1;
      shl.b32 %r10, %r10, 2;
      add.u32 %r10, %r5, %r10;
      ld.shared.u32 %r11, [%r10+-4];
      xor.b32 %r20, %r20, %r11;
      st.global.u32 [%d2], %r20;
      ret;
    """
    for block, n in ((64, 64), (64, 40), (1024, 1), (100, 99)):
        both(body, 3, block, n)


def check_barriers_in_branches_that_only_some_take():
    body = """
      ld.global.u32 %r8, [%d4];
      st.shared.u32 [%r7], %r8;
      setp.lt.u32 %p1, %r1, %r0;
      @%p1 bra SOME;
      mul.lo.u32 %r20, %r8, 3;
      bar.sync 0;
      bra TOGETHER;
    SOME:
      mul.lo.u32 %r20, %r8, 5;
      bar.sync 0;
      add.u32 %r20, %r20, 1;
    TOGETHER:
      xor.b32 %r9, %r6, 4;
      add.u32 %r9, %r5, %r9;
      ld.shared.u32 %r10, [%r9];
      add.u32 %r20, %r20, %r10;
      st.global.u32 [%d2], %r20;
      ret;
    """
    for n in (0, 7, 64):
        both(body, 2, 64, n)


def check_local_memory_functions_and_atomics():
    body = """
      .local .align 4 .b8 own[32];
      ld.global.u32 %r8, [%d4];
      mov.u32 %r12, own;
      and.b32 %r9, %r8, 7;
      shl.b32 %r9, %r9, 2;
      add.u32 %r13, %r12, %r9;
      st.local.u32 [own], %r8;
      st.local.u32 [%r13], %r1;
      setp.ne.u32 %p1, %r1, 0;
      mov.u32 %r14, 0;
      @!%p1 st.shared.u32 [buffer], %r14;
      bar.sync 0;
      atom.shared.add.u32 %r10, [buffer], %r8;
      bar.sync 0;
      ld.local.u32 %r11, [%r13];
      ld.shared.u32 %r20, [buffer];
      mad.lo.u32 %r20, %r11, 7, %r20;
      mov.u32 %r15, %laneid;
      add.u32 %r20, %r20, %r15;
      st.global.u32 [%d2], %r20;
      ret;
    """
    for block in (1, 48, 512):
        both(body, 2, block, 0)


def check_threads_that_go_round_loops_together():
    # Without barriers: a loop over the threads against vectors of them in each round.
    body = """
      mov.u32 %r8, 0;
      mov.u32 %r20, 0;
      mul.wide.u32 %d6, %r1, 4;
      add.s64 %d6, %d3, %d6;
      shl.b32 %r15, %r2, 2;
      cvt.u64.u32 %d7, %r15;
      and.b32 %r16, %r1, 3;
      setp.eq.u32 %p3, %r16, 3;
    LOOP:
      ld.global.u32 %r9, [%d6];
      add.s64 %d6, %d6, %d7;
      ld.global.u32 %r10, [%d6];
      add.s64 %d6, %d6, %d7;
      mad.lo.u32 %r20, %r9, %r10, %r20;
      @%p3 xor.b32 %r20, %r20, %r8;
      add.u32 %r8, %r8, 1;
      setp.lt.u32 %p1, %r8, %r0;
      @%p1 bra LOOP;
      st.global.u32 [%d2], %r20;
      ret;
    """
    for block, n in ((1, 3), (32, 1), (33, 5), (128, 9)):
        both(body, 2, block, n)


def check_rows_that_are_computed_together():
    # As many tiles as a block has; some heights are no multiple of the rows that one step takes.
    steps = "".join(
        f"ld.shared.f32 %f1, [%r13+{4 * k}]; ld.shared.f32 %f2, [%r14+{128 * k}]; fma.rn.f32 %f0, %f1, %f2, %f0;\n"
        for k in range(8)
    )
    body = f"""
      mov.u32 %r8, %tid.y;
      mov.u32 %r9, %ntid.y;
      mov.u32 %r10, %tid.z;
      mad.lo.u32 %r11, %r10, %r9, %r8;
      mad.lo.u32 %r11, %r11, %r2, %r1;
      mul.wide.u32 %d5, %r11, 4;
      add.s64 %d6, %d3, %d5;
      add.s64 %d7, %d1, %d5;
      shl.b32 %r12, %r11, 2;
      add.u32 %r12, %r5, %r12;
      and.b32 %r13, %r8, 7;
      shl.b32 %r13, %r13, 5;
      add.u32 %r13, %r5, %r13;
      shl.b32 %r15, %r10, 6;
      add.u32 %r14, %r7, %r15;
      mov.f32 %f0, 0f00000000;
      st.shared.f32 [%r12+1024], %f0;
      bar.sync 0;
      st.shared.f32 [%r12+2048], %f0;
      bar.sync 0;
      mov.u32 %r16, 0;
    LOOP:
      ld.global.u32 %r17, [%d6];
      and.b32 %r17, %r17, 0xfff;
      add.u32 %r17, %r17, %r16;
      cvt.rn.f32.u32 %f3, %r17;
      st.shared.f32 [%r12], %f3;
      bar.sync 0;
      {steps}
      bar.sync 0;
      add.u32 %r16, %r16, 1;
      setp.lt.u32 %p1, %r16, %r0;
      @%p1 bra LOOP;
      st.global.f32 [%d7], %f0;
      ret;
    """
    for block in ((32, 8), (32, 16, 2), (17, 16), (32, 9), (16, 4, 4), (1, 256), (300, 1)):
        both(body, 1, block, 3)


def check_quotients_at_the_edge_of_the_next():
    body = """
      ld.global.u32 %r8, [%d4];
      ld.global.u32 %r9, [%d4+8192];
      and.b32 %r10, %r9, 31;
      shr.u32 %r9, %r9, %r10;
      div.u32 %r11, %r8, %r9;
      mul.lo.u32 %r11, %r11, %r9;
      add.u32 %r12, %r11, -1;
      div.u32 %r13, %r11, %r9;
      div.u32 %r14, %r12, %r9;
      rem.u32 %r15, %r11, %r9;
      rem.u32 %r16, %r12, %r9;
      div.s32 %r17, %r11, %r9;
      rem.s32 %r18, %r12, %r9;
      div.u32 %r19, %r12, %r0;
      rem.s32 %r21, %r11, %r0;
      mad.lo.u32 %r20, %r13, 3, %r14;
      mad.lo.u32 %r20, %r20, 5, %r15;
      mad.lo.u32 %r20, %r20, 7, %r16;
      mad.lo.u32 %r20, %r20, 11, %r17;
      mad.lo.u32 %r20, %r20, 13, %r18;
      mad.lo.u32 %r20, %r20, 17, %r19;
      mad.lo.u32 %r20, %r20, 19, %r21;
      bar.sync 0;
      st.global.u32 [%d2], %r20;
      ret;
    """
    for n in (1, 3, 0, -1, 2**31 - 1, -(2**31)):
        both(body, 8, 256, n)


def check_shuffles_by_constants_and_votes():
    body = ["ld.global.u32 %r20, [%d4];", "mov.u32 %r21, 3;", "mov.u32 %r22, 0x181f;"]
    for mode, reach in (("up", 0), ("down", 31), ("bfly", 31), ("idx", 31)):
        for lane, clamp in ((1, reach), (5, 0x1800 | reach & 29)):
            body.append(f"shfl.sync.{mode}.b32 %r23|%p1, %r20, {lane}, {clamp}, -1;")
            body.append("mad.lo.u32 %r20, %r20, 1664525, %r23; @%p1 xor.b32 %r20, %r20, 0x5bd1e995;")
        body.append(f"shfl.sync.{mode}.b32 %r23, %r20, %r21, %r22, -1; mad.lo.u32 %r20, %r20, 69069, %r23;")
    body.append("st.global.u32 [%d2], %r20; ret;")
    for block in (32, 128, (16, 6)):
        both("\n".join(body), 2, block, 0)
    body = """
      ld.global.u32 %r20, [%d4];
      mov.u32 %r21, 0;
      and.b32 %r22, %r20, 7;
      setp.lt.u32 %p1, %r22, %r0;
      @%p1 bra GONE;
    LOOP:
      shr.u32 %r23, %r20, %r21;
      and.b32 %r23, %r23, 1;
      setp.ne.u32 %p2, %r23, 0;
      vote.sync.ballot.b32 %r24, %p2, -1;
      vote.sync.any.pred %p3, %p2, -1;
      vote.sync.all.pred %p4, %p2, -1;
      activemask.b32 %r25;
      mad.lo.u32 %r20, %r20, 31, %r24;
      @%p3 add.u32 %r20, %r20, 1;
      @%p4 xor.b32 %r20, %r20, %r25;
      add.u32 %r21, %r21, 1;
      setp.lt.u32 %p5, %r21, 9;
      @%p5 bra LOOP;
      st.global.u32 [%d2], %r20;
    GONE:
      ret;
    """
    for block, n in ((32, 0), (33, 0), (77, 3), (256, 5)):
        both(body, 2, block, n)


def check_barriers_that_count():
    # The last one decides for all threads how often they go round.
    body = """
      ld.global.u32 %r20, [%d4];
      mov.u32 %r21, 200;
      and.b32 %r22, %r20, 7;
      setp.lt.u32 %p1, %r22, %r0;
      @%p1 bra GONE;
    LOOP:
      and.b32 %r23, %r20, 0xff;
      setp.gt.u32 %p2, %r23, %r21;
      bar.red.popc.u32 %r24, 0, %p2;
      bar.red.and.pred %p3, 0, !%p2;
      st.shared.u32 [%r7], %r20;
      bar.sync 0;
      mad.lo.u32 %r20, %r20, 31, %r24;
      @%p3 add.u32 %r20, %r20, 1;
      add.u32 %r21, %r21, 11;
      setp.lt.u32 %p4, %r21, 250;
      and.pred %p5, %p2, %p4;
      bar.red.or.pred %p4, 0, %p5;
      @%p4 bra LOOP;
      mad.lo.u32 %r20, %r24, 65537, %r20;
      st.global.u32 [%d2], %r20;
    GONE:
      ret;
    """
    for block, n in ((32, 0), (33, 0), (77, 3), (256, 5)):
        both(body, 2, block, n)
