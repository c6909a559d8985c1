"""Numbers: half and bfloat16, functions, rounding by name, conversions, bits; random numbers, bodies that attract."""

import ml_dtypes
import numpy as np
from cuda_cases import blocks, case, generator, near, same
from scipy import special

BF16 = ml_dtypes.bfloat16


@case
def half_pairs(gpu):
    n = 60
    a, b = (generator(k).standard_normal((n, 2)).astype("f2") for k in (1, 2))
    out = gpu.zeros((n, 12, 2), "f2")
    gpu.kernel("numbers", "half_pairs")(1, 64, gpu.array(a), gpu.array(b), out, n)
    got = out.get()
    wide_a, wide_b = a.astype("f8"), b.astype("f8")
    expected = [a + b, a - b, a * b, (wide_a * wide_b + wide_a).astype("f2")]
    for i, each in enumerate(expected):
        same(got[:, i], each, f"{i}")
    near(got[:, 4], wide_a / wide_b, 2e-3)
    same(got[:, 5], abs(a))
    same(got[:, 6], np.minimum(a, b))
    same(got[:, 7], np.maximum(a, b))
    same(got[:, 8], (a + b).clip(0, 1))
    near(got[:, 9], np.sqrt(abs(wide_a)), 1e-3)
    same(got[:, 10], np.stack([a[:, 0], b[:, 0]], 1))
    same(got[:, 11], a > b)


@case
def half_functions(gpu):
    x = (generator().standard_normal(100) * 2).astype("f2")
    x[x == 0] = 1
    out = gpu.zeros((100, 10), "f2")
    gpu.kernel("numbers", "half_functions")(2, 64, gpu.array(x), out, 100)
    got, y = out.get(), x.astype("f8")
    expected = [np.exp(y), np.log(abs(y)), np.sin(y), np.cos(y), abs(y) ** -0.5, 1 / y]
    for i, each in enumerate(expected):
        near(got[:, i], each, 2e-3, 1e-3, f"{i}")
    for i, function in enumerate((np.floor, np.rint, np.ceil, np.trunc)):
        same(got[:, 6 + i], function(y), function.__name__)


@case(oldest=80)
def bfloat_pairs(gpu):
    n = 60
    a, b = (generator(k).standard_normal((n, 2)).astype(BF16) for k in (1, 2))
    out = gpu.zeros((n, 6, 2), "u2")
    gpu.kernel("numbers", "bfloat_pairs")(1, 64, gpu.array(a.view("u2")), gpu.array(b.view("u2")), out, n)
    got = out.get().view(BF16)
    x, y = a.astype("f8"), b.astype("f8")
    for i, each in enumerate((x + y, x * y, x * y + x, np.maximum(x, y), np.minimum(x, y), -x)):
        same(got[:, i], each.astype("f4").astype(BF16), f"{i}")


@case
def conversions(gpu):
    n = 64
    r = generator()
    f = (r.standard_normal(n) * 1000).astype("f4")
    d = r.standard_normal(n) * 1e5
    f[:8] = [0.5, 1.5, 2.5, -0.5, 3e9, -3e9, np.nan, 70000]
    d[:6] = [0.5, -1.5, 2.5, 1e-40, 16777217.0, 0.1]
    k = r.integers(-(2**31), 2**31, n).astype("i4")
    shapes = ((n, 8), "i4"), ((n, 4), "i8"), ((n, 8), "f4"), ((n, 4), "u2")
    out = [gpu.zeros(*each) for each in shapes]
    gpu.kernel("numbers", "conversions")(1, 64, gpu.array(f), gpu.array(d), gpu.array(k), *out, n)
    i, w, g, h = (each.get() for each in out)
    fd = np.nan_to_num(f.astype("f8"))
    for column, function in enumerate((np.rint, np.trunc, np.ceil, np.floor)):
        same(i[:, column], function(fd).clip(-(2**31), 2**31 - 1))
    same(i[:, 4].view("u4"), np.trunc(fd).clip(0, 2**32 - 1))
    same(i[:, 5], np.rint(d))
    same(i[:, 6], k.astype("i1"))
    same(i[:, 7], k.astype("u2"))
    real = ~np.isnan(f)
    same(w[real, 0], np.floor(fd[real]))
    same(w[:, 1], np.ceil(d))
    same(w[:, 2], np.trunc(d).clip(0))
    same(w[:, 3], k)
    for column, towards in enumerate((None, 0, np.inf, -np.inf)):
        same(g[:, column], rounded_to(k.astype("f8"), "f4", towards))
    same(g[:, 4], k.view("u4").astype("f4"))
    same(g[:, 5], d.astype("f4"))
    same(g[:, 6], rounded_to(d, "f4", np.inf))
    same(g[:, 7], k.astype("i1"))
    with np.errstate(over="ignore"):
        same(h[real, 0], f.astype("f2").view("u2")[real])
        same(h[:, 3], k.astype("f2").view("u2"))
    same(h[real, 2], f.astype(BF16).view("u2")[real])
    fine = abs(f) < 60000
    same(h[fine, 1].view("f2"), rounded_to(f[fine].astype("f8"), "f2", 0))


