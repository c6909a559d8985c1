"""Which Vulkan devices a machine has, in what order, and which one a name means.

What does not live here: anything done with a device once it is chosen.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hcq import _native, config
from hcq.errors import DeviceUnavailable
from hcq.runtime import process

CPU = 4
"""VK_PHYSICAL_DEVICE_TYPE_CPU."""

_ORDER = {2: 0, 1: 1, 3: 2, 0: 3, CPU: 4}
"""By kind: discrete GPUs, integrated ones, virtual ones, others, and implementations on the CPU."""

_used_in: int | None = None  # the process (its generation) in which drivers were loaded


class Found(NamedTuple):
    """A device: its number with the loader, whether the validation layer watches, and what it says of itself."""

    number: int
    validates: bool
    facts: dict[str, Any]

    @property
    def name(self) -> str:
        """What its driver calls it."""
        return str(self.facts["name"])

    @property
    def identity(self) -> str:
        """The device and its driver in one line: what a driver's compiled code is good for."""
        facts = self.facts
        numbers = f"{facts['vendor']:04x}:{facts['device']:04x}"
        driver = f"{facts['driver']} {facts['driver_info']} {facts['driver_version']}"
        return " | ".join((self.name, numbers, driver, facts["cache_id"].hex()))


def devices() -> list[Found]:
    """The Vulkan devices here, GPUs first, CPUs last; among equals as the loader gives them.

    Raises DeviceUnavailable where there are none, and in a child forked after Vulkan was used.
    """
    global _used_in
    if _used_in is not None and _used_in != process.generation:
        raise DeviceUnavailable(
            "Vulkan was used before this process was forked, and its drivers' threads are not here",
            "start processes with multiprocessing's 'spawn', or open VULKAN in the child alone",
        )
    validates = config.VULKAN_VALIDATION()
    facts = _native.vulkan_devices(validates)
    _used_in = process.generation
    found = [Found(number, validates, each) for number, each in enumerate(facts)]
    return sorted(found, key=lambda each: _ORDER.get(each.facts["kind"], 3))


def choose(name: str) -> Found:
    """The Vulkan device that a canonical name (VULKAN, VULKAN:1, VULKAN:llvmpipe) means; raises DeviceUnavailable."""
    found = devices()
    _, _, chosen = name.partition(":")
    if not chosen or (chosen.isascii() and chosen.isdecimal()):
        from hcq.runtime.registry import device_index

        index = device_index(name)
        if index < len(found):
            return found[index]
        if all(each.facts["kind"] == CPU for each in found):
            return found[0]  # one more device on the same processor, as the CPU devices have
        raise DeviceUnavailable(f"there is no {name}: {_listed(found)}", "count from 0")
    for each in found:
        if chosen.lower() in each.name.lower() or chosen.lower() in each.facts["driver"].lower():
            return each
    raise DeviceUnavailable(
        f"no Vulkan device or driver has {chosen!r} in its name: {_listed(found)}",
        "a number after VULKAN: works as well",
    )


def _listed(found: list[Found]) -> str:
    return "; ".join(f"VULKAN:{index} is {each.name}" for index, each in enumerate(found))
