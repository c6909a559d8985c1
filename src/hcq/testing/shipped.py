"""The descriptions of the drivers that hcq ships, for the suite."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

from hcq.testing.driver import DriverUnderTest


def describe(device: str) -> DriverUnderTest:
    """The description for a device's name; see hcq.testing.driver.known."""
    from hcq import config
    from hcq.runtime.registry import Device

    name = Device.canonicalize(device)
    kind = name.partition(":")[0]
    if kind == "CLANG":
        kernels = {**_portable("c"), "plain": PLAIN_C}
        return DriverUnderTest(name, kernels=kernels, bad_source=BAD_C, warning_source=WARNING_C)
    if kind == "LLVM":
        return DriverUnderTest(name, kernels={**_portable("llvm"), "plain": PLAIN_IR}, bad_source=BAD_IR)
    if kind == "PYTHON":
        return DriverUnderTest(
            name, kernels=_portable("ir", 2000), lacks=PYTHON_LACKS, exclusions=PYTHON_NEVER, bad_source=BAD_KERNEL
        )
    if kind == "GPU":
        told: dict[str, Any] = {
            "lacks": GPU_LACKS,
            "exclusions": GPU_NEVER,
            "bad_source": BAD_CL,
            "warning_source": WARNING_CL,
        }
        return DriverUnderTest(name, kernels=_portable("opencl"), **told)
    if kind == "VULKAN":
        told = {**_vulkan_has_not(name), "bad_source": BAD_GLSL}
        from hcq.testing.kernels.short_loops import spin

        kernels = {**_portable("spirv"), "spin": spin.source("spirv", cost=23_000)}
        return DriverUnderTest(name, kernels=kernels, **told)
    if kind == "CUDA":
        log = {} if _has_nvrtc() else {"log": "CUDA C is compiled by NVRTC, which is not here"}
        told = {"lacks": {**CUDA_LACKS, **log}, "exclusions": CUDA_NEVER, "bad_source": BAD_CUDA}
        if config.CUDA() == "cpu":  # also in processes whose environment a test emptied
            told["setup"] = "import os; os.environ['HCQ_CUDA'] = 'cpu'"
        return DriverUnderTest(name, kernels=_portable("ptx"), warning_source=None if log else WARNING_CUDA, **told)
    if kind == "NULL":
        return DriverUnderTest(name, kernels={"nothing": "nothing"}, lacks=NULL_LACKS, core=name == "NULL")
    untold = _UNTOLD if kind == "PYTHON" else (*_UNTOLD, "kernels")
    return DriverUnderTest(name, lacks=dict.fromkeys(untold, "the driver's description says nothing of its kernels"))


PLAIN_C = "void plain(int *out) { out[0] += 1; }\n"
PLAIN_IR = """define void @plain(ptr %out) {
  %v = load i32, ptr %out
  %w = add i32 %v, 1
  store i32 %w, ptr %out
  ret void
}
"""
BAD_C = "void broken(int *out) {\n  out[0] = undeclared;\n}\n"
WARNING_C = ("warned", "void warned(int *out) {\n  int unused;\n  out[0] = 'ab';\n}\n")
BAD_IR = "define void @broken(ptr %out) {\n  store i32 %undeclared, ptr %out\n  ret void\n}\n"

BAD_KERNEL = 'hcq.ir 1 "bad.py"\nkernel broken(out: ptr<i32, global>) {\n  store %out, %undeclared\n  return\n}\n'
BAD_CL = "__kernel void broken(__global int *out) {\n  out[0] = undeclared;\n}\n"
WARNING_CL = ("warned", "__kernel void warned(__global int *out) {\n  out[0] = 'ab';\n}\n")

PYTHON_LACKS: Mapping[str, str] = {
    "inject": "faults are injected by native code and the null device",
    "host_pointers": "it knows only memory that it has allocated itself",
    "plain": "a kernel takes any sizes",
    "native": "its queues are Python threads",
}