def rounded_to(values, dtype, towards):
    """values (exact, in double precision) in a smaller type, rounded to nearest (None), to 0 or to an infinity."""
    near_by = values.astype(dtype)
    if towards is None:
        return near_by
    wide = near_by.astype("f8")
    wrong = abs(wide) > abs(values) if towards == 0 else (wide < values if towards > 0 else wide > values)
    return np.where(wrong, np.nextafter(near_by, np.dtype(dtype).type(towards)), near_by)


@case
def roundings_by_name(gpu):
    n = 64
    a, b = (generator(k).standard_normal(n).astype("f4") for k in (1, 2))
    c, d = (generator(k).standard_normal(n) for k in (3, 4))
    out, out_d = gpu.zeros((n, 12), "f4"), gpu.zeros((n, 10), "f8")
    given = gpu.array(a), gpu.array(b), out, gpu.array(c), gpu.array(d), out_d
    gpu.kernel("numbers", "rounded")(1, 64, *given, n)
    got = out.get()
    wide_a, wide_b = a.astype("f8"), b.astype("f8")
    for start, exact in ((0, wide_a + wide_b), (4, wide_a * wide_b)):
        for i, towards in enumerate((None, 0, np.inf, -np.inf)):
            same(got[:, start + i], rounded_to(exact, "f4", towards), f"{start + i}")
    same(got[:, 8], a / b)
    same(got[:, 9], np.sqrt(abs(a)))
    same(got[:, 10], np.float32(1) / b)
    same(got[:, 11], a.clip(0, 1))
    got = out_d.get()
    same(got[:, 0], c + d)
    assert (got[:, 2] >= got[:, 0]).all() and (got[:, 3] <= got[:, 0]).all()
    same(got[:, 1], np.where(c + d > 0, got[:, 3], got[:, 2]))
    same(got[:, 4], c * d)
    assert (got[:, 5] >= got[:, 4]).all()
    same(got[:, 6], c / d)
    same(got[:, 7], np.sqrt(abs(c)))
    near(got[:, 8], c * d + c, 1e-14, 1e-15)
    same(got[:, 9], 1 / d)


@case
def functions_in_single_precision(gpu):
    x = (generator().standard_normal(150) * 3).astype("f4")
    out = gpu.zeros((150, 28), "f4")
    gpu.kernel("numbers", "functions_f32")(2, 128, gpu.array(x), out, 150)
    p, u = abs(x) + np.float32(0.01), x / (1 + abs(x))
    X, P, U = (each.astype("f8") for each in (x, p, u))
    expected = [
        *(np.sin(X), np.cos(X), np.tan(X), np.arcsin(U), np.arccos(U), np.arctan(X)),
        *(np.sinh(U), np.cosh(U), np.tanh(X), np.exp(U), np.exp2(X), np.expm1(U)),
        *(np.log(P), np.log2(P), np.log10(P), np.log1p(P), P**U, np.cbrt(X)),
        *(special.erf(X), special.erfc(U), special.gammaln(P), special.gamma(P), np.fmod(X, np.float32(0.7))),
        *(np.hypot(X, P), np.arctan2(X, U), np.rint(X), np.floor(X), np.copysign(P, X)),
    ]
    got = out.get()
    for i, each in enumerate(expected):
        near(got[:, i], each, 4e-6, 2e-6, f"{i}")


