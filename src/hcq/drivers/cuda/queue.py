"""The CUDA device's command queues: native lists of packets, whose commands go to streams.

What does not live here: how they are carried out (native/cuda), and arguments of kernels (program).
"""

from __future__ import annotations

from hcq.queues.native_queue import NativeComputeQueue, NativeCopyQueue


class CUDAComputeQueue(NativeComputeQueue):
    """Launches of kernels. Commands and updates belong to one thread at a time."""


class CUDACopyQueue(NativeCopyQueue):
    """Copies between addresses of CUDA's memory. Runs beside the compute queue."""
