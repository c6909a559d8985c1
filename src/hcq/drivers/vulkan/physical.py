"""Which Vulkan devices a machine has, in what order, and which one a name means.

What does not live here: anything done with a device once it is chosen.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hcq import _native, config
from hcq.drivers import finding

CPU = 4
"""VK_PHYSICAL_DEVICE_TYPE_CPU."""

_ORDER = {2: 0, 1: 1, 3: 2, 0: 3, CPU: 4}
"""By kind: discrete GPUs, integrated ones, virtual ones, others, and implementations on the CPU."""

_use = finding.Use("Vulkan", "VULKAN", "its drivers' threads are not here")


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
    _use.check()
    validates = config.VULKAN_VALIDATION()
    facts = _native.vulkan_devices(validates)
    _use.begin()
    found = [Found(number, validates, each) for number, each in enumerate(facts)]
    return sorted(found, key=lambda each: _ORDER.get(each.facts["kind"], 3))


def choose(name: str) -> Found:
    """The Vulkan device that a canonical name (VULKAN, VULKAN:1, VULKAN:llvmpipe) means; raises DeviceUnavailable."""
    found = devices()
    return finding.choose(
        name,
        found,
        lambda each: (each.name, each.facts["driver"]),
        "Vulkan device or driver",
        same=all(each.facts["kind"] == CPU for each in found),  # as the CPU devices have
    )
