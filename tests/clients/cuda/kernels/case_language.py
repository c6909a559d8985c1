"""What the language has: calls, recursion, pointers, structures, variables, templates, atomics, warps, text, printf."""

import struct
from math import gcd

import numpy as np
from cuda_cases import blocks, case, generator, near, same
from cuda_gpu import CudaError


@case
def calls_and_recursion(gpu):
    n = 40
    a, b = (generator(k).integers(1, 5000, n).astype("i4") for k in (1, 2))
    out = gpu.zeros((n, 3), "i4")
    gpu.kernel("language", "calls")(2, 32, gpu.array(a), gpu.array(b), out, n)
    fibonacci = [0, 1]
    for _ in range(20):
        fibonacci.append(sum(fibonacci[-2:]))
    same(
        out.get(),
        [(gcd(int(p), int(q)), fibonacci[i % 15], 2 * (i % 5) + 3) for i, (p, q) in enumerate(zip(a, b, strict=True))],
    )


@case
def pointers_to_functions(gpu):
    n = 40
    a, b = (generator(k).random(n, np.float32) for k in (1, 2))
    out = gpu.zeros((n, 2), "f4")
    gpu.kernel("language", "pointers")(2, 32, gpu.array(a), gpu.array(b), out, n)
    i = np.arange(n)
    near(out.get()[:, 0], np.choose(i % 3, [a + b, a * b, a - b]), 1e-6)
    near(out.get()[:, 1], np.where(i % 2, a * b / 2, a * a), 1e-6)


@case
def structures_by_value(gpu):
    x, flags, steps = generator().integers(0, 100, 50).astype("i4"), (1, -2, 3, -4, 5), (10, -200, 3000)
    given = struct.pack("<di5bx3h", 1.5, -7, *flags, *steps)
    assert len(given) == 24
    out = gpu.zeros(50, "f8")
    kernel = gpu.kernel("language", "structures")
    kernel(1, 64, given, gpu.array(x), out, 50, np.int8(65), True, np.int16(-300))
    f, s = np.array(flags)[x % 5], np.array(steps)[x % 3]
    same(out.get(), 1.5 * x - 7 + f * s + 65 + 1000 - 300)


@case
def variables_of_a_module(gpu):
    x = generator().random(30, np.float32)
    out = gpu.zeros(30, "f8")
    counter, written = gpu.variable("language", "counter", "i4"), gpu.variable("language", "written", "i8")
    before = counter.get()
    gpu.variable("language", "chosen", "i4").set([9])
    gpu.variable("language", "weights", "f4").set([1, 2, 3, 4])
    gpu.kernel("language", "variables")(1, 32, gpu.array(x), out, 30)
    i = np.arange(30)
    near(out.get(), x * (i % 4 + 1).astype("f4") * 10.0 ** (i % 3) + 9, 1e-6)
    same(counter.get(), before + 30)
    same(written.get(), np.arange(8) * -10000000000)


@case
def arrays_in_local_memory(gpu):
    from itertools import islice, permutations

    out = gpu.zeros((100, 8), "u1")
    gpu.kernel("language", "permutations")(4, 32, gpu.array(np.arange(100, dtype="i4") * 7), out, 100)
    same(out.get(), list(islice(permutations(range(8)), 0, 700, 7)))


@case
def shared_memory_in_parts(gpu):
    for n in (100, 6000):  # 84 KB, more than a kernel has without asking
        x = generator().integers(-1000, 1000, n).astype("i4")
        out = gpu.zeros(n, "f8")
        size = n * 14
        gpu.kernel("language", "parts", shared=size)(1, 64, gpu.array(x), out, n, shared=size)
        same(out.get(), x[::-1] * 0.5 + np.roll(x, -1) * 3 + x)


@case
def templates(gpu):
    x = generator().integers(-9, 9, 40).astype("i4")
    out = gpu.zeros(40, "i4")
    gpu.kernel("language", "powers<int, 3, int, short>")(2, 32, gpu.array(x), out, 40, 1000, np.int16(-1))
    same(out.get(), x**3 + 999)
    y = x * 0.5
    out = gpu.zeros(40, "f8")
    gpu.kernel("language", "powers<double, 5>")(2, 32, gpu.array(y), out, 40)
    near(out.get(), y**5, 1e-14)


@case
def printing(gpu):
    name = gpu.array(np.frombuffer(b"the block\0", "u1"))
    text = gpu.printed(lambda: gpu.kernel("language", "prints")(1, 32, 2.5, name))
    assert sorted(text.splitlines()) == sorted(
        [
            "the block has 32 threads,  2.50 and -1234567890123, 4000000000, z, %, 0000beef",
            "nothing to add",
            "1.234500e+03 0.25 42    | +7 0x1000",
        ]
    ), text


