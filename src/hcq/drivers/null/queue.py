"""The NULL device's command queues: those of the native command processor, where exec runs nothing."""

from __future__ import annotations

from hcq.queues.native_queue import NativeComputeQueue, NativeCopyQueue


class NullComputeQueue(NativeComputeQueue):
    """signal, wait, timestamp, memory_barrier, exec. A driver in Python has `_signal`, `_wait` ... `_submit` here."""


class NullCopyQueue(NativeCopyQueue):
    """signal, wait, timestamp, copy. Copies are real."""
