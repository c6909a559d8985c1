"""Portable kernels: the bits of the reference device, checked arguments, known accesses, errors with a place."""

import math

import numpy as np
import pytest

import hcq
from hcq.errors import CompileError, LaunchError
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import empty, filled, read

# -- what is compared with PYTHON --------------------------------------------------------------------------------------


@hcq.kernel
def integers(out: hcq.ptr, a: hcq.ptr, b: hcq.ptr, n: hcq.i32):
    i = hcq.global_id(0)
    if i >= n:
        return
    x, y = a[i], b[i]
    total = x + y * 3 - (x & y) + (x | y) * (x ^ 5)
    total += x // y + x % y + (x << 3) + (x >> 1) + min(x, y) - max(x, y)
    while total % 7 != 0 and total != y:
        total += 1
    out[i] = total


@hcq.kernel
def floats(out: hcq.ptr, a: hcq.ptr, b: hcq.ptr, n: hcq.i32):
    i = hcq.global_id(0)
    if i < n:
        x, y = a[i], b[i]
        total = x * y + x / y - abs(x)
        for k in range(1, 6):
            if k == 4:
                continue
            total += hcq.fma(x, y, total) * x.dtype(k)
        total += hcq.sqrt(abs(y)) + hcq.floor(x) - hcq.rint(y) + x // y + x % y
        out[i] = total + hcq.where(x < y, x, 1.0)


@hcq.kernel
def functions(out: hcq.ptr, a: hcq.ptr, b: hcq.ptr, n: hcq.i32):
    i = hcq.global_id(0)
    if i < n:
        x = a[i]
        out[i] = hcq.exp(x * 0.1) + hcq.log(abs(x) + 1) + hcq.sin(x) + hcq.tanh(x) + hcq.erf(x) + math.atan(b[i])


@hcq.kernel
def group_sums(out: hcq.ptr, a: hcq.ptr, b: hcq.ptr, n: hcq.i32):
    part = hcq.local(hcq.f32, 64)
    me, size = hcq.local_id(0), hcq.local_size(0)
    i = hcq.global_id(0)
    part[me] = hcq.f32(a[i]) if i < n else 0.0
    hcq.barrier()
    half = size // 2
    while half > 0:
        if me < half:
            part[me] += part[me + half]
        hcq.barrier()
        half = half // 2
    if me == 0:
        out[hcq.group_id(0)] = out.dtype(part[0])


@hcq.kernel
def walks(out: hcq.ptr, a: hcq.ptr, b: hcq.ptr, n: hcq.i32):
    """Pointers that depend on conditions, go round in a loop, change places; what lives from barrier to barrier."""
    here, there = hcq.local(a.dtype, 64), hcq.local(a.dtype, 64)
    me, i = hcq.local_id(0), min(hcq.global_id(0), n - 1)
    p = a if i % 3 == 0 else b
    here[me] = p[i]
    own = a[i]
    for _ in range(3):
        hcq.barrier()
        there[me] = here[(me + 7) % 64]
        p = p + 1 if i < n - 4 else a
        here, there = there, here
    hcq.barrier()
    if hcq.global_id(0) < n:
        out[i] = here[me] if p[0] < own else p[0]


@hcq.kernel
def histogram(counts: hcq.ptr[hcq.u32], values: hcq.ptr[hcq.u32], n: hcq.i32):
    i = hcq.global_id(0)
    if i < n:
        hcq.atomic_add(counts, values[i] % 10, 1)
        hcq.atomic_max(counts, 10, values[i])


COUNT = 200
INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")
CASES = [
    *(("integers", name) for name in INTEGERS),
    *(("floats", name) for name in FLOATS),
    *(("functions", name) for name in FLOATS),
    *(("group_sums", name) for name in ("i32", "f16", "f32")),
    *(("walks", name) for name in ("i16", "f32")),
]


def some(name, seed):
    """Numbers of a type: small ones, the extremes, no zero (division by it is looked at elsewhere)."""
    type_ = getattr(hcq, name)
    rng = np.random.default_rng(seed)
    if type_.is_float:
        return (rng.standard_normal(COUNT) * 8).astype(type_.dtype.numpy)
    low, high = type_.range
    numbers = rng.integers(max(low, -100), min(high, 100), COUNT, endpoint=True)
    values = np.where(numbers == 0, 3, numbers).astype(type_.dtype.numpy)
    values[:4] = low or 1, high, 1, high // 2
    return values


@promise("portable.results")
@needs("kernels")
@pytest.mark.parametrize(("kernel", "name"), CASES, ids=lambda each: each)
def test_a_kernel_gives_the_bits_of_the_reference(dev, kernel, name):
    launched = globals()[kernel]
    a, b = some(name, 1), some(name, 2)
    expected, out = np.zeros_like(a), filled(dev, np.zeros_like(a))
    launched[4, 64](expected, a, b, COUNT, device="PYTHON")
    launched[4, 64](out, filled(dev, a), filled(dev, b), COUNT)
    found = read(out, a.dtype)
    bits = f"u{a.dtype.itemsize}"
    same = found.view(bits) == expected.view(bits)
    if a.dtype.kind in "fV":
        same |= np.isnan(found.astype(np.float64)) & np.isnan(expected.astype(np.float64))
    assert same.all()


@promise("portable.results")
@needs("kernels")
def test_atomic_operations_of_all_groups_count(dev):
    values = np.arange(1000, dtype=np.uint32) * 7919 % 10007
    counts = filled(dev, np.zeros(11, np.uint32))
    histogram[20, 50](counts, filled(dev, values), 1000)
    assert read(counts).tolist() == [*np.bincount(values % 10, minlength=10), values.max()]


