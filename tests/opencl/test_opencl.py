"""GPU: choosing among OpenCL's devices, libraries, limits, and what can go wrong; the suite's promises run besides."""

import gc
import glob
import os
import pickle
import shutil

import numpy as np
import pytest
from fresh_process import default_of_a_process_that_names_no_device, in_process, refusal, refusal_in_a_forked_child

import hcq
from hcq import _native
from hcq.drivers.opencl import platforms
from hcq.errors import CompileError, DeviceLost, DeviceUnavailable, InvalidProgram, LaunchError, OutOfMemory
from hcq.testing.suite.tools import eventually

cl = pytest.importorskip("pyopencl", reason="GPU: pyopencl is not installed")

SCALE = """
__kernel void scale(const float factor, __global float *out, const ushort extra, __global const float *in) {
  size_t i = get_global_id(0);
  out[i] = factor * in[i] + extra;
}
"""


def test_without_an_implementation_the_reason_and_a_hint_are_told(tmp_path):
    told = refusal("GPU", OCL_ICD_VENDORS=str(tmp_path), OCL_ICD_FILENAMES="")
    assert "no OpenCL" in told and "pocl" in told


def test_a_broken_implementation_is_no_implementation(tmp_path):
    (tmp_path / "broken.icd").write_text("/nonexistent/libnothing.so\n")
    told = refusal("GPU", OCL_ICD_VENDORS=str(tmp_path), OCL_ICD_FILENAMES="")
    assert "no OpenCL" in told


def beside(folder, *libraries):
    """A folder of .icd files: libraries by name, and behind them the implementations here."""
    here = os.environ.get("OCL_ICD_VENDORS", "/etc/OpenCL/vendors")
    found = sorted(glob.glob(os.path.join(here, "*.icd")))
    if not found:
        pytest.skip("no folder of .icd files says which implementations of OpenCL are here")
    for index, library in enumerate(libraries):
        (folder / f"0{index}.icd").write_text(library + "\n")
    for path in found:
        shutil.copy(path, folder / f"1{os.path.basename(path)}")
    return str(folder)


def test_a_broken_implementation_beside_a_good_one_does_no_harm(gpu, tmp_path):
    no_library = tmp_path / "text.so"
    no_library.write_text("no library")
    folder = beside(tmp_path, "/nonexistent/libnothing.so", str(no_library))
    code = "import hcq; print(hcq.Device['GPU'].info['device'], hcq.zeros(4, hcq.i32, 'GPU').numpy().sum())"
    assert in_process(code, OCL_ICD_VENDORS=folder) == f"{gpu.info['device']} 0"


def test_a_device_without_shared_memory_comes_behind_those_that_have_it(gpu, monkeypatch):
    sharing = platforms.sharing
    first = platforms.devices()[0]
    if len(platforms.devices()) == 1:
        pytest.skip("one OpenCL device is here")
    monkeypatch.setattr(platforms, "sharing", lambda device: 0 if device == first else sharing(device))
    last = platforms.devices().index(first)
    assert not any(map(platforms.sharing, platforms.devices()[last:]))
    with pytest.raises(DeviceUnavailable, match=r"has no shared virtual memory \(memory is used by address") as caught:
        hcq.Device[f"GPU:{last}"]
    assert first.name.strip() in caught.value.reason and first.version.strip() in caught.value.reason


def test_platforms_side_by_side_are_told_apart():
    """By number, by name, and by HCQ_OPENCL_PLATFORM; and they run side by side in one process."""
    names = [platform.name.strip() for platform in cl.get_platforms()]
    if len(names) == 1:
        pytest.skip("one OpenCL platform is here")
    tell = "import hcq\nfor name in {names!r}:\n    try:\n        print(hcq.Device[name].info['platform'])\n"
    tell += "    except hcq.errors.DeviceUnavailable as why:\n        print('no:', why.reason)\n"
    of_all = [f"GPU:{index}" for index in range(len(platforms.devices()))]
    told = in_process(tell.format(names=of_all)).splitlines()
    owners = [device.platform.name.strip() for device in platforms.devices()]
    assert all(line == owner or "no shared virtual memory" in line for line, owner in zip(told, owners, strict=True)), (
        told
    )
    usable = dict.fromkeys(line for line in told if not line.startswith("no:"))
    for name in usable:
        index = names.index(name)
        for wanted in (str(index), name[:6].upper()):
            assert in_process(tell.format(names=["GPU"]), HCQ_OPENCL_PLATFORM=wanted) == name
        assert in_process(tell.format(names=[f"GPU:{name.lower()}"])) == name
    assert told[0] in usable  # what can't be opened is behind the others


