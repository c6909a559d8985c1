"""The CPU devices' allocators: pooled host memory that every queue, every kernel and the host itself reach."""

from __future__ import annotations

from typing import Any

from hcq.queues.allocator import HCQAllocator
from hcq.runtime.allocator import HostAllocator


class CPUAllocator(HostAllocator, HCQAllocator):
    """Host memory for a CPU device. Host copies wait for what is queued on the device, then are direct (native)."""

    host_access = True

    def __init__(self, device: Any) -> None:
        HCQAllocator.__init__(self, device)

    def _within(self, device: Any, dest: Any, src: Any, size: int, stream: Any) -> None:
        device.enqueue_copy(dest.va_addr, src.va_addr, size, stream)  # overlapping ranges: as if read first


class StagedCPUAllocator(CPUAllocator):
    """The same with HCQ_FORCE_STAGING=1: host copies go through the staging ring and the copy queue."""

    copyin = HCQAllocator.copyin
    copyout = HCQAllocator.copyout
