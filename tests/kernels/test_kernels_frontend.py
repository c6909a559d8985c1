"""The kernel language: what each construct means, checked by running it on the device PYTHON."""

from __future__ import annotations

import math
import os

import kernel_helpers
import numpy as np
import pytest

import hcq

DEVICE = os.environ.get("HCQ_TEST_KERNELS_ON", "PYTHON")
SCALE = 3
TABLE = (10.0, 20.0, 30.0)
TYPED = np.int16(7)


def run(kernel, *args, groups=1, items=1):
    kernel[groups, items](*args, device=DEVICE)


def out(kernel, *args, size=8, dtype=np.float32, groups=1, items=1):
    """What the kernel writes into its first argument."""
    written = np.zeros(size, dtype)
    kernel[groups, items](written, *args, device=DEVICE)
    return written.tolist()


def types_of(kernel, code, **choices):
    return [str(value.type) for op in kernel.ir(**choices).walk() if op.code == code for value in op.results]


# Control flow


@hcq.kernel
def saxpy(a: hcq.f32, x: hcq.ptr[hcq.f32], y: hcq.ptr[hcq.f32], n: hcq.i32):
    """a * x + y"""
    i = hcq.global_id(0)
    if i < n:
        y[i] = a * x[i] + y[i]


def test_a_kernel_computes_what_its_text_says():
    x, y = np.arange(10, dtype=np.float32), np.ones(10, np.float32)
    run(saxpy, 2.0, x, y, 10, groups=3, items=4)
    assert np.array_equal(y, 2 * x + 1)


@hcq.kernel
def branches(o: hcq.ptr[hcq.i32], n: hcq.i32):
    if n < 0:
        v = -1
    elif n == 0:
        v = 0
    elif (n < 10 and n != 7) or n == 100:
        v = hcq.i32(1)
    else:
        v = n
    o[0] = v
    o[1] = 5 if n > 3 else n
    if not n:
        return
    o[2] = 1
    if 2 <= n < 8:
        o[3] = 1
    else:
        o[3] = 2
        return
    o[4] = 1


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (-3, [-1, -3, 1, 2, 0]),
        (0, [0, 0, 0, 0, 0]),
        (4, [1, 5, 1, 1, 1]),
        (7, [7, 5, 1, 1, 1]),
        (100, [1, 5, 1, 2, 0]),
        (12, [12, 5, 1, 2, 0]),
    ],
)
def test_if_elif_else_conditional_expressions_and_early_return(n, expected):
    assert out(branches, n, size=5, dtype=np.int32) == expected


@hcq.kernel
def sums(x: hcq.ptr, o: hcq.ptr[hcq.f32], n: hcq.i32):
    s = 0.0
    for k in range(n):
        if x[k] < 0:
            continue
        if x[k] > 100:
            break
        s += x[k]
    o[0] = s


@pytest.mark.parametrize(("dtype", "name"), [("float16", "f16"), ("float32", "f32"), ("float64", "f64")])
def test_a_number_that_a_loop_changes_takes_the_type_of_what_the_body_gives(dtype, name):
    x, o = np.array([1, -5, 2, 3, 101, 7], dtype), np.zeros(1, np.float32)
    run(sums, x, o, 6)
    assert o[0] == 6
    assert types_of(sums, "for", x=hcq.dtypes.of(dtype)) == [name]


@hcq.kernel
def loops(o: hcq.ptr[hcq.i32], n: hcq.i32):
    at = 0
    for i in range(n, 0, -2):
        o[at] = i
        at += 1
    k = 0
    while True:
        k += 1
        if k * k > n:
            break
    o[at] = k
    found = -1
    for i in range(2, 20):
        for j in range(2, 20):
            if i * j == 35:
                found = i * 100 + j
                break
        if found >= 0:
            break
    o[at + 1] = found
    left = n
    while left > 3 and o[0] == n:
        left -= 3
    o[at + 2] = left


def test_nested_loops_break_continue_while_and_negative_steps():
    assert out(loops, 7, size=8, dtype=np.int32) == [7, 5, 3, 1, 3, 507, 1, 0]


@hcq.kernel
def mixed_loop(o: hcq.ptr[hcq.f64], x: hcq.ptr[hcq.f64], n: hcq.i32):
    total = 0
    largest = -math.inf
    product = hcq.f32(1)
    count = 0
    for i in range(n):
        total = total + x[i]
        if x[i] > largest:
            largest = x[i]
        product = product * 2
        count += 1
    o[0] = total
    o[1] = largest
    o[2] = product
    o[3] = count
    o[4] = count * 0.5