def test_without_pyopencl_the_extra_is_named():
    assert "pip install 'hcq[opencl]'" in refusal("GPU", "import sys; sys.modules['pyopencl'] = None")


def test_devices_are_chosen_by_number_and_by_name(gpu):
    word = gpu.cl_device.platform.name.split()[0].lower()
    named = hcq.Device[f"GPU:{word}"]
    assert named.cl_device == gpu.cl_device and named is not gpu
    named.close()
    with pytest.raises(DeviceUnavailable, match=r"there is no GPU:99: GPU:0 is "):
        hcq.Device["GPU:99"]
    with pytest.raises(DeviceUnavailable, match="'xyzzy' in its name"):
        hcq.Device["GPU:xyzzy"]


def test_what_the_device_is_can_be_asked(gpu):
    info = gpu.info
    assert info["device"] == gpu.cl_device.name.strip() and info["memory"] == gpu.cl_device.global_mem_size
    assert info["cores"] > 0 and info["limits"]["max_buffer_bytes"] == gpu.cl_device.max_mem_alloc_size


def test_the_platform_can_be_named(gpu, monkeypatch):
    monkeypatch.setenv("HCQ_OPENCL_PLATFORM", "xyzzy")
    with pytest.raises(DeviceUnavailable, match="HCQ_OPENCL_PLATFORM=xyzzy is none of the platforms here: 0 "):
        hcq.Device["GPU:7"]  # which nothing has opened
    monkeypatch.setenv("HCQ_OPENCL_PLATFORM", gpu.cl_device.platform.name[:5].upper())
    hcq.Device["GPU:0"].synchronize()


def test_a_device_on_the_cpu_is_only_used_when_named(gpu):
    if not gpu.is_cpu_implementation:
        pytest.skip("the first OpenCL device is no CPU")
    assert default_of_a_process_that_names_no_device(hcq.Device._devices) in ("CLANG", "LLVM")


def test_a_forked_child_is_told_that_opencl_can_not_be_opened_there(gpu):
    assert "before this process was forked" in refusal_in_a_forked_child("GPU")


def test_arguments_may_stand_in_any_order(gpu):
    program = gpu.program("scale", SCALE)
    assert program.buffer_count == 2 and list(program.value_types) == ["f32", "u16"]
    assert program.accesses == (None, "r")  # what the source's const says
    src, out = hcq.array(np.arange(64, dtype="f4"), "GPU"), hcq.empty(64, hcq.f32, "GPU")
    program(out, src, global_size=(4, 1, 1), local_size=(16, 1, 1), vals=(1.5, 7))
    assert (out.numpy() == 1.5 * np.arange(64, dtype="f4") + 7).all()
    with pytest.raises(LaunchError):
        program(out, src, vals=(1.5, -1))


def test_the_build_log_has_the_line(gpu):
    with pytest.raises(CompileError) as caught:
        gpu.program("broken", "__kernel void broken(__global int *out) {\n  out[0] = undeclared;\n}\n")
    assert "undeclared" in caught.value.log and ":2:" in caught.value.log


def test_arguments_that_launches_can_not_pass_are_refused(gpu):
    library = gpu.compiler.compile("__kernel void f(__local int *x) {}\n__kernel void g(float4 x) {}\n")
    for name, kind in ("f", "int\\*"), ("g", "float4"):
        with pytest.raises(InvalidProgram, match=f"argument 0 is a {kind}"):
            gpu.runtime(name, library)


