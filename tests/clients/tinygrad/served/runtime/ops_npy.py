"""Served as `tinygrad.runtime.ops_npy`: where host data comes from, arrays under NPY and bytes under PYTHON.

tinygrad's PYTHON device also runs kernels, in an interpreter of its own; here it only holds what tensors are made from.
"""

from __future__ import annotations

from typing import Any, NoReturn

from hcq.drivers.npy import NpyDevice, open_npy
from hcq.errors import DeviceUnavailable

__all__ = ["NpyDevice", "PythonDevice"]


class _NoRenderer:
    """In the place of a renderer: whoever wants code for this device is told that there is none."""

    def __getattr__(self, name: str) -> NoReturn:
        raise DeviceUnavailable(
            reason="PYTHON only holds data here: it runs no kernels", hint="CLANG=1 or LLVM=1 chooses one that does"
        )


def PythonDevice(device: str = "PYTHON") -> Any:
    """The device of bytes: NPY under another name."""
    opened = open_npy(device)
    opened.renderer = _NoRenderer()
    return opened