@case
def traps_stay(gpu):
    x = np.arange(32, dtype="i4")
    kernel = gpu.kernel("language", "asserts")
    kernel(1, 32, gpu.array(x))
    gpu.synchronize()
    kernel(1, 32, gpu.array(x - 5))
    try:
        for _ in range(2):
            try:
                gpu.synchronize()
            except CudaError as error:
                assert error.result.name in ("CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_ILLEGAL_INSTRUCTION"), error.result
            else:
                raise AssertionError("no error")
    finally:
        gpu.reset()
    out = gpu.zeros(10, "i4")
    gpu.kernel("language", "heap")(1, 32, out, 10)
    same(out.get(), [i * i * (i + 1) // 2 for i in range(10)])


@case
def memory_of_a_thread(gpu):
    out = gpu.zeros(50, "i4")
    gpu.kernel("language", "heap")(2, 32, out, 50)
    same(out.get(), [i * i * (i + 1) // 2 for i in range(50)])


@case
def atomics_of_32_bits(gpu):
    n = 200
    i, u, f = gpu.zeros(9, "i4"), gpu.array(np.array([5, 5, 0, 0xFFFFFFFF, 0], "u4")), gpu.zeros(2, "f4")
    i.set([0, 0, 0, 0, -1, 0, 0, 0, 0])
    gpu.kernel("atomics", "all_32")(2, 128, i, u, f, n)
    t = np.arange(n)
    same(i.get(), [t.sum(), -t.sum(), 1 - n, n - 1, 0, 0xFFFF, np.bitwise_xor.reduce(t), n, 2 * n])
    same(u.get(), [(5 + n) % 100, (5 - n) % 100, 0x80000000 + n - 1, 0x80000000, 7])
    same(f.get(), [n / 2, 2.5])


@case
def atomics_of_64_bits(gpu):
    n = 200
    u, s, d = gpu.zeros(8, "u8"), gpu.zeros(2, "i8"), gpu.zeros(2, "f8")
    u.set(np.array([0, 0, 2**64 - 1, 2**64 - 1, 0, 0, 0, 0], "u8"))
    gpu.kernel("atomics", "all_64")(2, 128, u, s, d, n)
    t = np.arange(n, dtype="u8")
    wide = t << np.uint64(32) | t
    total, top = wide.sum(), wide.max()
    same(u.get(), np.array([total, top, ~top, 0, 2**64 - 1, np.bitwise_xor.reduce(wide), 77, total], "u8"))
    same(s.get(), [-int(top), int(top)])
    same(d.get(), [n / 4, n - 1])


@case
def atomics_of_16_bits(gpu):
    pair, one, word = gpu.zeros(2, "f2"), gpu.zeros(1, "f2"), gpu.zeros(2, "u2")
    gpu.kernel("atomics", "half_adds")(2, 64, pair, one, word, 100)
    same(pair.get(), [100, 50])
    same(one.get(), [25])
    same(word.get(), [300, 0])


@case
def hash_table(gpu):
    keys = generator().integers(1, 60, 500).astype("u4")
    table, counts = gpu.zeros(128, "u4"), gpu.zeros(128, "u4")
    gpu.kernel("atomics", "insert_all")(4, 128, gpu.array(keys), table, counts, 500, np.uint32(127))
    found = {int(k): int(c) for k, c in zip(table.get(), counts.get(), strict=True) if k}
    assert found == {int(k): int(c) for k, c in zip(*np.unique(keys, return_counts=True), strict=True)}


@case
def lock(gpu):
    total = gpu.zeros(1, "i4")
    gpu.kernel("atomics", "with_lock")(6, 32, total, 20)
    same(total.get(), 120)


@case
def breadth_first(gpu):
    r = generator()
    edges = [np.unique(r.integers(0, 200, r.integers(1, 5))) for _ in range(200)]
    starts = np.concatenate([[0], np.cumsum([len(e) for e in edges])]).astype("i4")
    flat = np.concatenate(edges).astype("i4")
    depth = np.full(200, -1, "i4")
    depth[0] = 0
    on_device = gpu.array(depth)
    frontier, following, size = gpu.zeros(200, "i4"), gpu.zeros(200, "i4"), gpu.zeros(1, "i4")
    graph, count, level = (gpu.array(starts), gpu.array(flat)), 1, 0
    while count:
        level += 1
        size.set([0])
        gpu.kernel("atomics", "next_frontier")(2, 32, *graph, on_device, frontier, count, following, size, level)
        count = int(size.get()[0])
        frontier, following = following, frontier
    reached = [0]
    for node in reached:
        for to in edges[node]:
            if depth[to] < 0:
                depth[to] = depth[node] + 1
                reached.append(to)
    same(on_device.get(), depth)


@case
def votes_and_matches(gpu):
    x = generator().integers(-100, 100, 64).astype("i4")
    out = gpu.zeros((64, 8), "u4")
    gpu.kernel("warp", "votes")(1, 64, gpu.array(x), out)
    got = out.get()
    bit = 1 << np.arange(32, dtype="u8")
    for w in (0, 32):
        v = x[w : w + 32]
        rows = got[w : w + 32]
        same(rows[:, 0], (bit * (v > 0)).sum())
        same(rows[:, 1], int((v > -100).all()) | int((v > 90).any()) << 1)
        same(rows[:, 2], bit - 1)
        same(rows[:, 3], np.where(v > 0, (bit * (v > 0)).sum(), 0))
        same(rows[:, 4], np.where(v > 0, ((v > 0) & (v % 2 == 1)).sum(), 0))
        same(rows[:, 5], [(bit * (v & 7 == each & 7)).sum() for each in v])
        same(rows[:, 6:], [[0xFFFFFFFF, 1]] * 32)


@case
def shuffles_of_all_kinds(gpu):
    x = generator().integers(0, 1000, 32).astype("i4")
    out = gpu.zeros((7, 32), "i4")
    gpu.kernel("warp", "shuffles")(1, 32, gpu.array(x), out)
    i = np.arange(32)
    sources = [
        i * 5 % 32,
        i // 8 * 8 + (i + 3) % 8,
        np.where(i >= 3, i - 3, i),
        np.where(i % 4 >= 2, i - 2, i),
        np.where(i % 16 + 5 < 16, i + 5, i),
        i ^ 17,
    ]
    got = out.get()
    for row, source in zip(got, sources, strict=False):
        same(row, x[source])
    same(got[6], np.where((i >= 8) & (i < 24), x[i ^ 1], 0))


@case
def barriers_that_count(gpu):
    x = generator().integers(-20, 20, (3, 96)).astype("i4")
    out = gpu.zeros((3, 3), "i4")
    gpu.kernel("warp", "counting")(3, 96, gpu.array(x), out)
    same(out.get(), np.stack([(x > 0).sum(1), (x != 0).all(1), (x == 13).any(1)], 1))


@case
def named_barriers(gpu):
    x = generator().integers(0, 100, (5, 64)).astype("i4")
    out = gpu.zeros(x.shape, "i4")
    gpu.kernel("warp", "makers_and_takers")(1, 128, gpu.array(x), out, 5)
    same(out.get(), x[:, ::-1] * 2 + 1)


@case
def barriers_of_those_that_remain(gpu):
    out = gpu.zeros(70, "i4")
    gpu.kernel("warp", "leaving")(1, 70, out)
    same(out.get(), np.arange(70))
    lengths = np.array([0, 4, 9], "i4")
    out = gpu.zeros(3, "i4")
    gpu.kernel("warp", "uniform_branches")(3, 64, gpu.array(lengths), out)
    expected = []
    for length in lengths:
        total = 0
        for r in range(length):
            total = total + 32 * r if r % 3 == 1 else total * 2
        expected.append(total)
    same(out.get(), expected)


@case
def places_in_three_dimensions(gpu):
    grid, block = (2, 3, 2), (5, 4, 3)
    out = gpu.zeros((12 * 60, 4), "u4")
    gpu.kernel("warp", "places")(grid, block, out)
    thread = np.tile(np.arange(60, dtype="u8"), 12)
    lane = thread % 32
    same(out.get(), np.stack([lane, thread // 32, 2**32 - (1 << lane), 0 * lane + 5030232], 1))


TEXT = b"to be, or not to be: that is the question\twhether 'tis nobler in the mind to suffer\n" * 9


@case
def finding_text(gpu):
    text = gpu.array(np.frombuffer(TEXT, "u1"))
    for word in (b"to", b"be", b"the mind", b"nothing"):
        padded = np.frombuffer(word.ljust(64, b"\0"), "u1")
        gpu.variable("strings", "pattern", "u1").set(padded)
        positions, count = gpu.zeros(200, "i4"), gpu.zeros(1, "i4")
        size, length = len(word), len(TEXT)
        find = gpu.kernel("strings", "find_all")
        find(blocks(length, 64), 64, text, length, size, positions, count, 200, shared=64 + size)
        expected = [i for i in range(length) if TEXT.startswith(word, i)]
        same(count.get(), len(expected))
        same(np.sort(positions.get()[: len(expected)]), expected)

        skips = np.full(256, size, "u1")
        for i, letter in enumerate(word[:-1]):
            skips[letter] = size - 1 - i
        gpu.variable("strings", "skips", "u1").set(skips)
        count = gpu.zeros(1, "i4")
        gpu.kernel("strings", "count_skipping")(3, 32, text, length, size, 20, count)
        same(count.get(), len(expected))


@case
def changing_text(gpu):
    text = gpu.array(np.frombuffer(TEXT, "u1"))
    gpu.kernel("strings", "vowels")(blocks(len(TEXT), 128), 128, text, len(TEXT))
    same(text.get(), np.frombuffer(TEXT.translate(bytes.maketrans(b"aeiou\t\n", b"AEIOU ;")), "u1"))


@case
def distances_of_words(gpu):
    words = [b"kernel", b"colonel", b"", b"kennel", b"internal", b"warp", b"kernels and more"]
    packed = np.frombuffer(b"".join(w.ljust(24, b"\0") for w in words), "u1")
    out = gpu.zeros(len(words), "i4")
    other = gpu.array(np.frombuffer(b"kernel\0", "u1"))
    gpu.kernel("strings", "distance")(1, 32, gpu.array(packed), 24, other, out, len(words))
    same(out.get(), [levenshtein(word, b"kernel") for word in words])


def levenshtein(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        following = [i + 1]
        for j, y in enumerate(b):
            following.append(min(row[j] + (x != y), row[j + 1] + 1, following[j] + 1))
        row = following
    return row[-1]
