"""Served as `tinygrad.runtime.ops_npy`: where host data comes from, arrays under NPY and bytes under PYTHON.

tinygrad's PYTHON device also runs kernels, in an interpreter of its own; here it only holds what tensors are made from.
"""

from __future__ import annotations

from hcq.drivers.npy import NpyDevice

__all__ = ["NpyDevice"]
