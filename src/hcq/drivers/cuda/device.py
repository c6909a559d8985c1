"""The CUDA device: what opening it sets up, its limits, and what it says of itself."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hcq import _native, config
from hcq.drivers.cuda import nvrtc
from hcq.drivers.cuda.allocator import ALIGNMENT, CUDAAllocator
from hcq.drivers.cuda.compiler import CUDACompiler
from hcq.drivers.cuda.program import CUDAProgram
from hcq.drivers.cuda.queue import CUDAComputeQueue, CUDACopyQueue
from hcq.errors import DeviceUnavailable
from hcq.queues.native import NativeDevice
from hcq.runtime.compiled import DeviceLimits

if TYPE_CHECKING:
    from hcq.drivers.cuda.choice import Found

_DLPACK_CUDA = 2
_TOLD_SECONDS = 0.5
_LLVM_TARGETS = (120, 103, 100, 90, 89, 87, 86, 80, 75, 72, 70)  # processors that llvmlite's PTX is written for


class CUDADevice(NativeDevice):
    """An NVIDIA GPU. Its queues are native, and give their commands to streams of its primary context.

    Threads may share a device. An error that CUDA reports for a command loses the device: DeviceLost, with it as the
    cause.
    """

    kernel_language = "ptx"

    def __init__(self, name: str, found: Found) -> None:
        self.found = found
        self.is_cpu_implementation = found.on_cpu
        self.dlpack_device = (_DLPACK_CUDA, found.number)
        facts = found.facts
        if not facts["unified"] or not facts["maps_host"]:
            raise DeviceUnavailable(
                f"{found.name} has no unified addresses", "memory is used by address here: 64-bit GPUs have them"
            )
        self.limits = _limits(facts)
        self.kernel_target = f"sm_{_llvm_target(found.capability)}"
        try:
            self.native = _native.cuda_open(found.number, config.CUDA_POOL())
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, DeviceUnavailable):
                raise
            raise DeviceUnavailable(f"{found.name} does not open: {error}", "see nvidia-smi") from error
        compiler = CUDACompiler(found.capability, as_cubin=_needs_cubin(facts["driver_version"]))
        runtime = functools.partial(CUDAProgram, self)
        super().__init__(name, CUDAAllocator, compiler, runtime, CUDAComputeQueue, CUDACopyQueue)
        _native.cuda_serve(self, self.native)

    def home_of(self, address: int) -> str:
        """The name of the device whose memory is at an address, whoever allocated it. ValueError where it is none's."""
        try:
            number = self.native.ordinal_of(address)
        except RuntimeError as error:
            raise ValueError(f"{address:#x} is no address of CUDA's: {error}") from error
        return _name(number)

    def settle(self) -> None:
        """Wait for all that this process has given to the device, by whatever library."""
        self.native.settle()

    def raise_if_lost(self) -> None:
        """After a call of the driver that failed: raise DeviceLost where a kernel is to blame. CUDA tells whoever calls
        next of it; the queue, which knows the kernel, is told within moments."""
        deadline = time.monotonic() + _TOLD_SECONDS
        while self.native.broken() and self.lost is None and time.monotonic() < deadline:
            time.sleep(0.0005)
        self.check_usable()

    def _close(self) -> None:
        super()._close()
        self._ended()
        self.native.end()

    def _info(self) -> Mapping[str, object]:
        facts = self.found.facts
        version = facts["driver_version"]
        major, minor = self.found.capability
        return {
            "kind": "CUDA on the CPU" if self.is_cpu_implementation else "CUDA",
            "device": self.found.name,
            "version": f"CUDA {version // 1000}.{version % 1000 // 10}",
            "compute capability": f"{major}.{minor}",
            "memory": facts["memory"],
            "local memory by with_local_memory": facts["local_memory_most"],
            "multiprocessors": facts["multiprocessors"],
            "PCI": "{:04x}:{:02x}:{:02x}".format(*facts["pci"]),
            "peers": tuple(_name(number) for number in facts["peers"]),
            "host access": "by copies",
            "queues": ("compute", "copy"),
            "signals": "set by streams" if self.native.sets_signals else "set by the host",
        }


def _name(number: int) -> str:
    return f"CUDA:{number}" if number else "CUDA"


def _llvm_target(capability: tuple[int, int]) -> int:
    """The newest processor that LLVM knows, of those whose PTX the device runs."""
    wanted = capability[0] * 10 + capability[1]
    return max(each for each in _LLVM_TARGETS if each <= max(wanted, min(_LLVM_TARGETS)))


def _needs_cubin(driver_version: int) -> bool:
    """Whether the driver is older than NVRTC, whose PTX it doesn't know then."""
    version = nvrtc.version()
    return version is not None and driver_version < version[0] * 1000 + version[1] * 10


def _limits(facts: dict[str, Any]) -> DeviceLimits:
    return DeviceLimits(
        max_group_size=facts["group_size"],
        max_groups=facts["groups"],
        max_group_items=facts["group_items"],
        local_memory_bytes=facts["local_memory"],
        max_buffer_bytes=facts["memory"],
        buffer_alignment=ALIGNMENT,
        view_alignment=1,
        max_argument_bytes=4096,
    )
