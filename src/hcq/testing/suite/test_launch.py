"""Programs launched by calling them: arguments, sizes, what is refused, order, and what a launch keeps alive."""

import gc
import time

import numpy as np
import pytest

import hcq
from hcq import Buffer
from hcq.errors import InvalidProgram, LaunchError
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import I32, empty, filled, noise, read, together


@pytest.fixture
def gated(fresh):
    """Puts a wait for a gate on the device's timeline, so that what is launched from now on can't have run yet."""

    def close():
        gate = fresh.signal_t()
        value = fresh.next_timeline()
        fresh.hw_compute_queue_t().wait(gate, 1).signal(fresh.timeline_signal, value).submit(fresh)
        return gate

    return close


# -- launching --------------------------------------------------------------------------------------------------------


@promise("launch.returns_none", "device.synchronize")
@needs("compiles")
def test_a_launch_returns_none_and_a_waited_one_seconds(dev, kernels):
    assert kernels.nothing() is None
    took = kernels.nothing(wait=True)
    assert isinstance(took, float) and 0 <= took < 10
    dev.synchronize()


@promise("launch.returns_none")
@needs("computes")
def test_seconds_are_those_on_the_device(dev, kernels):
    out = filled(dev, [0])
    short, long = (min(kernels.spin(out._buf, vals=(n,), wait=True) for _ in range(3)) for n in (1000, 60_000_000))
    assert long > short > 0


@promise("launch.returns_none")
@needs("computes")
def test_results_are_there_after_synchronize(dev, kernels):
    a, b, out = filled(dev, range(1000)), filled(dev, [7] * 1000), empty(dev, 1000)
    kernels.add(out._buf, a._buf, b._buf, vals=(1000,))
    dev.synchronize()
    assert read(out).tolist() == list(range(7, 1007))


@promise("launch.returns_none")
@needs("computes")
def test_buffers_and_their_handles_are_both_taken(dev, kernels):
    out = filled(dev, [0] * 4)
    kernels.fill(out, vals=(4, 1))
    assert read(out).tolist() == [1] * 4
    kernels.fill(out.view(2, I32, 8).ensure_allocated()._buf, vals=(2, 9))
    assert read(out).tolist() == [1, 1, 9, 9]


@promise("launch.async", "device.synchronize")
@needs("queues", "async")
def test_a_launch_returns_before_the_work_is_done(fresh, fresh_kernels, gated):
    gate = gated()
    before = fresh.timeline_value
    fresh_kernels.nothing()
    assert fresh.timeline_value == before + 1 and fresh.timeline_signal.value < before
    gate.value = 1
    fresh.synchronize()
    assert fresh.timeline_signal.value == before


@promise("launch.ordered")
@needs("computes")
def test_launches_run_in_order(dev, kernels):
    log = filled(dev, [0] * 101)
    for n in range(100):
        kernels.append(log._buf, vals=(n,))
    assert read(log).tolist() == [100, *range(100)]


@promise("launch.ordered")
@needs("computes")
def test_a_thousand_launches_without_waiting_all_count(dev, kernels):
    out = filled(dev, [0])
    for _ in range(5000):
        kernels.increment(out._buf)
    assert read(out).tolist() == [5000]


@promise("launch.threads")
@needs("computes")
def test_threads_share_a_program(dev, kernels):
    count, each = 4, 300
    outs = [filled(dev, [0] * 8) for _ in range(count)]
    total = filled(dev, [0])

    def work(number: int) -> None:
        for n in range(each):
            kernels.fill(outs[number]._buf, vals=(8, number * 1000 + n))
            kernels.increment(total._buf)

    assert kernels.fill and kernels.increment  # compiled before the threads start
    together(*[lambda n=n: work(n) for n in range(count)])
    dev.synchronize()
    assert read(total).tolist() == [count * each]
    assert [read(out).tolist() for out in outs] == [[n * 1000 + each - 1] * 8 for n in range(count)]


# -- sizes ------------------------------------------------------------------------------------------------------------


@promise("launch.sizes_none")
@needs("computes")
def test_none_means_one(dev, kernels):
    out = filled(dev, [0])
    kernels.increment(out._buf, global_size=None, local_size=None)
    kernels.increment(out._buf, global_size=(1, 1, 1), local_size=[1, 1, 1])
    assert read(out).tolist() == [2]


