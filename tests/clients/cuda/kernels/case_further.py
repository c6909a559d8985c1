"""Attention on matrix instructions, numbers of 8 and 4 bits, systems of equations, tables, signals, CUB and libcu++."""

import ml_dtypes
import numpy as np
from cuda_cases import blocks, case, generator, near, same
from scipy import linalg, ndimage, special


@case(oldest=80)
def attention_on_matrix_instructions(gpu):
    heads, scale = 2, 0.125
    for length, causal in ((96, 0), (77, 1), (130, 1), (33, 0)):
        q, k, v = (generator(i).standard_normal((heads, length, 64)).astype("f2") for i in range(3))
        out, logs = gpu.zeros(q.shape, "f2"), gpu.zeros((heads, length), "f4")
        given = [gpu.array(each) for each in (q, k, v)]
        gpu.kernel("flash", "flash")((blocks(length, 64), heads), 128, *given, out, logs, length, scale, causal)
        scores = q.astype("f8") @ k.astype("f8").swapaxes(-1, -2) * scale
        if causal:
            scores = np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf)
        near(out.get(), special.softmax(scores, -1) @ v.astype("f8"), 2e-2, 2e-3)
        near(logs.get(), special.logsumexp(scores, -1), 1e-3, 1e-3)


@case
def products_of_bytes(gpu):
    r = generator(3)
    m, n, k = 37, 50, 84
    a, b = (r.integers(-128, 128, shape).astype("i1") for shape in ((m, k), (n, k)))
    rows, columns = r.random(m).astype("f4"), r.random(n).astype("f4")
    out = gpu.zeros((m, n), "f4")
    arrays = [gpu.array(each) for each in (a, b, rows, columns)]
    gpu.kernel("quantised", "product_dp4a")((blocks(n, 16), blocks(m, 16)), (16, 16), *arrays, out, m, n, k // 4)
    exact = a.astype("i4") @ b.astype("i4").T
    same(out.get(), exact.astype("f4") * rows[:, None] * columns[None])
    signs = r.integers(0, 2**32, (9, 5), dtype=np.uint32), r.integers(0, 2**32, (40, 5), dtype=np.uint32)
    counts = gpu.zeros((9, 40), "i4")
    gpu.kernel("quantised", "product_of_signs")(9, 40, *map(gpu.array, signs), counts, 5, 40)
    x, y = (1 - 2 * np.unpackbits(each.view("u1"), axis=1).astype("i4") for each in signs)
    same(counts.get(), x @ y.T)


@case
def numbers_of_eight_and_four_bits(gpu):
    r = generator(4)
    n = 1000
    x = (r.standard_normal(n) * np.exp(r.standard_normal(n) * 3)).astype("f4")
    e4m3, e5m2 = gpu.zeros(n, "u1"), gpu.zeros(n, "u1")
    scales = gpu.zeros(8, "f4")
    gpu.kernel("quantised", "to_fp8")(8, 128, gpu.array(x), e4m3, e5m2, scales, n)
    tops = np.array([np.abs(x[i : i + 128]).max() for i in range(0, n, 128)], "f4")
    same(scales.get(), tops / np.float32(448))
    scaled = x / np.repeat(scales.get(), 128)[:n]
    same(e4m3.get(), scaled.astype(ml_dtypes.float8_e4m3fn).view("u1"))
    same(e5m2.get(), np.clip(scaled, -57344, 57344).astype(ml_dtypes.float8_e5m2).view("u1"))
    back = gpu.zeros(n, "f4")
    gpu.kernel("quantised", "from_fp8")(blocks(n // 2, 64), 64, e4m3, scales, back, n // 2)
    same(back.get(), e4m3.get().view(ml_dtypes.float8_e4m3fn).astype("f4") * np.repeat(scales.get(), 128)[:n])
    words, halves = r.integers(0, 2**32, 64, dtype=np.uint32), r.random(16).astype("f2")
    out = gpu.zeros((64, 8), "f2")
    gpu.kernel("quantised", "from_int4")(1, 64, gpu.array(words), gpu.array(halves), out, 64)
    nibbles = (words[:, None] >> np.array([0, 16, 4, 20, 8, 24, 12, 28], "u4") & 15).astype("i4") - 8
    same(out.get(), nibbles.astype("f2") * np.repeat(halves, 4)[:, None])


@case
def small_systems(gpu):
    r = generator(5)
    count, n = 6, 24
    a, b = r.standard_normal((count, n, n)), r.standard_normal((count, n))
    factors, solved, pivots = gpu.array(a), gpu.array(b), gpu.zeros((count, n), "i4")
    gpu.kernel("solve", "lu_batched")(count, n, factors, pivots, solved)
    near(solved.get(), np.linalg.solve(a, b[..., None])[..., 0], 1e-9, 1e-9)
    for i in range(count):
        lu, swapped = linalg.lu_factor(a[i])
        near(factors.get()[i], lu, 1e-9, 1e-9)
        same(pivots.get()[i], swapped)
    half = r.standard_normal((7, 32, 32))
    positive = (half @ half.swapaxes(1, 2) + 32 * np.eye(32)).astype("f4")
    lower = gpu.array(positive)
    gpu.kernel("solve", "cholesky_warps")(2, 128, lower, 7)
    near(lower.get(), np.linalg.cholesky(positive.astype("f8")), 1e-4, 1e-4)


@case(oldest=80)
def a_system_solved_in_one_launch(gpu):
    n, rounds = 777, 30
    b = generator(6).standard_normal(n)
    x, r, p, ap = (gpu.zeros(n, "f8") for _ in range(4))
    dots = gpu.zeros(2 * rounds + 1, "f8")
    kernel = gpu.kernel("solve", "conjugate_gradients")
    kernel(4, 128, gpu.array(b), x, r, p, ap, dots, n, rounds, cooperative=True)
    banded = np.array([np.full(n, -1.0), np.full(n, 2.5), np.full(n, -1.0)])
    near(x.get(), linalg.solve_banded((1, 1), banded, b), 1e-6, 1e-8)


@case
def a_table_of_sums(gpu):
    r = generator(7)
    n, slots = 3000, 1024
    keys, values = r.integers(0, 700, n).astype("u4"), r.integers(0, 1000, n).astype("u4")
    table = gpu.array(np.full(slots, 2**64 - 1, "u8"))
    gpu.kernel("tables", "table_add")(blocks(n, 128), 128, gpu.array(keys), gpu.array(values), table, slots, n)
    wanted = np.arange(800, dtype="u4")
    found = gpu.zeros(800, "u4")
    gpu.kernel("tables", "table_find")(blocks(800 * 8, 64), 64, gpu.array(wanted), table, found, slots, 800)
    sums = np.bincount(keys, values, 800).astype("u4")
    same(found.get(), np.where(np.isin(wanted, keys), sums, 2**32 - 1).astype("u4"))


@case
def one_atomic_a_warp(gpu):
    x = generator(8).integers(0, 1000, 5000).astype("i4")
    out, count = gpu.zeros(5000, "i4"), gpu.zeros(1, "i4")
    gpu.kernel("tables", "append")(7, 96, gpu.array(x), out, count, 5000, 300)
    assert count.get()[0] == (x < 300).sum()
    same(np.sort(out.get()[: count.get()[0]]), np.sort(x[x < 300]))


@case
def centres_of_clusters(gpu):
    r = generator(9)
    n = 2000
    points = np.concatenate([r.standard_normal((n // 5, 3)) + 6 * r.standard_normal(3) for _ in range(5)]).astype("f4")
    centres = points[::400].copy()
    for _ in range(3):
        labels, sums, counts = gpu.zeros(n, "i4"), gpu.zeros((5, 3), "f4"), gpu.zeros(5, "i4")
        kernel = gpu.kernel("tables", "k_means")
        kernel(blocks(n, 128), 128, gpu.array(points), gpu.array(centres), labels, sums, counts, n)
        distances = ((points[:, None].astype("f8") - centres[None]) ** 2).sum(-1)
        nearest = distances.argmin(1)
        clear = np.partition(distances, 1, 1)[:, 1] - distances.min(1) > 1e-3
        same(labels.get()[clear], nearest[clear])
        same(counts.get(), np.bincount(labels.get(), minlength=5))
        near(sums.get(), [points[labels.get() == c].astype("f8").sum(0) for c in range(5)], 1e-3, 1e-2)
        centres = (sums.get() / np.maximum(counts.get(), 1)[:, None]).astype("f4")


@case
def the_largest_of_rows(gpu):
    x = generator(10).integers(-500, 500, (5, 333)).astype("f4")  # many are equal
    values, places = gpu.zeros((5, 32), "f4"), gpu.zeros((5, 32), "i4")
    gpu.kernel("tables", "largest")(5, 32, gpu.array(x), values, places, 333)
    order = np.argsort(-x, axis=1, kind="stable")[:, :32]
    same(values.get(), np.take_along_axis(x, order, 1))
    same(places.get(), order)


@case
def filters_of_signals(gpu):
    r = generator(11)
    x, taps = r.standard_normal(1000).astype("f4"), r.standard_normal(33).astype("f4")
    gpu.variable("signals", "taps", "f4").set(taps)
    out = gpu.zeros(1000, "f4")
    gpu.kernel("signals", "fir")(blocks(1000, 128), 128, gpu.array(x), out, 1000, shared=(128 + 32) * 4)
    near(out.get(), ndimage.correlate1d(x.astype("f8"), taps.astype("f8"), mode="constant"), 1e-4, 1e-4)
    a, y = (r.random((3, 700)) * 0.9).astype("f4"), gpu.zeros((3, 700), "f4")
    x = r.standard_normal((3, 700)).astype("f4")
    gpu.kernel("signals", "recursion")(3, 256, gpu.array(a), gpu.array(x), y, 700)
    expected, last = np.zeros((3, 700)), np.zeros(3)
    for i in range(700):
        last = a[:, i].astype("f8") * last + x[:, i]
        expected[:, i] = last
    near(y.get(), expected, 1e-4, 1e-4)


@case
def convolution_of_few_points(gpu):
    r = generator(12)
    grid = np.full((20, 20), -1)
    there = r.permutation(400)[:90]
    grid.ravel()[there] = np.arange(90)
    padded = np.pad(grid, 1, constant_values=-1)
    rows, columns = np.divmod(there, 20)
    neighbours = np.array([padded[rows + i // 3, columns + i % 3] for i in range(9)], "i4")
    x, w = r.standard_normal((90, 6)).astype("f4"), r.standard_normal((9, 6, 10)).astype("f4")
    out = gpu.zeros((90, 10), "f4")
    given = gpu.array(x), gpu.array(neighbours), gpu.array(w)
    gpu.kernel("signals", "sparse_convolution")(blocks(90, 8), (16, 8), *given, out, 90, 6, 10)
    dense = np.zeros((22, 22, 6))
    dense[rows + 1, columns + 1] = x
    expected = sum(dense[rows + i // 3, columns + i % 3] @ w[i].astype("f8") for i in range(9))
    near(out.get(), expected, 1e-4, 1e-4)


@case
def life_and_medians_by_bits(gpu):
    r = generator(13)
    words, height = 40, 24
    cells = r.integers(0, 2**32, (height, words), dtype=np.uint32)
    now, then = gpu.array(cells), gpu.zeros(cells.shape, "u4")
    gpu.kernel("signals", "life_bits")((blocks(words, 32), height // 8), (32, 8), now, then, words, height)
    alive = np.unpackbits(cells.view("u1"), axis=1, bitorder="little").astype("i4")
    around = sum(np.roll(alive, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)) - alive
    expected = (around == 3) | ((around == 2) & (alive == 1))
    same(np.unpackbits(then.get().view("u1"), axis=1, bitorder="little"), expected)
    picture = r.integers(0, 256, (35, 50)).astype("u1")
    out = gpu.zeros(picture.shape, "u1")
    gpu.kernel("signals", "median")((blocks(50, 16), blocks(35, 8)), (16, 8), gpu.array(picture), out, 50, 35)
    same(out.get(), ndimage.median_filter(picture, 3, mode="nearest"))


@case
def chains_of_cubs_blocks(gpu):
    x = generator(14).integers(-40, 40, (3, 512)).astype("i4")
    made = [gpu.zeros(x.shape, "i4") for _ in range(5)]
    gpu.kernel("cccl", "cub_chain")(3, 128, gpu.array(x), *made)
    ordered, places, heads, sums, less = (each.get() for each in made)
    order = np.argsort(x, axis=1, kind="stable")
    same(places, order)
    same(ordered, np.take_along_axis(x, order, 1))
    changed = np.diff(ordered, axis=1, prepend=ordered[:, :1] - 1) != 0
    same(heads, changed)
    same(sums, changed.cumsum(1))
    same(less, np.diff(ordered, axis=1, prepend=0))


@case
def more_of_cubs_blocks(gpu):
    r = generator(15)
    x, data = r.standard_normal(256), r.integers(0, 256, 512).astype("u1")
    down, counts, tops = gpu.zeros(256, "f8"), gpu.zeros(256, "u4"), gpu.zeros(129, "f4")
    decoded = gpu.zeros(512, "i4")
    gpu.kernel("cccl", "cub_more")(1, 128, gpu.array(x), down, gpu.array(data), counts, tops, decoded)
    same(down.get(), np.sort(x)[::-1])
    same(counts.get(), np.bincount(data, minlength=256))
    assert tops.get()[0] == x.max().astype("f4")
    same(tops.get()[1:], np.arange(128).reshape(4, 32).cumsum(1).ravel().astype("f4"))
    runs = np.repeat(np.arange(128), np.arange(128) % 3 + 1)
    same(decoded.get()[: len(runs)], runs)


@case
def the_standard_library_on_the_device(gpu):
    x = generator(16).integers(0, 500, 40).astype("f4")
    out, ticket = gpu.zeros(5 + 32, "f8"), gpu.zeros(1, "u8")
    gpu.kernel("cccl", "standard")(1, 32, gpu.array(x), out, ticket, 40)
    sums = np.zeros((32, 4))
    for thread in range(32):
        for each in x[thread:].astype(int):
            sums[thread, each.bit_count() % 4 if hasattr(int, "bit_count") else bin(each).count("1") % 4] += each
    w = np.exp(1j) * (sums[0, 0] + 1 + 1j * sums[0, 1])
    near(out.get()[:4], [w.real, abs(w), np.finfo("f4").max, sums[0, 3]], 1e-12)
    near(out.get()[4], sums[1::2, 2].sum() + 16 * 0.5, 1e-12)
    same(out.get()[5:], [int(thread).bit_length() for thread in range(32)])
    assert ticket.get()[0] == 96