@case
def functions_in_double_precision(gpu):
    x = generator().standard_normal(100) * 3
    out = gpu.zeros((100, 16), "f8")
    gpu.kernel("numbers", "functions_f64")(1, 128, gpu.array(x), out, 100)
    p, u = abs(x) + 0.01, x / (1 + abs(x))
    expected = [
        *(np.sin(x), np.cos(x), np.tan(x), np.arcsin(u), np.arctan(x), np.tanh(x), np.exp(u), np.log(p), p**u),
        *(np.cbrt(x), special.erf(x), special.gammaln(p), np.fmod(x, 0.7), p**-0.5, np.arctan2(x, u)),
        np.trunc(x + np.copysign(0.5, x)),
    ]
    got = out.get()
    for i, each in enumerate(expected):
        near(got[:, i], each, 1e-13, 1e-14, f"{i}")


@case
def fast_functions(gpu):
    x = (generator().standard_normal(100)).astype("f4")
    for options in ((), ("--use_fast_math",)):
        out = gpu.zeros((100, 10), "f4")
        gpu.kernel("fast", "fast", *options)(1, 128, gpu.array(x), out, 100)
        X = x.astype("f8")
        P = abs(X) + 0.01
        expected = [
            np.sin(X),
            np.cos(X),
            np.exp(X),
            np.log(P),
            np.log2(P),
            P**0.3,
            X / P,
            P**-0.5,
            np.tan(X),
            10 ** (X * 0.1),
        ]
        for i, each in enumerate(expected):
            near(out.get()[:, i], each, 2e-5, 1e-5, f"{i}")


def bits_of(x, y):
    """What kernel `bits` writes for one pair, by Python's integers."""

    def signed(v, width=32):
        v &= (1 << width) - 1
        return v - (1 << width) if v >> (width - 1) else v

    def parts(v, width):
        return [(v >> s) & ((1 << width) - 1) for s in range(0, 32, width)]

    def joined(values, width):
        return sum((v & ((1 << width) - 1)) << (width * i) for i, v in enumerate(values))

    def fields(function, width):
        return joined([function(p, q) for p, q in zip(parts(x, width), parts(y, width), strict=True)], width)

    both, eight = y << 32 | x, parts(x, 8) + parts(y, 8)
    sx, sy, low = signed(x), signed(y), y & 31
    taken = signed(x >> low, 7) if low + 7 <= 32 else sx >> low
    at = x & 31
    mask = (((1 << 9) - 1) << at) & 0xFFFFFFFF
    quotient, divisor = abs(sx) // abs(signed(y | 1)), signed(y | 1)
    quotient = quotient if (sx < 0) == (divisor < 0) else -quotient
    return [
        *(x.bit_count(), 32 - x.bit_length(), int(f"{x:032b}"[::-1], 2), (x & -x).bit_length()),
        joined([eight[4], eight[1], eight[2], eight[5]], 8),
        (both << (y & 31)) >> 32,
        both >> (y & 31),
        (both << min(y & 63, 32)) >> 32,
        *(x * y >> 32, sx * sy >> 32, signed(x, 24) * signed(y, 24), abs(x - y) + 5, abs(sx - sy) + 9),
        3 + sum(signed(p, 8) * signed(q, 8) for p, q in zip(parts(x, 8), parts(y, 8), strict=True)),
        *((x + y) >> 1, (sx + sy) >> 1, fields(lambda p, q: p + q, 8), fields(lambda p, q: abs(p - q), 8)),
        *(fields(lambda p, q: max(signed(p, 16), signed(q, 16)), 16), fields(lambda p, q: 255 * (p > q), 8)),
        taken,
        (y & ~mask) | ((x << at) & mask),
        (x & y) | (~x & (~x & 0xFFFFFFFF) >> 3),
        (x % y) ^ quotient if y else 0,
    ]


