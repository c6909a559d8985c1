"""Command queues of devices on the native command processor: native lists of packets under the contract's names.

What does not live here: their devices (native). Launches and copies need no queue in Python, so this is imported by
whoever makes one.
"""

from __future__ import annotations

from typing import Self

from hcq import _native
from hcq.queues.command_queue import HWComputeQueue, HWCopyQueue


class _Keeps:
    """What queued work uses is kept by retirement (native/core/retire.hpp), so there is nothing to hold on to here."""

    __slots__ = ()

    def keep(self, *objects: object) -> Self:
        return self


class NativeComputeQueue(_native.CommandQueue, _Keeps, HWComputeQueue):
    """Commands for a compute queue. Commands and updates belong to one thread at a time."""

    _copies = False


class NativeCopyQueue(_native.CommandQueue, _Keeps, HWCopyQueue):
    """Commands for a copy queue, which runs beside the compute queue."""

    _copies = True
