"""CUDA devices for the tests here: NVIDIA's where HCQ_CUDA=auto says so, else those of hcq.cudacpu."""

import os

import pytest

import hcq


@pytest.fixture(scope="module")
def devices():
    """Two names of CUDA devices; the second is None where there is one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HCQ_CUDA", os.environ.get("HCQ_CUDA", "cpu"))
        patch.setenv("HCQ_CUDACPU_DEVICES", "2")
        try:
            hcq.Device["CUDA"]
        except hcq.errors.DeviceUnavailable as why:
            pytest.skip(f"CUDA: {why}")
        try:
            hcq.Device["CUDA:1"]
        except hcq.errors.DeviceUnavailable:
            yield "CUDA", None
        else:
            yield "CUDA", "CUDA:1"
        for name in ("CUDA", "CUDA:1"):
            hcq.Device.close(name)


@pytest.fixture
def dev(devices):
    """The first CUDA device. A lost one is closed behind the test, so that the next has one that works."""
    device = hcq.Device["CUDA"]
    yield device
    if device.lost is not None:
        device.close()


@pytest.fixture
def graphs():
    """Skips where the stand-in is to make no CUDA graphs."""
    if "graphs" in os.environ.get("HCQ_CUDACPU_WITHOUT", "").split(","):
        pytest.skip("needs CUDA graphs")


@pytest.fixture
def nvrtc():
    """Skips where CUDA C can't be compiled."""
    from hcq.drivers.cuda import nvrtc

    if nvrtc.version() is None:
        pytest.skip("needs NVRTC")
