"""The VULKAN device: what opening it sets up, its limits, what becomes of failures, and what it says of itself."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hcq import _native, config
from hcq.drivers.vulkan.allocator import ALIGNMENT, MappedAllocator, VulkanAllocator
from hcq.drivers.vulkan.compiler import VulkanCompiler
from hcq.drivers.vulkan.physical import CPU
from hcq.drivers.vulkan.program import VulkanProgram
from hcq.drivers.vulkan.queue import VulkanComputeQueue, VulkanCopyQueue, VulkanSignal
from hcq.errors import DeviceLost, DeviceUnavailable
from hcq.queues import faults
from hcq.queues.device import HCQCompiled
from hcq.runtime.compiled import DeviceLimits

if TYPE_CHECKING:
    from hcq.drivers.vulkan.physical import Found

_KINDS = {1: "an integrated GPU", 2: "a GPU", 3: "a virtual GPU", CPU: "Vulkan on the CPU"}

_MOST_ROUNDS = {"llvmpipe": 65535}
"""Drivers that end a kernel's loops after so many rounds of an item, as if they were over: lavapipe, by its name."""


class VulkanDevice(HCQCompiled):
    """A Vulkan device. Launches and copies share one hardware queue, so that they run one after another; what waits
    for something waits apart.

    Threads may share a device. An error that Vulkan reports loses the device: DeviceLost, with it as the cause.
    """

    kernel_language = "spirv"

    def __init__(self, name: str, physical: Found) -> None:
        self.physical = physical
        self.is_cpu_implementation = physical.facts["kind"] == CPU
        self.most_rounds = _MOST_ROUNDS.get(physical.facts["driver"])
        self.kernel_target = _target(physical.facts)
        self.limits = _limits(physical.facts)
        myself = weakref.ref(self)  # what native threads hold must not keep the device
        try:
            self.native = _native.VulkanDevice(
                physical.number,
                physical.validates,
                config.FORCE_STAGING(),
                functools.partial(_lost, myself),
                functools.partial(_failed, myself),
            )
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, DeviceUnavailable):
                raise
            raise DeviceUnavailable(f"{physical.name} does not open: {error}", "see the driver") from error
        self.is_mapped = self.native.unified
        allocator_t = MappedAllocator if self.is_mapped else VulkanAllocator
        runtime = functools.partial(VulkanProgram, self)
        queues = VulkanComputeQueue, VulkanCopyQueue
        super().__init__(name, allocator_t(self), None, VulkanCompiler(), runtime, VulkanSignal, *queues)

    def give(self, lane: int, words: list[Any]) -> bool:
        """Hand words to a lane. False: there is no room. Raises DeviceLost where Vulkan refuses them."""
        try:
            return bool(self.native.submit(lane, words))
        except (RuntimeError, MemoryError) as error:
            raise self._refused(error) from error

    def give_bound(self, lane: int, commands: Any) -> bool:
        """`give`, of commands that stay recorded."""
        try:
            return bool(self.native.submit_bound(lane, commands))
        except (RuntimeError, MemoryError) as error:
            raise self._refused(error) from error

    def wait_for(self, pairs: Iterable[tuple[Any, int]]) -> None:
        """As the base's; where the device is at the work that sets a signal, this thread sees it to be over itself."""
        waited = list(pairs)
        for signal, value in waited:
            if signal.value < value:
                self.native.help(signal, value)
        super().wait_for(waited)

    def lose(self, cause: BaseException | str, command: str | None = None) -> None:
        """As the base's; the threads that feed the device end."""
        super().lose(cause, command)
        self.native.give_up()

    def _refused(self, error: BaseException) -> BaseException:
        if self.closed:  # by another thread, beside this call
            return RuntimeError(f"{self.dname} is closed: Device[{self.dname!r}] opens it anew")
        self.lose(error, "submit")
        return faults.again(self.lost) if self.lost is not None else error

    def _close(self) -> None:
        self.native.close()  # before memory that launches of other threads, beside this, may be written from
        if self._unfinished():  # theirs: nobody is to wait for them
            super().lose("the device was closed before it was done")
        super()._close()

    def _leave(self) -> None:
        # Drivers take themselves down when the process ends: no thread of ours may be in one then.
        self.native.stop()
        if self._unfinished():
            self.closed = True  # nobody else need wait for it

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


def _lost(device: weakref.ref[VulkanDevice], why: str, command: str) -> None:
    dev = device()
    if dev is not None:
        dev.lose(RuntimeError(why), command)


def _failed(device: weakref.ref[VulkanDevice], signal: Any, value: int, rest: Iterable[tuple[Any, int]]) -> int:
    """What becomes of a wait for a failed signal: 1 to go on, 0 to wait on, -1 where the rest is dropped."""
    dev = device()
    if dev is None or dev.lost is not None:
        return -1
    try:
        return int(dev.is_reached(signal, value))
    except DeviceLost as error:  # another device's failure: only this submit is dropped
        dev.drop(error, rest)
        return -1


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
