"""The VULKAN device's command queues: words are tuples, which the native layer records and submits, or keeps recorded.

What does not live here: recording, waiting, setting signals (native/vulkan/queue.cpp).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hcq import _native
from hcq.queues.signal import HCQSignal
from hcq.queues.words import TupleComputeQueue, TupleCopyQueue, TupleWords

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.drivers.vulkan.device import VulkanDevice

LANES = {"COMPUTE": 0, "COPY": 1}


class VulkanSignal(HCQSignal):
    """A signal that these queues wait for and set. Its own class says that queues of other drivers are not to count on
    hardware setting it: copies between kinds are waited for by the thread that asks."""

    __slots__ = ()


class _Recorded(TupleWords):
    """Submits of words, or of what was recorded of a bound queue's words as long as they stay the same."""

    _bound: Any = None
    _recorded: Any = None

    def _bind(self, dev: VulkanDevice) -> None:
        self._bound = self.q

    def keeps_words_bound(self) -> bool:
        """They do: what is submitted instead, with time-stamps between them, is recorded each time."""
        return True

    def _submit(self, dev: VulkanDevice) -> bool:
        if self._bound is not self.q:
            return dev.give(LANES[self.lane_name], self.q)
        if self._recorded is None:
            self._recorded = _native.VulkanCommands(self.q)
        return dev.give_bound(LANES[self.lane_name], self._recorded)

    def _patch(self, offset: int, words: Sequence[Any]) -> None:
        self.q[offset : offset + len(words)] = words
        self._recorded = None  # submits under way keep what they were given


class VulkanComputeQueue(_Recorded, TupleComputeQueue):
    """Launches of kernels."""

    def _exec(self, prg: Any, kernargs: int, global_size: Any, local_size: Any) -> None:
        self.q.append(("exec", prg.pipeline(local_size), kernargs, global_size))


class VulkanCopyQueue(_Recorded, TupleCopyQueue):
    """Copies between addresses of the device's memory and the host's."""