@promise("portable.results")
@needs("kernels")
def test_ids_count_groups_and_items_in_three_dimensions(dev):
    @hcq.kernel
    def place(out: hcq.ptr[hcq.i32]):
        at = (hcq.global_id(2) * hcq.global_size(1) + hcq.global_id(1)) * hcq.global_size(0) + hcq.global_id(0)
        group = (hcq.group_id(2) * hcq.num_groups(1) + hcq.group_id(1)) * hcq.num_groups(0) + hcq.group_id(0)
        item = (hcq.local_id(2) * hcq.local_size(1) + hcq.local_id(1)) * hcq.local_size(0) + hcq.local_id(0)
        out[at] = group * 1000 + item

    out = empty(dev, 3 * 2 * 2 * 2 * 3 * 2)
    place[(3, 2, 2), (2, 3, 2)](out)
    z, y, x = np.mgrid[0:4, 0:6, 0:6]
    group = (z // 2 * 2 + y // 3) * 3 + x // 2
    item = (z % 2 * 3 + y % 3) * 2 + x % 2
    assert np.array_equal(read(out).reshape(4, 6, 6), group * 1000 + item)


# -- launching ---------------------------------------------------------------------------------------------------------


@hcq.kernel
def scale(x: hcq.ptr[hcq.i32], by: hcq.i32, n: hcq.i32):
    i = hcq.global_id(0)
    if i < n:
        x[i] = x[i] * by


@promise("portable.arguments")
@needs("kernels")
def test_a_kernel_takes_arrays_and_names_and_gives_seconds(dev):
    x = np.arange(8, dtype=np.int32)
    assert scale[2, 4](x, 3, 8, device=dev.dname) is None
    assert x.tolist() == [0, 3, 6, 9, 12, 15, 18, 21]
    took = scale[2, 4](n=8, by=2, x=filled(dev, x), wait=True)
    assert isinstance(took, float) and 0 <= took < 10


@promise("portable.arguments")
@needs("kernels")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((2,), "needs a value for n"),
        ((2, 8, 9), "takes 3 arguments"),
        ((2.0, 8), "by is i32"),
        ((2**31, 8), "by is i32"),
        ((2, "8"), "n is i32"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_queued(dev, arguments, said):
    x = filled(dev, [1, 2, 3])
    with pytest.raises(LaunchError, match=said):
        scale[1, 8](x, *arguments)
    with pytest.raises(LaunchError, match="x is a buffer of i32, and one of f32"):
        scale[1, 8](filled(dev, np.ones(3, np.float32)), 2, 3)
    assert read(x).tolist() == [1, 2, 3]


@promise("portable.bounds")
@needs("kernels")
def test_a_launch_that_provably_leaves_a_buffer_is_refused_with_the_line(dev):
    x = filled(dev, [1, 2, 3])
    for _ in range(2):
        scale[1, 8](x, 2, 3, wait=True)
        with pytest.raises(LaunchError, match="reads element 3 of x, which has 3") as caught:
            scale[1, 8](x, 2, 4)
    line = scale.__kernel_function__.__code__.co_firstlineno + 4
    assert f"test_kernels.py:{line}:" in str(caught.value) and "x[i] * by" in str(caught.value)
    assert read(x).tolist() == [4, 8, 12]


@promise("portable.accesses")
@needs("kernels", "queues")
def test_graphs_know_what_kernels_read_and_write(dev):
    @hcq.kernel
    def copied(out: hcq.ptr[hcq.i32], x: hcq.ptr[hcq.i32]):
        out[hcq.global_id(0)] = x[hcq.global_id(0)]

    x, first, second = filled(dev, [1, 2]), empty(dev, 2), empty(dev, 2)
    with hcq.capture() as graph:
        copied[2, 1](first, x)
        copied[2, 1](second, x)
        copied[2, 1](x, first)
    after = [sorted(each.index for each in graph.dependencies(node)) for node in graph.nodes]
    assert after == [[], [], [0, 1]]
    graph.replay().wait()
    assert read(second).tolist() == [1, 2]


@promise("portable.accesses")
@needs("kernels", "queues")
def test_a_pointer_that_depends_on_a_condition_counts_for_all_that_it_may_point_into(dev):
    @hcq.kernel
    def marked(x: hcq.ptr[hcq.i32], y: hcq.ptr[hcq.i32], n: hcq.i32):
        p = x if n > 0 else y
        p[0] = n

    @hcq.kernel
    def copied(out: hcq.ptr[hcq.i32], x: hcq.ptr[hcq.i32]):
        out[0] = x[0]

    x, y, out = filled(dev, [1]), filled(dev, [2]), empty(dev, 1)
    with hcq.capture() as graph:
        marked[1, 1](x, y, 5)
        copied[1, 1](out, y)
    assert [[each.index for each in graph.dependencies(node)] for node in graph.nodes] == [[], [0]]
    graph.replay().wait()
    assert (read(x).tolist(), read(out).tolist()) == ([5], [2])


@promise("portable.errors")
def test_a_mistake_in_a_kernel_is_shown_where_it_stands():
    @hcq.kernel
    def wrong(out: hcq.ptr[hcq.f32], n: hcq.i32):
        for i in range(n):
            last = i
        out[0] = last

    with pytest.raises(CompileError, match="last is set only in the loop") as caught:
        wrong.ir()
    line = wrong.__kernel_function__.__code__.co_firstlineno + 4
    assert f"test_kernels.py:{line}:18: " in caught.value.message
    shown, caret, *_ = caught.value.log.splitlines()
    assert shown[caret.index("^") :] == "last"
