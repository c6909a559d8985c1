"""Kernels that fail: what the error is, who is named, and that others go on. Run by test_executor.py."""

from __future__ import annotations

import os
import tempfile

import numpy as np
from driver import CudaError, cuda, fresh, launch, refused
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
