"""The VULKAN device's programs: a kernel of a module, with a pipeline for each size of group it is launched with.

What does not live here: what a library is (compiler), what a module says (spirv), recording launches (native/vulkan).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from hcq import _native
from hcq.drivers.vulkan import spirv
from hcq.drivers.vulkan.compiler import read_library
from hcq.errors import InvalidProgram, LaunchError, OutOfMemory
from hcq.queues.native import InterfaceProgram
from hcq.runtime.cache.compile_cache import current
from hcq.runtime.compiler import Compiler

if TYPE_CHECKING:
    from hcq.drivers.vulkan.device import VulkanDevice
    from hcq.queues.launch import Dims

PUSHED = 112
"""Bytes of arguments that are pushed with a launch: 128, without 16 for the number of groups."""

_HEADER = 32  # of a driver's cache of pipelines: who made it; nothing is in one that is no longer


@_native.inherit_vectorcall
class VulkanProgram(_native.Program, InterfaceProgram):
    """A kernel: `VulkanProgram(device, name, lib)`. Its arguments are where docs/design/spirv.md says. Threads may
    share it."""

    def __new__(cls, dev: VulkanDevice, name: str, lib: bytes) -> Self:
        """Load it. Raises InvalidProgram."""
        module, said = read_library(lib)
        entry = _entry(name, said)
        for number in sorted(said.capabilities & spirv.CAPABILITIES.keys()):
            capability, needed = spirv.CAPABILITIES[number]
            if not dev.physical.facts["has"][needed]:
                raise InvalidProgram(f"{name} uses {capability}, and {dev.physical.name} has no such thing")
        about = said.about or {}
        local = about.get("local_bytes", 0)
        if local > dev.limits.local_memory_bytes:
            raise InvalidProgram(
                f"{name} has {local} bytes of local memory: {dev.dname} gives a group {dev.limits.local_memory_bytes}"
            )
        types, names, places = _arguments(name, said)
        try:
            kernel = _native.VulkanKernel(dev.native.module(module), entry)
        except RuntimeError as error:
            raise InvalidProgram(f"{name}: {dev.dname} does not load the module: {error}") from error
        make = _maker(dev, name, entry, module, kernel)
        in_memory = about.get("arguments") == "memory"
        most = dev.limits.max_group_items
        made = _native.vulkan_program(kernel, name, types, names, places, in_memory, most, make)
        self = super().__new__(cls, dev, name, made)
        self.value_types = [kind for kind in types if kind != "ptr"]
        self.buffer_count = len(types) - len(self.value_types)
        if about:
            self.accesses = [each or None for each in about["accesses"]]
        return self

    def __init__(self, dev: VulkanDevice, name: str, lib: bytes) -> None:
        """`__new__` has done everything."""


def _entry(name: str, said: spirv.Module) -> str:
    if name in said.entries:
        return name
    if said.entries == ("main",):  # all that GLSL has
        return "main"
    known = ", ".join(said.entries)
    raise InvalidProgram(f"no kernel {name!r} in the module: it has {known}")


def _arguments(name: str, said: spirv.Module) -> tuple[list[str], list[str], list[int]]:
    """Types and names of a kernel's arguments, and where they go; no places where that is as they lie in kernargs."""
    if said.about is not None:
        about = said.about
        types = ["ptr"] * len(about["buffers"]) + list(about["value_types"])
        return types, [*about["buffers"], *about["values"]], []
    try:
        found = spirv.pushed(said)
    except ValueError as error:
        raise InvalidProgram(f"{name}: {error}") from error
    if any(each.offset + each.size > PUSHED for each in found):
        raise InvalidProgram(f"{name} has more than {PUSHED} bytes of arguments among its push constants")
    return [each.type for each in found], [each.name for each in found], [each.offset for each in found]


def _maker(dev: VulkanDevice, name: str, entry: str, module: bytes, kernel: Any) -> Callable[[Dims], None]:
    """What makes the pipeline for a size of groups, once each. Raises LaunchError where the driver can't, OutOfMemory.

    It blocks while the driver compiles, unless that is in the cache. The program holds it, so it holds neither the
    program nor the device.
    """
    device, identity = weakref.ref(dev), dev.physical.identity

    def make(items: Dims) -> None:
        dev = device()
        if dev is None:
            raise RuntimeError(f"the device of {name} is gone")
        dev.check_usable()
        cache = current()
        kept = _Pipelines(identity, entry, items)
        lookup, before = cache.get(kept, module) if kept.cachekey is not None else (None, None)
        try:
            after = kernel.make(items, before or b"")
        except MemoryError as error:
            raise OutOfMemory(f"no memory for {name} in groups of {items}: {error}") from error
        except RuntimeError as error:
            dev.check_usable()  # it may have been closed meanwhile
            raise LaunchError(f"{dev.dname} makes no {name} in groups of {items}: {error}") from error
        if lookup is not None and before is None and len(after) > _HEADER:
            cache.put(lookup, after)
        dev.check_usable()

    return make


class _Pipelines(Compiler):
    """Under what the cache keeps a driver's compiled code: device, driver and build, kernel, size of group."""

    def __init__(self, identity: str, entry: str, items: Dims) -> None:
        super().__init__("vulkan-pipeline")
        self._identity, self._entry, self._items = identity, entry, items

    def identity(self) -> str:
        return self._identity

    def key_parts(self) -> Mapping[str, str]:
        return {"entry": self._entry, "items": "x".join(map(str, self._items))}
