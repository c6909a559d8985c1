"""The CPU devices' allocators: pooled host memory that every queue, every kernel and the host itself reach."""

from __future__ import annotations

from hcq.queues.native import NativeAllocator, Staged


class CPUAllocator(NativeAllocator):
    """Host memory for a CPU device. Threads may share one."""


class StagedCPUAllocator(Staged, CPUAllocator):
    """The same with HCQ_FORCE_STAGING=1."""
