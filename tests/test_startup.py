"""What a first launch does not wait for: modules that most programs never need."""

import importlib
import os
import struct
import subprocess
import sys
import threading
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

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


def test_what_another_thread_is_importing_is_not_taken_for_the_whole_module(tmp_path, monkeypatch):
    from hcq.runtime.later import Later, loaded

    begun, go = threading.Event(), threading.Event()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "slow_events", SimpleNamespace(begun=begun, go=go))
    (tmp_path / "slow_module.py").write_text("import slow_events as e\ne.begun.set()\ne.go.wait(20)\nlate = 5\n")
    found = []
    importing = threading.Thread(target=importlib.import_module, args=("slow_module",))
    using = threading.Thread(target=lambda: found.append(Later("slow_module").late))
    importing.start()
    try:
        assert begun.wait(20)
        assert "slow_module" in sys.modules and loaded("slow_module") is None
        using.start()
        using.join(0.1)  # an error would be there at once
        go.set()
        using.join()
        assert found == [5] and loaded("slow_module") is sys.modules["slow_module"]
    finally:
        go.set()
        importing.join()
        sys.modules.pop("slow_module", None)


def test_kernels_and_launches_do_without_a_numpy_that_another_thread_is_importing(monkeypatch):
    from hcq.kernels.frontend.values import numpy_scalar, numpy_type
    from hcq.queues import launch

    begun = ModuleType("numpy")
    begun.__spec__ = ModuleSpec("numpy", None)
    begun.__spec__._initializing = True  # as importlib has it
    monkeypatch.setitem(sys.modules, "numpy", begun)
    assert launch.pack_values((5, 2.5), ("i32", "f32")) == struct.pack("if", 5, 2.5)
    assert launch.pack_values((7,)) == struct.pack("I", 7)
    assert numpy_scalar(5) is None and numpy_type(int) is None
