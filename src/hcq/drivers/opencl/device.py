"""The GPU device: what opening it sets up, its limits, and what it says of itself."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from hcq import _native, config
from hcq.drivers.opencl import platforms
from hcq.drivers.opencl.allocator import ALIGNMENT, MappedAllocator, OpenCLAllocator
from hcq.drivers.opencl.compiler import OpenCLCompiler
from hcq.drivers.opencl.images import Support
from hcq.drivers.opencl.program import OpenCLProgram
from hcq.drivers.opencl.queue import OpenCLComputeQueue, OpenCLCopyQueue
from hcq.errors import DeviceUnavailable
from hcq.queues.native import NativeDevice
from hcq.runtime.compiled import DeviceLimits

_abandoned: list[dict[int, Any]] = []  # memory of closed devices on which a command went on running


class OpenCLDevice(NativeDevice):
    """An OpenCL device with shared virtual memory. Its queues are native, and give their commands to OpenCL.

    Threads may share a device. An error that OpenCL reports for a command loses the device: DeviceLost, with it as the
    cause.
    """

    kernel_language = "opencl"

    def __init__(self, name: str, cl_device: Any) -> None:
        cl = self._cl = platforms.interface()
        self.cl_device = cl_device
        self.identity = platforms.identity(cl_device)
        self.is_cpu_implementation = bool(cl_device.type & cl.device_type.CPU)
        shares = platforms.sharing(cl_device)
        kinds = cl.device_svm_capabilities
        if not shares & (kinds.COARSE_GRAIN_BUFFER | kinds.FINE_GRAIN_BUFFER):
            raise DeviceUnavailable(
                f"{cl_device.name.strip()} ({cl_device.version.strip()}) has no shared virtual memory",
                "memory is used by address here: OpenCL 2.0 or later with coarse-grained sharing is needed",
            )
        self.is_mapped = bool(shares & kinds.FINE_GRAIN_BUFFER)
        try:
            self.context = cl.Context([cl_device])
        except cl.Error as error:
            raise DeviceUnavailable(f"{cl_device.name.strip()} gives no context: {error}", "see the driver") from error
        self._flags = int(cl.svm_mem_flags.READ_WRITE)
        if self.is_mapped:
            self._flags |= int(cl.svm_mem_flags.SVM_FINE_GRAIN_BUFFER)
        self.limits = _limits(cl_device)
        self.images = Support.of(cl, self.context, cl_device)
        self.held: dict[int, Any] = {}  # what keeps each allocation, by address; each step on it is one of the dict's
        allocator_t = MappedAllocator if self.is_mapped and not config.FORCE_STAGING() else OpenCLAllocator
        platforms.load_commands()
        runtime = functools.partial(OpenCLProgram, self)
        queues = OpenCLComputeQueue, OpenCLCopyQueue
        super().__init__(name, allocator_t, OpenCLCompiler(cl_device), runtime, *queues)
        _native.opencl_serve(self, self.context.int_ptr, cl_device.int_ptr, allocator_t is MappedAllocator)

    def allocate(self, size: int, alignment: int) -> tuple[Any, int]:
        """Shared memory: what keeps it, and its address. Raises MemoryError."""
        if self.limits.max_buffer_bytes is not None and size > self.limits.max_buffer_bytes:
            raise MemoryError(f"{size} bytes: this device gives {self.limits.max_buffer_bytes} at once at most")
        try:
            memory = self._cl.SVMAllocation(self.context, size, alignment, self._flags)
        except self._cl.Error as error:
            raise MemoryError(f"OpenCL gives no {size} bytes: {error}") from error
        return memory, int(memory.svm_ptr)

    def _close(self) -> None:
        super()._close()
        if not self._ended():
            _abandoned.append(dict(self.held))  # commands may still use it
        self.held.clear()

    def _info(self) -> Mapping[str, object]:
        device = self.cl_device
        return {
            "kind": "OpenCL on the CPU" if self.is_cpu_implementation else "OpenCL",
            "device": device.name.strip(),
            "platform": device.platform.name.strip(),
            "version": device.version.strip(),
            "driver version": device.driver_version.strip(),
            "memory": device.global_mem_size,
            "cores": device.max_compute_units,
            "images": "none" if self.images is None else "up to {} x {}".format(*self.images.largest),
            "host access": "in place" if self.is_mapped else "by copies",
            "queues": ("compute", "copy"),
        }


def _limits(device: Any) -> DeviceLimits:
    sizes = device.max_work_item_sizes
    x, y, z = (min(size, device.max_work_group_size) for size in (*sizes[:3],))
    return DeviceLimits(
        max_group_size=(x, y, z),
        max_group_items=device.max_work_group_size,
        local_memory_bytes=device.local_mem_size,
        max_buffer_bytes=device.max_mem_alloc_size,
        buffer_alignment=ALIGNMENT,
        view_alignment=1,
        max_argument_bytes=device.max_parameter_size,
    )
