"""The GPU device: OpenCL, through pyopencl. All of a machine's platforms and their devices, GPUs first.

Each noun has a module, as in every driver: device, allocator, compiler, program, queue; choosing among platforms is in
platforms. docs/design/opencl.md says why it is built as it is.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hcq.drivers.opencl.device import OpenCLDevice


def open_opencl(name: str) -> OpenCLDevice:
    """GPU, GPU:1 ... or GPU:part of a device's or platform's name. Raises DeviceUnavailable where there is none."""
    from hcq.drivers.opencl import platforms

    found = platforms.choose(name)
    from hcq.drivers.opencl.device import OpenCLDevice

    return OpenCLDevice(name, found)