def test_libraries_of_others_and_damaged_ones_are_refused(gpu):
    library = gpu.compiler.compile(SCALE)
    with pytest.raises(InvalidProgram, match="it has scale"):
        gpu.runtime("scales", library)
    for bad in (b"", b"no library", library[:-1], library[:200] + b"\0" + library[201:]):
        with pytest.raises(InvalidProgram):
            gpu.runtime("scale", bad)


def test_a_compiler_pickles_and_its_binaries_are_told_apart_by_driver(gpu):
    other = pickle.loads(pickle.dumps(gpu.compiler))
    assert other.identity() == gpu.compiler.identity() and gpu.cl_device.driver_version in other.identity()
    assert gpu.runtime("scale", other.compile(SCALE)).name == "scale"


def test_a_group_larger_than_the_kernel_takes_is_refused(gpu):
    source = "__kernel __attribute__((reqd_work_group_size(8, 1, 1))) void f(__global int *x) { x[0] = 1; }"
    program, out = gpu.program("f", source), hcq.zeros(1, hcq.i32, "GPU")
    with pytest.raises(LaunchError, match="compiled for groups of"):
        program(out, local_size=(4, 1, 1))
    program(out, local_size=(8, 1, 1))
    assert out.numpy()[0] == 1
    with pytest.raises(LaunchError):
        program(out, local_size=(gpu.limits.max_group_items + 1, 1, 1))


