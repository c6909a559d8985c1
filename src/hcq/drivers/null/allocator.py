"""The NULL device's allocators: pooled host memory."""

from __future__ import annotations

from hcq.queues.native import NativeAllocator, Staged


class NullAllocator(NativeAllocator):
    """Host memory, reached by the queues and by the host at `va_addr`. Threads may share one.

    A driver with memory of its own subclasses `hcq.HCQAllocator` and has `_alloc`, which gives an HCQBuffer, and
    `_free`.
    """


class StagedNullAllocator(Staged, NullAllocator):
    """The same with HCQ_FORCE_STAGING=1, as where the host can't write the device's memory."""
