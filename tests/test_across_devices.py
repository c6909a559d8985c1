"""CPU, GPU (OpenCL) and VULKAN in one process: copies between any two, one graph, one trace, one race checker; and what
holds on GPU and VULKAN alike that the suite's promises don't say."""

import itertools
import json
import os

import numpy as np
import pytest

os.environ.setdefault("POCL_DEVICES", "pthread pthread")

import hcq
from hcq import _native, ops
from hcq.errors import DeviceUnavailable, LaunchError, OutOfMemory, ValidationError

if _native.vulkan_has_validation():
    os.environ.setdefault("HCQ_VULKAN_VALIDATION", "1")

NAMES = ("LLVM", "GPU", "VULKAN")
DRIVERS = NAMES[1:]
PAIRS = [(a, b) for a in NAMES for b in NAMES if a != b]


def opened(*names):
    """The devices; the test is skipped where one does not open."""
    found = []
    for name in names:
        try:
            found.append(hcq.Device[name])
        except DeviceUnavailable as why:
            pytest.skip(f"{name}: {why}")
    return found


def there():
    """The names of those that open here, the CPU first."""
    found = []
    for name in NAMES:
        try:
            hcq.Device[name]
        except DeviceUnavailable:
            continue
        found.append(name)
    return found


@pytest.mark.parametrize(("here", "to"), PAIRS)
def test_a_copy_comes_after_what_is_queued_on_both_and_before_what_follows(here, to):
    opened(here, to)
    src, dest = hcq.array(np.arange(5000, dtype="i4"), here), hcq.zeros(5000, hcq.i32, to)
    for turn in range(1, 4):
        ops.add(src, 1, out=src)
        ops.add(dest, 7, out=dest)  # what the copy comes after on the other side
        hcq.copy(dest, src)
        ops.add(src, 1, out=src)  # what comes after the copy
        ops.multiply(dest, 2, out=dest)
        assert (dest.numpy() == 2 * (np.arange(5000) + 2 * turn - 1)).all()
    assert (src.numpy() == np.arange(5000) + 6).all()


@pytest.mark.parametrize("direction", ["to", "from"])
@pytest.mark.parametrize("other", ["NULL", "PYTHON"])
@pytest.mark.parametrize("name", DRIVERS)
def test_copies_from_and_to_devices_of_python_come_after_what_is_queued(name, other, direction):
    opened(name)
    names = (name, other) if direction == "to" else (other, name)
    src, dest = hcq.array(np.arange(10_000, dtype="i4"), names[0]), hcq.zeros(10_000, hcq.i32, names[1])
    if other != "NULL":
        ops.add(src, 1, out=src)
    hcq.copy(dest, src)
    assert (dest.numpy() == np.arange(10_000) + (other != "NULL")).all()


@pytest.mark.parametrize("shift", [-3, 0, 1, 40])
@pytest.mark.parametrize("name", DRIVERS)
def test_a_copy_command_may_overlap_itself(name, shift):
    (device,) = opened(name)
    given = np.arange(100, dtype="u1")
    buf = hcq.array(given, name)
    at = buf._buf.va_addr
    device.hw_copy_queue_t().copy(at + 10 + shift, at + 10, 50).submit(device)
    device.synchronize()
    given[10 + shift : 60 + shift] = given[10:60].copy()
    assert (buf.numpy() == given).all()


@hcq.kernel
def bump(out: hcq.ptr[hcq.u8]):
    out[hcq.global_id(0)] += 1


@pytest.mark.parametrize("name", DRIVERS)
def test_a_view_at_any_byte_is_an_argument(name):
    opened(name)
    whole = hcq.zeros(100, hcq.dtypes.uint8, name)
    for offset in (1, 3, 65):
        bump[5, 1](whole.view(5, hcq.dtypes.uint8, offset).ensure_allocated())
    assert [int(at) for at in np.flatnonzero(whole.numpy())] == [1, 2, 3, 4, 5, 6, 7, 65, 66, 67, 68, 69]


