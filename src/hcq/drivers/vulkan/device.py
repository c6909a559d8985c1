"""The VULKAN device: what opening it sets up, its limits, what becomes of failures, and what it says of itself."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hcq import _native, config
from hcq.drivers.vulkan.allocator import ALIGNMENT, MappedAllocator, VulkanAllocator
from hcq.drivers.vulkan.compiler import VulkanCompiler
from hcq.drivers.vulkan.physical import CPU
from hcq.drivers.vulkan.program import VulkanProgram
from hcq.drivers.vulkan.queue import VulkanComputeQueue, VulkanCopyQueue
from hcq.errors import DeviceUnavailable
from hcq.queues.native import NativeDevice
from hcq.runtime.compiled import DeviceLimits

if TYPE_CHECKING:
    from hcq.drivers.vulkan.physical import Found

_KINDS = {1: "an integrated GPU", 2: "a GPU", 3: "a virtual GPU", CPU: "Vulkan on the CPU"}

_MOST_ROUNDS = {"llvmpipe": 65535}
"""Drivers that end a kernel's loops after so many rounds of an item, as if they were over: lavapipe, by its name."""


class VulkanDevice(NativeDevice):
    """A Vulkan device. Its queues are native, and give their commands to the device's one queue, where they run one
    after another; what waits for something waits apart.

    Threads may share a device. An error that Vulkan reports loses the device: DeviceLost, with it as the cause.
    """

    kernel_language = "spirv"

    def __init__(self, name: str, physical: Found) -> None:
        self.physical = physical
        self.is_cpu_implementation = physical.facts["kind"] == CPU
        self.most_rounds = _MOST_ROUNDS.get(physical.facts["driver"])
        self.kernel_target = _target(physical.facts)
        self.limits = _limits(physical.facts)
        try:
            self.native = _native.VulkanDevice(physical.number, physical.validates, config.FORCE_STAGING())
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, DeviceUnavailable):
                raise
            raise DeviceUnavailable(f"{physical.name} does not open: {error}", "see the driver") from error
        self.is_mapped = self.native.unified
        allocator_t = MappedAllocator if self.is_mapped else VulkanAllocator
        runtime = functools.partial(VulkanProgram, self)
        super().__init__(name, allocator_t, VulkanCompiler(), runtime, VulkanComputeQueue, VulkanCopyQueue)
        self.native.serve(self)

    def _close(self) -> None:
        super()._close()
        self._ended()
        self.native.close(self.lost is None)

    def _leave(self) -> None:
        # Drivers take themselves down when the process ends: no thread of ours may be in one then.
        self.native.stop()

    def _info(self) -> Mapping[str, object]:
        facts = self.physical.facts
        version = facts["api_version"]
        return {
            "kind": _KINDS.get(facts["kind"], "Vulkan"),
            "device": facts["name"],
            "driver version": f"{facts['driver']} {facts['driver_info']}".strip(),
            "version": f"Vulkan {version >> 22 & 127}.{version >> 12 & 1023}.{version & 4095}",
            "memory": facts["memory"],
            "sub-group": facts["subgroup_size"],
            "rounds of an item's loops": self.most_rounds or "any",
            "host access": "in place" if self.is_mapped else "by copies",
            "clock": "calibrated" if facts["calibrated"] else "seen from the host",
            "validation": self.physical.validates,
            "queues": ("compute", "copy"),
        }


def messages() -> list[str]:
    """What the validation layer has said since this was last asked (HCQ_VULKAN_VALIDATION=1 switches it on)."""
    return list(_native.vulkan_messages())


def _limits(facts: dict[str, Any]) -> DeviceLimits:
    most = 2**31 - 1
    x, y, z = (min(count, most) for count in facts["max_groups"])
    return DeviceLimits(
        max_group_size=facts["max_group_size"],
        max_groups=(x, y, z),
        max_group_items=facts["max_group_items"],
        local_memory_bytes=facts["local_memory"],
        max_buffer_bytes=facts["max_allocation"],
        buffer_alignment=ALIGNMENT,
        view_alignment=1,
        max_argument_bytes=DeviceLimits().max_argument_bytes,
    )


def _target(facts: dict[str, Any]) -> str:
    """The words of docs/design/spirv.md that this device has."""
    words = []
    for bits, (nan, rte, denorm) in zip((16, 32, 64), facts["floats"], strict=True):
        if bits > 16:
            words += [f"{word}{bits}" for word, has in (("nan", nan), ("rte", rte), ("denorm", denorm)) if has]
    if "mesa" in facts["driver_info"].lower():
        words.append("mesa")
    if facts["driver"] == "llvmpipe":
        words += ["llvmpipe", "div32", "div64", "sqrt32", "sqrt64"]
    return " ".join(words)
