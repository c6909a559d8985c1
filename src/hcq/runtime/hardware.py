"""Whether a machine has a GPU at all, told in microseconds: loading drivers that say no takes half a second.

What does not live here: which device it is, and whether a driver can use it.
"""

from __future__ import annotations

import sys

# Files of kernel drivers by which user space reaches GPUs and accelerators: Linux's own (dri, accel), NVIDIA's, AMD's,
# Windows' below WSL, Arm's, Qualcomm's, Imagination's, and those of boards that speak OpenCL.
_FILES = (
    "dri/*",
    "accel/*",
    "nvidia[0-9]*",
    "nvidiactl",
    "kfd",
    "dxg",
    "mali*",
    "kgsl*",
    "pvr*",
    "xclmgmt*",
    "intel-fpga*",
)


def may_have_gpu() -> bool:
    """Whether there may be a GPU or accelerator here: False only on Linux, where none of their files is in /dev."""
    import glob  # every program imports this module, and few ask

    return not sys.platform.startswith("linux") or any(glob.glob(f"/dev/{pattern}") for pattern in _FILES)
