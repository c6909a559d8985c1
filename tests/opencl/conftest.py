"""GPU devices for the tests here: two of PoCL's, where that is what there is."""

import os

import pytest

os.environ.setdefault("POCL_DEVICES", "pthread pthread")

import hcq


@pytest.fixture
def gpu():
    try:
        return hcq.Device["GPU"]
    except hcq.errors.DeviceUnavailable as why:
        pytest.skip(f"GPU: {why}")


@pytest.fixture
def images(gpu):
    """Skips where the device has no images."""
    if gpu.images is None:
        pytest.skip("GPU: this OpenCL device has no images")


@pytest.fixture
def in_place(gpu):
    """Skips where the host doesn't reach the memory that kernels work in."""
    if not gpu.is_mapped:
        pytest.skip("GPU: this OpenCL device shares coarse-grained memory")
