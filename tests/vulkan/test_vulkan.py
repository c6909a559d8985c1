"""VULKAN: choosing among devices, libraries, limits, and what can go wrong; the suite's promises run besides."""

import ctypes
import gc
import os
import pickle
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from fresh_process import (
    default_of_a_process_that_names_no_device,
    in_process,
    refusal,
    refusal_in_a_forked_child,
    run,
)

import hcq
from hcq import _native
from hcq.drivers.vulkan import physical
from hcq.errors import CompileError, DeviceLost, DeviceUnavailable, InvalidProgram, LaunchError, OutOfMemory
from hcq.kernels import lower
from hcq.testing.kernels.short_loops import spin
from hcq.testing.suite.tools import eventually

if _native.vulkan_has_validation():
    os.environ.setdefault("HCQ_VULKAN_VALIDATION", "1")

try:
    physical.devices()
except DeviceUnavailable as none_here:
    pytest.skip(f"VULKAN: {none_here}", allow_module_level=True)

GLSL = """#version 450
#extension GL_EXT_buffer_reference : require
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float at[]; };
layout(push_constant, std430) uniform Launch {
  uvec3 groups; uint unused; Floats to; Floats from; float factor;
} launch;
void main() {
  uint i = gl_GlobalInvocationID.x;
  launch.to.at[i] = launch.factor * launch.from.at[i];
}
"""


@hcq.kernel
def scale(out: hcq.ptr[hcq.f32], x: hcq.ptr[hcq.f32], factor: hcq.f32, extra: hcq.u16):
    i = hcq.global_id(0)
    out[i] = factor * x[i] + hcq.f32(extra)


@hcq.kernel
def bump(out: hcq.ptr[hcq.u8]):
    i = hcq.global_id(0)
    out[i] += 1


@hcq.kernel
def large(out: hcq.ptr[hcq.i32], count: hcq.constexpr):
    shared = hcq.local(hcq.i32, count)
    item = hcq.local_id(0)
    shared[item] = item
    hcq.barrier()
    out[item] = shared[item]


NAME = lower.entry_name("scale")


@pytest.fixture
def vulkan():
    yield hcq.Device["VULKAN"]
    said = _native.vulkan_messages()
    assert not said, "\n\n".join(said[:3])


@pytest.fixture(params=["the host's addresses", "its own addresses"])
def either(request, vulkan, monkeypatch):
    """Opened anew, with one kind of addresses: what is launched and copied is translated from the second."""
    hcq.Device.close("VULKAN")
    if request.param == "its own addresses":
        monkeypatch.setenv("HCQ_FORCE_STAGING", "1")
    device = hcq.Device["VULKAN"]
    assert request.param == "the host's addresses" or not device.is_mapped
    yield device
    hcq.Device.close("VULKAN")


@pytest.fixture
def fresh(vulkan):
    hcq.Device.close("VULKAN")
    yield hcq.Device["VULKAN"]
    hcq.Device.close("VULKAN")


def test_without_a_driver_the_reason_and_a_hint_are_told(tmp_path):
    told = refusal("VULKAN", VK_ICD_FILENAMES=str(tmp_path / "none.json"), VK_DRIVER_FILES="")
    assert "Vulkan driver" in told and "mesa-vulkan-drivers" in told


def test_a_broken_driver_is_no_driver(tmp_path):
    (tmp_path / "broken.json").write_text(
        '{"file_format_version": "1.0.0", "ICD": {"library_path": "/nonexistent/libnone.so", "api_version": "1.3.0"}}'
    )
    told = refusal("VULKAN", VK_ICD_FILENAMES=str(tmp_path / "broken.json"), VK_DRIVER_FILES="")
    assert "Vulkan driver" in told and "VK_ICD_FILENAMES" in told