def test_more_local_memory_than_a_group_has_is_refused(gpu):
    """PoCL takes it, and ends the process at the launch."""
    most = gpu.limits.local_memory_bytes
    source = "__kernel void f(__global int *out) {{ __local int x[{}]; x[get_local_id(0)] = 1; out[0] = x[0]; }}"
    gpu.program("f", source.format(most // 4 - 64))
    with pytest.raises(InvalidProgram, match=f"{most + 4} bytes of local memory: GPU gives a group {most}"):
        gpu.program("f", source.format(most // 4 + 1))


def test_kernels_of_samplers_and_of_other_images_are_refused_by_name(gpu):
    for kind, wanted in ("sampler_t", "sampler_t"), ("read_only image2d_array_t", "image2d_array_t"):
        source = f"__kernel void f({kind} x, __global int *out) {{ out[0] = 1; }}"
        with pytest.raises((CompileError, InvalidProgram), match=wanted):
            gpu.program("f", source)


def test_a_graph_takes_values_by_the_names_that_the_source_gives_them(gpu):
    program, out = gpu.program("scale", SCALE), hcq.array(np.ones(64, "f4"), "GPU")
    with hcq.capture() as graph:
        program(out, out, global_size=(64, 1, 1), vals=(2.0, 1))
    graph.replay(vals={"scale.factor": 3.0}).wait()
    assert (out.numpy() == 4).all()
    graph.replay(vals={"scale.extra": 5}).wait()
    assert (out.numpy() == 17).all()
    with pytest.raises(LaunchError, match="extra"):
        program(out, out, vals=(2.0, -1))


def test_memory_beyond_the_largest_buffer_is_out_of_memory(gpu):
    with pytest.raises(OutOfMemory):
        hcq.empty(gpu.limits.max_buffer_bytes + 1, hcq.dtypes.uint8, "GPU")


@pytest.mark.parametrize("image", [None, "(hcq.f32, (8192, 8192, 4))"])
def test_memory_that_the_system_does_not_give_is_out_of_memory(gpu, request, image):
    """A real refusal: the process may have no more address space. The device goes on."""
    if image:
        request.getfixturevalue("images")
    size = 8192 * 8192 * 4
    if size * 4 > gpu.limits.max_buffer_bytes:
        pytest.skip(f"GPU: this OpenCL device gives {gpu.limits.max_buffer_bytes} bytes at once")
    code = f"""
    import resource
    import hcq
    x = hcq.zeros(64, hcq.f32, "GPU")
    program = hcq.Device["GPU"].program("scale", {SCALE!r})
    program(x, x, vals=(2.0, 1), global_size=(64, 1, 1), wait=True)
    with open("/proc/self/statm") as told:
        used = int(told.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20),) * 2)
    try:
        hcq.Buffer("GPU", {size}, hcq.f32, options=hcq.BufferOptions(image={image})).allocate()
    except hcq.errors.OutOfMemory as error:
        print(error.asked, "OpenCL gives no" in str(error))
    program(x, x, vals=(2.0, 1), global_size=(64, 1, 1))
    print(x.numpy()[0])
    """
    assert in_process(code).split() == [str(4 * size), "True", "3.0"]


def test_the_memory_limit_is_kept(gpu, monkeypatch):
    hcq.Device.close("GPU")
    monkeypatch.setenv("HCQ_MEMORY_LIMIT", "1M")
    with pytest.raises(OutOfMemory):
        hcq.empty(2 << 20, hcq.dtypes.uint8, "GPU")
    hcq.Device.close("GPU")


def test_copies_work_where_the_host_does_not_reach_the_memory(gpu, monkeypatch):
    hcq.Device.close("GPU")
    monkeypatch.setenv("HCQ_FORCE_STAGING", "1")
    given = np.random.default_rng(1).integers(0, 255, 5_000_001, dtype="u1")
    a, b = hcq.array(given, "GPU"), hcq.empty(given.size, hcq.dtypes.uint8, "GPU")
    assert not hasattr(a.allocator, "as_buffer")
    hcq.copy(b, a)
    assert (b.numpy() == given).all()
    with hcq.capture() as graph:
        hcq.copy(b, a)
    b.fill(0)
    graph.replay().wait()
    assert (b.numpy() == given).all()
    for other in ("GPU:1", "LLVM"):  # by way of the host
        try:
            c = hcq.zeros(given.size, hcq.dtypes.uint8, other)
        except DeviceUnavailable:
            continue
        hcq.copy(c, a)
        assert (c.numpy() == given).all()
        del c
    part = b.view(1000, hcq.dtypes.uint8, 333).ensure_allocated()
    assert (part.numpy() == given[333:1333]).all()
    del a, b, part, graph
    hcq.Device.close("GPU")
    if "GPU:1" in hcq.Device._opened:
        hcq.Device.close("GPU:1")


def test_seconds_are_those_of_the_kernel(gpu):
    loop = "__kernel void f(__global int *x, int n) { for (volatile int i = 0; i < n; i++) {} x[0] = n; }"
    program, out = gpu.program("f", loop), hcq.zeros(1, hcq.i32, "GPU")
    short, long = (min(program(out, vals=(n,), wait=True) for _ in range(3)) for n in (1, 10_000_000))
    assert 0 < short < long


@pytest.fixture
def careless(gpu, monkeypatch):
    """GPU with limits that are not OpenCL's, so that OpenCL is asked what it must refuse."""
    hcq.Device.close("GPU")
    limits = gpu.limits._replace(max_group_size=(1 << 20,) * 3, max_group_items=1 << 20)
    monkeypatch.setattr("hcq.drivers.opencl.device._limits", lambda device: limits)
    monkeypatch.setattr("hcq.drivers.opencl.program._largest", lambda kernel, device: 1 << 20)
    yield hcq.Device["GPU"]
    hcq.Device.close("GPU")


def test_an_error_of_opencl_loses_the_device_with_it_as_the_cause(careless):
    program, out = careless.program("scale", SCALE), hcq.zeros(64, hcq.f32, "GPU")
    program(out, out, vals=(1.0, 0), global_size=(64, 1, 1))
    program(out, out, vals=(1.0, 0), local_size=(1 << 20, 1, 1))
    with pytest.raises(DeviceLost, match=r"scale(?s:.)*CL_INVALID_WORK_GROUP_SIZE \(-54\)"):
        careless.synchronize()
    with pytest.raises(DeviceLost):
        program(out, out, vals=(1.0, 0))
    hcq.Device.close("GPU")
    assert (hcq.zeros(64, hcq.f32, "GPU").numpy() == 0).all()


def test_who_waits_for_what_a_lost_device_was_to_signal_is_told(careless):
    program, out = careless.program("scale", SCALE), hcq.zeros(64, hcq.f32, "GPU")
    signal, kernargs = hcq.HCQSignal(), program.fill_kernargs((out, out), (1.0, 0))
    queue = careless.hw_compute_queue_t().exec(program, kernargs, (1, 1, 1), (1 << 20, 1, 1)).signal(signal, 1)
    queue.submit(careless)
    other = hcq.HCQSignal()
    cpu = hcq.Device["LLVM"]
    cpu.hw_compute_queue_t().wait(signal, 1).signal(other, 1).submit(cpu)
    for each in (signal, other):
        with pytest.raises(DeviceLost, match="CL_INVALID_WORK_GROUP_SIZE"):
            each.wait(1)
    with pytest.raises(DeviceLost):
        cpu.synchronize()
    cpu.synchronize()  # told once: that device is well


@pytest.fixture
def failing(gpu):
    """GPU anew, and what makes OpenCL's next call of a function fail, all calls without a name."""
    hcq.Device.close("GPU")
    yield hcq.Device["GPU"], _native.opencl_fail
    _native.opencl_fail("", 0)
    hcq.Device.close("GPU")


def works_again():
    _native.opencl_fail("", 0)
    hcq.Device.close("GPU")
    out = hcq.array(np.ones(64, "f4"), "GPU")
    hcq.Device["GPU"].program("scale", SCALE)(out, out, vals=(2.0, 0), global_size=(64, 1, 1))
    return (out.numpy() == 2).all()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("clSetKernelArg", r"scale(?s:.)*argument 0: CL_OUT_OF_RESOURCES \(-5\)"),
        ("clSetKernelArgSVMPointer", r"scale(?s:.)*argument 1: CL_OUT_OF_RESOURCES \(-5\)"),
        ("clEnqueueNDRangeKernel", r"scale(?s:.)*clEnqueueNDRangeKernel gave CL_OUT_OF_RESOURCES \(-5\)"),
        ("clGetEventInfo", r"scale(?s:.)*OpenCL says CL_OUT_OF_RESOURCES \(-5\)"),
        ("clEnqueueSVMMemcpy", r"copy(?s:.)*clEnqueueSVMMemcpy gave CL_OUT_OF_RESOURCES \(-5\)"),
    ],
)
def test_whatever_call_fails_is_the_cause_and_the_device_opens_anew(failing, function, said):
    gpu, fail = failing
    program, out, first = gpu.program("scale", SCALE), *(hcq.zeros(64, hcq.f32, "GPU") for _ in range(2))
    program(first, first, vals=(1.0, 0), wait=True)  # arguments that stay the same are not set again
    fail(function, -5)
    if function == "clEnqueueSVMMemcpy":
        gpu.hw_copy_queue_t().copy(out._buf.va_addr, out._buf.va_addr + 128, 64).submit(gpu)
    else:
        program(out, out, vals=(2.0, 1))
    with pytest.raises(DeviceLost, match=said):
        gpu.synchronize()
    with pytest.raises(DeviceLost, match=said):
        program(out, out, vals=(1.0, 0))
    assert works_again()


def test_who_waits_for_a_device_whose_context_is_lost_is_told_and_it_opens_anew(failing):
    gpu, fail = failing
    program, out = gpu.program("scale", SCALE), hcq.zeros(64, hcq.f32, "GPU")
    program(out, out, vals=(1.0, 0), wait=True)
    gate, done, other = hcq.HCQSignal(), hcq.HCQSignal(), hcq.HCQSignal()
    kernargs = program.fill_kernargs((out, out), (2.0, 0))
    gpu.hw_compute_queue_t().wait(gate, 1).exec(program, kernargs, (1, 1, 1), (1, 1, 1)).signal(done, 1).submit(gpu)
    cpu = hcq.Device["LLVM"]
    cpu.hw_compute_queue_t().wait(done, 1).signal(other, 1).submit(cpu)
    fail("", -34)
    gate.value = 1
    for each in (done, other):
        with pytest.raises(DeviceLost, match=r"CL_INVALID_CONTEXT \(-34\)"):
            each.wait(1)
    with pytest.raises(DeviceLost):
        cpu.synchronize()
    with pytest.raises(DeviceLost, match="CL_INVALID_CONTEXT"):
        out.numpy()
    with pytest.raises(DeviceLost, match="CL_INVALID_CONTEXT"):
        hcq.copy(hcq.zeros(64, hcq.f32, "LLVM"), out)
    cpu.synchronize()
    del out
    assert works_again()


LOOP = "__kernel void f(__global int *x, int n) { for (volatile int i = 0; i < n; i++) {} x[0] += 1; }"


def test_launches_that_follow_one_another_are_given_to_opencl_before_they_are_over(gpu):
    program, out, end = gpu.program("f", LOOP), hcq.zeros(1, hcq.i32, "GPU"), hcq.HCQSignal()
    program(out, vals=(1,), wait=True)
    kernargs = program.fill_kernargs((out,), (1,))
    queue = gpu.hw_compute_queue_t()
    for _ in range(200):  # more than OpenCL is given at once
        queue.exec(program, kernargs, (1, 1, 1), (1, 1, 1))
    queue.timestamp(end)
    launches = 1
    for loops in (20_000_000, 200_000_000, 1_000_000_000):  # until what is submitted finds the device at work
        program(out, vals=(loops,))
        program(out, vals=(1,))
        launches += 2
        if gpu.busy():
            break
        gpu.synchronize()
    else:
        raise AssertionError("a launch of a second was over before anything followed it")
    queue.submit(gpu)
    gpu.synchronize()
    assert out.numpy()[0] == launches + 200 and end.timestamp > 0


def test_a_launch_that_nobody_waits_for_sets_its_signals(gpu):
    program, out, told = gpu.program("f", LOOP), hcq.zeros(1, hcq.i32, "GPU"), hcq.HCQSignal()
    cpu = hcq.Device["LLVM"]
    program(out, vals=(1_000_000,))
    signal, value = gpu.timeline_signal, gpu.timeline_value - 1
    cpu.hw_compute_queue_t().wait(signal, value).signal(told, 1).submit(cpu)
    told.wait(1)
    assert signal.value >= value


def test_time_stamps_around_a_command_are_those_of_the_command(gpu):
    program, out = gpu.program("f", LOOP), hcq.zeros(1, hcq.i32, "GPU")
    took = min(program(out, vals=(2_000_000,), wait=True) for _ in range(3))
    kernargs = program.fill_kernargs((out,), (2_000_000,))
    marks = [hcq.HCQSignal() for _ in range(3)]
    queue = gpu.hw_compute_queue_t().timestamp(marks[0]).exec(program, kernargs, (1, 1, 1), (1, 1, 1))
    queue.timestamp(marks[1]).exec(program, kernargs, (1, 1, 1), (1, 1, 1)).timestamp(marks[2]).submit(gpu)
    gpu.synchronize()
    times = [float(mark.timestamp) / 1e6 for mark in marks]
    assert times[0] < times[1] < times[2] and min(times[1] - times[0], times[2] - times[1]) > took / 3


def test_a_graph_runs_on_opencl_with_other_inputs_and_values(gpu):
    program = gpu.program("scale", SCALE)
    a, b = (hcq.array(np.full(64, n, "f4"), "GPU") for n in (1, 2))
    out = hcq.zeros(64, hcq.f32, "GPU")
    with hcq.capture(inputs={"x": a}) as graph:
        program(out, a, global_size=(64, 1, 1), vals=(3.0, 1))
        program(out, out, global_size=(64, 1, 1), vals=(2.0, 0))
    graph.replay().wait()
    assert (out.numpy() == 8).all()
    graph.replay(x=b).wait()
    assert (out.numpy() == 14).all()


def test_streams_are_queues_of_their_own(gpu):
    program, gate = gpu.program("scale", SCALE), hcq.HCQSignal()
    a, b = hcq.array(np.ones(64, "f4"), "GPU"), hcq.array(np.ones(64, "f4"), "GPU")
    one, two = gpu.stream(), gpu.stream()
    one.wait((gate, 1))
    try:
        program(a, a, global_size=(64, 1, 1), vals=(2.0, 0), stream=one)
        program(b, b, global_size=(64, 1, 1), vals=(3.0, 0), stream=two)
        two.synchronize()
        assert one.position[0].value < one.position[1]
    finally:
        gate.value = 1
    gpu.synchronize()
    assert (a.numpy() == 2).all() and (b.numpy() == 3).all()


def test_buffers_of_other_devices_are_refused(gpu):
    program, out, here = gpu.program("scale", SCALE), hcq.zeros(64, hcq.f32, "GPU"), hcq.zeros(64, hcq.f32, "LLVM")
    with pytest.raises(LaunchError, match="buffer 1 is on 'LLVM', which this device can't reach"):
        program(out, here, vals=(1.0, 0))
    with pytest.raises(LaunchError, match="expected a Buffer"):
        program(out, memoryview(b"abcd"), vals=(1.0, 0))
    with pytest.raises(LaunchError, match="can't be prepared"):
        program.prepare(out, np.zeros(64, "f4"), vals=(1.0, 0))


def test_a_process_ends_its_queued_work_and_its_threads(gpu):
    code = """
    import threading
    import atexit
    import hcq
    atexit.register(lambda: print([t.name for t in threading.enumerate() if t.name.startswith("GPU")]))  # runs last
    dev = hcq.Device["GPU"]
    loop = "__kernel void f(__global int *x, int n) { for (volatile int i = 0; i < n; i++) {} x[0] += 1; }"
    dev.program("f", loop)(hcq.zeros(1, hcq.i32, "GPU"), vals=(100_000_000,))
    """
    assert in_process(code) == "[]"


def test_nothing_is_left_of_closed_devices(gpu):
    hcq.Device.close("GPU")

    def living():
        gc.collect()
        names = ("Context", "CommandQueue", "Kernel", "_Program", "SVMAllocation", "OpenCLProgram", "OpenCLDevice")
        _native.run_retired()
        held = sum(type(each).__name__ in names for each in gc.get_objects())
        return held, len(os.listdir("/proc/self/fd")), *_native.opencl_held()

    def round_trip():
        device = hcq.Device["GPU"]
        out = hcq.array(np.ones(64, "f4"), "GPU")
        device.program("scale", SCALE)(out, out, vals=(2.0, 0), global_size=(64, 1, 1), wait=True)
        assert out.numpy()[0] == 2
        del out
        device.close()

    round_trip()
    before = living()
    for _ in range(200):
        round_trip()
    assert eventually(lambda: living() == before), (living(), before)


@pytest.mark.parametrize("options", [{"host": True}, {"cpu_access": True}])
def test_host_memory_is_an_argument_where_the_sharing_is_fine_grained(gpu, in_place, options):
    buf = hcq.Buffer("GPU", 64, hcq.f32, options=hcq.BufferOptions(**options)).allocate()
    buf.copyin(np.arange(64, dtype="f4"))
    gpu.program("scale", SCALE)(buf, buf, global_size=(64, 1, 1), vals=(2.0, 0))
    assert (buf.numpy() == 2 * np.arange(64)).all()


def test_a_kernel_that_runs_for_too_long_loses_the_device_and_keeps_its_memory(gpu, monkeypatch):
    hcq.Device.close("GPU")
    device = hcq.Device["GPU"]
    program, out = device.program("f", LOOP), hcq.zeros(1, hcq.i32, "GPU")
    program(out, vals=(1,), wait=True)
    monkeypatch.setenv("HCQ_KERNEL_TIMEOUT_MS", "100")
    program(out, vals=(1_000_000_000,))  # about a second
    with pytest.raises(DeviceLost, match=r"f(?s:.)*ran longer than HCQ_KERNEL_TIMEOUT_MS"):
        device.synchronize()
    monkeypatch.delenv("HCQ_KERNEL_TIMEOUT_MS")
    hcq.Device.close("GPU")
    assert (hcq.zeros(64, hcq.f32, "GPU").numpy() == 0).all()  # opened anew while it runs
    assert eventually(lambda: not _native.opencl_held()[3])  # what other tests queue is not to come behind it
