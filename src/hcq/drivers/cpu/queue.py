"""The CPU devices' command queues: native lists of packets under the contract's names."""

from __future__ import annotations

from typing import Self

from hcq import _native
from hcq.queues.command_queue import HWComputeQueue, HWCopyQueue


class _Keeps:
    """What queued work uses is kept by retirement (native/core/retire.hpp), so there is nothing to hold on to here."""

    __slots__ = ()

    def keep(self, *objects: object) -> Self:
        return self


class CPUComputeQueue(_native.CommandQueue, _Keeps, HWComputeQueue):
    """Commands for a CPU device's compute queue. Commands and updates belong to one thread at a time."""

    _copies = False


class CPUCopyQueue(_native.CommandQueue, _Keeps, HWCopyQueue):
    """Commands for a CPU device's copy queue, which runs beside the compute queue."""

    _copies = True
