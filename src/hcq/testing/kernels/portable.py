"""The kernels of the conformance suite (KERNELS in driver.py says what each does), written once for every device.

What does not live here: kernels in a device's own language (shipped), and the suite's tests of the kernel language.
"""

from __future__ import annotations

from functools import cache

import hcq


@hcq.kernel
def fill(out: hcq.ptr[hcq.i32], n: hcq.i32, value: hcq.i32):
    for i in range(n):
        out[i] = value


@hcq.kernel
def iota(out: hcq.ptr[hcq.i32], n: hcq.i32, start: hcq.i32):
    for i in range(n):
        out[i] = start + i


@hcq.kernel
def add(out: hcq.ptr[hcq.i32], a: hcq.ptr[hcq.i32], b: hcq.ptr[hcq.i32], n: hcq.i32):
    for i in range(n):
        out[i] = a[i] + b[i]


@hcq.kernel
def increment(out: hcq.ptr[hcq.i32]):
    out[0] += 1


@hcq.kernel
def append(log: hcq.ptr[hcq.i32], value: hcq.i32):
    count = log[0] + 1
    log[0] = count
    log[count] = value


@hcq.kernel
def spin(out: hcq.ptr[hcq.i32], n: hcq.i32, cost: hcq.constexpr):
    """`cost`: nanoseconds that a round takes on the device, more or less. Each depends on the one before."""
    x = hcq.u32(n) | 1
    for _ in range(n // cost):
        x = x ^ (x << 13)
        x = x ^ (x >> 17)
        x = x ^ (x << 5)
    out[0] = n if x != 0 else 0  # which it never is


@hcq.kernel
def nothing():
    pass


@hcq.kernel
def values(out: hcq.ptr[hcq.i64], a: hcq.i8, b: hcq.i16, c: hcq.i32, d: hcq.i64, e: hcq.f32, f: hcq.f64):
    out[0] = hcq.i64(a)
    out[1] = hcq.i64(b)
    out[2] = hcq.i64(c)
    out[3] = d
    out[4] = hcq.bitcast(hcq.f64(e), hcq.i64)
    out[5] = hcq.bitcast(f, hcq.i64)


@hcq.kernel
def raw(out: hcq.ptr[hcq.u32], a: hcq.u32):
    out[0] = a


@hcq.kernel
def sixty_four(
    out: hcq.ptr[hcq.i32],
    b1: hcq.ptr[hcq.i32], b2: hcq.ptr[hcq.i32], b3: hcq.ptr[hcq.i32], b4: hcq.ptr[hcq.i32],
    b5: hcq.ptr[hcq.i32], b6: hcq.ptr[hcq.i32], b7: hcq.ptr[hcq.i32], b8: hcq.ptr[hcq.i32],
    b9: hcq.ptr[hcq.i32], b10: hcq.ptr[hcq.i32], b11: hcq.ptr[hcq.i32], b12: hcq.ptr[hcq.i32],
    b13: hcq.ptr[hcq.i32], b14: hcq.ptr[hcq.i32], b15: hcq.ptr[hcq.i32], b16: hcq.ptr[hcq.i32],
    b17: hcq.ptr[hcq.i32], b18: hcq.ptr[hcq.i32], b19: hcq.ptr[hcq.i32], b20: hcq.ptr[hcq.i32],
    b21: hcq.ptr[hcq.i32], b22: hcq.ptr[hcq.i32], b23: hcq.ptr[hcq.i32], b24: hcq.ptr[hcq.i32],
    b25: hcq.ptr[hcq.i32], b26: hcq.ptr[hcq.i32], b27: hcq.ptr[hcq.i32], b28: hcq.ptr[hcq.i32],
    b29: hcq.ptr[hcq.i32], b30: hcq.ptr[hcq.i32], b31: hcq.ptr[hcq.i32],
    v0: hcq.i32, v1: hcq.i32, v2: hcq.i32, v3: hcq.i32, v4: hcq.i32, v5: hcq.i32, v6: hcq.i32,
    v7: hcq.i32, v8: hcq.i32, v9: hcq.i32, v10: hcq.i32, v11: hcq.i32, v12: hcq.i32, v13: hcq.i32,
    v14: hcq.i32, v15: hcq.i32, v16: hcq.i32, v17: hcq.i32, v18: hcq.i32, v19: hcq.i32, v20: hcq.i32,
    v21: hcq.i32, v22: hcq.i32, v23: hcq.i32, v24: hcq.i32, v25: hcq.i32, v26: hcq.i32, v27: hcq.i32,
    v28: hcq.i32, v29: hcq.i32, v30: hcq.i32, v31: hcq.i32,
):  # fmt: skip
    total = b1[0]
    total += (
        b2[0]
        + b3[0]
        + b4[0]
        + b5[0]
        + b6[0]
        + b7[0]
        + b8[0]
        + b9[0]
        + b10[0]
        + b11[0]
        + b12[0]
        + b13[0]
        + b14[0]
        + b15[0]
        + b16[0]
        + b17[0]
    )
    total += (
        b18[0]
        + b19[0]
        + b20[0]
        + b21[0]
        + b22[0]
        + b23[0]
        + b24[0]
        + b25[0]
        + b26[0]
        + b27[0]
        + b28[0]
        + b29[0]
        + b30[0]
        + b31[0]
        + v0
        + v1
    )
    total += v2 + v3 + v4 + v5 + v6 + v7 + v8 + v9 + v10 + v11 + v12 + v13 + v14 + v15 + v16 + v17
    total += v18 + v19 + v20 + v21 + v22 + v23 + v24 + v25 + v26 + v27 + v28 + v29 + v30 + v31
    out[0] = total


@hcq.kernel
def grid(out: hcq.ptr[hcq.i32]):
    group = (hcq.group_id(2) * hcq.num_groups(1) + hcq.group_id(1)) * hcq.num_groups(0) + hcq.group_id(0)
    item = (hcq.local_id(2) * hcq.local_size(1) + hcq.local_id(1)) * hcq.local_size(0) + hcq.local_id(0)
    items = hcq.local_size(0) * hcq.local_size(1) * hcq.local_size(2)
    out[group * items + item] += group * 1000 + item + 1


@hcq.kernel
def meet(out: hcq.ptr[hcq.i32], rounds: hcq.i32):
    shared = hcq.local(hcq.i32, 256)
    item, items = hcq.local_id(0), hcq.local_size(0)
    total = 0
    for turn in range(rounds):
        shared[item] = item + turn
        hcq.barrier()
        total += shared[(item + 1) % items]
        hcq.barrier()
    out[hcq.group_id(0) * items + item] = total


ALL = (fill, iota, add, increment, append, spin, nothing, values, raw, sixty_four, grid, meet)


@cache
def sources(language: str, spin_cost: int) -> dict[str, str]:
    """All of them in a device's language, by name. `spin_cost`: nanoseconds of a round of `spin` there."""
    return {each.__name__: each.source(language, **({"cost": spin_cost} if each is spin else {})) for each in ALL}
