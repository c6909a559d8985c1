"""What every opened device has."""

import pytest

import hcq
from hcq.errors import HCQError
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import filled, read


@promise("device.attributes")
def test_an_opened_device_has_its_parts(dev, driver):
    assert dev.dname == hcq.Device.canonicalize(driver.device)
    for part in ("allocator", "compiler", "runtime", "renderer", "graph"):
        assert hasattr(dev, part)
    assert dev.allocator is not None and dev.runtime is not None
    assert isinstance(dev.compiler, hcq.Compiler)


@promise("device.limits")
def test_limits_are_numbers(dev):
    limits = dev.limits
    for name in ("max_group_items", "local_memory_bytes", "buffer_alignment", "view_alignment", "max_argument_bytes"):
        assert isinstance(getattr(limits, name), int) and getattr(limits, name) >= 0
    assert len(limits.max_group_size) == 3 and len(limits.max_groups) == 3
    assert limits.max_buffer_bytes is None or limits.max_buffer_bytes > 0


@promise("device.info")
def test_info_says_what_it_is(dev):
    assert dev.info and isinstance(str(dev.info), str)


@promise("device.instances")
@needs("peers")
def test_instances_are_independent_devices(dev, peer):
    assert peer is not dev and peer.dname != dev.dname and type(peer) is type(dev)
    one, two = filled(dev, [1]), filled(peer, [2])
    assert (read(one).tolist(), read(two).tolist()) == ([1], [2])


@promise("device.instances")
@needs("queues", "async", "peers")
def test_a_device_that_stands_still_holds_no_other(fresh, fresh_peer):
    gate = fresh.signal_t()
    value = fresh.next_timeline()
    fresh.hw_compute_queue_t().wait(gate, 1).signal(fresh.timeline_signal, value).submit(fresh)
    done = fresh_peer.signal_t()
    fresh_peer.hw_compute_queue_t().signal(done, 1).submit(fresh_peer)
    done.wait(1)
    fresh_peer.synchronize()
    gate.value = 1
    fresh.synchronize()


@promise("device.synchronize_raises", "fault.inject_exec")
@needs("inject", "queues")
def test_synchronize_raises_what_failed(fresh, fresh_kernels):
    from hcq.testing import inject

    with inject(fresh, "exec", error=ArithmeticError("went wrong")):
        fresh_kernels.nothing()
        with pytest.raises(HCQError, match="went wrong"):
            fresh.synchronize()


@pytest.mark.core
@promise("device.compiled_base", "registry.register")
def test_a_device_made_of_parts_works(driver):
    class Runner:
        def __init__(self, name, lib):
            self.name, self.lib = name, lib

        def __call__(self, *bufs, global_size=(1, 1, 1), local_size=(1, 1, 1), vals=(), wait=False):
            for buf in bufs:
                hcq.MallocAllocator.as_buffer(buf)[:1] = self.lib[:1]
            return 0.0 if wait else None

    class Source(hcq.Compiler):
        def compile(self, src):
            return src.encode()

    class Parts(hcq.Compiled):
        def __init__(self, name):
            super().__init__(name, hcq.MallocAllocator, None, Source(), Runner)

    hcq.Device.register("PARTSOFIT", Parts, replace=True)
    dev = hcq.Device["PARTSOFIT"]
    buf = hcq.Buffer("PARTSOFIT", 3, hcq.dtypes.uint8, initial_value=b"abc")
    program = dev.runtime("f", dev.compiler.compile_cached("xyz"))
    assert program(buf._buf, wait=True) == 0.0
    dev.synchronize()
    assert bytes(buf.as_buffer()) == b"xbc"
    dev.close()
