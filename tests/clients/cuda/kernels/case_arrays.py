"""Scans, sorts, histograms, reductions, compaction, sparse rows: threads by their place in an array."""

import numpy as np
from cuda_cases import blocks, case, generator, near, same


@case
def scan_up_and_down_a_tree(gpu):
    n, threads = 1500, 128
    x = generator().integers(-50, 50, n).astype("i4")
    parts = blocks(n, 2 * threads)
    out, totals, none = gpu.zeros(n, "i4"), gpu.zeros(parts, "i4"), np.uint64(0)
    scan = gpu.kernel("scan", "scan_tree")
    shared = 4 * (2 * threads + 2 * threads // 32)
    scan(parts, threads, gpu.array(x), out, totals, n, shared=shared)
    offsets = gpu.zeros(parts, "i4")
    scan(1, 8, totals, offsets, none, parts, shared=shared)
    gpu.kernel("scan", "add_offsets")(parts, threads, out, offsets, n)
    same(out.get(), np.cumsum(x) - x)


@case
def scan_by_shuffles(gpu):
    n, threads = 1000, 256
    for name, dtype in (("scan_shuffle_i32", "i4"), ("scan_shuffle_f64", "f8")):
        x = (generator().standard_normal(n) * 100).astype(dtype)
        out = gpu.zeros(n, dtype)
        gpu.kernel("scan", name)(blocks(n, threads), threads, gpu.array(x), out, n)
        expected = np.concatenate([np.cumsum(x[i : i + threads]) for i in range(0, n, threads)])
        near(out.get(), expected, 1e-12, 1e-9)


@case
def scan_that_looks_back(gpu):
    n, threads = 3000, 128
    x = generator().integers(0, 1000, n).astype("u4")
    out, states, ticket = gpu.zeros(n, "u4"), gpu.zeros(blocks(n, threads), "u8"), gpu.zeros(1, "u4")
    gpu.kernel("scan", "scan_look_back")(blocks(n, threads), threads, gpu.array(x), out, states, ticket, n)
    same(out.get(), np.cumsum(x, dtype="u4"))


@case
def radix_sort(gpu):
    n, threads = 1111, 128
    parts = blocks(n, threads)
    keys, values = generator().integers(0, 2**32, n).astype("u4"), np.arange(n, dtype="u4")
    k, v, k2, v2 = gpu.array(keys), gpu.array(values), gpu.zeros(n, "u4"), gpu.zeros(n, "u4")
    counts = gpu.zeros(16 * parts, "u4")
    for shift in range(0, 32, 4):
        gpu.kernel("sort", "radix_count")(parts, threads, k, counts, n, shift, parts)
        gpu.kernel("sort", "radix_scan")(1, 64, counts, 16 * parts)
        gpu.kernel("sort", "radix_scatter")(parts, threads, k, v, counts, k2, v2, n, shift, parts)
        k, v, k2, v2 = k2, v2, k, v
    order = np.argsort(keys, kind="stable")
    same(k.get(), keys[order])
    same(v.get(), order)


@case
def bitonic_sorts(gpu):
    x = generator().standard_normal((4, 256)).astype("f4")
    data = gpu.array(x)
    gpu.kernel("sort", "bitonic_shared")(4, 128, data, 1, shared=1024)
    expected = np.sort(x, axis=1)
    expected[1::2] = expected[1::2, ::-1]
    same(data.get(), expected)

    words = generator().integers(0, 2**63, 512).astype("u8")
    data = gpu.array(words)
    size = 2
    while size <= 512:
        stride = size // 2
        while stride:
            gpu.kernel("sort", "bitonic_step")(4, 128, data, 512, size, stride)
            stride //= 2
        size *= 2
    same(data.get(), np.sort(words))

    small = generator().integers(-1000, 1000, (6, 32)).astype("i4")
    data = gpu.array(small)
    gpu.kernel("sort", "bitonic_warp")(2, 96, data)
    same(data.get(), np.sort(small, axis=1))


@case
def histograms(gpu):
    x = (generator().standard_normal(4000) * 30 + 128).clip(0, 255).astype("u1")
    expected = np.bincount(x, minlength=256)
    out = gpu.zeros(256, "u4")
    gpu.kernel("histogram", "histogram_shared")(3, 128, gpu.array(x), out, len(x))
    same(out.get(), expected)
    out = gpu.zeros(64, "u4")
    gpu.kernel("histogram", "histogram_words")(2, 96, gpu.array(x), out, len(x) // 4, shared=3 * 256)
    same(out.get(), expected.reshape(64, 4).sum(1))
    labels, out = generator().integers(0, 7, 500).astype("i4"), gpu.zeros(7, "i4")
    gpu.kernel("histogram", "histogram_match")(4, 128, gpu.array(labels), out, len(labels))
    same(out.get(), np.bincount(labels))


@case
def reductions_with_cooperative_groups(gpu):
    x = generator().random(5000, np.float32)
    out = gpu.zeros(1, "f4")
    gpu.kernel("reduce", "sum_blocks")(3, 256, gpu.array(x), out, len(x))
    near(out.get(), x.sum(dtype="f8"), 1e-5)

    x = generator().integers(-100, 100, 256).astype("i4")
    sums, flags = gpu.zeros(32, "i4"), gpu.zeros(32, "i4")
    gpu.kernel("reduce", "tiles_of_eight")(2, 128, gpu.array(x), sums, flags, -60)
    above = x.reshape(-1, 8) > -60
    same(sums.get(), x.reshape(-1, 8).sum(1))
    same(flags.get(), above.all(1) + 2 * above.any(1) + 4 * (above @ (1 << np.arange(8))))

    out, count = gpu.zeros(256, "i4"), gpu.zeros(1, "i4")
    gpu.kernel("reduce", "filter_odd")(2, 128, gpu.array(x), out, count, 250)
    odd = x[:250][x[:250] % 2 != 0]
    same(count.get(), len(odd))
    same(np.sort(out.get()[: len(odd)]), np.sort(odd))

    labels = generator().integers(0, 5, 64).astype("i4")
    sizes, ranks = gpu.zeros(64, "i4"), gpu.zeros(64, "i4")
    gpu.kernel("reduce", "labelled")(1, 64, gpu.array(labels), sizes, ranks)
    warps = labels.reshape(2, 32)
    same(sizes.get().reshape(2, 32), [[(w == label).sum() for label in w] for w in warps])
    same(ranks.get().reshape(2, 32), [[(w[:i] == label).sum() for i, label in enumerate(w)] for w in warps])


@case
def sum_by_the_last_block(gpu):
    x = generator().random(3000)
    parts, out = gpu.zeros(8, "f8"), gpu.zeros(1, "f8")
    for _ in range(2):  # its ticket starts anew
        gpu.kernel("reduce", "sum_last_block")(8, 128, gpu.array(x), parts, out, len(x))
        near(out.get(), x.sum(), 1e-12)


@case
def arg_max(gpu):
    x = generator().standard_normal(2000).astype("f4")
    best = gpu.zeros(1, "u8")
    gpu.kernel("reduce", "arg_max")(2, 256, gpu.array(x), best, len(x))
    same(~best.get().astype("u4"), x.argmax())


@case(oldest=80)
def reductions_of_a_warp(gpu):
    x = generator().integers(-(2**31), 2**31, 96).astype("i4")
    out = gpu.zeros((3, 8), "i4")
    gpu.kernel("reduce", "warp_reductions")(1, 96, gpu.array(x), out)
    w = x.reshape(3, 32)
    u = w.view("u4")
    columns = [w.sum(1, dtype="i4"), w.min(1), w.max(1), *(f.reduce(w, 1) for f in LOGIC), u.min(1), u.max(1)]
    same(out.get(), np.stack([each.view("i4") for each in columns], 1))


LOGIC = (np.bitwise_and, np.bitwise_or, np.bitwise_xor)


@case(oldest=80, heavy=True)
def collectives_of_cooperative_groups(gpu):
    x = generator().integers(-100, 100, 128).astype("i4")
    sums, tops, before = (gpu.zeros(128, "i4") for _ in range(3))
    means = gpu.zeros(128, "f4")
    gpu.kernel("groups", "collectives")(2, 64, gpu.array(x), sums, tops, before, means)
    tiles = x.reshape(8, 16)
    same(sums.get().reshape(8, 16), np.repeat(tiles.sum(1, keepdims=True), 16, 1))
    same(tops.get().reshape(8, 16), np.repeat(tiles.max(1, keepdims=True), 16, 1))
    same(before.get().reshape(8, 16), np.cumsum(tiles, 1) - tiles)
    near(means.get().reshape(8, 16), np.repeat(tiles.mean(1, keepdims=True), 16, 1), 1e-5, 1e-6)
    out = gpu.zeros(128, "i4")
    gpu.kernel("groups", "some_threads")(2, 64, gpu.array(x), out, 120)
    warps = np.where((x % 3 == 0) & (np.arange(128) < 120), x, 0).reshape(4, 32)
    same(out.get().reshape(4, 32), np.where(warps != 0, warps.sum(1, keepdims=True), out.get().reshape(4, 32)))


@case
def sparse_rows(gpu):
    from scipy import sparse

    rows, columns = 90, 70
    for name, dtype, tolerance in (("float", "f4", 1e-5), ("double", "f8", 1e-13)):
        matrix = sparse.random(rows, columns, 0.1, "csr", dtype=dtype, random_state=1)
        x = generator().random(columns).astype(dtype)
        given = gpu.array(matrix.indptr), gpu.array(matrix.indices), gpu.array(matrix.data), gpu.array(x)
        for kernel, threads in (("csr_scalar", 1), ("csr_warp", 32)):
            y = gpu.zeros(rows, dtype)
            gpu.kernel("sparse", f"{kernel}<{name}>")(blocks(rows * threads, 128), 128, *given, y, rows)
            near(y.get(), matrix @ x, tolerance, tolerance)
    entries = matrix.tocoo()
    y = gpu.zeros(rows, "f8")
    given = gpu.array(entries.row.astype("i4")), gpu.array(entries.col.astype("i4")), gpu.array(entries.data)
    gpu.kernel("sparse", "coordinates")(2, 64, *given, gpu.array(x), y, entries.nnz)
    near(y.get(), matrix @ x, 1e-13, 1e-13)


@case
def loads_and_stores_of_all_widths(gpu):
    n = 50
    r = generator()
    given = [
        r.integers(-(2**31), 2**31, (n, 4)).astype("i4"),
        r.integers(-(2**15), 2**15, (n, 4)).astype("i2"),
        r.random((n, 2)),
        r.integers(0, 256, (n, 2)).astype("u1"),
    ]
    out = [gpu.zeros(each.shape, each.dtype) for each in given]
    inputs = [gpu.array(each) for each in given]
    gpu.kernel("data", "vectors")(1, 64, *(each for pair in zip(inputs, out, strict=True) for each in pair), n)
    v, s, d, c = (each.get() for each in out)
    same(v, given[0][:, ::-1])
    same(s, given[1][:, [1, 0, 3, 2]])
    same(d, given[2][:, ::-1])
    same(c, given[3][:, ::-1] + np.array([1, 255], "u1"))
    x, out = r.random(n, np.float32), gpu.zeros(n, "f4")
    gpu.kernel("data", "hints")(1, 64, gpu.array(x), out, n)
    near(out.get(), 6 * x, 1e-6)


@case
def compaction(gpu):
    x = generator().standard_normal(700).astype("f4")
    out, count = gpu.zeros(700, "f4"), gpu.zeros(1, "i4")
    gpu.kernel("data", "compact")(6, 128, gpu.array(x), out, count, len(x), 0.3)
    kept = x[x > np.float32(0.3)]
    same(count.get(), len(kept))
    same(np.sort(out.get()[: len(kept)]), np.sort(kept))


@case
def nearest_centres(gpu):
    points, centres = generator(1).random((300, 2), np.float32), generator(2).random((5, 2), np.float32)
    labels, sums, counts = gpu.zeros(300, "i4"), gpu.zeros((5, 2), "f4"), gpu.zeros(5, "i4")
    inputs = gpu.array(points), gpu.array(centres)
    gpu.kernel("data", "nearest")(3, 128, *inputs, labels, sums, counts, 300, 5, shared=40)
    expected = ((points[:, None] - centres) ** 2).sum(2).argmin(1)
    same(labels.get(), expected)
    same(counts.get(), np.bincount(expected, minlength=5))
    near(sums.get(), [points[expected == k].sum(0) for k in range(5)], 1e-5)


@case
def sums_of_segments(gpu):
    keys = np.sort(generator().integers(0, 12, 200)).astype("i4")
    values, sums = generator().random(200, np.float32), gpu.zeros(12, "f4")
    gpu.kernel("data", "segments")(2, 128, gpu.array(keys), gpu.array(values), sums, 200)
    near(sums.get(), np.bincount(keys, values, 12), 1e-5)


@case
def tridiagonal_systems(gpu):
    from scipy.linalg import solve_banded

    size, systems = 20, 33
    r = generator()
    lower, upper, right = (r.random((size, systems)) for _ in range(3))
    diagonal = 4 + r.random((size, systems))
    out = gpu.array(right)
    gpu.kernel("data", "thomas")(2, 32, gpu.array(lower), gpu.array(diagonal), gpu.array(upper), out, size, systems)
    got = out.get()
    for s in range(systems):
        bands = np.zeros((3, size))
        bands[0, 1:], bands[1], bands[2, :-1] = upper[:-1, s], diagonal[:, s], lower[1:, s]
        near(got[:, s], solve_banded((1, 1), bands, right[:, s]), 1e-10)


@case
def saxpy(gpu):
    x, y = generator(1).random(10000, np.float32), generator(2).random(10000, np.float32)
    out = gpu.array(y)
    gpu.kernel("data", "saxpy")(8, 256, 2.5, gpu.array(x), out, np.uint64(len(x)))
    near(out.get(), np.float32(2.5) * x + y, 1e-6)