@promise("launch.zero_groups")
@needs("computes")
@pytest.mark.parametrize("groups", [(0, 1, 1), (1, 0, 1), (0, 0, 0)])
def test_no_groups_run_nothing(dev, kernels, groups):
    out = filled(dev, [0])
    assert kernels.increment(out._buf, global_size=groups) is None
    assert kernels.increment(out._buf, global_size=groups, wait=True) == 0.0
    assert read(out).tolist() == [0]


@promise("launch.zero_groups")
@needs("compiles")
def test_a_waited_launch_of_nothing_took_no_time(dev, kernels):
    assert kernels.nothing(global_size=(0, 1, 1), wait=True) == 0.0


@promise("launch.sizes_refused", "launch.sizes_overflow", "launch.refused_queues_nothing", "errors.no_assert")
@needs("compiles", "queues")
@pytest.mark.parametrize("which", ["global_size", "local_size"])
@pytest.mark.parametrize(
    "sizes",
    [
        (-1, 1, 1),
        (1, 1.5, 1),
        (1, 1, 2**64),
        (2**63, 2**63, 2),
        (2**32, 2**32, 2**32),
        ("1", 1, 1),
        (1, None, 1),
        (1,) * 4,
    ],
)
def test_wrong_sizes_are_refused_and_queue_nothing(dev, kernels, which, sizes):
    kernels.nothing(wait=True)
    before = dev.timeline_value
    with pytest.raises(LaunchError):
        kernels.nothing(**{which: sizes})
    assert dev.timeline_value == before
    kernels.nothing(wait=True)


@promise("launch.sizes_refused")
@needs("compiles")
@pytest.mark.parametrize("sizes", [(0, 1, 1), (1, 1, 0)])
def test_an_empty_group_is_refused(dev, kernels, sizes):
    with pytest.raises(LaunchError):
        kernels.nothing(local_size=sizes)


@promise("launch.sizes_refused", "device.limits")
@needs("compiles")
def test_a_group_beyond_the_limits_is_refused(dev, kernels):
    items = dev.limits.max_group_items
    with pytest.raises(LaunchError):
        kernels.nothing(local_size=(items + 1, 1, 1))
    with pytest.raises(LaunchError):
        kernels.nothing(local_size=(items, 2, 1))


@promise("launch.plain_sizes")
@needs("computes", "plain")
def test_a_plain_function_refuses_larger_sizes(dev, kernels):
    out = filled(dev, [0])
    for sizes in ({"global_size": (2, 1, 1)}, {"local_size": (1, 2, 1)}):
        with pytest.raises(LaunchError):
            kernels.plain(out._buf, **sizes)
    assert read(out).tolist() == [0]


@promise("launch.grid")
@needs("computes")
@pytest.mark.parametrize(
    ("groups", "items"),
    [
        ((1, 1, 1), (1, 1, 1)),
        ((5, 1, 1), (8, 1, 1)),
        ((2, 3, 4), (2, 2, 2)),
        ((1, 1, 7), (3, 1, 5)),
        ((97, 1, 1), (64, 1, 1)),
    ],
)
def test_groups_and_items_number_as_the_sizes_say(dev, kernels, groups, items):
    count, each = int(np.prod(groups)), int(np.prod(items))
    out = filled(dev, [0] * (count * each))
    kernels.grid(out._buf, global_size=groups, local_size=items)
    expected = (np.arange(count)[:, None] * 1000 + np.arange(each)[None, :] + 1).reshape(-1)
    assert (read(out) == expected).all()


@promise("launch.barrier")
@needs("computes")
@pytest.mark.parametrize(("groups", "items", "rounds"), [(1, 1, 1), (1, 2, 1), (3, 16, 5), (40, 64, 3), (2, 5, 50)])
def test_items_of_a_group_meet_at_barriers(dev, kernels, groups, items, rounds):
    out = filled(dev, [0] * (groups * items))
    kernels.meet(out._buf, vals=(rounds,), global_size=(groups, 1, 1), local_size=(items, 1, 1))
    one = [sum((i + 1) % items + r for r in range(rounds)) for i in range(items)]
    assert read(out).tolist() == one * groups


