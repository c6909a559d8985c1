"""What an item of a kernel moves and computes, and that profiles say GB/s and GFLOP/s from it."""

import numpy as np
import pytest

import hcq
from hcq.kernels import work


@hcq.kernel
def axpy(a: hcq.f32, x: hcq.ptr[hcq.f32], y: hcq.ptr[hcq.f32], n: hcq.i32):
    i = hcq.global_id(0)
    if i < n:
        y[i] = a * x[i] + y[i]


@hcq.kernel
def several(x: hcq.ptr[hcq.f64], out: hcq.ptr[hcq.i32]):
    i = hcq.global_id(0)
    tile = hcq.local(hcq.f64, 4)
    total = hcq.f64(0)
    for k in range(3):
        total = hcq.fma(x[i * 3 + k], 2.0, total)
    tile[0] = total  # local memory is not counted
    hcq.atomic_add(out, 0, 1)


@hcq.kernel
def unknown(x: hcq.ptr[hcq.f32], n: hcq.i32):
    for k in range(n):
        x[k] = 0


@pytest.mark.parametrize(("kernel", "wanted"), [(axpy, (2, 12)), (several, (6, 32)), (unknown, None)])
def test_the_work_of_an_item(kernel, wanted):
    assert work.per_item(kernel.ir()) == wanted


def test_profiles_say_what_kernels_reach():
    x, y = (hcq.array(np.ones(1024, "f4"), "LLVM") for _ in range(2))
    with hcq.profile() as p:
        for _ in range(3):
            axpy[4, 256](2.0, x, y, 1024)
    (row,) = [each for each in p.table() if each.kernel == "axpy"]
    assert row.calls == 3
    assert row.gb_s * row.total == pytest.approx(3 * 1024 * 12 / 1e9)
    assert row.gflop_s * row.total == pytest.approx(3 * 1024 * 2 / 1e9)
    p.estimate("axpy", nbytes=1)  # what the user says counts more
    assert p.table()[0].gb_s is not None and p.table()[0].gflop_s is None
