"""The CUDA device: NVIDIA's GPUs through their driver API, which is found at run time.

Each noun has a module, as in every driver: device, allocator, compiler, program, queue; choosing among devices is in
choice, NVRTC in nvrtc, what kernels take in ptx and mangling. docs/design/cuda.md says why it is built as it is.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hcq.drivers.cuda.device import CUDADevice


def open_cuda(name: str) -> CUDADevice:
    """CUDA, CUDA:1 ... or CUDA:part of a device's name. Raises DeviceUnavailable where there is none."""
    from hcq.drivers.cuda import choice

    found = choice.choose(name)
    from hcq.drivers.cuda.device import CUDADevice

    return CUDADevice(name, found)
