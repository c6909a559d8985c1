"""Headers of NVIDIA's that kernels are written with: CUB, the C++ library, and what compute capability 9.0 has.

They take NVRTC seconds each, so that the quick run leaves them out.
"""

import ml_dtypes
import numpy as np
from cuda_cases import blocks, case, generator, near, same


@case(heavy=True)
def sums_by_cub(gpu):
    n = 500
    x = generator().random(n, np.float32)
    out, warps = gpu.zeros(4, "f4"), gpu.zeros(16, "i4")
    gpu.kernel("cub", "cub_sums")(4, 128, gpu.array(x), out, warps, n)
    near(out.get(), [x[i : i + 128].sum() for i in range(0, n, 128)], 1e-5)
    same(warps.get(), np.tile((np.arange(128) * 7 % 31).reshape(4, 32).max(1), 4))


@case(heavy=True)
def scans_by_cub(gpu):
    x = generator().integers(-50, 50, (3, 512)).astype("i4")
    out, totals = gpu.zeros(x.shape, "i4"), gpu.zeros(3, "i4")
    gpu.kernel("cub", "cub_scan")(3, 128, gpu.array(x), out, totals)
    same(out.get(), np.cumsum(x, 1) - x)
    same(totals.get(), x.sum(1))


@case(heavy=True)
def sorting_by_cub(gpu):
    x = generator().standard_normal(256).astype("f4")
    keys, values = gpu.array(x), gpu.zeros(256, "i4")
    gpu.kernel("cub", "cub_sort")(1, 64, keys, values)
    order = np.argsort(-x, kind="stable")
    same(keys.get(), x[order])
    same(values.get(), order)


@case(heavy=True)
def messages_between_blocks(gpu):
    data, flag, out = gpu.array(np.array([1], "i4")), gpu.zeros(1, "i4"), gpu.zeros(6, "i4")
    gpu.kernel("library", "messages")(6, 32, data, flag, out)
    expected = [1]
    for block in range(6):
        expected.append(expected[-1] * 3 + block)
    same(out.get(), expected[:-1])
    same(data.get(), expected[-1])


@case(heavy=True)
def atomics_with_orders(gpu):
    a, b, c = gpu.zeros(1, "u4"), gpu.zeros(1, "i8"), gpu.zeros(1, "i4")
    gpu.kernel("library", "counters")(2, 48, a, b, c)
    same(a.get(), np.arange(96).sum())
    same(b.get(), 95 << 33)
    same(c.get(), 192)


@case(heavy=True)
def barriers_of_the_library(gpu):
    x = generator().integers(0, 5, 64).astype("i4")
    out = gpu.zeros(64, "i4")
    gpu.kernel("library", "stages")(1, 64, gpu.array(x), out, 5)
    for _ in range(5):
        x = x + x[::-1]
    same(out.get(), x)


@case(heavy=True)
def complex_polynomials(gpu):
    r = generator()
    z = (r.standard_normal(70) + 1j * r.standard_normal(70)).astype("c8")
    out = gpu.zeros(70, "c8")
    gpu.kernel("library", "polynomials")(blocks(70, 32), 32, gpu.array(z), out, 70)
    near(out.get(), np.polyval([1, -2, 0.5, 0.25], z.astype("c16")), 1e-5, 1e-5)


@case(oldest=90, heavy=True)
def numbers_of_eight_bits(gpu):
    x = (generator().standard_normal(200) * 20).astype("f4")
    x[:6] = [0, -0.0, 1e-3, 448, -448, 2.0**-9]
    out, back = gpu.zeros((200, 2), "u1"), gpu.zeros((200, 2), "f4")
    gpu.kernel("recent", "eight_bits")(2, 128, gpu.array(x), out, back, 200)
    for column, dtype in enumerate((ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)):
        expected = x.astype(dtype)
        same(out.get()[:, column], expected.view("u1"))
        same(back.get()[:, column], expected.astype("f4"))


@case(oldest=90, heavy=True)
def copies_in_bulk(gpu):
    x = generator().random((5, 256), np.float32)
    out = gpu.zeros(x.shape, "f4")
    gpu.kernel("recent", "in_bulk")(1, 64, gpu.array(x), out, 5)
    same(out.get(), x[:, ::-1] * 2)


@case(oldest=90, heavy=True)
def one_of_a_warp_and_a_cluster_of_one(gpu):
    out = gpu.zeros(8, "i4")
    gpu.kernel("recent", "elected")(1, 96, out)
    got = out.get()
    assert ((got[:3] >= 100) & (got[:3] < 132)).all()
    same(got[7], 10)


@case(oldest=90, heavy=True)
def barriers_of_the_whole_grid(gpu):
    n = 150
    x = generator().integers(0, 1000, n).astype("i4")
    a, b = gpu.array(x), gpu.zeros(n, "i4")
    gpu.kernel("recent", "whole_grid")(5, 32, a, b, n, 4, cooperative=True)
    for _ in range(4):
        x = np.roll(x + np.roll(x, -1), 1) % 1000
    same(a.get(), x)
