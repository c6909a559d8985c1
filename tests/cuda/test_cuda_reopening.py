"""Closing the device CUDA and opening it again: what it leaves behind in the process."""

import ctypes
import gc

import numpy as np
import pytest

import hcq

ROUNDS = 10
MOST = 20_000  # bytes a round; llvmlite itself keeps 1.5 KB of each pass builder


class _Allocated(ctypes.Structure):
    """struct mallinfo2: `in_use` is its uordblks."""

    _fields_ = [
        ("before", ctypes.c_size_t * 7),
        ("in_use", ctypes.c_size_t),
        ("after", ctypes.c_size_t * 2),
    ]


def _allocated():
    """Bytes that malloc has given out in this process."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        pytest.skip("needs glibc's mallinfo2")
    mallinfo.restype = _Allocated
    gc.collect()
    return mallinfo().in_use


@hcq.kernel
def _twice(out: hcq.ptr[hcq.i32], x: hcq.ptr[hcq.i32], n: hcq.i32):
    i = hcq.global_id(0)
    if i < n:
        out[i] = x[i] * 2


def test_reopening_with_portable_kernels_in_between_keeps_no_memory(devices):
    def once():
        x, y = hcq.array(np.arange(64, dtype="i4"), "CUDA"), hcq.empty(64, hcq.i32, "CUDA")
        _twice[1, 64](y, x, 64)
        assert y.numpy()[63] == 126
        hcq.Device.close("CUDA")

    for _ in range(3):
        once()
    before = _allocated()
    for _ in range(ROUNDS):
        once()
    assert (_allocated() - before) / ROUNDS < MOST
