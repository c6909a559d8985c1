"""Buffer: creation, allocation, views, copies, lifetimes, on a device over pooled host memory."""

import pytest

from hcq import Buffer, Compiled, Device, dtypes
from hcq.runtime.allocator import HostAllocator


class HostDevice(Compiled):
    def __init__(self, name):
        super().__init__(name, HostAllocator(self))


@pytest.fixture(autouse=True)
def device():
    Device.register("HOSTMEM", HostDevice, replace=True)
    yield
    Device.close("HOSTMEM")
    Device.unregister("HOSTMEM")


def test_creating_a_buffer_allocates_nothing():
    buf = Buffer("HOSTMEM", 16, dtypes.float32)
    assert not hasattr(buf, "_buf") and not buf.is_allocated()
    assert Device.opened == ()
    assert buf.nbytes == 64


def test_contents_survive_a_round_trip():
    buf = Buffer("hostmem:0", 4, dtypes.uint8, initial_value=b"abcd")
    assert buf.device == "HOSTMEM"
    assert bytes(buf.as_buffer()) == b"abcd"
    out = bytearray(4)
    assert buf.copyout(out) is out
    assert out == b"abcd"
    assert bytes(buf.view(2, dtypes.uint8, 1).as_buffer()) == b"bc"