def test_each_variable_of_a_loop_finds_its_own_type():
    x = np.array([1.5, -2, 4], np.float64)
    assert out(mixed_loop, x, 3, size=5, dtype=np.float64) == [3.5, 4, 8, 3, 1.5]
    assert types_of(mixed_loop, "for") == ["i32", "f64", "f32", "f64"]  # by name


@hcq.kernel
def swaps(o: hcq.ptr[hcq.i32], n: hcq.i32):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    o[0], o[1] = a, b
    (c, d), e = (1, 2), 3
    o[2] = c * 100 + d * 10 + e


def test_tuples_assign_several_values_at_once():
    assert out(swaps, 10, size=3, dtype=np.int32) == [55, 89, 123]


@hcq.kernel
def unrolled(o: hcq.ptr[hcq.f32], n: hcq.constexpr):
    for k in hcq.static_range(n):
        if k == 1:
            continue
        if k == 4:
            break
        o[k] = k * SCALE
    total = 0.0
    for each in TABLE:
        total = total + each
    o[4] = total
    assert n % 2 == 0, "n must be even"


def test_static_range_and_constants_unroll():
    assert out(unrolled, 6, size=5) == [0, 0, 6, 9, 60]
    assert not [op for op in unrolled.ir(n=6).walk() if op.code in ("for", "loop", "if")]


def test_an_assertion_about_constants_is_checked_while_compiling():
    with pytest.raises(hcq.CompileError, match="n must be even"):
        unrolled.ir(n=5)


@hcq.kernel
def chosen(o: hcq.ptr[hcq.i32], mode: hcq.constexpr, first: hcq.constexpr = True):
    if mode == "double" and first:
        o[0] = 2
    elif mode in ("triple", "thrice"):
        o[0] = 3
    elif mode is None:
        o[0] = 9


def test_conditions_on_constants_choose_while_compiling():
    assert out(chosen, "double", size=1, dtype=np.int32) == [2]
    assert out(chosen, "thrice", False, size=1, dtype=np.int32) == [3]
    assert out(chosen, None, size=1, dtype=np.int32) == [9]
    assert not [op for op in chosen.ir(mode="double").walk() if op.code == "if"]


# Functions


def clamp(x, low, high=1.0):
    if x < low:
        return low
    if x > high:
        return high
    return x


def divided(a, b):
    return a // b, a % b


def nested(x):
    if x > 0:
        if x > 10:
            y = 1
        else:
            return 2
        y = y + 10
    else:
        y = 0
    return y


def first_above(x, n, limit):
    for i in range(n):
        if x[i] > limit:
            return i
    return -1


def pair_of(total, n):
    for a in range(1, n):
        b = a
        while True:
            if a * b == total:
                return hcq.f32(a * 100 + b)
            b += 1
            if b > n:
                break
        if a > 50:
            return 0.5
    return hcq.f32(-1)


def write_until(o, n):
    for i in range(n):
        if i == 3:
            return
        o[i] = i
    o[0] = 100


def fill(o, at, value):
    o[at] = value


@hcq.kernel
def calls(o: hcq.ptr[hcq.f32], x: hcq.f32, n: hcq.i32):
    o[0] = clamp(x, -1.0)
    o[1] = clamp(x, low=0.0, high=hcq.f32(0.5))
    q, r = divided(n, 5)
    o[2] = q * 10 + r
    o[3] = nested(n)
    fill(o, 4, 7)
    o[5] = kernel_helpers.twice(n)
    o[6] = scaled_by_closure(x)


def make(factor):
    def scaled(x):
        return x * factor

    return scaled


scaled_by_closure = make(4)


def test_functions_are_inlined_with_defaults_keywords_tuples_and_early_returns():
    assert out(calls, 0.75, 13, size=7) == [0.75, 0.5, 23, 11, 7, 26, 3]
    assert out(calls, -3.0, 4, size=7) == [-1, 0, 4, 2, 7, 8, -12]


@hcq.kernel
def leaving(o: hcq.ptr[hcq.f32], x: hcq.ptr[hcq.i32], n: hcq.i32):
    o[4] = first_above(x, n, 5)
    o[5] = first_above(x, n, 1000)
    o[6] = pair_of(n * 7, 20)
    o[7] = pair_of(-1, 60)
    write_until(o, n)


