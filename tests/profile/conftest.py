"""Devices for the tests of profiles: a slow one in Python, and CLANG."""

import pytest
from third_party.mini import MiniDevice

import hcq


@pytest.fixture(scope="module", autouse=True)
def mini():
    hcq.Device.register("SLOW", MiniDevice)
    yield
    for name in ("SLOW", "SLOW:1"):
        hcq.Device.close(name)
    hcq.Device.unregister("SLOW")


@pytest.fixture
def clang():
    return hcq.Device["CLANG"]