@case
def bits(gpu):
    a, b = (generator(k).integers(0, 2**32, 64).astype("u4") for k in (1, 2))
    a[:4], b[:4] = [0, 1, 0xFFFFFFFF, 0x80000000], [5, 0, 0xFFFFFFFF, 33]
    out = gpu.zeros((64, 24), "u4")
    gpu.kernel("numbers", "bits")(1, 64, gpu.array(a), gpu.array(b), out, 64)
    got = out.get()
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        same(got[i], [each & 0xFFFFFFFF for each in bits_of(int(x), int(y))], f"{x:#x} {y:#x}")


@case
def wide_integers(gpu):
    a, b = (generator(k).integers(0, 2**64, 64, "u8") for k in (1, 2))
    a[:2] = [0, 2**64 - 1]
    out = gpu.zeros((64, 12), "u8")
    gpu.kernel("numbers", "wide")(1, 64, gpu.array(a), gpu.array(b), out, 64)
    for row, x, y in zip(out.get(), map(int, a), map(int, b), strict=True):
        sx, sy, sd = (v - 2**64 if v >> 63 else v for v in (x, y, y | 1))
        quotient = abs(sx) // abs(sd) * (1 if (sx < 0) == (sd < 0) else -1)
        w = (x * y + x << 7) - y
        expected = [x * y >> 64, sx * sy >> 64, x.bit_count(), 64 - x.bit_length(), int(f"{x:064b}"[::-1], 2)]
        expected += [(x & -x).bit_length(), x // (y | 1), x % (y | 1), quotient, x >> (y & 63), w, w >> 64]
        same(row, np.array([each % 2**64 for each in expected], "u8"))


def philox(counter, key):
    """Philox 4x32-10 (Salmon and others, 2011) of arrays of counters."""
    c = [np.asarray(each, "u8") for each in counter]
    k0, k1 = key
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [p1 >> np.uint64(32) ^ c[1] ^ np.uint64(k0), p1 & low, p0 >> np.uint64(32) ^ c[3] ^ np.uint64(k1), p0 & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, -1).astype("u4")


@case
def random_words_by_counter(gpu):
    n = 200
    out = gpu.zeros((n, 4), "u4")
    gpu.kernel("simulate", "random_words")(2, 128, out, n, np.uint64(0x123456789ABCDEF0))
    zero = np.zeros(n, "u8")
    same(out.get(), philox((np.arange(n), zero, zero, zero), (0x9ABCDEF0, 0x12345678)))


@case
def quarter_circle(gpu):
    threads, rounds = 256, 40
    hits = gpu.zeros(1, "u8")
    gpu.kernel("simulate", "quarter_circle")(2, 128, hits, rounds, np.uint64(77))
    i, r = np.meshgrid(np.arange(threads), np.arange(rounds))
    u = philox((i, r, np.ones_like(i), np.zeros_like(i)), (77, 0)).astype("f4").astype("f8") * 2**-32
    x, y = u[..., [0, 2]], u[..., [1, 3]]
    same(hits.get(), (x * x + y * y < 1).sum())
    near(4 * hits.get() / (2 * threads * rounds), np.pi, 0.02)


@case
def normal_numbers(gpu):
    n = 500
    out = gpu.zeros((n, 2), "f4")
    gpu.kernel("simulate", "normal_numbers")(4, 128, out, n, np.uint64(5))
    words = philox((np.arange(n), np.full(n, 7), np.zeros(n), np.zeros(n)), (5, 0)).astype("f8")
    radius, turn = np.sqrt(-2 * np.log((words[:, 0] + 0.5) * 2**-32)), 2 * np.pi * words[:, 1] * 2**-32
    near(out.get(), np.stack([radius * np.cos(turn), radius * np.sin(turn)], 1), 1e-4, 1e-5)


@case
def gravity(gpu):
    n = 150
    bodies = generator().random((n, 4), np.float32)
    out = gpu.zeros((n, 4), "f4")
    gpu.kernel("simulate", "gravity")(blocks(n, 64), 64, gpu.array(bodies), out, n, 0.01, shared=64 * 16)
    place, mass = bodies[:, :3].astype("f8"), bodies[:, 3].astype("f8")
    apart = place - place[:, None]
    distance = (apart**2).sum(2) + 0.01
    near(out.get()[:, :3], (apart * (mass / distance**1.5)[..., None]).sum(1), 1e-4, 1e-4)