@pytest.mark.parametrize("n", [2, 8])
def test_functions_return_from_the_midst_of_loops(n):
    x = np.arange(8, dtype=np.int32) * 2
    expected = np.zeros(8, np.float32)
    leaving.__kernel_function__(expected, x, n)
    assert out(leaving, x, n, size=8) == expected.tolist()


def extremes(x, n):
    """The first pair of neighbours that differ by more than ten, with their place; of several shapes of return."""
    for i in range(n):
        for k in range(i):
            if x[i] - x[k] > 10:
                return (x[k], x[i]), i * n + k
        if x[i] < 0:
            return twice(x[i]), -1
    return (0, 0), n


def twice(v):
    return v, v


@hcq.kernel
def leaving_with_tuples(o: hcq.ptr[hcq.i32], x: hcq.ptr[hcq.i32], n: hcq.i32):
    (low, high), place = extremes(x, n)
    o[0] = low
    o[1] = high
    o[2] = place


@pytest.mark.parametrize("x", [(1, 4, 8, 30), (5, 6, 7, 8), (0, 3, -7, 90), (0, 20, 4, 4)])
def test_functions_return_tuples_from_the_midst_of_loops(x):
    given = np.array(x, np.int32)
    (low, high), place = extremes([int(each) for each in x], 4)
    assert out(leaving_with_tuples, given, 4, size=3, dtype=np.int32) == [low, high, place]


# Pointers that depend on a condition


