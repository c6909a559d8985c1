"""GPU: choosing among OpenCL's devices, libraries, limits, and what can go wrong; the suite's promises run besides."""

import gc
import os
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest

os.environ.setdefault("POCL_DEVICES", "pthread pthread")

import hcq
from hcq import ops
from hcq.errors import CompileError, DeviceLost, DeviceUnavailable, InvalidProgram, LaunchError, OutOfMemory

cl = pytest.importorskip("pyopencl", reason="GPU: pyopencl is not installed")

SCALE = """
__kernel void scale(const float factor, __global float *out, const ushort extra, __global const float *in) {
  size_t i = get_global_id(0);
  out[i] = factor * in[i] + extra;
}
"""


def in_process(code, **env):
    """Runs code in a fresh interpreter; what it prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path))), **env}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


REASON = """
import hcq
try:
    hcq.Device[{name!r}]
except hcq.errors.DeviceUnavailable as why:
    print(why.reason, "|", why.hint)
"""


@pytest.fixture
def gpu():
    try:
        return hcq.Device["GPU"]
    except DeviceUnavailable as why:
        pytest.skip(f"GPU: {why}")


def test_without_an_implementation_the_reason_and_a_hint_are_told(tmp_path):
    told = in_process(REASON.format(name="GPU"), OCL_ICD_VENDORS=str(tmp_path), OCL_ICD_FILENAMES="")
    assert "no OpenCL" in told and "pocl" in told


def test_a_broken_implementation_is_no_implementation(tmp_path):
    (tmp_path / "broken.icd").write_text("/nonexistent/libnothing.so\n")
    told = in_process(REASON.format(name="GPU"), OCL_ICD_VENDORS=str(tmp_path), OCL_ICD_FILENAMES="")
    assert "no OpenCL" in told


def test_without_pyopencl_the_extra_is_named():
    code = "import sys; sys.modules['pyopencl'] = None\n" + REASON.format(name="GPU")
    assert "pip install 'hcq[opencl]'" in in_process(code)


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
    clean = dict.fromkeys((*hcq.Device._devices, "CPU", "HCQ_DEVICE"), "")
    assert in_process("import hcq; print(hcq.Device.DEFAULT)", **clean) in ("CLANG", "LLVM")


def test_a_forked_child_is_told_that_opencl_can_not_be_opened_there(gpu):
    code = "import os\nimport hcq\nhcq.Device['GPU']\nif os.fork() == 0:\n"
    code += textwrap.indent(REASON.format(name="GPU").replace("import hcq", ""), "    ")
    code += "    import sys; sys.stdout.flush(); os._exit(0)\nos.wait()"
    assert "before this process was forked" in in_process(code)


def test_arguments_may_stand_in_any_order(gpu):
    program = gpu.program("scale", SCALE)
    assert program.buffer_count == 2 and list(program.value_types) == ["f32", "u16"]
    src, out = hcq.array(np.arange(64, dtype="f4"), "GPU"), hcq.empty(64, hcq.f32, "GPU")
    program(out, src, global_size=(4, 1, 1), local_size=(16, 1, 1), vals=(1.5, 7))
    assert (out.numpy() == 1.5 * np.arange(64, dtype="f4") + 7).all()
    with pytest.raises(LaunchError):
        program(out, src, vals=(1.5, -1))


def test_a_view_at_any_byte_is_an_argument(gpu):
    add = gpu.program("add", "__kernel void add(__global uchar *out) { out[get_global_id(0)] += 1; }")
    whole = hcq.zeros(100, hcq.dtypes.uint8, "GPU")
    for offset in (1, 3, 65):
        add(whole.view(5, hcq.dtypes.uint8, offset).ensure_allocated(), global_size=(5, 1, 1))
    assert [int(at) for at in np.flatnonzero(whole.numpy())] == [1, 2, 3, 4, 5, 6, 7, 65, 66, 67, 68, 69]


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


def test_memory_beyond_the_largest_buffer_is_out_of_memory(gpu):
    with pytest.raises(OutOfMemory):
        hcq.empty(gpu.limits.max_buffer_bytes + 1, hcq.dtypes.uint8, "GPU")


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
    part = b.view(1000, hcq.dtypes.uint8, 333).ensure_allocated()
    assert (part.numpy() == given[333:1333]).all()
    del a, b, part
    hcq.Device.close("GPU")


@pytest.mark.parametrize("shift", [-3, 0, 1, 40])
def test_a_copy_command_may_overlap_itself(gpu, shift):
    given = np.arange(100, dtype="u1")
    buf = hcq.array(given, "GPU")
    at = buf._buf.va_addr
    gpu.hw_copy_queue_t().copy(at + 10 + shift, at + 10, 50).submit(gpu)
    gpu.synchronize()
    given[10 + shift : 60 + shift] = given[10:60].copy()
    assert (buf.numpy() == given).all()


def test_seconds_are_those_of_the_kernel(gpu):
    loop = "__kernel void f(__global int *x, int n) { for (volatile int i = 0; i < n; i++) {} x[0] = n; }"
    program, out = gpu.program("f", loop), hcq.zeros(1, hcq.i32, "GPU")
    short, long = (min(program(out, vals=(n,), wait=True) for _ in range(3)) for n in (1, 10_000_000))
    assert 0 < short < long


def test_an_error_of_opencl_loses_the_device_with_it_as_the_cause(gpu, monkeypatch):
    hcq.Device.close("GPU")
    device = hcq.Device["GPU"]
    program, out = device.program("scale", SCALE), hcq.zeros(64, hcq.f32, "GPU")
    program(out, out, vals=(1.0, 0), global_size=(64, 1, 1), wait=True)
    device.worker("COMPUTE").queue = "no queue"
    program(out, out, vals=(1.0, 0), global_size=(64, 1, 1))
    with pytest.raises(DeviceLost, match="exec scale"):
        device.synchronize()
    hcq.Device.close("GPU")
    assert (hcq.zeros(64, hcq.f32, "GPU").numpy() == 0).all()


class FailedEvent:
    """What an event of a command that failed does; PoCL itself ends the process where one is made to fail."""

    def __init__(self, event):
        self.event = event

    def wait(self):
        self.event.wait()
        raise RuntimeError("clWaitForEvents failed: EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST")


def test_a_command_that_fails_once_it_runs_is_named(gpu):
    hcq.Device.close("GPU")
    device = hcq.Device["GPU"]
    program, out = device.program("scale", SCALE), hcq.zeros(64, hcq.f32, "GPU")
    program(out, out, vals=(1.0, 0), global_size=(64, 1, 1), wait=True)
    worker = device.worker("COMPUTE")
    given = worker._given
    worker._given = lambda event: given(FailedEvent(event))
    program(out, out, vals=(1.0, 0), global_size=(64, 1, 1))
    with pytest.raises(DeviceLost, match=r"(?s)exec scale.*EXEC_STATUS_ERROR|EXEC_STATUS_ERROR.*exec scale"):
        device.synchronize()
    hcq.Device.close("GPU")


def test_launches_that_follow_one_another_are_given_to_opencl_before_they_are_over(gpu):
    loop = "__kernel void f(__global int *x, int n) { for (volatile int i = 0; i < n; i++) {} x[0] += 1; }"
    program, out = gpu.program("f", loop), hcq.zeros(1, hcq.i32, "GPU")
    program(out, vals=(200_000_000,))
    worker = gpu.worker("COMPUTE")
    for _ in range(5):
        program(out, vals=(1,))
    while not worker.todo.empty():
        pass
    assert len(worker._pending) >= 5 and gpu.position() is not None  # all are OpenCL's, and none is over
    gpu.synchronize()
    assert out.numpy()[0] == 6


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


@pytest.mark.parametrize("direction", ["to", "from"])
@pytest.mark.parametrize("other", ["LLVM", "NULL", "PYTHON"])
def test_copies_between_devices_come_after_what_is_queued(gpu, other, direction):
    names = ("GPU", other) if direction == "to" else (other, "GPU")
    src, dest = hcq.array(np.arange(10_000, dtype="i4"), names[0]), hcq.zeros(10_000, hcq.i32, names[1])
    if other != "NULL":
        hcq.ops.add(src, 1, out=src)
    hcq.copy(dest, src)
    assert (dest.numpy() == np.arange(10_000) + (other != "NULL")).all()


def test_one_graph_takes_work_of_two_devices(gpu):
    a, b = hcq.array(np.arange(100, dtype="i4"), "LLVM"), hcq.zeros(100, hcq.i32, "GPU")
    with hcq.capture() as graph:
        hcq.ops.add(a, 1, out=a)
        hcq.copy(b, a)
        hcq.ops.multiply(b, 2, out=b)
    for turn in (1, 2):
        graph.replay().wait()
        assert (b.numpy() == 2 * (np.arange(100) + turn)).all()


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "f2"])
def test_operations_give_what_llvm_gives(gpu, dtype):
    rng = np.random.default_rng(3)
    x, y = ((rng.standard_normal((37, 29)) * 20).astype(dtype) for _ in range(2))
    made = {}
    for device in ("LLVM", "GPU"):
        a, b = hcq.array(x, device), hcq.array(y, device)
        made[device] = [
            ops.add(a, b), ops.multiply(a, b), ops.maximum(a, b), ops.sum(a, axis=1), ops.max(a, axis=0),
            ops.transpose(a), ops.cumsum(a, axis=1), ops.sort(a), ops.matmul(a, ops.transpose(b)),
        ]  # fmt: skip
        if dtype.startswith("f"):
            made[device] += [ops.exp(a), ops.divide(a, b), ops.tanh(a), ops.softmax(a)]
    for ours, theirs in zip(made["GPU"], made["LLVM"], strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_nothing_is_left_of_closed_devices(gpu):
    hcq.Device.close("GPU")

    def living():
        gc.collect()
        names = ("Context", "CommandQueue", "Kernel", "_Program", "SVMAllocation", "Worker", "OpenCLDevice")
        return sum(type(each).__name__ in names for each in gc.get_objects()), len(os.listdir("/proc/self/task"))

    def round_trip():
        device = hcq.Device["GPU"]
        out = hcq.array(np.ones(64, "f4"), "GPU")
        device.program("scale", SCALE)(out, out, vals=(2.0, 0), global_size=(64, 1, 1), wait=True)
        assert out.numpy()[0] == 2
        del out
        device.close()

    round_trip()
    before = living()
    for _ in range(20):
        round_trip()
    assert living() == before
