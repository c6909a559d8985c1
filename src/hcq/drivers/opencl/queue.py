"""The GPU device's command queues: native lists of packets, whose commands go to in-order queues of OpenCL.

What does not live here: how they are carried out (native/opencl), and arguments of kernels (program).
"""

from __future__ import annotations

from hcq.queues.native_queue import NativeComputeQueue, NativeCopyQueue


class OpenCLComputeQueue(NativeComputeQueue):
    """Launches of kernels. Commands and updates belong to one thread at a time."""


class OpenCLCopyQueue(NativeCopyQueue):
    """Copies between addresses of shared memory, or of the host's. Runs beside the compute queue."""
