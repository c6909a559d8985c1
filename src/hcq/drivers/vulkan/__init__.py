"""The VULKAN device: compute on any Vulkan 1.3 driver, through a thin native layer over the system's loader.

Each noun has a module, as in every driver: device, allocator, compiler, program, queue; choosing among devices is in
physical, reading SPIR-V in spirv. docs/design/vulkan.md says why it is built as it is.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hcq.drivers.vulkan.device import VulkanDevice


def open_vulkan(name: str) -> VulkanDevice:
    """VULKAN, VULKAN:1 ... or VULKAN:part of a device's name. Raises DeviceUnavailable where there is none."""
    from hcq.drivers.vulkan import physical

    found = physical.choose(name)
    from hcq.drivers.vulkan.device import VulkanDevice

    return VulkanDevice(name, found)