@hcq.kernel
def chosen_pointers(o: hcq.ptr[hcq.i32], x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32], n: hcq.i32):
    i = hcq.local_id(0)
    p = x if i % 2 == 0 else y + 4
    if n > 3:
        p = p + 1
    elif i > 1:
        p = y
    o[i] = p[i // 2]
    q = y + 12
    if i == n:
        q = x + 12
    q[i] = 100 + i


@pytest.mark.parametrize("n", [2, 5])
def test_a_pointer_depends_on_a_condition(n):
    x, y = np.arange(20, dtype=np.int32), np.arange(100, 120, dtype=np.int32)
    wanted, x1, y1 = [], x.copy(), y.copy()
    for i in range(4):
        p = x if i % 2 == 0 else y[4:]
        p = p[1:] if n > 3 else y if i > 1 else p
        wanted.append(p[i // 2])
        (x1 if i == n else y1)[12 + i] = 100 + i
    o = np.zeros(4, np.int32)
    run(chosen_pointers, o, x, y, n, items=4)
    assert o.tolist() == wanted
    assert x.tolist() == x1.tolist()
    assert y.tolist() == y1.tolist()


def test_what_is_done_through_a_pointer_counts_for_all_buffers_that_it_may_point_into():
    from hcq.kernels.accesses import access_words

    @hcq.kernel
    def through(a: hcq.ptr[hcq.f32], b: hcq.ptr[hcq.f32], c: hcq.ptr[hcq.f32], d: hcq.ptr[hcq.f32], n: hcq.i32):
        p = a if n > 0 else b
        q = c
        for i in range(n):
            if i == 5:
                q = p
            q = q + 1
        while n > 3:
            n = n - 1
            if n == 7:
                p = d
                break
        q[0] = p[1]

    assert access_words(through.ir()) == ("rw", "rw", "w", "r")


@hcq.kernel
def walking(o: hcq.ptr[hcq.i32], x: hcq.ptr[hcq.i32], n: hcq.i32):
    """Two local arrays change places in each round; a pointer walks along a buffer."""
    i = hcq.local_id(0)
    here, there = hcq.local(hcq.i32, 8), hcq.local(hcq.i32, 8)
    here[i] = x[i]
    walker = x
    for _ in range(n):
        hcq.barrier()
        there[i] = here[(i + 1) % 8] + walker[i]
        walker = walker + 2
        here, there = there, here
    hcq.barrier()
    o[i] = here[i]


@pytest.mark.parametrize("n", [0, 1, 4])
def test_pointers_and_arrays_go_round_in_loops(n):
    x = np.arange(16, dtype=np.int32) ** 2
    here = x[:8].copy()
    for k in range(n):
        here = np.roll(here, -1) + x[2 * k : 2 * k + 8]
    assert out(walking, x, n, dtype=np.int32, items=8) == here.tolist()


@hcq.kernel
def pieces(o: hcq.ptr[hcq.f32], n: hcq.i32):
    """Private memory: which of two arrays is written depends on the item."""
    i = hcq.local_id(0)
    a, b = hcq.private(hcq.f32, 4), hcq.private(hcq.f32, 4)
    for k in range(4):
        a[k] = k
        b[k] = 10 * k
    p = a
    if i > n:
        p = b
    p[2] = 7
    o[i] = a[2] + a[3] + b[2] + b[3]


@hcq.kernel
def left_behind(o: hcq.ptr[hcq.i32], x: hcq.ptr[hcq.i32], n: hcq.i32):
    """A pointer and a name of an array that a loop carries, read after it was left at one place."""
    own, other = hcq.private(hcq.i32, 2), hcq.private(hcq.i32, 2)
    own[0], other[0] = 5, 6
    p, name, k = x, own, 0
    while k < n:
        p = p + 1
        name = other
        k += 1
    o[0] = p[0]
    o[1] = name[0]
    name[0] = 7
    o[2] = own[0] * 10 + other[0]


@pytest.mark.parametrize("n", [0, 3])
def test_a_pointer_that_a_loop_carries_is_there_after_it(n):
    x = np.arange(8, dtype=np.int32) * 3
    assert out(left_behind, x, n, size=3, dtype=np.int32) == ([9, 6, 57] if n else [0, 5, 76])


def test_a_pointer_into_private_memory_depends_on_a_condition():
    assert out(pieces, 1, size=4, items=4) == [60, 60, 42, 42]


def test_a_kernel_calls_another_kernel_as_a_function():
    @hcq.kernel
    def both(x: hcq.ptr[hcq.f32], y: hcq.ptr[hcq.f32], n: hcq.i32):
        saxpy(2.0, x, y, n)
        y[0] = -1

    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    run(both, x, y, 4)
    assert y.tolist() == [-1, 0, 0, 0]


def test_closures_and_annotations_from_the_function_around():
    width = hcq.f64
    offset = 100

    @hcq.kernel
    def inner(o: hcq.ptr[width], a: width):
        o[0] = a + offset

    assert out(inner, 0.5, size=1, dtype=np.float64) == [100.5]


# Types


@hcq.kernel
def typing(o: hcq.ptr[hcq.f64], a: hcq.i32, b: hcq.i32, c: hcq.u8, d: hcq.f32, e: hcq.i64, f: hcq.u64):
    o[0] = a / b
    o[1] = a // b
    o[2] = a % b
    o[3] = c + 200  # wraps in u8
    o[4] = d * 0.1  # in f32
    o[5] = a * d  # i32 with f32 is f64
    o[6] = e + f  # i64 with u64 is f64
    o[7] = e < f  # compared exactly
    o[8] = a**3
    o[9] = d**2
    o[10] = -c
    o[11] = hcq.i8(a * 100)
    o[12] = d // 0.5
    o[13] = -d % 2
    o[14] = TYPED * c
    o[15] = hcq.u8(-1.5) + hcq.i32(2.9)
    o[16] = 2**-1
    o[17] = a ** (b + 22)  # wraps
    o[18] = 2 ** (a - 4)
    o[19] = a**b


def test_types_are_those_of_numpy():
    a, b, c, d, e, f = np.int32(7), np.int32(-2), np.uint8(100), np.float32(1.3), np.int64(-1), np.uint64(5)
    with np.errstate(over="ignore"):
        expected = [a / b, a // b, a % b, c + np.uint8(200), d * np.float32(0.1), a * d, e + f, e < f, a**3, d**2, -c]
        expected += [np.array(700).astype(np.int8), d // np.float32(0.5), -d % np.float32(2), TYPED * c, 2, 0.5]
        expected += [a ** np.int32(20), 8, 0]
    assert out(typing, 7, -2, 100, 1.3, -1, 5, size=20, dtype=np.float64) == [float(each) for each in expected]


@hcq.kernel
def numbers(o: hcq.ptr[hcq.f32], x: hcq.f32, n: hcq.i32, u: hcq.u32):
    o[0] = abs(x) + math.fabs(x)
    o[1] = min(x, 2, n) + max(n, 1)
    o[2] = round(x)
    o[3] = hcq.floor(x) + hcq.ceil(x) * 10 + hcq.trunc(x) * 100
    o[4] = math.sqrt(x * x) + np.sqrt(hcq.f32(16))
    o[5] = hcq.fma(x, x, 1.0)
    o[6] = hcq.copysign(3.0, x)
    o[7] = hcq.popcount(u) * 10000 + hcq.clz(u) * 100 + hcq.ctz(u)
    o[8] = hcq.bitcast(hcq.bitcast(x, hcq.u32) ^ (1 << 31), hcq.f32)
    o[9] = hcq.where(x < 0, 1, 2.5)
    o[10] = int(x) + float(n) + bool(n)
    o[11] = math.pi
    o[12] = hcq.isnan(x) + hcq.isinf(x) * 2 + hcq.isfinite(x) * 4
    o[13] = (u >> 2 | u << 1) & 0xFF ^ 5
    o[14] = ~n
    o[15] = hcq.fmod(x, 2.0)
    o[16] = np.float16(x * 1.001)


def test_numeric_functions():
    got = out(numbers, -5.25, 3, 0b1011000, size=17)
    expected = [10.5, -2.25, -5, -6 - 50 - 500, 5.25 + 4, 28.5625, -3, 3 * 10000 + 25 * 100 + 3, 5.25, 1, -5 + 3 + 1]
    u = 0b1011000
    assert got == pytest.approx(
        [*expected, math.pi, 4, (u >> 2 | u << 1) & 0xFF ^ 5, -4, -1.25, np.float16(-5.25 * 1.001)]
    )


def test_every_scalar_type_is_loaded_computed_and_stored():
    @hcq.kernel
    def double(o: hcq.ptr, x: hcq.ptr, n: hcq.i32):
        for i in range(n):
            if x.dtype == hcq.bool_:
                o[i] = not x[i]
            else:
                o[i] = x[i] + x[i]

    for type_ in (hcq.i8, hcq.i16, hcq.i32, hcq.i64, hcq.u8, hcq.u16, hcq.u32, hcq.u64, hcq.f16, hcq.bf16, hcq.f32):
        x = np.array([1, 2, 100]).astype(type_.dtype.numpy)
        assert out(double, x, 3, size=3, dtype=x.dtype) == (x + x).tolist()
    x = np.array([True, False])
    assert out(double, x, 2, size=2, dtype=bool) == [False, True]


def test_augmented_assignment_annotated_variables_and_walrus():
    @hcq.kernel
    def updates(o: hcq.ptr[hcq.i32], n: hcq.i32):
        s: hcq.i64 = 1
        s <<= 40
        s += n
        o[0] += 5
        o[0] *= n
        o[1] = s >> 20
        if (double := n * 2) > 5:
            o[2] = double
        o[3] = len(TABLE) + len((1, 2))

    assert out(updates, 3, size=4, dtype=np.int32) == [15, 1 << 20, 6, 5]


# Memory


def test_pointers_move_by_elements():
    @hcq.kernel
    def moved(o: hcq.ptr[hcq.i32], x: hcq.ptr[hcq.i32], n: hcq.i32):
        row = x + n
        o[0] = row[0]
        o[1] = (1 + row - 2)[2]
        (o + 2)[0] = row[-1]

    assert out(moved, np.arange(10, dtype=np.int32), 4, size=3, dtype=np.int32) == [4, 5, 3]


def test_vectors_are_loaded_computed_and_stored():
    @hcq.kernel
    def vectors(o: hcq.ptr[hcq.f32], x: hcq.ptr[hcq.f32], a: hcq.f32):
        v = x.load(0, lanes=4)
        w = hcq.vec[hcq.f32, 4](1, 2, 3, a)
        o.store(0, v * w + 1)
        o.store(4, hcq.where(v > 1, v, hcq.vec[hcq.f32, 4](a)))
        o[8] = v.sum() + v.max() * 10 + v[1] * 100 + v.min() * 1000 + v.lanes * 10000
        o.store(9, hcq.f32(hcq.i32(v * 1.5)))

    x = np.array([0.5, 1, 2, 3], np.float32)
    got = out(vectors, x, 9.0, size=13)
    assert got == [1.5, 3, 7, 28, 9, 9, 2, 3, 6.5 + 30 + 100 + 500 + 40000, 0, 1, 3, 4]


def test_local_memory_of_two_dimensions_and_barriers():
    @hcq.kernel
    def transposed(o: hcq.ptr[hcq.i32], x: hcq.ptr[hcq.i32]):
        tile = hcq.local(hcq.i32, (4, 5))
        row, column = hcq.local_id(1), hcq.local_id(0)
        tile[row, column] = x[row * 4 + column]
        hcq.barrier()
        o[row * 4 + column] = tile[column, row]

    x = np.arange(16, dtype=np.int32)
    assert out(transposed, x, size=16, dtype=np.int32, items=(4, 4)) == x.reshape(4, 4).T.ravel().tolist()


def test_private_arrays_are_each_items_own():
    @hcq.kernel
    def private(o: hcq.ptr[hcq.i32]):
        stack = hcq.private(hcq.i32, 4)
        i = hcq.global_id(0)
        for k in range(4):
            stack[k] = i * k
        o[i] = stack[0] + stack[1] + stack[2] + stack[3]

    assert out(private, size=4, dtype=np.int32, items=4) == [0, 6, 12, 18]


def test_atomics_give_the_old_value():
    @hcq.kernel
    def counted(o: hcq.ptr[hcq.u32]):
        hcq.atomic_add(o, 0, 1)
        hcq.atomic_max(o, 1, hcq.global_id(0))
        hcq.atomic_or(o, 2, hcq.u32(1) << hcq.global_id(0))
        hcq.atomic_sub(o, 3, 1)
        if hcq.global_id(0) == 0:
            o[4] = hcq.atomic_exchange(o, 5, 8)
            o[6] = hcq.atomic_cas(o, 5, 8, 9)

    assert out(counted, size=7, dtype=np.uint32, items=8) == [8, 7, 255, 2**32 - 8, 0, 9, 8]


def test_ids_and_sizes():
    @hcq.kernel
    def ids(o: hcq.ptr[hcq.i32]):
        x, y = hcq.global_id(0), hcq.global_id(1)
        at = (y * hcq.global_size(0) + x) * 4
        o[at] = hcq.group_id(0) * 10 + hcq.local_id(0)
        o[at + 1] = hcq.group_id(1) * 10 + hcq.local_id(1)
        o[at + 2] = hcq.local_size(0) * 10 + hcq.local_size(1)
        o[at + 3] = hcq.num_groups(0) * 10 + hcq.num_groups(1) + hcq.global_size(1) * 100

    got = np.array(out(ids, size=96, dtype=np.int32, groups=(3, 2), items=(2, 2))).reshape(4, 6, 4)
    y, x = np.mgrid[0:4, 0:6]
    assert np.array_equal(got[..., 0], x // 2 * 10 + x % 2)
    assert np.array_equal(got[..., 1], y // 2 * 10 + y % 2)
    assert (got[..., 2] == 22).all() and (got[..., 3] == 432).all()


def test_sub_groups_reduce_and_shuffle():
    @hcq.kernel
    def reduced(o: hcq.ptr[hcq.i32]):
        lane = hcq.subgroup_lane()
        i = hcq.local_id(0)
        o[i] = hcq.subgroup_add(1) - hcq.subgroup_size()
        o[32 + i] = hcq.subgroup_max(lane) - hcq.subgroup_size() + 1
        o[64 + i] = hcq.subgroup_min(lane)
        o[96 + i] = hcq.shuffle(lane, 0)

    assert out(reduced, size=128, dtype=np.int32, items=32) == [0] * 128


def test_what_stands_right_of_and_is_only_read_where_it_decides():
    @hcq.kernel
    def guarded(o: hcq.ptr[hcq.i32], x: hcq.ptr[hcq.i32], n: hcq.i32):
        for i in range(8):
            if i < n and x[i] > 0:
                o[i] = 1
            if i >= n or x[i] < 0:
                o[i] = 2
            o[i] += x[i] if i < n else 10

    x = np.array([1, -1, 1], np.int32)  # PYTHON refuses reads past its end
    assert out(guarded, x, 3, size=8, dtype=np.int32) == [2, 1, 2] + [12] * 5


def test_words_of_the_language_say_where_they_belong():
    for word in (hcq.global_id, hcq.fma, hcq.barrier, hcq.exp):
        with pytest.raises(TypeError, match="belongs inside a kernel"):
            word(0)
    with pytest.raises(TypeError, match=r"saxpy\[groups, items\]"):
        saxpy(1)
    assert hcq.f32(1.5) == np.float32(1.5)


def test_a_kernel_keeps_the_functions_name_and_text():
    assert saxpy.__name__ == "saxpy"
    assert saxpy.__doc__ == "a * x + y"
    assert "saxpy(a, x, y, n)" in repr(saxpy)