PYTHON_NEVER: Mapping[str, str] = {
    "checks.races": "streams of drivers in Python share one queue of a kind, so that copies of two are in order",
    "checks.bounds": "kernels are held to what was asked for, so that there is nothing beside it to watch",
    "interop.array_copy_false": "a buffer's memory is always the driver's own",
    "test_what_a_launch_uses_outlives_python": "it writes through an address, which counts as written by nobody",
}

NULL_LACKS: Mapping[str, str] = {
    "computes": "the null device runs no code",
    "typed": "its programs take any arguments",
    "log": "its compiler takes any source",
    "kernels": "the null device runs no code",
}

GPU_LACKS: Mapping[str, str] = {
    "fork": "the threads of OpenCL implementations do not survive a fork, and opening it anew is refused",
    "host_pointers": "its kernels reach memory of the caller only where OpenCL shares all of the host's",
    "plain": "a kernel takes any sizes",
}

GPU_NEVER: Mapping[str, str] = {
    "compiler.empty_environment": "PoCL links kernels with the ld that PATH names",
    "test_many_buffers_are_few_mappings": "each buffer is an allocation of the driver's",
}

BAD_GLSL = "#version 450\nlayout(local_size_x = 1) in;\nvoid main() {\n  undeclared[0] = 1;\n}\n"

VULKAN_LACKS: Mapping[str, str] = {
    "fork": "the threads of Vulkan drivers do not survive a fork, and opening it anew is refused",
    "host_pointers": "its kernels reach memory that Vulkan gave out",
    "plain": "a kernel takes any sizes",
}

VULKAN_NEVER: Mapping[str, str] = {}


BAD_CUDA = 'extern "C" __global__ void broken(int *out) {\n  out[0] = undeclared;\n}\n'
WARNING_CUDA = ("warned", 'extern "C" __global__ void warned(int *out) {\n  int unused;\n  out[0] = 1;\n}\n')

CUDA_LACKS: Mapping[str, str] = {
    "fork": "NVIDIA's driver does not work in a child forked after it was used, and opening it anew is refused",
    "host_memory": "the device's memory is its own: the host copies",
    "zero_copy": "the device's memory is its own: the host copies",
    "host_pointers": "its kernels reach memory that CUDA gave out",
    "plain": "a kernel takes any sizes",
}

CUDA_NEVER: Mapping[str, str] = {}


def _has_nvrtc() -> bool:
    from hcq.drivers.cuda import nvrtc

    return nvrtc.version() is not None


VULKAN_APART_LACKS: Mapping[str, str] = {
    "host_memory": "the device's addresses are not the host's",
    "zero_copy": "the host does not see the device's memory",
}

VULKAN_APART_NEVER: Mapping[str, str] = {
    "test_kernels_go_by_their_names_and_copies_by_where_they_lead": "copies of two such devices go through the host",
}


_LARGE = 3 << 30  # bytes: more than the test of large copies takes at once


def _vulkan_has_not(name: str) -> dict[str, Mapping[str, str]]:
    from hcq.errors import DeviceUnavailable
    from hcq.runtime.registry import Device

    log = {} if shutil.which("glslangValidator") else {"log": "GLSL is compiled by glslangValidator, which is not here"}
    lacks, exclusions = {**VULKAN_LACKS, **log}, dict(VULKAN_NEVER)
    try:
        device = Device[name]
    except DeviceUnavailable:  # told when it is opened
        return {"lacks": lacks, "exclusions": exclusions}
    if (device.limits.max_buffer_bytes or _LARGE) < _LARGE:
        exclusions["copy.large"] = f"the device gives {device.limits.max_buffer_bytes} bytes at once at most"
    if getattr(device, "is_mapped", True):
        return {"lacks": lacks, "exclusions": exclusions}
    return {"lacks": {**lacks, **VULKAN_APART_LACKS}, "exclusions": {**exclusions, **VULKAN_APART_NEVER}}


# Without a description nobody knows what source the driver's compiler takes.
_UNTOLD = ("compiles", "computes", "typed", "log", "plain")


def _portable(language: str, spin_cost: int = 2) -> Mapping[str, str]:
    from hcq.testing.kernels.portable import sources

    return sources(language, spin_cost)
