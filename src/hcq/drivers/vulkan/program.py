"""The VULKAN device's programs: a kernel of a module, with a pipeline for each size of group it is launched with.

What does not live here: what a library is (compiler), how launches are recorded (native/vulkan), checking and queueing
them (the base).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hcq import _native
from hcq.drivers.vulkan import spirv
from hcq.drivers.vulkan.compiler import read_library
from hcq.drivers.vulkan.queue import VulkanComputeQueue
from hcq.errors import InvalidProgram, LaunchError, OutOfMemory
from hcq.queues import profile
from hcq.queues.allocator import HCQBuffer
from hcq.queues.launch import VALUE_TYPES
from hcq.queues.program import HCQProgram, order_of
from hcq.runtime import watch
from hcq.runtime.cache.compile_cache import current
from hcq.runtime.compiler import Compiler

if TYPE_CHECKING:
    from hcq.drivers.vulkan.device import VulkanDevice
    from hcq.queues.launch import Dims
    from hcq.queues.stream import Stream

PUSHED = 112
"""Bytes of arguments that are pushed with a launch: 128, without 16 for the number of groups."""

_HEADER = 32  # of a driver's cache of pipelines: who made it; nothing is in one that is no longer


class VulkanProgram(HCQProgram):
    """A kernel. Its arguments are where docs/design/spirv.md says. Threads may share it."""

    def __init__(self, dev: VulkanDevice, name: str, lib: bytes) -> None:
        module, said = read_library(lib)
        self.entry = self._entry(name, said)
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
        self._in_memory = about.get("arguments") == "memory"
        self._bytes: int = about.get("argument_bytes", PUSHED)
        if about:
            self.buffer_count = len(about["buffers"])
            self.value_types = list(about["value_types"])
            kinds = [VALUE_TYPES[each][1] for each in self.value_types]
            self.signature = [("pointer", each) for each in about["buffers"]]
            self.signature += zip(kinds, about["values"], strict=True)
            self.accesses = [each or None for each in about["accesses"]]
        self._words = module
        self._pipelines: dict[Dims, Any] = {}
        self._making = threading.Lock()
        try:
            self._module = dev.native.module(module)
        except RuntimeError as error:
            raise InvalidProgram(f"{name}: {dev.dname} does not load the module: {error}") from error
        super().__init__(dev, name, kernargs_alloc_size=self._bytes)

    def pipeline(self, items: Dims) -> Any:
        """What a queue launches in groups of that size; made once each. Raises LaunchError where the driver can't."""
        made = self._pipelines.get(items)
        if made is None:
            with self._making:
                made = self._pipelines.get(items)
                if made is None:
                    made = self._pipelines[items] = self._make(items)
        return made

    def _make(self, items: Dims) -> Any:
        cache = current()
        kept = _Pipelines(self.device.physical.identity, self.entry, items)  # type: ignore[attr-defined]
        lookup, before = cache.get(kept, self._words) if kept.cachekey is not None else (None, None)
        arguments = self._bytes, self.buffer_count or 0, self._in_memory
        try:
            pipeline, after = _native.vulkan_pipeline(
                self._module, self.entry, self.name, items, before or b"", *arguments
            )
        except MemoryError as error:
            raise OutOfMemory(f"no memory for {self.name} in groups of {items}: {error}") from error
        except RuntimeError as error:
            raise LaunchError(f"{self.device.dname} makes no {self.name} in groups of {items}: {error}") from error
        if lookup is not None and before is None and len(after) > _HEADER:
            cache.put(lookup, after)
        return pipeline

    def _write_kernargs(self, address: int, handles: Sequence[Any], data: bytes) -> None:
        """As the base's. Where it is recorded which arguments are addresses, recording a launch translates them."""
        if self.buffer_count is None and not self.device.is_mapped:  # type: ignore[attr-defined]
            seen = self.device.native.seen_by_device  # type: ignore[attr-defined]
            handles = [HCQBuffer(seen(handle.va_addr), 0) for handle in handles]
        super()._write_kernargs(address, handles, data)

    def _launch(
        self,
        kernargs: int,
        groups: Dims,
        items: Dims,
        used: Sequence[Any],
        wait: bool,
        stream: Stream | None,
        vals: Sequence[Any],
    ) -> float | None:
        """As the base's, which a launch that nobody times or watches does not need: its queue is written at once."""
        if wait or watch.active or profile.sink is not None:
            return super()._launch(kernargs, groups, items, used, wait, stream, vals)
        pipeline = self.pipeline(items)

        def build(timeline: Any, value: int) -> VulkanComputeQueue:
            queue = VulkanComputeQueue()
            before, after = (timeline, value - 1), (timeline, value)
            queue.q = [("wait", *before), ("exec", pipeline, kernargs, groups), ("signal", *after)]
            queue.cmds_offset, queue.cmds_len = [0, 1, 2], [1, 1, 1]
            queue.cmds_meta = ["wait", "exec", "signal"]
            queue.cmds_args = [before, (self, kernargs, groups, items), after]
            queue._kept.append(used)
            return queue

        order_of(self.device, stream).enqueue(build)
        return None

    @staticmethod
    def _entry(name: str, said: spirv.Module) -> str:
        if name in said.entries:
            return name
        if said.entries == ("main",):  # all that GLSL has
            return "main"
        known = ", ".join(said.entries)
        raise InvalidProgram(f"no kernel {name!r} in the module: it has {known}")


class _Pipelines(Compiler):
    """Under what the cache keeps a driver's compiled code: device, driver and build, kernel, size of group."""

    def __init__(self, identity: str, entry: str, items: Dims) -> None:
        super().__init__("vulkan-pipeline")
        self._identity, self._entry, self._items = identity, entry, items

    def identity(self) -> str:
        return self._identity

    def key_parts(self) -> Mapping[str, str]:
        return {"entry": self._entry, "items": "x".join(map(str, self._items))}
