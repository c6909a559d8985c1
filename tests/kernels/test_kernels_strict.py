"""PYTHON finds each kind of mistake that other devices let pass, with its line, and is right again once opened anew."""

from __future__ import annotations

import numpy as np
import pytest

import hcq


@hcq.kernel
def loads_past_the_end(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    i = hcq.global_id(0)
    x[i] = y[x[i]]


@hcq.kernel
def vector_past_the_end(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    i = hcq.global_id(0)
    v = y.load(x[0] - 1, lanes=4)
    if i == 0:
        x[0] = v[0]


@hcq.kernel
def atomic_before_the_start(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    hcq.atomic_add(y, x[0] - 5, 1)


@hcq.kernel
def local_past_the_end(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    t = hcq.local(hcq.i32, 4)
    t[hcq.local_id(0) + x[0]] = 1


@hcq.kernel
def private_past_the_end(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    t = hcq.private(hcq.i32, 4)
    t[x[0]] = 1


@hcq.kernel
def store_before_the_start(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    y[hcq.global_id(0) - x[0]] = 1


@hcq.kernel
def local_that_nobody_wrote(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    t = hcq.local(hcq.i32, 4)
    y[hcq.global_id(0)] = t[0]


@hcq.kernel
def private_that_nobody_wrote(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    t = hcq.private(hcq.i32, 4)
    t[0] = 1
    y[hcq.global_id(0)] = t[1]


@hcq.kernel
def lane_that_nobody_wrote(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    t = hcq.private(hcq.i32, 4)
    t[0] = 1
    v = hcq.vec[hcq.i32, 2](t[0], t[1])
    y[hcq.global_id(0)] = v[0]


@hcq.kernel
def local_that_another_group_wrote(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    t = hcq.local(hcq.i32, 4)
    if hcq.group_id(0) == 0:
        t[hcq.local_id(0)] = 1
    hcq.barrier()
    y[hcq.global_id(0)] = t[hcq.local_id(0)]


@hcq.kernel
def two_write_one(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    y[hcq.global_id(0) // 2] = 1


@hcq.kernel
def all_write_the_same(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    y[0] = 1


@hcq.kernel
def one_reads_what_another_writes(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    i = hcq.global_id(0)
    y[i] = y[(i + 1) % 4]


@hcq.kernel
def one_writes_what_another_read(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    i = hcq.global_id(0)
    v = y[0]
    if i == 3:
        y[0] = v


@hcq.kernel
def barrier_between_groups(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    i = hcq.global_id(0)
    y[i] = 1
    hcq.barrier()
    x[i] = y[(i + 2) % 4]


@hcq.kernel
def local_without_a_barrier(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    t = hcq.local(hcq.i32, 4)
    me = hcq.local_id(0)
    t[me] = me
    hcq.barrier()
    t[(me + 1) % 2] = 5
    y[hcq.global_id(0)] = t[me]


@hcq.kernel
def atomic_beside_a_plain_read(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    hcq.atomic_add(y, 0, 1)
    x[hcq.global_id(0)] = y[0]


@hcq.kernel
def barrier_on_one_way(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    if hcq.local_id(0) == 0:
        hcq.barrier()
    y[hcq.global_id(0)] = 1


@hcq.kernel
def two_barriers(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    if hcq.local_id(0) == 0:
        hcq.barrier()
    else:
        hcq.barrier()
    y[hcq.global_id(0)] = 1


@hcq.kernel
def return_before_a_barrier(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    if hcq.local_id(0) == 0:
        return
    hcq.barrier()
    y[hcq.global_id(0)] = 1


@hcq.kernel
def barrier_in_a_loop_of_its_own_length(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    for _ in range(hcq.local_id(0)):
        hcq.barrier()
    y[hcq.global_id(0)] = 1


@hcq.kernel
def index_over_32_bits(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    y[hcq.i32(x[0] * 1073741824) * 4 + hcq.global_id(0)] = 1


@hcq.kernel
def index_over_8_bits(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    y[hcq.i8(x[0] * 100) + hcq.global_id(0)] = 1


MISTAKES = {
    loads_past_the_end: r"y\[4\] is outside",
    vector_past_the_end: r"is outside",
    atomic_before_the_start: r"y\[-1\] is outside",
    local_past_the_end: r"is outside",
    private_past_the_end: r"is outside",
    store_before_the_start: r"y\[-4\] is outside",
    local_that_nobody_wrote: r"nothing has written",
    private_that_nobody_wrote: r"nothing has written",
    lane_that_nobody_wrote: r"nothing has written",
    local_that_another_group_wrote: r"nothing has written",
    two_write_one: r"writes y.0., which",
    all_write_the_same: r"writes y.0., which",
    one_reads_what_another_writes: r"in no order",
    one_writes_what_another_read: r"in no order",
    barrier_between_groups: r"in no order",
    local_without_a_barrier: r"in no order",
    atomic_beside_a_plain_read: r"in no order",
    barrier_on_one_way: r"not all work-items come to this barrier",
    two_barriers: r"not all work-items come",
    return_before_a_barrier: r"not all work-items come",
    barrier_in_a_loop_of_its_own_length: r"not all work-items come",
    index_over_32_bits: r"4294967296 is no i32",
    index_over_8_bits: r"400 is no i8",
}


@pytest.mark.parametrize("kernel", MISTAKES, ids=lambda kernel: kernel.__name__)
def test_each_mistake_is_an_error_with_its_line(kernel):
    x, y = np.full(5, 4, np.int32), np.zeros(4, np.int32)
    try:
        with pytest.raises(hcq.errors.DeviceLost, match=MISTAKES[kernel]) as caught:
            kernel[2, 2](x, y, device="PYTHON")
        first = kernel.__kernel_function__.__code__.co_firstlineno
        assert any(f"{__file__}:{line}:" in str(caught.value) for line in range(first + 2, first + 9))
    finally:
        hcq.Device.close("PYTHON")


@hcq.kernel
def copied(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32]):
    y[hcq.global_id(0)] = x[hcq.global_id(0)]


def test_a_new_buffer_is_not_read_before_it_is_written():
    x, y = hcq.Buffer("PYTHON", 4, hcq.i32).allocate(), hcq.zeros(4, hcq.i32, "PYTHON")
    try:
        with pytest.raises(hcq.errors.DeviceLost, match=r"reads x\[0\], which nothing has written"):
            copied[2, 2](x, y, wait=True)
    finally:
        hcq.Device.close("PYTHON")
    x, y = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    copied[2, 2](x, y, device="PYTHON")
    assert y.tolist() == [0, 1, 2, 3]
