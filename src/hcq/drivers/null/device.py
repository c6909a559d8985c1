"""The NULL device: what opening it sets up, and what it says of itself."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from hcq import config
from hcq.drivers.null.allocator import NullAllocator, StagedNullAllocator
from hcq.drivers.null.compiler import NullCompiler
from hcq.drivers.null.program import NullProgram
from hcq.drivers.null.queue import NullComputeQueue, NullCopyQueue
from hcq.queues.native import NativeDevice


class NullDevice(NativeDevice):
    """Two hardware queues, a timeline, host memory; no arithmetic. Threads may share one.

    A driver whose queues are its own subclasses `hcq.HCQCompiled`, and gives it the same things.
    """

    def __init__(self, name: str) -> None:
        allocator_t = StagedNullAllocator if config.FORCE_STAGING() else NullAllocator
        runtime = functools.partial(NullProgram, self)
        super().__init__(name, allocator_t, NullCompiler(), runtime, NullComputeQueue, NullCopyQueue)

    def _info(self) -> Mapping[str, object]:
        return {"kind": "null: full queues, programs that run no code", "queues": ("compute", "copy")}
