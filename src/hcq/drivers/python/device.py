"""The PYTHON device: what opening it sets up, its two threads, and what it says of itself."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from hcq.drivers.python.allocator import PythonAllocator
from hcq.drivers.python.compiler import PythonCompiler
from hcq.drivers.python.memory import BLOCKS
from hcq.drivers.python.program import PythonProgram
from hcq.drivers.python.queue import PythonComputeQueue, PythonCopyQueue, PythonDeviceSignal, Worker
from hcq.queues.device import HCQCompiled
from hcq.runtime.compiled import DeviceLimits


class PythonDevice(HCQCompiled):
    """Portable kernels, run by Python and checked item by item. Two queues, each a thread that is started at its first
    submit. Threads may share a device.

    A kernel that does what is undefined elsewhere loses the device: DeviceLost, whose `cause` is a ValidationError with
    the line of the kernel, the work-item, and what it did.
    """

    kernel_language = "ir"
    limits = DeviceLimits(local_memory_bytes=1 << 20, buffer_alignment=64, view_alignment=1)

    def __init__(self, name: str) -> None:
        self.blocks = BLOCKS
        self.workers: dict[str, Worker] = {}
        runtime = functools.partial(PythonProgram, self)
        queues = PythonComputeQueue, PythonCopyQueue
        super().__init__(name, PythonAllocator(self), None, PythonCompiler(), runtime, PythonDeviceSignal, *queues)

    def worker(self, lane: str) -> Worker:
        """The thread of one hardware queue; submits of a queue come one at a time."""
        if lane not in self.workers:
            self.workers[lane] = Worker(self, lane)
        return self.workers[lane]

    def reaches(self, buf: Any) -> bool:
        """Memory of all PYTHON devices is the host's, and known to each."""
        return bool(buf.device.partition(":")[0] == self.dname.partition(":")[0])

    def _close(self) -> None:
        super()._close()
        for worker in self.workers.values():
            worker.stop()
        self.blocks.drop(id(self))

    def _info(self) -> Mapping[str, object]:
        return {"kind": "strict reference for portable kernels, in Python", "queues": ("compute", "copy")}
