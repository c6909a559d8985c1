"""The NULL device: what opening it sets up, and what it says of itself."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from hcq.drivers.cpu.device import CPUDevice
from hcq.drivers.null.allocator import NullAllocator
from hcq.drivers.null.compiler import NullCompiler
from hcq.drivers.null.program import NullProgram
from hcq.drivers.null.queue import NullComputeQueue, NullCopyQueue


class NullDevice(CPUDevice):
    """Two hardware queues, a timeline, host memory; no arithmetic. Threads may share one.

    A driver in Python subclasses `hcq.HCQCompiled` and gives it the same five things.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, NullCompiler())
        self.allocator = NullAllocator(self)
        self.runtime = functools.partial(NullProgram, self)
        self.hw_compute_queue_t = NullComputeQueue
        self.hw_copy_queue_t = NullCopyQueue

    def _info(self) -> Mapping[str, object]:
        return {"kind": "null: full queues, programs that run no code", "queues": ("compute", "copy")}