@promise("launch.local_memory")
@needs("compiles")
@pytest.mark.parametrize("wrong", [-1, 0.5, "64", None, 2**40])
def test_wrong_sizes_of_local_memory_are_refused(dev, kernels, wrong):
    with pytest.raises(LaunchError):
        kernels.nothing.with_local_memory(wrong)


@promise("launch.local_memory")
@needs("compiles")
def test_a_program_is_given_local_memory_or_refuses_it(dev, kernels):
    assert kernels.nothing.local_memory_bytes == 0
    assert kernels.nothing.with_local_memory(0).local_memory_bytes == 0
    try:
        given = kernels.nothing.with_local_memory(64)
    except LaunchError as refused:
        assert "local memory" in str(refused)
        return
    assert given is not kernels.nothing and given.local_memory_bytes == 64
    assert kernels.nothing.local_memory_bytes == 0
    given(wait=True)


@promise("launch.cooperative")
@needs("compiles", "queues")
def test_a_program_is_launched_cooperatively_or_refuses_it(dev, kernels):
    assert not kernels.nothing.is_cooperative
    try:
        given = kernels.nothing.cooperative()
    except LaunchError as refused:
        assert "cooperative" in str(refused)
        return
    assert given.is_cooperative and not kernels.nothing.is_cooperative
    given(global_size=(2, 1, 1), wait=True)
    before = dev.timeline_value
    with pytest.raises(LaunchError):
        given(global_size=(dev.limits.max_groups[0], 1, 1), local_size=dev.limits.max_group_size)
    assert dev.timeline_value == before


# -- arguments --------------------------------------------------------------------------------------------------------


@promise("launch.unallocated", "launch.foreign", "launch.refused_queues_nothing", "errors.no_assert")
@needs("compiles", "queues")
def test_what_is_no_allocated_buffer_is_refused(dev, kernels):
    out = filled(dev, [0])
    program = kernels.increment if "increment" in kernels._driver.kernels else kernels.nothing
    before = dev.timeline_value
    for argument in (Buffer(dev.dname, 1, I32), object(), None, 3.5, "x"):
        with pytest.raises(LaunchError):
            program(argument)
    assert dev.timeline_value == before
    assert read(out).tolist() == [0]


