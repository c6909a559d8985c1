"""The CPU devices' command queues: native lists of packets under the contract's names."""

from __future__ import annotations

from hcq.queues.native_queue import NativeComputeQueue, NativeCopyQueue


class CPUComputeQueue(NativeComputeQueue):
    """Commands for a CPU device's compute queue. Commands and updates belong to one thread at a time."""


class CPUCopyQueue(NativeCopyQueue):
    """Commands for a CPU device's copy queue, which runs beside the compute queue."""
