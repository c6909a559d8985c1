"""What a first launch does not wait for: modules that most programs never need."""

import os
import subprocess
import sys

import pytest

RUN = """
import sys
import hcq
device = hcq.Device[DEVICE]
buf = hcq.Buffer(DEVICE, 1, hcq.dtypes.int32).allocate()
program = device.program("f", SOURCE)
program(buf)
device.synchronize()
assert bytes(buf.as_buffer()) == (5).to_bytes(4, "little")
print(*sorted(sys.modules))
"""
SOURCES = {
    "CLANG": "void f(int *p) { *p = 5; }",
    "LLVM": "define void @f(ptr %p) { store i32 5, ptr %p ret void }",
}
NOT_NEEDED = (
    *("hcq.queues.faults", "hcq.queues.report", "hcq.queues.progress", "hcq.queues.profile", "hcq.queues.staging"),
    *("hcq.queues.kernargs", "hcq.queues.patience", "hcq.queues.command_queue", "hcq.runtime.watching"),
    *("hcq.runtime.interop", "hcq.runtime.device_interop", "hcq.runtime.pickling", "numpy", "logging", "llvmlite"),
)


@pytest.mark.parametrize("device", SOURCES)
def test_a_first_launch_imports_nothing_for_errors_staging_or_exchange(device):
    if device == "LLVM":
        pytest.importorskip("llvmlite", reason="the LLVM device needs llvmlite")
    code = RUN.replace("DEVICE", repr(device)).replace("SOURCE", repr(SOURCES[device]))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert set(NOT_NEEDED) & set(done.stdout.split()) == set()


@pytest.mark.parametrize("device", SOURCES)
def test_a_program_without_a_compile_cache_imports_none(device):
    if device == "LLVM":
        pytest.importorskip("llvmlite", reason="the LLVM device needs llvmlite")
    code = RUN.replace("DEVICE", repr(device)).replace("SOURCE", repr(SOURCES[device]))
    environment = {**os.environ, "DISABLE_COMPILER_CACHE": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    assert [name for name in done.stdout.split() if name.startswith("hcq.runtime.cache")] == []


def test_a_module_for_later_is_imported_with_its_first_name_and_gives_what_it_has_now():
    from hcq.runtime.later import Later

    sys.modules.pop("hcq.profiling.plot", None)
    plot = Later("hcq.profiling.plot")
    assert "hcq.profiling.plot" not in sys.modules
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = plot.no_such_name
    sys.modules["hcq.profiling.plot"].now = 1
    assert plot.now == 1
    sys.modules["hcq.profiling.plot"].now = 2
    assert plot.now == 2
