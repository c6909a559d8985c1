"""The GPU device's programs: a kernel of a library, whose launch is one native call.

What does not live here: what a library is (compiler), setting arguments (native/opencl).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from hcq import _native
from hcq.drivers.opencl import platforms
from hcq.drivers.opencl.compiler import read_library
from hcq.errors import InvalidProgram
from hcq.queues.native import InterfaceProgram

if TYPE_CHECKING:
    from hcq.drivers.opencl.device import OpenCLDevice


_BUFFERS = ("ptr", "const", "image r", "image w", "image rw")


@_native.inherit_vectorcall
class OpenCLProgram(_native.Program, InterfaceProgram):
    """A kernel: `OpenCLProgram(device, name, lib)`. Its arguments may stand in any order in the source: launches take
    buffers, then values.

    Threads may share it.
    """

    def __new__(cls, dev: OpenCLDevice, name: str, lib: bytes) -> Self:
        """Load it. Raises InvalidProgram."""
        library = read_library(lib)
        if library.device != dev.identity:
            raise InvalidProgram(
                f"the library is for {library.device}; {dev.dname} is {dev.identity}: compile it there"
            )
        if name not in library.kernels:
            known = ", ".join(library.kernels) or "none"
            raise InvalidProgram(f"no kernel {name!r} in the library: it has {known}")
        kinds = [kind for kind, _ in library.kernels[name]]
        has_images = dev.images is not None
        for index, kind in enumerate(kinds):
            if kind.startswith("image") and not has_images:
                raise InvalidProgram(f"{name}: argument {index} is an image2d_t, and {dev.dname} has no images")
            if kind.startswith("?"):
                also = ", and image2d_t" if has_images else ""
                raise InvalidProgram(
                    f"{name}: argument {index} is a {kind[1:]}: expected scalars and pointers to global memory{also}"
                )
        cl = platforms.interface()
        info = cl.kernel_work_group_info
        try:
            with platforms.building():
                built = cl.Program(dev.context, [dev.cl_device], [library.binary]).build(
                    library.options, cache_dir=False
                )
            kernel = cl.Kernel(built, name)
            most = _largest(kernel, dev.cl_device)
            wanted = kernel.get_work_group_info(info.COMPILE_WORK_GROUP_SIZE, dev.cl_device)
            local = kernel.get_work_group_info(info.LOCAL_MEM_SIZE, dev.cl_device)
        except cl.Error as error:
            raise InvalidProgram(f"{name}: {dev.dname} does not load the library: {error}") from error
        if local > dev.limits.local_memory_bytes:  # an implementation may take it, and end the process at the launch
            raise InvalidProgram(
                f"{name} has {local} bytes of local memory: {dev.dname} gives a group {dev.limits.local_memory_bytes}"
            )
        names = [its for _, its in library.kernels[name]]
        made = _native.opencl_program(name, kernel.int_ptr, dev.context.int_ptr, kinds, names, most, tuple(wanted))
        self = super().__new__(cls, dev, name, made)
        self.value_types = [kind for kind in kinds if kind not in _BUFFERS]
        self.buffer_count = len(kinds) - len(self.value_types)
        return self

    def __init__(self, dev: OpenCLDevice, name: str, lib: bytes) -> None:
        """`__new__` has done everything."""


def _largest(kernel: Any, device: Any) -> int:
    """Work-items of a group that the kernel takes at most."""
    most: int = kernel.get_work_group_info(platforms.interface().kernel_work_group_info.WORK_GROUP_SIZE, device)
    return most
