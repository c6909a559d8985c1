"""The GPU device's programs: a kernel of a library, and setting its arguments from kernargs memory.

What does not live here: what a library is (compiler), checking and queueing launches (the base).
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from hcq.drivers.opencl import platforms
from hcq.drivers.opencl.compiler import read_library
from hcq.errors import InvalidProgram, LaunchError
from hcq.queues.launch import VALUE_TYPES
from hcq.queues.program import HCQProgram

if TYPE_CHECKING:
    from hcq.drivers.opencl.device import OpenCLDevice
    from hcq.queues.launch import Dims

_SIZES = {"1": "bB?", "2": "hHe", "4": "iIf", "8": "qQd"}
_BYTES = {code: int(size) for size, codes in _SIZES.items() for code in codes}


class OpenCLProgram(HCQProgram):
    """A kernel. Its arguments may stand in any order in the source: launches take buffers, then values.

    Threads may share it.
    """

    def __init__(self, dev: OpenCLDevice, name: str, lib: bytes) -> None:
        library = read_library(lib)
        if library.device != dev.identity:
            raise InvalidProgram(
                f"the library is for {library.device}; {dev.dname} is {dev.identity}: compile it there"
            )
        if name not in library.kernels:
            known = ", ".join(library.kernels) or "none"
            raise InvalidProgram(f"no kernel {name!r} in the library: it has {known}")
        arguments = library.kernels[name]
        for index, kind in enumerate(arguments):
            if kind.startswith("?"):
                raise InvalidProgram(
                    f"{name}: argument {index} is a {kind[1:]}: expected scalars and pointers to global memory"
                )
        cl = platforms.interface()
        try:
            built = cl.Program(dev.context, [dev.cl_device], [library.binary]).build(library.options, cache_dir=False)
            self.kernel = cl.Kernel(built, name)
            info, size = cl.kernel_work_group_info, self._size_of
            self.group_items = size(dev, info.WORK_GROUP_SIZE)
            self.wanted_group: Dims | None = size(dev, info.COMPILE_WORK_GROUP_SIZE)
        except cl.Error as error:
            raise InvalidProgram(f"{name}: {dev.dname} does not load the library: {error}") from error
        if self.wanted_group is not None and not any(self.wanted_group):
            self.wanted_group = None
        pointers = [index for index, kind in enumerate(arguments) if kind == "ptr"]
        values = [(index, kind) for index, kind in enumerate(arguments) if kind != "ptr"]
        self.buffer_count = len(pointers)
        self.value_types = [kind for _, kind in values]
        at = 8 * len(pointers)
        self._pointers = [(index, 8 * place) for place, index in enumerate(pointers)]
        self._values = []
        for index, kind in values:
            count = _BYTES[VALUE_TYPES[kind][0]]
            at = -(-at // count) * count
            self._values.append((index, at, count))
            at += count
        super().__init__(dev, name, kernargs_alloc_size=at)

    def _size_of(self, dev: OpenCLDevice, what: int) -> Any:
        return self.kernel.get_work_group_info(what, dev.cl_device)

    def check_group(self, items: Dims) -> None:
        """Raise LaunchError where this kernel can't have groups of that size."""
        if self.wanted_group is not None and tuple(self.wanted_group) != items:
            raise LaunchError(
                f"{self.name} is compiled for groups of {tuple(self.wanted_group)}, and {items} are given"
            )
        if items[0] * items[1] * items[2] > self.group_items:
            raise LaunchError(
                f"{self.name}: a group of {items}; this kernel takes {self.group_items} work-items at most"
            )

    def set_arguments(self, kernargs: int) -> None:
        """Set the kernel's arguments to what stands at `kernargs`. For the compute queue's thread alone."""
        kernel, shared = self.kernel, self.device.shared  # type: ignore[attr-defined]
        for index, offset in self._pointers:
            kernel.set_arg(index, shared(ctypes.c_uint64.from_address(kernargs + offset).value, 1))
        for index, offset, count in self._values:
            kernel.set_arg(index, ctypes.string_at(kernargs + offset, count))
