"""The NULL device's allocator: pooled host memory."""

from __future__ import annotations

from hcq.drivers.cpu.allocator import CPUAllocator


class NullAllocator(CPUAllocator):
    """Host memory, reached by the queues and by the host at `va_addr`. Threads may share one.

    A driver with memory of its own subclasses `hcq.HCQAllocator` and has `_alloc`, which gives an HCQBuffer, and
    `_free`.
    """