@promise("launch.any_dtype")
@needs("compiles")
@pytest.mark.parametrize("dtype", [hcq.f32, hcq.u8, hcq.f64, hcq.dtypes.float8_e5m2])
def test_a_buffer_is_given_as_its_bytes_whatever_it_holds(dev, kernels, dtype):
    known = "increment" in kernels._driver.kernels
    out = hcq.Buffer(dev.dname, 8 // dtype.itemsize, dtype).allocate()
    out.copyin(np.array([41, 7], I32).view(np.uint8))
    (kernels.increment if known else kernels.nothing)(out)
    dev.synchronize()
    if known:
        assert read(out, I32).tolist() == [42, 7]


@promise("launch.foreign")
@needs("computes", "queues")
def test_a_buffer_of_another_kind_of_device_is_refused(dev, kernels):
    other = hcq.Buffer("NPY", 1, I32, opaque=np.zeros(1, I32))
    with pytest.raises(LaunchError):
        kernels.increment(other)


@promise("launch.count_checked", "compiler.typed", "launch.refused_queues_nothing")
@needs("computes", "typed")
def test_wrong_counts_of_arguments_are_refused(dev, kernels):
    out = filled(dev, [0] * 4)
    for bufs, vals in (([], (4, 1)), ([out._buf] * 2, (4, 1)), ([out._buf], (4,)), ([out._buf], (4, 1, 2)), ([], ())):
        with pytest.raises(LaunchError):
            kernels.fill(*bufs, vals=vals)
    assert read(out).tolist() == [0] * 4


@promise("launch.vals_range", "errors.no_assert")
@needs("computes")
@pytest.mark.parametrize("value", [-(2**31), -1, 0, 1, 2**31 - 1, 2**31, 2**32 - 1])
def test_values_of_thirty_two_bits_arrive(dev, kernels, value):
    out = filled(dev, [0])
    kernels.raw(out._buf, vals=(value,))
    assert read(out, np.dtype("u4")).tolist() == [value % 2**32]


@promise("launch.vals_range")
@needs("computes")
@pytest.mark.parametrize("value", [2**32, -(2**31) - 1, 2**64, -(2**63)])
def test_larger_values_are_refused(dev, kernels, value):
    out = filled(dev, [5])
    with pytest.raises(LaunchError):
        kernels.raw(out._buf, vals=(value,))
    assert read(out).tolist() == [5]


@promise("launch.vals_types")
@needs("computes", "typed")
@pytest.mark.parametrize("value", [1.5, "1", None, np.float32(1), np.int64(1), np.int16(1)])
def test_values_of_another_type_are_refused(dev, kernels, value):
    out = filled(dev, [5])
    with pytest.raises(LaunchError):
        kernels.raw(out._buf, vals=(value,))
    assert read(out).tolist() == [5]


@promise("launch.vals_numpy")
@needs("computes")
def test_numpy_scalars_are_packed_at_their_size(dev, kernels):
    out = filled(dev, np.zeros(6, "i8"))
    scalars = (np.int8(-5), np.int16(-300), np.int32(70_000), np.int64(-(2**40)), np.float32(1.5), np.float64(-2.25))
    kernels.values(out._buf, vals=scalars)
    got = read(out, np.dtype("i8"))
    assert got[:4].tolist() == [-5, -300, 70_000, -(2**40)]
    assert got[4:].view("f8").tolist() == [1.5, -2.25]


@promise("launch.vals_types")
@needs("computes", "typed")
def test_python_numbers_take_the_parameters_type(dev, kernels):
    out = filled(dev, np.zeros(6, "i8"))
    kernels.values(out._buf, vals=(-5, 300, 2**32 - 1, -(2**40), 1.1, 3))
    got = read(out, np.dtype("i8"))
    assert got[:4].tolist() == [-5, 300, -1, -(2**40)]
    assert got[4:].view("f8").tolist() == [float(np.float32(1.1)), 3.0]
    fits = [-5, 300, 7, 7, 1.0, 3.0]
    for index, value in (
        (0, 128),
        (1, 2**15),
        (2, 2**32),
        (3, 2**63),
        (4, 1e39),
        (4, 2**24 + 1),
        (5, 2**53 + 1),
        (0, 1.0),
    ):
        with pytest.raises(LaunchError):
            kernels.values(out._buf, vals=[*fits[:index], value, *fits[index + 1 :]])
    kernels.values(out._buf, vals=(0, 0, 0, 0, float("inf"), float("nan")))
    assert read(out, np.dtype("f8"))[4] == float("inf")


@promise("launch.many_arguments")
@needs("computes")
def test_sixty_four_arguments_work(dev, kernels):
    bufs = [filled(dev, [n]) for n in range(32)]
    kernels.sixty_four(*[buf._buf for buf in bufs], vals=tuple(range(1000, 1032)))
    assert read(bufs[0]).tolist() == [sum(range(1, 32)) + sum(range(1000, 1032))]


@promise("launch.many_arguments")
@needs("compiles")
def test_no_arguments_at_all_work(dev, kernels):
    assert kernels.nothing(wait=True) >= 0


# -- lifetimes --------------------------------------------------------------------------------------------------------


@promise("launch.owns", "allocator.ordered_reuse")
@needs("computes", "queues", "async", "host_memory")
def test_what_a_launch_uses_outlives_python(fresh, fresh_kernels, gated, driver):
    """Buffers, program and arguments are dropped while the launch stands behind a gate, and much is allocated."""
    gate = gated()
    a, b = filled_without_waiting(fresh, range(64)), filled_without_waiting(fresh, range(64))
    out = empty(fresh, 64)
    program = fresh.runtime("add", fresh_kernels.library("add"))
    program(out._buf, a._buf, b._buf, vals=(64,))
    del a, b, program
    gc.collect()
    others = [filled_without_waiting(fresh, [-1] * 64) for _ in range(16)]
    for _ in range(200):
        fresh_kernels.fill(others[0]._buf, vals=(64, -2))
    gate.value = 1
    assert read(out).tolist() == list(range(0, 128, 2))


def filled_without_waiting(dev, contents):
    """A buffer written through its zero-copy view, which unlike copyin waits for nothing when it was never used."""
    import ctypes

    array = np.ascontiguousarray(list(contents), I32)
    buf = empty(dev, array.size)
    ctypes.memmove(buf._buf.va_addr, array.ctypes.data, array.nbytes)
    return buf


@promise("launch.prepare")
@needs("computes")
def test_prepare_launches_with_what_it_was_given(dev, kernels):
    out = filled(dev, [0] * 4)
    launch = kernels.fill.prepare(out._buf, vals=(4, 6))
    assert read(out).tolist() == [0] * 4
    launch()
    assert read(out).tolist() == [6] * 4
    step = kernels.increment.prepare(out, global_size=(1, 1, 1), local_size=(1, 1, 1))
    for _ in range(100):
        step()
    assert read(out).tolist() == [106, 6, 6, 6]


@promise("launch.prepare", "launch.owns")
@needs("computes", "zero_copy")
def test_prepare_owns_what_it_was_given(dev, kernels):
    out = filled(dev, [0] * 4)
    view = out.as_buffer(allow_zero_copy=True)
    launch = dev.runtime("fill", kernels.library("fill")).prepare(out._buf, vals=(4, 6))
    del out
    gc.collect()
    others = [filled(dev, [0] * 4) for _ in range(8)]
    launch()
    dev.synchronize()
    assert np.frombuffer(view, I32).tolist() == [6] * 4
    assert all(read(other).tolist() == [0] * 4 for other in others)


@promise("launch.prepare")
@needs("compiles")
def test_prepare_refuses_as_a_launch_does(dev, kernels):
    with pytest.raises(LaunchError):
        kernels.nothing.prepare(global_size=(-1, 1, 1))
    with pytest.raises(LaunchError):
        kernels.nothing.prepare(Buffer(dev.dname, 1, I32))


@promise("launch.stream")
@needs("queues", "async", "computes", "native")
def test_streams_run_side_by_side_and_wait_for_each_other(dev, kernels):
    gate, work = dev.signal_t(), kernels.fill
    slow, quick, after = dev.stream(), dev.stream(), dev.stream()
    out, other, copied = filled(dev, [0, 0]), filled(dev, [0, 0]), filled(dev, [0, 0])
    slow.wait((gate, 1))
    work(out, vals=(2, 7), stream=slow)
    after.wait(slow)
    hcq.copy(copied, out, stream=after)
    work(other, vals=(2, 9), stream=quick)
    quick.synchronize()  # though the others stand at the gate
    assert gate.value == 0
    gate.value = 1
    after.synchronize()
    assert read(other).tolist() == [9, 9]
    assert read(copied).tolist() == read(out).tolist() == [7, 7]
    dev.synchronize()


@promise("launch.starts_unwaited")
@needs("queues", "async", "native")
def test_work_starts_soon_though_nobody_waits(dev):
    """By the device's own clock, not by how fast we look; a loaded machine gets many tries."""
    stamp, done = dev.signal_t(), dev.signal_t()
    queue = dev.hw_compute_queue_t().timestamp(stamp).signal(done, 1)
    soonest = float("inf")
    for attempt in range(300):
        time.sleep(0.02 if attempt % 50 == 0 else 0.0005)  # also after a rest
        done.value = 0
        launched = time.perf_counter_ns() / 1000
        queue.submit(dev)
        deadline = time.monotonic() + 10
        while done.value == 0:  # looking does not help the device along
            time.sleep(0.0005)
            assert time.monotonic() < deadline, "work never started, since nobody waited"
        soonest = min(soonest, float(stamp.timestamp) - launched)
        if soonest <= 200:
            return
    pytest.fail(f"work started {soonest} us after its submit at best")


# -- libraries --------------------------------------------------------------------------------------------------------


@promise("launch.missing_function")
@needs("computes")
def test_a_missing_function_lists_those_there(dev, kernels):
    with pytest.raises(InvalidProgram, match="increment"):
        dev.runtime("incremend", kernels.library("increment"))


@promise("launch.damaged_library", "errors.no_assert")
@needs("computes")
@pytest.mark.parametrize("damage", ["empty", "garbage", "cut", "flipped"])
def test_a_damaged_library_is_refused(dev, kernels, damage):
    library = kernels.library("increment")
    flipped = bytearray(library)
    flipped[len(flipped) // 2] ^= 0x41
    damaged = {
        "empty": b"",
        "garbage": noise(500).tobytes(),
        "cut": library[: len(library) // 2],
        "flipped": bytes(flipped),
    }
    with pytest.raises(InvalidProgram):
        dev.runtime("increment", damaged[damage])
