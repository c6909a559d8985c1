"""The NPY device: NumPy arrays as copy sources.

`Buffer("NPY", size, dtype, opaque=array)` names the array's own memory, so that `hcq.copy` and copyout read it in
place. It allocates nothing, compiles nothing, runs nothing, and goes on working in a forked child.
"""

from __future__ import annotations

from hcq.drivers.npy.device import NpyAllocator, NpyDevice, open_npy

__all__ = ["NpyAllocator", "NpyDevice", "open_npy"]