def test_devices_are_chosen_by_number_and_by_name(vulkan):
    word = vulkan.physical.facts["driver"].split()[0].lower()
    named = hcq.Device[f"VULKAN:{word}"]
    assert named.physical.name == vulkan.physical.name and named is not vulkan
    named.close()
    with pytest.raises(DeviceUnavailable, match="'xyzzy' in its name"):
        hcq.Device["VULKAN:xyzzy"]


def test_what_the_device_is_can_be_asked(vulkan):
    info = vulkan.info
    assert info["device"] == vulkan.physical.name and info["version"].startswith("Vulkan 1.") and info["memory"] > 0


def test_a_device_on_the_cpu_is_only_used_when_named(vulkan):
    if not vulkan.is_cpu_implementation:
        pytest.skip("the first Vulkan device is no CPU")
    assert default_of_a_process_that_names_no_device(hcq.Device._devices) in ("CLANG", "LLVM")


def test_a_forked_child_is_told_that_vulkan_can_not_be_opened_there(vulkan):
    assert "before this process was forked" in refusal_in_a_forked_child("VULKAN")


def test_the_demo_leaves_out_a_device_that_ends_loops_early(vulkan):
    from hcq.cli.demo import _unfit

    assert (_unfit(vulkan) is None) == (vulkan.most_rounds is None)
    if vulkan.physical.facts["driver"] == "llvmpipe":
        assert "ends loops after 65535 rounds" in _unfit(vulkan)


def test_what_a_driver_compiled_is_kept_by_kernel_and_size_of_group(vulkan, monkeypatch, tmp_path):
    monkeypatch.setenv("HCQ_CACHE_DIR", str(tmp_path / "cache"))
    make, given = _native.VulkanKernel.make, []

    def pipeline(kernel, items, cached):
        given.append((items, bytes(cached)))
        make(kernel, items, b"")
        return b"what the driver gives out, more than its header " + bytes(items)

    monkeypatch.setattr(_native.VulkanKernel, "make", pipeline)
    x = hcq.array(np.ones(64, "f4"), "VULKAN")
    for _ in range(2):
        program = vulkan.program(NAME, scale.source("spirv"))
        for items in ((4, 1, 1), (8, 1, 1), (4, 1, 1)):
            program(x, x, vals=(1.0, 0), local_size=items, wait=True)
    kept = b"what the driver gives out, more than its header "
    assert given == [((4, 1, 1), b""), ((8, 1, 1), b""), *(((n, 1, 1), kept + bytes((n, 1, 1))) for n in (4, 8))]


def test_glsl_is_compiled_where_there_is_a_compiler(either):
    if shutil.which("glslangValidator") is None:
        with pytest.raises(CompileError, match="glslang-tools"):
            either.program("main", GLSL)
        return
    program = either.program("main", GLSL)
    x, out = hcq.array(np.arange(64, dtype="f4"), "VULKAN"), hcq.empty(64, hcq.f32, "VULKAN")
    program(out, x, vals=(np.float32(1.5),), global_size=(4, 1, 1), local_size=(16, 1, 1))
    assert (out.numpy() == 1.5 * np.arange(64, dtype="f4")).all()
    with pytest.raises(CompileError) as caught:
        either.program("main", GLSL.replace("launch.factor *", "undeclared *"))
    assert "undeclared" in caught.value.log and ":10:" in caught.value.log


MANY = """#version 450
#extension GL_EXT_buffer_reference : require
#extension GL_ARB_gpu_shader_int64 : require
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Ints { int at[]; };
layout(push_constant, std430) uniform Launch {
  uvec3 groups; uint unused; int first; Ints to; uvec2 pair; uint few[2]; int64_t last;
} launch;
void main() {
  launch.to.at[0] = launch.first;
  launch.to.at[1] = int(launch.pair.x); launch.to.at[2] = int(launch.pair.y);
  launch.to.at[3] = int(launch.few[0]); launch.to.at[4] = int(launch.few[1]); launch.to.at[5] = int(launch.last);
}
"""

