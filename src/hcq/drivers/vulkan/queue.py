"""The VULKAN device's command queues: native lists of packets, whose commands go to the device's one queue.

What does not live here: how they are carried out (native/vulkan), and arguments of kernels (program).
"""

from __future__ import annotations

from hcq.queues.native_queue import NativeComputeQueue, NativeCopyQueue


class VulkanComputeQueue(NativeComputeQueue):
    """Launches of kernels. Commands and updates belong to one thread at a time."""


class VulkanCopyQueue(NativeCopyQueue):
    """Copies between addresses of the device's memory and the host's."""
