"""Launching portable kernels: devices, arguments, specialisation, what is refused before anything is queued."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from kernel_helpers import there

import hcq

DEVICES = ("PYTHON", "LLVM", "CLANG", *there("VULKAN"))


@pytest.fixture(params=DEVICES)
def device(request):
    pytest.importorskip("llvmlite", reason="the LLVM device needs llvmlite") if request.param == "LLVM" else None
    return request.param


@hcq.kernel
def saxpy(a: hcq.f32, x: hcq.ptr[hcq.f32], y: hcq.ptr[hcq.f32], n: hcq.i32):
    i = hcq.global_id(0)
    if i < n:
        y[i] = a * x[i] + y[i]


@hcq.kernel
def scale(x: hcq.ptr, by: hcq.constexpr, offset: hcq.i64 = 0):
    i = hcq.global_id(0)
    x[i] = x[i] * by + offset


def buffers(device, n=10):
    return hcq.array(np.arange(n, dtype=np.float32), device=device), hcq.array(np.ones(n, np.float32), device=device)


def test_buffers_name_the_device_and_a_waited_launch_gives_seconds(device):
    x, y = buffers(device)
    assert saxpy[3, 4](2.0, x, y, 10) is None
    assert np.array_equal(y.numpy(), 2 * x.numpy() + 1)
    assert saxpy[3, 4](2.0, x, y, n=10, wait=True) > 0
    assert np.array_equal(y.numpy(), 4 * x.numpy() + 1)


def test_arrays_are_written_before_the_launch_returns(device):
    x, y = np.arange(10, dtype=np.float32), np.ones(10, np.float32)
    x.setflags(write=False)  # only read, which is known
    saxpy[(3,), (4, 1)](a=2.0, x=x, y=y, n=10, device=device)
    assert np.array_equal(y, 2 * x + 1)
    saxpy[3, 4](2.0, x, y, 10, device=hcq.Device[device])
    assert np.array_equal(y, 4 * x + 1)


def test_arrays_alone_run_on_the_default_device(monkeypatch):
    before = hcq.Device.DEFAULT
    try:
        hcq.Device.DEFAULT = "PYTHON"
        y = np.ones(4, np.float32)
        saxpy[1, 4](2.0, np.ones(4, np.float32), y, 4)
        assert y.tolist() == [3, 3, 3, 3]
    finally:
        hcq.Device.DEFAULT = before


def test_streams_and_prepared_launches(device):
    x, y = buffers(device)
    stream = hcq.Device[device].stream()
    saxpy[3, 4](2.0, x, y, 10, stream=stream)
    stream.synchronize()
    launch = saxpy[3, 4].prepare(1.0, x, y, 10)
    again = saxpy.prepare(1.0, x, y, n=10, groups=3, items=4)
    launch()
    again(wait=True)
    assert np.array_equal(y.numpy(), 4 * x.numpy() + 1)


def test_kernels_are_captured_in_graphs(device):
    x, y = buffers(device)
    with hcq.capture() as graph:
        saxpy[3, 4](2.0, x, y, 10)
        saxpy[3, 4](1.0, x, y, 10)
    assert np.array_equal(y.numpy(), np.ones(10))
    graph.replay()
    assert np.array_equal(y.numpy(), 3 * x.numpy() + 1)


def test_a_program_says_what_it_reads_and_writes(device):
    program = saxpy._specialise({}, {}).loaded(hcq.Device[device]).program
    assert tuple(program.accesses) == ("r", "rw")


def test_each_type_and_constant_makes_one_specialisation(device):
    before = len(scale._made)
    for dtype in (np.float32, np.int32, np.float32):
        x = np.arange(4).astype(dtype)
        scale[1, 4](x, 3, device=device)
        assert x.tolist() == [0, 3, 6, 9]
    x = np.arange(4, dtype=np.float32)
    scale[1, 4](x, 2.0, 5, device=device)
    assert x.tolist() == [5, 7, 9, 11]
    assert len(scale._made) <= before + 3
    assert scale.ir(x=hcq.f32, by=3) is scale.ir(by=3, x=np.float32)
    assert scale.ir(x=hcq.f32, by=3) is not scale.ir(x=hcq.f32, by=3.0)


def test_a_device_that_is_opened_anew_gets_the_kernel_anew(device):
    if device == "LLVM":
        device = "LLVM:7"
    x, y = buffers(device)
    saxpy[3, 4](2.0, x, y, 10, wait=True)
    hcq.Device.close(device)
    x, y = buffers(device)
    saxpy[3, 4](2.0, x, y, 10, wait=True)
    assert np.array_equal(y.numpy(), 2 * x.numpy() + 1)
    hcq.Device.close(device)


def test_every_scalar_type_is_passed(device):
    @hcq.kernel
    def passed(
        o: hcq.ptr[hcq.f64], a: hcq.i8, b: hcq.u16, c: hcq.i64, d: hcq.u64, e: hcq.f16, f: hcq.f64, g: hcq.bool_
    ):
        o[0] = a
        o[1] = b
        o[2] = c
        o[3] = d
        o[4] = e
        o[5] = f
        if g:
            o[6] = 1

    @hcq.kernel
    def small(o: hcq.ptr[hcq.f32], a: hcq.bf16, b: hcq.u8, c: hcq.i16, d: hcq.f32, e: hcq.u32):
        o[0] = a
        o[1] = b
        o[2] = c
        o[3] = d
        o[4] = e

    o = np.zeros(7)
    passed[1, 1](o, -5, np.uint16(60000), -(2**40), 2**63, 0.333, 0.1, True, device=device)
    assert o.tolist() == [-5, 60000, -(2**40), 2**63, float(np.float16(0.333)), 0.1, 1]
    o = np.zeros(5, np.float32)
    small[1, 1](o, 1.003, 255, np.int64(-300), 7, 2**32 - 1, device=device)
    assert o.tolist() == [1.0, 255, -300, 7, 2.0**32]


REFUSED = [
    (lambda x, y: saxpy[3, 4](2.0, x, y), "needs a value for n"),
    (lambda x, y: saxpy[3, 4](2.0, x, y, 10, 11), "takes 4 arguments, and 5"),
    (lambda x, y: saxpy[3, 4](2.0, x, y, 10, m=1), "no parameter m: expected a, x, y, n"),
    (lambda x, y: saxpy[3, 4](2.0, x, y, 10, a=1), "a is given twice"),
    (lambda x, y: saxpy[3, 4]("2", x, y, 10), "a is f32, and '2' \\(str\\)"),
    (lambda x, y: saxpy[3, 4](2.0, x, y, 10.0), "n is i32, and 10.0 \\(float\\)"),
    (lambda x, y: saxpy[3, 4](2.0, x, y, 2**31), "n is i32, which holds -2147483648 to 2147483647"),
    (lambda x, y: saxpy[3, 4](1e39, x, y, 10), "a is f32, and 1e\\+39 is too large"),
    (lambda x, y: saxpy[3, 4](2**24 + 1, x, y, 10), "a is f32, which has no 16777217"),
    (lambda x, y: saxpy[3, 4](2.0, 5, y, 10), "x must be a buffer or a NumPy array"),
    (lambda x, y: saxpy[3, 4](2.0, y.view(10, hcq.dtypes.int32, 0), y, 10), "x is a buffer of f32, and one of i32"),
    (lambda x, y: saxpy[3](2.0, x, y, 10), "takes two sizes"),
    (lambda x, y: saxpy[3, 4, 5](2.0, x, y, 10), "takes two sizes"),
    (lambda x, y: saxpy[(1, 2, 3, 4), 4](2.0, x, y, 10), "one to three dimensions"),
    (lambda x, y: saxpy["3", 4](2.0, x, y, 10), "whole number"),
    (lambda x, y: saxpy[-1, 4](2.0, x, y, 10), "sizes are not negative"),
    (lambda x, y: saxpy[3, 0](2.0, x, y, 10), "an empty group"),
    (lambda x, y: saxpy[3, 5000](2.0, x, y, 10), "at most"),
    (lambda x, y: saxpy[2**24, 128](2.0, x, y, 10), "2147483648 work-items in x"),
    (lambda x, y: scale[1, 1](x, [1]), "constants must be"),
    (lambda x, y: saxpy[3, 4](2.0, x, y, 10, device="NULL"), "NULL runs no portable kernels|does not reach"),
]


@pytest.mark.parametrize(("launch", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_can_not_be_launched_is_refused_before_anything_is_queued(launch, message, device):
    x, y = buffers(device)
    if "work-items in x" in message and hcq.Device[device].limits.max_groups[0] < 2**24:
        pytest.skip(f"{device} takes fewer groups")
    with pytest.raises(hcq.errors.LaunchError, match=message):
        launch(x, y)
    assert np.array_equal(y.numpy(), np.ones(10))


def test_no_groups_run_nothing(device):
    x, y = buffers(device)
    assert saxpy[0, 4](2.0, x, y, 10, wait=True) == 0.0
    assert np.array_equal(y.numpy(), np.ones(10))


# Accesses that provably leave a buffer


@hcq.kernel
def unguarded(x: hcq.ptr[hcq.f32], y: hcq.ptr[hcq.f32]):
    i = hcq.global_id(0)
    y[i] = x[i + 1]


@hcq.kernel
def rows(x: hcq.ptr[hcq.f32], o: hcq.ptr[hcq.f32], rows: hcq.i32, columns: hcq.i32):
    row = hcq.global_id(0)
    if row >= rows:
        return
    total = hcq.f32(0)
    for column in range(columns):
        total += x[row * columns + column]
    o[row] = total


@hcq.kernel
def tricky(x: hcq.ptr[hcq.f32], o: hcq.ptr[hcq.f32], at: hcq.ptr[hcq.i32], n: hcq.i32):
    i = hcq.global_id(0)
    if at[i] > 0:
        o[i] = x[i + 1000]  # whether it runs is not known
    total = 0.0
    for k in range(n):
        if at[k] > 5:
            break
        total += x[k]  # nor how often
    if i % 2 == 0 and i < n - 1:
        total += x[i + 1]
    o[i] = (x + i).load(0, 2).sum() + total


def test_a_launch_that_leaves_a_buffer_is_refused_with_the_line(device):
    x, y = buffers(device)
    with pytest.raises(
        hcq.errors.LaunchError, match=r"reads element 10 of x, which has 10, where global_id\(0\) = 9"
    ) as caught:
        unguarded[5, 2](x, y)
    picture = str(caught.value).splitlines()
    assert picture[1][picture[2].index("^") :] == "x[i + 1]"
    line = unguarded.__kernel_function__.__code__.co_firstlineno + 3
    assert f"test_kernels_launch.py:{line}:" in picture[0]
    assert np.array_equal(y.numpy(), np.ones(10))
    unguarded[3, 3](x, y, wait=True)


@pytest.mark.parametrize(
    ("size", "out", "count", "columns", "groups", "message"),
    [
        (12, 3, 3, 4, 4, None),
        (12, 3, 3, 4, 400, None),
        (11, 3, 3, 4, 4, "reads element 11 of x"),
        (12, 2, 3, 4, 4, "writes element 2 of o"),
        (12, 3, 3, -4, 4, None),  # no rounds
        (12, 3, 300, 4, 4, "reads element 12 of x"),
    ],
)
def test_guards_loops_and_arguments_are_respected(size, out, count, columns, groups, message, device):
    x, o = hcq.array(np.ones(size, np.float32), device=device), hcq.array(np.zeros(out, np.float32), device=device)
    if message is None:
        rows[groups, 1](x, o, count, columns, wait=True)
    else:
        with pytest.raises(hcq.errors.LaunchError, match=message):
            rows[groups, 1](x, o, count, columns)


def test_what_is_not_known_is_not_refused(device):
    def array(size, dtype=np.float32, fill=-1):
        return hcq.array(np.full(size, fill, dtype), device=device)

    x, o = array(9), array(9)
    tricky[4, 1](x, o, array(8, np.int32), 8, wait=True)
    with pytest.raises(hcq.errors.LaunchError, match="reads element 8 of x, which has 9"):
        tricky[9, 1](x, o, array(9, np.int32), 8)
    with pytest.raises(hcq.errors.LaunchError, match="reads element 8 of at"):
        tricky[9, 1](array(20), o, array(8, np.int32), 8)


def test_a_proof_is_never_wrong():
    """Every launch that is refused is one that PYTHON, which looks at each access, refuses too."""
    generator = np.random.default_rng(7)
    refused = ran = 0
    for _ in range(150):
        count, columns, size, groups, items = (int(each) for each in generator.integers(1, 7, 5))
        x = hcq.array(np.ones(size * columns, np.float32), device="PYTHON:5")
        o = hcq.array(np.ones(size, np.float32), device="PYTHON:5")
        specialisation = rows._specialise({}, {})
        try:
            specialisation.bounds.check((groups, 1, 1), (items, 1, 1), (x.size, o.size), (count, columns))
            fine = True
        except hcq.errors.LaunchError:
            fine = False
        reached = min(count, groups * items)
        assert fine == (reached <= size)
        refused, ran = refused + (not fine), ran + fine
    assert refused > 20
    assert ran > 20


def test_a_launch_that_was_checked_is_not_checked_again():
    bounds = unguarded._specialise({}, {}).bounds
    bounds.check((2, 1, 1), (2, 1, 1), (10, 10), ())
    tests, bounds._tests = bounds._tests, []
    try:
        bounds.check((2, 1, 1), (2, 1, 1), (10, 10), ())
    finally:
        bounds._tests = tests


def test_threads_share_a_kernel(device):
    @hcq.kernel
    def plus(x: hcq.ptr, by: hcq.constexpr):
        i = hcq.global_id(0)
        x[i] = x[i] + by

    results = []

    def work(number):
        x = np.zeros(4, np.float32)
        for by in range(3):
            plus[1, 4](x, by + number % 2, device=device)
        results.append(x.tolist() == [3 + 3 * (number % 2)] * 4)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert results == [True] * 4
    assert len(plus._made) == 4


def test_a_kernel_keeps_no_buffer_alive():
    pytest.importorskip("llvmlite", reason="the LLVM device needs llvmlite")
    x, y = buffers("LLVM")
    saxpy[3, 4](2.0, x, y, 10, wait=True)
    ref = weakref.ref(x)
    del x
    gc.collect()
    assert ref() is None


# The native way, which repeated launches on devices with native queues take


@pytest.fixture
def count_slow(monkeypatch):
    """How many launches of a kernel Python has seen."""
    pytest.importorskip("llvmlite", reason="the LLVM device needs llvmlite")
    from hcq.kernels.launch import Kernel

    seen = []
    launch = Kernel._launch

    def counted(self, *args):
        seen.append(self)
        return launch(self, *args)

    monkeypatch.setattr(Kernel, "_launch", counted)
    return seen


@pytest.mark.unchecked("the checks are told of each launch, so none is made natively")
def test_a_repeated_launch_is_made_natively_and_gives_the_same(count_slow):
    @hcq.kernel
    def add(x: hcq.ptr, by: hcq.f32, at: hcq.i32, times: hcq.constexpr, name: hcq.constexpr):
        i = hcq.global_id(0) + at
        x[i] = x[i] + by * times + len(name)

    x = hcq.array(np.zeros(10, np.float32), device="LLVM")
    stream = hcq.Device["LLVM"].stream()
    for number in range(20):
        add[(5,), 1](x, number, number % 4, 2, "ab")
    assert add[5, 1](x, 0.5, 5, 2, "ab", wait=True) > 0
    stream.wait(hcq.Device["LLVM"])
    add[5, 1](x, 0.5, 5, 2, "ab", stream=stream)
    stream.synchronize()
    assert len(count_slow) == 1
    expected = np.zeros(10, np.float32)
    for number in range(20):
        expected[number % 4 : number % 4 + 5] += 2 * number + 2
    expected[5:] += 6
    assert np.array_equal(x.numpy(), expected)
    add[5, 1](x, 0.5, 5, 3, "ab")
    add[5, 1](x, 0.5, 5, 2, "abc", wait=True)
    add[5, 1](x, 0.5, 5, 2, "abc", wait=True)
    assert len(count_slow) == 3
    assert x.numpy()[-1] == expected[-1] + 3.5 + 8


def test_natively_too_nothing_wrong_is_queued(count_slow):
    x, y = buffers("LLVM")
    saxpy[3, 4](2.0, x, y, 10, wait=True)
    for launch, message in REFUSED:
        with pytest.raises(hcq.errors.LaunchError, match=message):
            launch(x, y)
    with pytest.raises(hcq.errors.LaunchError, match="reads element 10 of x"):
        saxpy[3, 4](2.0, x, y, 11)
    assert np.array_equal(y.numpy(), 2 * x.numpy() + 1)
    x.deallocate()
    with pytest.raises(hcq.errors.LaunchError, match="not allocated"):
        saxpy[3, 4](2.0, x, y, 10)
    with pytest.raises(hcq.errors.LaunchError, match="must be one that"):
        saxpy[3, 4](2.0, y, y, 10, stream=5)


@pytest.mark.parametrize("name", ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64"])
def test_every_type_of_number_is_the_same_both_ways(name, count_slow):
    type_ = getattr(hcq, name)

    @hcq.kernel
    def put(o: hcq.ptr[hcq.f64], v: type_):
        o[0] = v

    o = hcq.array(np.zeros(1), device="LLVM")
    low, high = (-3.4e38, 3.4e38) if type_.is_float else type_.range
    for value in (1, low, high, 2, high // 3, -1.5, 2**24 + 1, 2**63, -1, True):
        results = []
        for launch in (put[1, 1], lambda o, v: put._launch((1, 1, 1), (1, 1, 1), (o, v), {})):
            try:
                launch(o, value)
                results.append(o.numpy().tolist())
            except hcq.errors.LaunchError as error:
                results.append(str(error))
        assert results[0] == results[1]


def test_more_types_and_sizes_than_a_kernel_keeps_at_hand_go_on_working(count_slow):
    arrays = [hcq.array(np.ones(8).astype(dtype), device="LLVM") for dtype in ("f4", "f8", "i4", "i8", "u4")]
    for _ in range(3):
        for x in arrays:
            for by in (1, 2):
                for size in range(1, 9):
                    scale[size, 1](x, by)
    for x in arrays:
        assert x.numpy().tolist() == [2.0 ** (3 * (8 - at)) for at in range(8)]


def test_a_kernel_is_collected_with_its_programs():
    pytest.importorskip("llvmlite", reason="the LLVM device needs llvmlite")

    @hcq.kernel
    def alone(x: hcq.ptr[hcq.f32]):
        x[0] = 1

    x = hcq.array(np.zeros(1, np.float32), device="LLVM")
    for _ in range(3):
        alone[1, 1](x, wait=True)
    alone.itself = alone[1, 1]
    kernel, program = weakref.ref(alone), weakref.ref(alone._specialise({}, {}).loaded(hcq.Device["LLVM"]).program)
    del alone
    gc.collect()
    assert kernel() is None
    assert program() is None


def test_checks_and_profiles_know_what_kernels_do(device):
    x, y = buffers(device)
    with hcq.checks():
        saxpy[3, 4](2.0, x, y, 10)
        saxpy[3, 4](2.0, x, y, 10, wait=True)
        if device != "PYTHON":  # which finds it when it runs, and is lost
            with pytest.raises(hcq.errors.UnwrittenReadError, match="saxpy"):
                saxpy[3, 4](2.0, hcq.empty(10, hcq.f32, device), y, 10, wait=True)
    hcq.Device[device].synchronize()  # the launch that was told of had been queued
    with hcq.profile() as profile:
        for _ in range(3):
            saxpy[3, 4](2.0, x, y, 10)
        hcq.Device[device].synchronize()
    assert [span.name for span in profile.spans if span.kind == "kernel"] == ["saxpy"] * 3


def test_a_graph_takes_new_buffers_and_values(device):
    x, y = buffers(device)
    z = hcq.array(np.full(10, 5, np.float32), device=device)
    with hcq.capture(inputs={"out": y}) as graph:
        saxpy[3, 4](2.0, x, y, graph.value("count", 10))
    graph.replay(out=z)
    assert np.array_equal(z.numpy(), 2 * x.numpy() + 5)
    assert np.array_equal(y.numpy(), np.ones(10))
    graph.replay(vals={"count": 1})
    assert z.numpy().tolist() == [5.0, *(2 * x.numpy() + 5)[1:]]
    graph.replay(vals={"saxpy.a": 0.5, "count": 10})
    assert np.array_equal(z.numpy(), 2.5 * x.numpy() + 5)


def test_the_source_of_a_kernel_in_every_language():
    assert "define void @saxpy" in saxpy.source("llvm")
    assert saxpy.source("LLVM") == saxpy.source("llvm")
    assert "kernel saxpy(a: f32" in saxpy.source("ir") == saxpy.source(hcq.Device["PYTHON"])
    assert "saxpy" in saxpy.source("c")
    with pytest.raises(hcq.errors.UnknownDevice):
        saxpy.source("nowhere")
    with pytest.raises(TypeError, match="by needs a value"):
        scale.ir(x=hcq.f32)
    with pytest.raises(TypeError, match="x takes its type from a buffer"):
        scale.ir(by=1)
    with pytest.raises(TypeError, match="no constant or untyped pointer z"):
        scale.ir(x=hcq.f32, by=1, z=1)


@pytest.mark.unchecked("the checks are told of each launch, so none is made natively")
def test_threads_launch_natively_side_by_side(count_slow):
    arrays = [hcq.array(np.zeros(4).astype(dtype), device="LLVM") for dtype in ("f4", "f8", "i4", "i8")]
    for x in arrays:
        scale[4, 1](x, 1, 1)
    slow = len(count_slow)

    def work(x):
        for _ in range(500):
            scale[4, 1](x, 1, 1)

    threads = [threading.Thread(target=work, args=(x,)) for x in arrays for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [x.numpy().tolist() for x in arrays] == [[1001.0] * 4] * 4
    assert len(count_slow) == slow


def test_a_kernel_of_the_parent_is_launched_in_a_forked_child():
    pytest.importorskip("llvmlite", reason="the LLVM device needs llvmlite")
    script = """
