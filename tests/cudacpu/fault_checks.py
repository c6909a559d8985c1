"""Kernels that fail: what the error is, who is named, and that others go on. Run by test_executor.py."""

from __future__ import annotations

import ctypes
import os
import re
import tempfile

import numpy as np
from driver import HEAD, CudaError, cuda, fresh, kernel, launch, out, refused
from executor_checks import outcome, threads


def told(*launched: object) -> tuple[CudaError, str]:
    """The error of a launch that must fail, as waiting for it gives it, and what came to standard error meanwhile."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            launch(*launched)
            error = refused(cuda.cuCtxSynchronize)
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        file.seek(0)
        return error, file.read().decode()


def check_a_block_that_can_t_go_on_is_an_error_that_names_who_stands_where():
    made = threads("""
      mov.u32 %r20, 0;
      setp.lt.u32 %p1, %r1, 16;
      @%p1 bra OTHER;
      bar.sync 1, 64;
    OTHER:
      bar.sync 0;
    """)
    error, text = told(made, 1, 32, np.zeros(32, np.uint32))
    assert error.name == "CUDA_ERROR_LAUNCH_TIMEOUT"
    assert "16 threads stand at a barrier (1)" in text and "16 threads stand at a barrier (0)" in text, text


def check_the_block_that_can_t_go_on_is_named():
    made = threads("""
      mov.u32 %r20, 0;
      setp.ne.u32 %p1, %r3, 2;
      @%p1 bra PAST;
      bar.sync 1, 64;
    PAST:
      bar.sync 0;
    """)
    error, text = told(made, 4, 32, np.zeros(128, np.uint32))
    assert error.name == "CUDA_ERROR_LAUNCH_TIMEOUT" and "block (2, 0, 0)" in text, text


def check_an_illegal_address_is_an_error_that_stays():
    result = np.zeros(64, np.uint32)
    for body in ("mov.u64 %d2, 64;", "mov.u64 %d2, 0x1234567890123456;", "nanosleep.u32 1; mov.u64 %d2, 64;"):
        made = threads("mov.u32 %r20, 0;" + body)
        error, text = told(made, 2, 32, result)
        assert error.name == "CUDA_ERROR_ILLEGAL_ADDRESS", body
        assert "kernel 'k'" in text and "block (" in text, text
        assert "thread (" in text or "HCQ_CUDACPU_CHECK=1" in text, text
        assert refused(cuda.cuCtxSynchronize).name == "CUDA_ERROR_ILLEGAL_ADDRESS"
        assert refused(launch, made, 1, 1, result).name == "CUDA_ERROR_ILLEGAL_ADDRESS"
        fresh()
    assert "thread (" in text
    assert (outcome(threads("mov.u32 %r20, 3;"), 1, 4) == 3).all()


def check_shared_addresses_outside_the_block_s_memory_fault():
    for offset in (128, 1 << 20, 0x7FFFFFF0, 0x80000000, 0xFFFC0000):
        made = threads(f"mov.u32 %r20, 1; mov.u32 %r5, {offset}; st.shared.u32 [%r5], %r20;")
        assert told(made, 1, 1, np.zeros(1, np.uint32))[0].name == "CUDA_ERROR_ILLEGAL_ADDRESS", hex(offset)
        fresh()


def check_traps_are_launch_failures_with_the_thread_and_its_line():
    made = threads("mov.u32 %r20, 0;\nsetp.eq.u32 %p1, %r4, 37;\n@%p1 trap;\n")
    error, text = told(made, 2, 32, np.zeros(64, np.uint32))
    assert error.name == "CUDA_ERROR_LAUNCH_FAILED"
    assert "block (1, 0, 0), thread (5, 0, 0), PTX line " in text, text


def check_a_failed_grid_leaves_others_of_the_process_alone():
    bad = threads("mov.u32 %r20, 0; mov.u64 %d2, 64;")
    told(bad, 64, 64, np.zeros(1, np.uint32))
    for _ in range(3):
        fresh()
        good = threads("mov.u32 %r20, %r4; bar.sync 0;")
        assert (outcome(good, 100, 64).ravel() == np.arange(6400)).all()


# What becomes of a thread's number in %r1, of 64 threads, and where in the first bytes of memory it then writes.
PLACES = (
    ("mul.wide.s32 %d2, %r1, 12;", lambda t: 12 * t),
    ("sub.s32 %r2, 40, %r1; mul.wide.s32 %d3, %r2, 4; add.s64 %d2, %d3, 400;", lambda t: 560 - 4 * t),
    ("shl.b32 %r2, %r1, 7; shr.u32 %r3, %r2, 3; cvt.u64.u32 %d2, %r3;", lambda t: 16 * t),
    (
        "sub.s32 %r2, 0, %r1; shr.s32 %r3, %r2, 1; add.s32 %r4, %r3, 99; mul.wide.s32 %d2, %r4, 8;",
        lambda t: (99 - (t + 1) // 2) * 8,
    ),
    (
        "mad.lo.s32 %r2, %r1, -28, 700; div.s32 %r3, %r2, 7; shl.b32 %r4, %r3, 2; cvt.s64.s32 %d2, %r4;",
        lambda t: 400 - 16 * t,
    ),
    ("mul.lo.u32 %r2, %r1, 28; rem.u32 %r3, %r2, 1800; cvt.u64.u32 %d2, %r3;", lambda t: 28 * t % 1800),
    ("min.s32 %r2, %r1, 50; max.s32 %r3, %r2, 3; mad.wide.u32 %d2, %r3, 4, 64;", lambda t: 4 * max(min(t, 50), 3) + 64),
    (
        "xor.b32 %r2, %r1, 21; or.b32 %r3, %r2, 64; and.b32 %r4, %r3, 127; mul.wide.u32 %d2, %r4, 4;",
        lambda t: 4 * (t ^ 21 | 64),
    ),
    ("mov.u32 %r2, %ntid.x; mad.lo.s32 %r3, %r1, %r2, %r0; cvt.u64.u32 %d2, %r3;", lambda t: 64 * t + 8),
    (
        "mov.u32 %r2, %laneid; mov.u32 %r4, %ctaid.x; add.u32 %r5, %r4, %r2; mul.wide.u32 %d2, %r5, 4;",
        lambda t: 4 * (t % 32),
    ),
)


def check_the_thread_and_the_line_of_an_access_are_found_by_its_address():
    for body, place in PLACES:
        text = f"""{HEAD}.visible .entry k(.param .u32 n) {{
          .reg .b32 %r<9>; .reg .b64 %d<9>;
          ld.param.u32 %r0, [n];
          mov.u32 %r1, %tid.x;
          {body}
          st.global.u32 [%d2], %r1;
          ret;
        }}"""
        error, said = told(kernel(text), 1, 64, 8)
        assert error.name == "CUDA_ERROR_ILLEGAL_ADDRESS", body
        found = re.search(r"thread \((\d+), 0, 0\)(?: or one of (\d+) others)?, PTX line (\d+): .* 0x([0-9a-f]+)", said)
        assert found, (body, said)
        thread, others, address = int(found[1]), int(found[2] or 0), int(found[4], 16)
        at = [t for t in range(64) if place(t) <= address < place(t) + 4]
        assert thread in at and len(at) == others + 1, (body, said)
        assert text.split("\n")[int(found[3]) - 1].strip().startswith("st.global"), (body, said)
        fresh()


def check_the_thread_of_an_access_is_found_between_barriers_and_in_rows():
    for body in ("", "bar.sync 0;", "shfl.sync.bfly.b32 %r7, %r1, 1, 31, -1;"):
        text = f"""{HEAD}.visible .entry k(.param .u64 to, .param .u32 n) {{
          .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %p<9>;
          ld.param.u64 %d1, [to];
          ld.param.u32 %r0, [n];
          mov.u32 %r1, %tid.x;
          mov.u32 %r2, %tid.y;
          mad.lo.s32 %r3, %r2, %r0, %r1;
          mul.wide.s32 %d2, %r3, 4;
          add.s64 %d3, %d1, %d2;
          {body}
          st.global.u32 [%d3], %r1;
          ret;
        }}"""
        memory = out(ctypes.c_uint64, cuda.cuMemAlloc_v2, ctypes.c_size_t(2 << 20))
        error, said = told(kernel(text), 1, (64, 8), memory, (2 << 20) // 4 // 2 - 20)
        assert error.name == "CUDA_ERROR_ILLEGAL_ADDRESS", body
        assert "block (0, 0, 0), thread (40, 2, 0), PTX line " in said, (body, said)
        fresh()


def check_the_thread_of_an_access_in_a_loop_is_found_where_its_address_steps():
    # The second access's address was read from memory: nobody is named for it.
    for step, named in ("add.s64 %d2, %d2, 2048;", True), ("ld.global.u64 %d3, [%d1]; add.s64 %d2, %d2, %d3;", False):
        text = f"""{HEAD}.visible .entry k(.param .u64 to) {{
          .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %p<9>;
          ld.param.u64 %d1, [to];
          mov.u32 %r1, %tid.x;
          mul.wide.u32 %d4, %r1, 4;
          add.s64 %d5, %d1, %d4;
          add.s64 %d2, %d5, 8;
          mov.u32 %r2, 0;
        LOOP:
          ld.global.u32 %r3, [%d2];
          add.u32 %r2, %r2, %r3;
          {step}
          setp.ne.u32 %p1, %r2, 1;
          @%p1 bra LOOP;
          st.global.u32 [%d5], %r2;
          ret;
        }}"""
        memory = out(ctypes.c_uint64, cuda.cuMemAlloc_v2, ctypes.c_size_t(2 << 20))
        cuda.cuMemsetD32_v2(memory, 0, ctypes.c_size_t(1 << 19))
        cuda.cuMemcpyHtoD_v2(memory, np.array([2048], np.uint64).ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(8))
        error, said = told(kernel(text), 1, 64, memory)
        assert error.name == "CUDA_ERROR_ILLEGAL_ADDRESS", said
        line = 1 + [each.strip() for each in text.split("\n")].index("ld.global.u32 %r3, [%d2];")
        assert f"PTX line {line}:" in said or not named, said
        assert ("thread (0, 0, 0), PTX" in said) == named, said  # the first to reach the end of the slab
        fresh()