@pytest.mark.parametrize("name", DRIVERS)
def test_what_is_past_a_limit_is_refused_before_anything_is_queued(name):
    (device,) = opened(name)
    out, limits, value = hcq.zeros(1, hcq.dtypes.uint8, name), device.limits, device.timeline_value
    for axis in range(3):
        groups, items = [1, 1, 1], [1, 1, 1]
        groups[axis], items[axis] = limits.max_groups[axis] + 1, limits.max_group_size[axis] + 1
        with pytest.raises(LaunchError, match=r"at most|less than 2\^31"):
            bump[tuple(groups), 1](out)
        with pytest.raises(LaunchError, match=f"at most {limits.max_group_size[axis]}"):
            bump[1, tuple(items)](out)
    half = limits.max_group_items // 2 + 1
    with pytest.raises(LaunchError, match=f"{limits.max_group_items}"):
        bump[1, (half, 2)](out)
    with pytest.raises(OutOfMemory, match=f"gives {limits.max_buffer_bytes} at once at most"):
        hcq.empty(limits.max_buffer_bytes + 1, hcq.dtypes.uint8, name)
    assert device.timeline_value == value
    bump[1, 1](out)
    assert out.numpy()[0] == 1


@pytest.mark.parametrize(
    ("name", "dtype"), [("VULKAN", "f4"), ("VULKAN", "i8"), *(("GPU", each) for each in ("f2", "f4", "f8", "i4", "i8"))]
)
def test_operations_give_what_llvm_gives(name, dtype):
    opened(name)
    rng = np.random.default_rng(3)
    x, y = ((rng.standard_normal((37, 29)) * 20).astype(dtype) for _ in range(2))
    made = {}
    for device in ("LLVM", name):
        a, b = hcq.array(x, device), hcq.array(y, device)
        made[device] = [ops.add(a, b), ops.sum(a, axis=1), ops.transpose(a), ops.matmul(a, ops.transpose(b))]
        if dtype in ("f4", "i4"):  # PoCL takes about a second for each kernel
            made[device] += [ops.maximum(a, b), ops.max(a, axis=0), ops.cumsum(a, axis=1), ops.sort(a)]
        if dtype == "f4":
            made[device] += [ops.exp(a), ops.divide(a, b), ops.tanh(a), ops.softmax(a)]
    for ours, theirs in zip(made[name], made["LLVM"], strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("direction", [("LLVM", "GPU"), ("GPU", "LLVM")])
def test_a_copy_between_native_devices_is_queued_and_moves_both_timelines(direction):
    source, target = opened(*direction)
    if not (source.allocator.host_access and target.allocator.host_access):
        pytest.skip("one of the two does not reach the other's memory")
    src, dest = hcq.array(np.arange(1000, dtype="i4"), direction[0]), hcq.zeros(1000, hcq.i32, direction[1])
    gate = hcq.HCQSignal()
    before = source.timeline_value, target.timeline_value
    signal, value = source.timeline_signal, source.next_timeline()
    source.hw_compute_queue_t().wait(gate, 1).signal(signal, value).submit(source)
    try:
        hcq.copy(dest, src)  # returns though the source stands at a wait
        assert target.timeline_signal.value < target.timeline_value - 1
    finally:
        gate.value = 1
    target.synchronize()
    source.synchronize()
    assert source.timeline_value >= before[0] + 2 and target.timeline_value == before[1] + 1
    assert (dest.numpy() == np.arange(1000)).all()


@pytest.mark.parametrize(("here", "to"), [("GPU", "LLVM"), ("LLVM", "GPU")])
def test_queues_wait_for_each_others_signals(here, to):
    first, second = opened(here, to)
    a, b = hcq.HCQSignal(), hcq.HCQSignal()
    second.hw_compute_queue_t().wait(a, 1).signal(b, 5).submit(second)
    try:
        first.hw_copy_queue_t().wait(b, 5).timestamp(b).submit(first)
    finally:
        first.hw_compute_queue_t().signal(a, 1).submit(first)
    first.synchronize()
    second.synchronize()
    assert b.value == 5 and b.timestamp > 0


def test_one_graph_takes_work_of_all_devices():
    names = there()
    assert names
    x = {name: hcq.array(np.arange(1000, dtype="i4"), name) for name in names}
    y = {name: hcq.zeros(1000, hcq.i32, name) for name in names}
    with hcq.capture() as graph:
        last = x[names[0]]
        for name in names:
            if last is not x[name]:
                hcq.copy(x[name], last)
            ops.add(x[name], 1, out=y[name])
            last = y[name]
        hcq.copy(x[names[0]], last)
    for turn in (1, 2, 3):
        graph.replay().wait()
        assert (x[names[0]].numpy() == np.arange(1000) + turn * len(names)).all()


def test_one_trace_has_all_devices_on_one_clock(tmp_path):
    names = there()
    x = {name: hcq.array(np.arange(1000, dtype="i4"), name) for name in names}
    for name in names:
        ops.add(x[name], 1, out=x[name])  # compiled before it is timed
        hcq.Device[name].synchronize()
    with hcq.profile(tmp_path / "trace.json"):
        for name in [*names, *reversed(names)]:  # each ends before the next begins
            ops.add(x[name], 1, out=x[name])
            hcq.Device[name].synchronize()
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    process = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    ran = sorted((e["ts"], e["dur"], process[e["pid"]]) for e in events if e.get("cat") == "kernel")
    assert [name for _, _, name in ran] == [*names, *reversed(names)]
    assert all(duration > 0 for _, duration, _ in ran)
    assert all(one[0] + one[1] <= two[0] for one, two in itertools.pairwise(ran))


def test_races_between_devices_are_found():
    cpu, gpu = opened("LLVM", "GPU")
    if not gpu.allocator.host_access:
        pytest.skip("the CPU's queues do not reach this memory")

    def both(ordered):
        a, b, c = (hcq.zeros(64, hcq.i32, name) for name in ("LLVM", "GPU", "LLVM"))
        done = hcq.HCQSignal()
        gpu.hw_copy_queue_t().copy(a._buf.va_addr, b._buf.va_addr, 256).signal(done, 1).submit(gpu)
        queue = cpu.hw_copy_queue_t()
        if ordered:
            queue.wait(done, 1)
        queue.copy(c._buf.va_addr, a._buf.va_addr, 256).submit(cpu)
        gpu.synchronize()
        cpu.synchronize()

    with hcq.checks(strict=True) as checks:
        both(ordered=True)
    assert not checks.findings and not checks.possible
    with pytest.raises(ValidationError, match=r"GPU(?s:.)*LLVM|LLVM(?s:.)*GPU"), hcq.checks():
        both(ordered=False)


def test_a_photograph_is_split_over_the_devices_and_joined():
    names = there()
    rng = np.random.default_rng(5)
    height, width = 64 * len(names), 160
    picture = rng.integers(0, 256, (height, width, 3)).astype("f4")
    parts = np.array_split(picture, len(names))
    # Every device makes its stripe grey; the joined picture is on the first.
    stripes = {}
    for name, part in zip(names, parts, strict=True):
        r, g, b = (hcq.array(np.ascontiguousarray(part[..., c]), name) for c in range(3))
        stripes[name] = ops.add(ops.add(ops.multiply(r, 0.299), ops.multiply(g, 0.587)), ops.multiply(b, 0.114))
    joined = hcq.zeros(height * width, hcq.f32, names[0])
    at = 0
    for name, part in zip(names, parts, strict=True):
        size = part.shape[0] * width
        hcq.copy(joined.view(size, hcq.f32, 4 * at).ensure_allocated(), stripes[name])
        at += size
    f = np.float32
    grey = picture[..., 0] * f(0.299) + picture[..., 1] * f(0.587) + picture[..., 2] * f(0.114)
    np.testing.assert_allclose(joined.numpy().reshape(height, width), grey, rtol=1e-6)


@pytest.mark.parametrize(
    "waiting, waited", [("CLANG", "VULKAN"), ("VULKAN", "CLANG"), ("VULKAN", "GPU"), ("GPU", "VULKAN")]
)
def test_a_stream_waits_for_a_stream_or_a_device_of_another_kind(waiting, waited):
    first, second = opened(waited, waiting)
    for make in (lambda: first.stream(), lambda: first):
        gate, other, stream = first.signal_t(), make(), second.stream()
        here, there = hcq.zeros(4, hcq.i32, waited), hcq.zeros(4, hcq.i32, waited)
        x, y = hcq.zeros(4, hcq.i32, waiting), hcq.array(np.arange(4, dtype="i4"), waiting)
        if other is first:
            first.enqueue(lambda s, v, g=gate: first.hw_compute_queue_t().wait(s, v - 1).wait(g, 1).signal(s, v))
        else:
            other.wait((gate, 1))
            hcq.copy(there, here, stream=other)
        stream.wait(other)
        hcq.copy(x, y, stream=stream)
        with pytest.raises(hcq.errors.SignalTimeout):
            signal, value = stream.position
            signal.wait(value, timeout=30)
        gate.value = 1
        stream.synchronize()
        assert (x.numpy() == np.arange(4)).all()
        first.synchronize()
