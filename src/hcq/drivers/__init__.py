"""The built-in drivers by name: where each device's factory is found. Naming a device imports its driver, and no other.

A factory is called with the canonical device name (`CLANG`, `CLANG:1`) and returns a Compiled, or raises
DeviceUnavailable. What does not live here: any driver, and the drivers that other packages bring (entry-point group
`hcq.drivers`), which the registry finds by itself.
"""

from __future__ import annotations

from hcq.errors import DeviceUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

BUILTIN: dict[str, str] = {
    "METAL": "hcq.drivers:not_built",
    "AMD": "hcq.drivers:not_built",
    "NV": "hcq.drivers:not_built",
    "CUDA": "hcq.drivers.cuda:open_cuda",
    "GPU": "hcq.drivers.opencl:open_opencl",
    "VULKAN": "hcq.drivers.vulkan:open_vulkan",
    "CLANG": "hcq.drivers.cpu:open_clang",
    "LLVM": "hcq.drivers.cpu:open_llvm",
    "DISK": "hcq.drivers.disk:open_disk",
    "NPY": "hcq.drivers.npy:open_npy",
    "PYTHON": "hcq.drivers.python:open_python",
    "NULL": "hcq.drivers.null:open_null",
}

ALIASES: dict[str, str] = {"OPENCL": "GPU"}
"""Other names of built-in devices. `CPU` is one more, whose target the registry decides once per process."""

DEFAULT_ORDER = ("METAL", "AMD", "NV", "CUDA", "GPU", "VULKAN", "CLANG", "LLVM")
"""The order in which a default device is looked for."""

GPU_INTERFACES = frozenset({"CUDA", "GPU", "VULKAN"})
"""Devices that may be implemented on the CPU, and take long to say so: no default where a machine has no GPU."""

NO_DEFAULT = frozenset({"DISK", "NPY"})
"""Devices that run nothing, so that a flag named like them doesn't choose them."""


def not_built(name: str) -> NoReturn:
    """The factory of known devices whose driver doesn't exist yet."""
    raise DeviceUnavailable(
        reason="not built yet",
        hint=f"this release of hcq has no driver for {name.partition(':')[0]}; Device['CPU'] works everywhere, "
        "and Device.register or the entry-point group 'hcq.drivers' adds drivers",
    )
