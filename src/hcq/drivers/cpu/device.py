"""The host CPU as a device of hardware command queues, twice: CLANG takes C, LLVM takes LLVM IR.

What does not live here: queues, timeline and memory (hcq.queues.native), programs (program), compilers.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from hcq import _native, config
from hcq.drivers.cpu.allocator import CPUAllocator, StagedCPUAllocator
from hcq.drivers.cpu.program import CPUProgram
from hcq.queues.native import NativeDevice
from hcq.runtime.compiled import DeviceLimits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hcq.drivers.cpu.queue import CPUComputeQueue, CPUCopyQueue
    from hcq.runtime.compiler import Compiler


class CPUDevice(NativeDevice):
    """A command-queue device on the host's processor. `D:1`, `D:2` ... are further queues on the same cores.

    The compute and the copy queue run side by side, asynchronously to Python; what a launch runs is spread over
    HCQ_CPU_THREADS threads that all CPU devices share. Threads may share a device.
    """

    kernel_language: str
    """What portable kernels are written in for it: "c" or "llvm"."""

    limits = DeviceLimits(local_memory_bytes=1 << 20, buffer_alignment=64, view_alignment=1)

    def __init__(self, name: str, compiler: Compiler, kernel_language: str) -> None:
        self.kernel_language = kernel_language
        allocator_t = StagedCPUAllocator if config.FORCE_STAGING() else CPUAllocator
        runtime = functools.partial(CPUProgram, self)
        super().__init__(name, allocator_t, compiler, runtime, None, None)

    @functools.cached_property
    def hw_compute_queue_t(self) -> type[CPUComputeQueue]:
        """Makes compute queues. Imported when first asked for: launches and copies need none."""
        from hcq.drivers.cpu.queue import CPUComputeQueue

        return CPUComputeQueue

    @functools.cached_property
    def hw_copy_queue_t(self) -> type[CPUCopyQueue]:
        """Makes copy queues."""
        from hcq.drivers.cpu.queue import CPUCopyQueue

        return CPUCopyQueue

    def _info(self) -> Mapping[str, object]:
        return {
            "kind": "host CPU",
            "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "cores": os.cpu_count(),
            "threads": _native.worker_limit(),
            "queues": ("compute", "copy"),
            "compiler": type(self.compiler).__name__,
        }
