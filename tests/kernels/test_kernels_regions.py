"""Kernels with barriers on CLANG: cut at their barriers into loops over the items, with the results of PYTHON."""

import numpy as np
import pytest

import hcq

ITEMS = 24


@hcq.kernel
def lives(o: hcq.ptr[hcq.f32], x: hcq.ptr[hcq.f32], n: hcq.i32):
    """Numbers, vectors, an index, a pointer, a private array and conditions live from region to region."""
    i = hcq.local_id(0)
    tile = hcq.local(hcq.f32, 64)
    own = hcq.private(hcq.f32, 4)
    v = x.load(i, lanes=2)
    place = (i * 7) % 24
    p = x if x[i] > 0.5 else x + 8
    big = x[i] > 0.25
    for k in range(4):
        own[k] = x[i + k]
    tile[i] = v[0]
    hcq.barrier()
    total = tile[place] + p[i]
    for k in range(n):
        hcq.barrier()
        tile[i] = total + v[1]
        hcq.barrier()
        total = tile[ITEMS - 1 - i] * 0.5 + own[k % 4]
        if big:
            total = total + 1
        own[k % 4] = total
    o[i] = total + own[1] + v[0]


@hcq.kernel
def sums(o: hcq.ptr[hcq.f32], x: hcq.ptr[hcq.f32], n: hcq.i32):
    """A loop that the group shares, halves, one item at the end."""
    i = hcq.local_id(0)
    tile = hcq.local(hcq.f32, 32)
    s = hcq.f32(0)
    for k in range(0, n, ITEMS):
        if k + i < n:
            s += x[k + i]
    tile[i] = s
    if i < 8:
        tile[ITEMS + i] = 0
    half = 16
    while half > 0:
        hcq.barrier()
        if i < half:
            tile[i] += tile[i + half]
        half = half // 2
        if half == 2 and n == 5:
            break
    if i == 0:
        o[hcq.group_id(0)] = tile[0]


@hcq.kernel
def leaving(o: hcq.ptr[hcq.f32], x: hcq.ptr[hcq.f32], n: hcq.i32):
    """Items that returned take no part in what follows."""
    i = hcq.local_id(0)
    tile = hcq.local(hcq.f32, 32)
    if i >= n:
        return
    tile[i] = x[i]
    hcq.barrier()
    if i % 5 == 4:
        return
    o[i] = tile[n - 1 - i] + i


@hcq.kernel
def planes(o: hcq.ptr[hcq.f32], x: hcq.ptr[hcq.f32], n: hcq.i32):
    """Three dimensions, and a branch that all items take alike around a barrier."""
    a, b, c = hcq.local_id(0), hcq.local_id(1), hcq.local_id(2)
    tile = hcq.local(hcq.f32, (2, 3, 4))
    tile[c, b, a] = x[(c * 3 + b) * 4 + a] * 2
    if n > 2:
        hcq.barrier()
        v = tile[1 - c, b, 3 - a]
        hcq.barrier()
        tile[c, 2 - b, a] = v
    else:
        tile[c, b, a] = hcq.f32(n)
    hcq.barrier()
    o[(c * 3 + b) * 4 + a] = tile[c, b, 3 - a]


@hcq.kernel
def apart(o: hcq.ptr[hcq.f32], x: hcq.ptr[hcq.f32], n: hcq.i32):
    """What decides whether there is a barrier comes from memory: nothing says that all items read the same."""
    i = hcq.local_id(0)
    tile = hcq.local(hcq.f32, 32)
    tile[i] = x[i]
    if x[40] > 0:
        hcq.barrier()
        o[i] = tile[ITEMS - 1 - i]


CASES = [(lives, (ITEMS, 1, 1)), (sums, (ITEMS, 1, 1)), (planes, (4, 3, 2)), (apart, (ITEMS, 1, 1))]


@pytest.mark.parametrize(("kernel", "items"), CASES, ids=lambda case: getattr(case, "__name__", ""))
@pytest.mark.parametrize("n", [0, 1, 5, 41])
def test_values_live_from_one_barrier_to_the_next(kernel, items, n):
    x = np.random.default_rng(n).random(64).astype("f4")
    results = []
    for device in ("PYTHON", "CLANG"):
        o = np.zeros(ITEMS, "f4")
        kernel[1, items](o, x, n, device=device)
        results.append(o)
    assert results[0].tobytes() == results[1].tobytes()


@hcq.kernel
def guarded(o: hcq.ptr[hcq.f32], x: hcq.ptr[hcq.f32], n: hcq.i32, m: hcq.i32):
    """Loops that the group shares, under guards, one in the other; none of them around a barrier."""
    i = hcq.global_id(0)
    if i < n:
        total = hcq.f32(0)
        for k in range(m):
            total += x[k * 8 + i]
        if hcq.local_id(0) >= m - 3:
            for k in range(m + 1):
                total = total * 0.5 + x[k + i]
            o[i] = total
        if i == m:
            o[i] = total * 2


@pytest.mark.parametrize("n", [-3, 0, 3, 9, 100])
@pytest.mark.parametrize("m", [0, 4, 6])
def test_loops_are_shared_under_guards(n, m):
    assert "_item(" not in guarded.source("c")  # as other kernels without barriers have
    x = np.random.default_rng(3).random(80).astype("f4")
    results = []
    for device in ("PYTHON", "CLANG", "LLVM"):
        o = np.full(24, -1, "f4")
        guarded[3, 8](o, x, min(n, 24), m, device=device)
        results.append(o.tobytes())
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("n", [0, 1, 7, ITEMS, 100])
def test_items_that_returned_take_no_part(n):
    x, o = np.arange(64, dtype="f4") ** 2, np.full(ITEMS, -1, "f4")
    leaving[1, ITEMS](o, x, min(n, ITEMS), device="CLANG")
    n = min(n, ITEMS)
    assert o.tolist() == [x[n - 1 - i] + i if i < n and i % 5 != 4 else -1 for i in range(ITEMS)]


def test_a_kernel_waits_at_barriers_only_where_it_can_not_be_cut():
    for kernel in (lives, sums, leaving, planes):
        assert "hcq_barrier()" not in kernel.source("c"), kernel.__name__
    assert "hcq_barrier()" in apart.source("c")


def test_what_would_not_fit_on_a_stack_waits_at_barriers():
    @hcq.kernel
    def large(o: hcq.ptr[hcq.i32]):
        own = hcq.private(hcq.i32, 1000)
        i = hcq.local_id(0)
        for k in range(1000):
            own[k] = i + k
        hcq.barrier()
        o[i] = own[999 - i]

    assert "hcq_barrier()" in large.source("c")
    o = np.zeros(8, np.int32)
    large[1, 8](o, device="CLANG")
    assert o.tolist() == [999] * 8
