"""The kernel language: what each construct means, checked by running it on the device PYTHON, and each error's place."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import hcq

DEVICE = "PYTHON"
SCALE = 3
TABLE = (10.0, 20.0, 30.0)


def run(kernel, *args, groups=1, items=1):
    kernel[groups, items](*args, device=DEVICE)


@hcq.kernel
def saxpy(a: hcq.f32, x: hcq.ptr[hcq.f32], y: hcq.ptr[hcq.f32], n: hcq.i32):
    i = hcq.global_id(0)
    if i < n:
        y[i] = a * x[i] + y[i]


def test_a_kernel_computes_what_its_text_says():
    x, y = np.arange(10, dtype=np.float32), np.ones(10, np.float32)
    run(saxpy, 2.0, x, y, 10, groups=3, items=4)
    assert np.array_equal(y, 2 * x + 1)


@hcq.kernel
def sums(x: hcq.ptr, out: hcq.ptr[hcq.f32], n: hcq.i32):
    s = 0.0
    for k in range(n):
        if x[k] < 0:
            continue
        if x[k] > 100:
            break
        s += x[k]
    out[0] = s


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_weak_sum_takes_the_type_of_what_is_added(dtype):
    x, out = np.array([1, -5, 2, 3, 101, 7], dtype), np.zeros(1, np.float32)
    run(sums, x, out, 6)
    assert out[0] == 6
    name = {"float16": "f16", "float32": "f32", "float64": "f64"}[dtype]
    loop = next(op for op in sums.ir(x=hcq.dtypes.of(dtype)).walk() if op.code == "for")
    assert [str(each.type) for each in loop.results] == [name]