NUMBERED = MANY.replace("int first; Ints to;", "uint64_t to; int first;").replace("launch.to.at", "Ints(launch.to).at")


@pytest.mark.skipif(shutil.which("glslangValidator") is None, reason="GLSL is compiled by glslangValidator")
@pytest.mark.parametrize("source", [MANY, NUMBERED], ids=["a reference", "a number"])
def test_what_a_glsl_kernel_takes_is_what_its_push_constants_have(either, source):
    program, out = either.program("main", source), hcq.zeros(6, hcq.i32, "VULKAN")
    program(out, vals=(-1, 2, 3, 4, 5, -6))
    assert out.numpy().tolist() == [-1, 2, 3, 4, 5, -6]
    assert program.buffer_count == 1 and list(program.value_types) == ["i32", "u32", "u32", "u32", "u32", "i64"]
    assert [name for _, name in program.signature] == ["to", "first", "pair[0]", "pair[1]", "few[0]", "few[1]", "last"]
    for bufs, vals in (((out, out), (1,) * 6), ((out,), (1,) * 5), ((out,), (1.5, 1, 1, 1, 1, 1))):
        with pytest.raises(LaunchError):
            program(*bufs, vals=vals)


@pytest.mark.skipif(shutil.which("glslangValidator") is None, reason="GLSL is compiled by glslangValidator")
def test_a_glsl_kernel_with_more_than_is_pushed_is_refused(vulkan):
    with pytest.raises(InvalidProgram, match="more than 112 bytes"):
        vulkan.program("main", MANY.replace("few[2]", "few[40]"))