import os, sys
sys.path.insert(0, sys.argv[1])
import numpy as np, hcq
from test_kernels_launch import saxpy
def work():
    x, y = hcq.array(np.arange(10, dtype="f4"), "LLVM"), hcq.array(np.ones(10, "f4"), "LLVM")
    for _ in range(3):
        saxpy[3, 4](2.0, x, y, 10, wait=True)
    return np.array_equal(y.numpy(), 6 * x.numpy() + 1)
assert work()
import threading
held, go_on = threading.Event(), threading.Event()
def hold():
    with saxpy._lock, saxpy._specialise({}, {}).lock:
        held.set()
        go_on.wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if not child:
    os._exit(0 if work() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
go_on.set()
assert work()
"""
    command = [sys.executable, "-c", script, os.path.dirname(__file__)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr


@hcq.kernel
def compared(o: hcq.ptr[hcq.i32], n: hcq.i32, how: hcq.constexpr):
    i = hcq.global_id(0)
    if how == "lt":
        c = i < n
    elif how == "le":
        c = i <= n
    elif how == "gt":
        c = n < i
    elif how == "ge":
        c = i >= n
    elif how == "eq":
        c = n == i
    else:
        c = i != n
    if c:
        o[hcq.global_id(1) * 96 + i] = 1


@pytest.mark.parametrize("device", ["LLVM", "CLANG"])
@pytest.mark.parametrize("how", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_items_that_a_comparison_of_global_ids_lets_through_run_and_no_others(device, how):
    """On LLVM the loop over a group's items runs those alone."""
    compare = {"lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__, "eq": int.__eq__}
    for n in (-(1 << 31), -7, -1, 0, 1, 31, 32, 33, 50, 95, 96, 97, (1 << 31) - 1):
        o = np.zeros((4, 96), np.int32)
        compared[(3, 2), (32, 2)](o, n, how, device=device)
        wanted = [int(compare.get(how, int.__ne__)(i, n)) for i in range(96)]
        assert o.tolist() == [wanted] * 4, (how, n)