def test_threads_that_launch_a_new_size_at_once_all_run(vulkan):
    """One compiles for it, and the others wait for that: what they launch found no pipeline."""
    outs = [hcq.zeros(64, hcq.u8, "VULKAN") for _ in range(4)]
    errors = []

    def launch(out, items):
        try:
            for size in items:
                bump[64 // size, size](out)
        except Exception as error:
            errors.append(error)

    sizes = (64, 32, 16, 8, 4, 2, 1)
    threads = [threading.Thread(target=launch, args=(out, sizes)) for out in outs]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not errors and all((out.numpy() == len(sizes)).all() for out in outs)


def test_one_kernel_runs_in_groups_of_any_size(either):
    program = either.program(NAME, scale.source("spirv"))
    assert program.buffer_count == 2 and list(program.value_types) == ["f32", "u16"]
    x, out = hcq.array(np.arange(64, dtype="f4"), "VULKAN"), hcq.empty(64, hcq.f32, "VULKAN")
    for groups, items in ((4, 16), (64, 1), (1, 64), (4, 16)):
        program(out, x, vals=(1.5, groups), global_size=(groups, 1, 1), local_size=(items, 1, 1))
        assert (out.numpy() == 1.5 * np.arange(64, dtype="f4") + groups).all()
    with pytest.raises(LaunchError):
        program(out, x, vals=(1.5, -1))


@hcq.kernel
def sixteen(
    out: hcq.ptr[hcq.i32], a: hcq.ptr[hcq.i32], b: hcq.ptr[hcq.i32], c: hcq.ptr[hcq.i32], d: hcq.ptr[hcq.i32],
    e: hcq.ptr[hcq.i32], f: hcq.ptr[hcq.i32], g: hcq.ptr[hcq.i32], h: hcq.ptr[hcq.i32], i: hcq.ptr[hcq.i32],
    j: hcq.ptr[hcq.i32], k: hcq.ptr[hcq.i32], m: hcq.ptr[hcq.i32], n: hcq.ptr[hcq.i32], p: hcq.ptr[hcq.i32],
    q: hcq.ptr[hcq.i32], last: hcq.i32,
):  # fmt: skip
    out[0] = a[0] + b[0] + c[0] + d[0] + e[0] + f[0] + g[0] + h[0] + i[0] + j[0] + k[0] + m[0] + n[0] + p[0] + q[last]


def test_more_arguments_than_are_pushed_go_through_memory(either):
    kinds = [hcq.BufferOptions(), hcq.BufferOptions(host=True), hcq.BufferOptions(cpu_access=True)]
    bufs = [hcq.Buffer("VULKAN", 2, hcq.i32, options=kinds[k % 3]).allocate() for k in range(15)]
    for k, buf in enumerate(bufs):
        buf.copyin(np.array([1 << k, 1 << 20], "i4"))
    out = hcq.zeros(1, hcq.i32, "VULKAN")
    sixteen[1, 1](out, *bufs, 0)
    assert out.numpy()[0] == 2**15 - 1
    sixteen[1, 1](out, *bufs[:14], bufs[14].view(1, hcq.i32, 4).ensure_allocated(), 0)
    assert out.numpy()[0] == 2**14 - 1 + 2**20


def test_libraries_of_others_and_damaged_ones_are_refused(vulkan):
    library = vulkan.compiler.compile(scale.source("spirv"))
    with pytest.raises(InvalidProgram, match="it has "):
        vulkan.runtime("scales", library)
    for bad in (b"", b"no library", library[:-1], library[:200] + bytes([library[200] ^ 1]) + library[201:]):
        with pytest.raises(InvalidProgram):
            vulkan.runtime(NAME, bad)
    module = scale.source("spirv")
    for damaged in (
        b"",
        b"text",
        module[:-1],
        module[:18],
        b"\0" + module[1:],
        module[:20] + b"\0\0\0\0" + module[24:],
    ):
        with pytest.raises(CompileError, match="no module of SPIR-V"):
            vulkan.compiler.compile(damaged)


def test_a_compiler_pickles(vulkan):
    other = pickle.loads(pickle.dumps(vulkan.compiler))
    assert vulkan.runtime(NAME, other.compile(scale.source("spirv"))).name == NAME


def test_what_the_device_lacks_is_named_when_a_module_is_loaded(vulkan, monkeypatch):
    monkeypatch.setitem(vulkan.physical.facts["has"], "i64", False)
    with pytest.raises(InvalidProgram, match=r"uses Int64, and .* has no such thing"):
        vulkan.program(NAME, scale.source("spirv"))


def test_more_local_memory_than_a_group_has_is_refused(vulkan):
    count = vulkan.limits.local_memory_bytes // 4 + 1
    with pytest.raises(InvalidProgram, match="bytes of local memory"):
        vulkan.program(lower.entry_name("large"), large.source("spirv", count=count))


def test_a_group_larger_than_the_device_takes_is_refused(vulkan):
    program, out = vulkan.program(NAME, scale.source("spirv")), hcq.zeros(1, hcq.f32, "VULKAN")
    with pytest.raises(LaunchError):
        program(out, out, vals=(1.0, 0), local_size=(vulkan.limits.max_group_items + 1, 1, 1))
    with pytest.raises(LaunchError):
        program(out, out, vals=(1.0, 0), global_size=(vulkan.limits.max_groups[0] + 1, 1, 1))


def test_memory_beyond_the_largest_buffer_is_out_of_memory(vulkan):
    with pytest.raises(OutOfMemory):
        hcq.empty(vulkan.limits.max_buffer_bytes + 1, hcq.dtypes.uint8, "VULKAN")


def test_allocations_share_blocks_and_give_them_back(fresh):
    before = _native.vulkan_alive()["memory"]  # a device that was lost in another test may stand for good
    buffers = [hcq.empty(1000, hcq.dtypes.uint8, "VULKAN") for _ in range(2000)]
    assert len({buf._buf.va_addr for buf in buffers}) == 2000
    assert fresh.native.allocated <= 64 << 20 and _native.vulkan_alive()["memory"] <= before + 3
    del buffers
    fresh.allocator.free_cache()
    big = [hcq.empty(20 << 20, hcq.dtypes.uint8, "VULKAN") for _ in range(3)]
    assert fresh.native.allocated >= 60 << 20
    del big
    fresh.allocator.free_cache()
    assert fresh.native.allocated <= 64 << 20


@pytest.mark.parametrize("options", [hcq.BufferOptions(host=True), hcq.BufferOptions(cpu_access=True)])
def test_mapped_memory_is_an_argument_too(either, options):
    buf = hcq.Buffer("VULKAN", 64, hcq.f32, options=options).allocate()
    host = np.frombuffer((ctypes.c_ubyte * 256).from_address(buf._buf.va_addr), "f4")
    host[:] = 3
    program = either.program(NAME, scale.source("spirv"))
    program(buf, buf, vals=(2.0, 1), global_size=(64, 1, 1), wait=True)
    assert (host == 7).all()


def test_copies_work_where_the_host_does_not_reach_the_memory(vulkan, monkeypatch):
    hcq.Device.close("VULKAN")
    monkeypatch.setenv("HCQ_FORCE_STAGING", "1")
    given = np.random.default_rng(1).integers(0, 255, 5_000_001, dtype="u1")
    a, b = hcq.array(given, "VULKAN"), hcq.empty(given.size, hcq.dtypes.uint8, "VULKAN")
    assert not hasattr(a.allocator, "as_buffer")
    hcq.copy(b, a)
    assert (b.numpy() == given).all()
    part = b.view(1000, hcq.dtypes.uint8, 333).ensure_allocated()
    assert (part.numpy() == given[333:1333]).all()
    del a, b, part
    hcq.Device.close("VULKAN")


def test_copies_reach_any_memory_of_the_host(either):
    if not either.physical.facts["imports"]:
        pytest.skip("the device has no VK_EXT_external_memory_host")
    source, target = np.arange(10_001, dtype="u1"), np.zeros(10_001, dtype="u1")
    buf = hcq.empty(10_001, hcq.dtypes.uint8, "VULKAN")
    at = buf._buf.va_addr
    queue = either.hw_copy_queue_t().copy(at, source.ctypes.data, 10_001).copy(target.ctypes.data + 1, at + 1, 9_999)
    queue.submit(either)
    either.synchronize()
    assert (target[1:10_000] == source[1:10_000]).all() and target[0] == target[10_000] == 0


def test_time_stamps_are_on_the_hosts_clock(either):
    stamps = [either.signal_t() for _ in range(2)]
    before = time.perf_counter_ns()
    for signal in stamps:
        either.hw_compute_queue_t().timestamp(signal).submit(either)
    either.synchronize()
    after = time.perf_counter_ns()
    slack = 0 if either.is_cpu_implementation else 1e6
    assert before - slack <= stamps[0].timestamp * 1000 <= stamps[1].timestamp * 1000 <= after + slack


def test_bound_queues_see_arguments_that_were_written_since(either):
    program = either.program(NAME, scale.source("spirv"))
    x, out = hcq.array(np.ones(16, "f4"), "VULKAN"), hcq.zeros(16, hcq.f32, "VULKAN")
    block = hcq.Buffer("VULKAN", 64, hcq.dtypes.uint8, options=hcq.BufferOptions(cpu_access=True)).allocate()
    at = program.fill_kernargs((out._buf, x._buf), (1.0, 0), block._buf.va_addr)
    queue = either.hw_compute_queue_t().exec(program, at, (16, 1, 1), (1, 1, 1)).bind(either)
    for factor in (2.0, 2.0, 3.0):
        program.fill_kernargs((out._buf, x._buf), (factor, 0), at)
        queue.submit(either)
        either.synchronize()
        assert (out.numpy() == factor).all()
    queue.update_exec(0, (8, 1, 1))
    program.fill_kernargs((out._buf, x._buf), (5.0, 0), at)
    queue.submit(either)
    either.synchronize()
    assert (out.numpy() == [5.0] * 8 + [3.0] * 8).all()


def test_a_bound_copy_reads_what_is_at_an_address_now(either):
    size = 8 << 20  # from here on an allocation is a buffer of the driver's
    dest = hcq.zeros(size, hcq.dtypes.uint8, "VULKAN")
    options = hcq.BufferOptions(nolru=True)
    queue, addresses = None, []
    for value in range(1, 5):
        source = hcq.Buffer("VULKAN", size, hcq.dtypes.uint8, options=options).allocate()
        source.copyin(np.full(size, value, "u1"))
        addresses.append(source._buf.va_addr)
        if queue is None:
            queue = either.hw_copy_queue_t().copy(dest._buf.va_addr, addresses[0], size).bind(either)
        queue.update_copy(0, None, addresses[-1]).submit(either)
        either.synchronize()
        assert (dest.numpy() == value).all()
        source.deallocate()


def test_a_failed_submit_loses_the_device_with_vulkans_answer_as_the_cause(fresh):
    program, out = fresh.program(NAME, scale.source("spirv")), hcq.zeros(64, hcq.f32, "VULKAN")
    program(out, out, vals=(1.0, 0), global_size=(64, 1, 1), wait=True)
    fresh.native.fail_next(-4)
    program(out, out, vals=(1.0, 0), global_size=(64, 1, 1))
    with pytest.raises(DeviceLost, match="VK_ERROR_DEVICE_LOST"):
        fresh.synchronize()
    with pytest.raises(DeviceLost, match="VK_ERROR_DEVICE_LOST"):
        program(out, out, vals=(1.0, 0), global_size=(64, 1, 1))
    hcq.Device.close("VULKAN")
    assert (hcq.zeros(64, hcq.f32, "VULKAN").numpy() == 0).all()


def test_a_command_that_fails_behind_a_wait_is_named_to_all_who_wait(fresh):
    program, out = fresh.program(NAME, scale.source("spirv")), hcq.zeros(64, hcq.f32, "VULKAN")
    gate, done = fresh.signal_t(), fresh.signal_t()
    args = program.fill_kernargs((out._buf, out._buf), (1.0, 0))
    fresh.hw_compute_queue_t().wait(gate, 1).exec(program, args, (64, 1, 1)).signal(done, 1).submit(fresh)
    fresh.native.fail_next(-4)
    gate.value = 1
    with pytest.raises(DeviceLost, match=NAME):
        done.wait(1)
    with pytest.raises(DeviceLost):
        fresh.synchronize()


def test_launches_in_a_row_are_vulkans_before_they_are_over(either):
    program, out = either.program(NAME, scale.source("spirv")), hcq.array(np.ones(64, "f4"), "VULKAN")
    for _ in range(3000):
        program(out, out, vals=(1.0, 1), global_size=(1, 1, 1))
    either.synchronize()
    assert out.numpy()[0] == 3001


def test_what_is_given_in_one_go_goes_to_vulkan_in_one_call(fresh):
    program, out = fresh.program(NAME, scale.source("spirv")), hcq.array(np.ones(1, "f4"), "VULKAN")
    program(out, out, vals=(1.0, 0), wait=True)
    at, gate = program.fill_kernargs((out._buf, out._buf), (1.0, 1)), fresh.signal_t()
    queue, done = fresh.hw_compute_queue_t().wait(gate, 1), fresh.signal_t()
    for _ in range(20):
        queue.exec(program, at)
    pieces, calls = fresh.native.given
    queue.signal(done, 1).submit(fresh)
    gate.value = 1
    assert eventually(lambda: done.value == 1)  # nobody who waits gives some of them
    assert out.numpy()[0] == 21
    assert fresh.native.given[0] == pieces + 20 and fresh.native.given[1] <= calls + 2


def test_launches_behind_many_go_to_vulkan_several_at_a_time_and_start_though_nobody_waits(fresh):
    program, out = fresh.program(NAME, scale.source("spirv")), hcq.array(np.ones(1, "f4"), "VULKAN")
    slow, spun = (
        fresh.program(lower.entry_name("spin"), spin.source("spirv", cost=23_000)),
        hcq.zeros(1, hcq.i32, "VULKAN"),
    )
    program(out, out, vals=(1.0, 0), wait=True)
    slow(spun, vals=(1,), wait=True)
    pieces, calls = fresh.native.given
    for _ in range(4):
        slow(spun, vals=(50_000_000,))
        for _ in range(50):
            program(out, out, vals=(1.0, 1))
    wanted = fresh.timeline_value - 1
    assert eventually(lambda: fresh.timeline_signal.value >= wanted)
    assert out.numpy()[0] == 201
    assert fresh.native.given[0] == pieces + 204 and fresh.native.given[1] < calls + 204


def test_work_that_nobody_waits_for_is_seen_to_be_over_after_work_that_was_waited_for(vulkan):
    """The thread that waits sees to what it waits for, and the device's own thread leaves that to it for a while."""
    program, out = vulkan.program(NAME, scale.source("spirv")), hcq.array(np.ones(64, "f4"), "VULKAN")
    for turn in range(1, 4):
        for _ in range(20):
            program(out, out, vals=(1.0, 1), global_size=(1, 1, 1))
            vulkan.synchronize()
        if turn == 2:
            time.sleep(0.05)  # that thread sleeps for good by now
        program(out, out, vals=(1.0, 1), global_size=(1, 1, 1))
        wanted = vulkan.timeline_value - 1
        assert eventually(lambda wanted=wanted: vulkan.timeline_signal.value >= wanted)
        assert out.numpy()[0] == 21 * turn + 1


def seconds_of_settling():
    """CPU time of the threads that see to it what is over on VULKAN devices."""
    ticks = 0
    for task in Path("/proc/self/task").iterdir():
        name, _, rest = (task / "stat").read_text().rpartition(")")
        if "(hcq vulkan" in name:
            fields = rest.split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def test_nothing_spins_beside_who_waits_for_a_long_launch(vulkan):
    """It did, with the lock that who waits needs afterwards, for as long as it takes to count to 2^31."""
    out = hcq.zeros(1, hcq.i32, vulkan.dname)
    for _ in range(4):  # short ones: they are left to who waits
        spin[1, 1](out, 1, 23_000)
        vulkan.synchronize()
    before = seconds_of_settling()
    for _ in range(4):
        spin[1, 1](out, 20_000_000, 23_000)
        vulkan.synchronize()
    assert seconds_of_settling() - before < 0.5


def test_threads_share_a_device(vulkan):
    program = vulkan.program(NAME, scale.source("spirv"))
    outs = [hcq.array(np.ones(1, "f4"), "VULKAN") for _ in range(4)]

    def launch(out):
        for _ in range(100):
            program(out, out, vals=(1.0, 1))

    threads = [threading.Thread(target=launch, args=(out,)) for out in outs]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [float(out.numpy()[0]) for out in outs] == [101.0] * 4


def test_signals_in_the_midst_of_a_submit_are_set_when_they_are_due(vulkan):
    """Nobody waits for them, and what comes behind them runs for long."""
    slow = vulkan.program(lower.entry_name("spin"), spin.source("spirv", cost=23_000))
    out, done = hcq.zeros(1, hcq.i32, "VULKAN"), vulkan.signal_t()
    slow(out, vals=(1,), wait=True)
    seen = []
    for turn in range(1, 6):  # longer each time, for a machine that is slow to look
        short, long = (slow.fill_kernargs((out._buf,), (n,)) for n in (1, 20_000_000 * 4**turn))
        queue = vulkan.hw_compute_queue_t().exec(slow, short).signal(done, 2 * turn)
        queue.exec(slow, long).signal(done, 2 * turn + 1).submit(vulkan)
        assert eventually(lambda turn=turn: done.value >= 2 * turn)
        seen.append(done.value == 2 * turn)
        vulkan.synchronize()
        assert done.value == 2 * turn + 1
        if seen[-1]:
            break
    assert seen[-1]


def test_a_process_ends_its_queued_work(vulkan):
    code = """
    import atexit
    import numpy as np
    import hcq
    out = []
    atexit.register(lambda: print(out[0].numpy()))  # runs last
    out.append(hcq.zeros(4, hcq.i32, "VULKAN"))
    for _ in range(50):
        hcq.ops.add(out[0], 1, out=out[0])
    """
    assert in_process(code) == "[50 50 50 50]"


def test_a_view_of_the_memory_outlives_the_device(fresh):
    if not fresh.is_mapped:
        pytest.skip("the host does not work in place here")
    others = _native.vulkan_alive()["device"] - 1
    buf = hcq.array(np.arange(100, dtype="i4"), "VULKAN")
    seen = np.asarray(buf)
    fresh.close()
    assert (seen == np.arange(100)).all() and _native.vulkan_alive()["device"] == others + 1
    del seen, buf
    gc.collect()
    assert _native.vulkan_alive()["device"] == others


def test_a_device_may_be_closed_while_others_submit(vulkan):
    hcq.Device.close("VULKAN")
    others = _native.vulkan_alive()["device"]  # such as one that was lost while a command ran
    errors = []

    def work(device, queue):
        try:
            while True:
                queue.submit(device)
                device.synchronize()
        except (RuntimeError, DeviceLost) as error:
            errors.append(str(error))

    for _ in range(5):
        device = hcq.Device["VULKAN"]
        signals = [device.signal_t() for _ in range(3)]
        queues = [device.hw_compute_queue_t().timestamp(each) for each in signals]
        threads = [threading.Thread(target=work, args=(device, queue)) for queue in queues]
        for each in threads:
            each.start()
        time.sleep(0.005)
        device.close()
        for each in threads:
            each.join(60)
            assert not each.is_alive()
    assert len(errors) == 15 and all("closed" in error for error in errors)
    assert _native.vulkan_alive()["device"] == others


def test_a_forked_child_ends_in_silence(vulkan):
    code = """
    import os, sys
    import hcq
    out = hcq.zeros(4, hcq.i32, "VULKAN")
    hcq.ops.add(out, 1, out=out)
    child = os.fork()
    if child == 0:
        sys.exit(3)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), out.numpy())
    """
    done = run(code)
    assert (done.stdout.strip(), done.stderr) == ("3 [1 1 1 1]", "")


def test_nothing_is_left_of_closed_devices(vulkan):
    hcq.Device.close("VULKAN")
    source = scale.source("spirv")
    gc.collect()
    others = _native.vulkan_alive()  # what a device that was lost in another test keeps

    def living():
        gc.collect()
        names = ("VulkanDevice", "VulkanProgram", "VulkanKernel", "VulkanModule", "VulkanHold")
        return (
            _native.vulkan_alive(),
            sum(type(each).__name__ in names for each in gc.get_objects()),
            len(os.listdir("/proc/self/task")),
            len(os.listdir("/proc/self/fd")),
        )

    def round_trip():
        device = hcq.Device["VULKAN"]
        out = hcq.array(np.ones(64, "f4"), "VULKAN")
        device.program(NAME, source)(out, out, vals=(2.0, 0), global_size=(64, 1, 1), wait=True)
        assert out.numpy()[0] == 2
        del out
        device.close()

    round_trip()
    before = living()
    for _ in range(20):
        round_trip()
    assert all(now <= then for now, then in zip(living()[1:], before[1:], strict=True))
    assert living()[0] == before[0] == others
