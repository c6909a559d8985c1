"""Buffers that travel between processes."""

import pickle

import numpy as np
import pytest

from hcq import Buffer, BufferOptions
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import I32, filled, later, noise, read


@promise("buffer.pickle_contents", "buffer.pickle_unallocated")
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_contents_travel(dev, protocol):
    data = noise(1000)
    buf = filled(dev, data)
    buf.ref(3)
    buf.options = BufferOptions(nolru=True)
    lazy = Buffer(dev.dname, 10, I32, options=BufferOptions(host=True))
    copy, unallocated = pickle.loads(pickle.dumps((buf, lazy), protocol))
    assert (read(copy) == data).all() and copy is not buf
    assert (copy.device, copy.size, copy.dtype, copy.lb_refcount) == (buf.device, 1000, buf.dtype, 3)
    assert copy.options == BufferOptions(nolru=True)
    assert not unallocated.is_allocated() and unallocated.options == BufferOptions(host=True)
    copy.copyin(bytes(1000))
    assert (read(buf) == data).all()


@promise("buffer.pickle_view")
def test_a_view_travels_with_its_root(dev):
    root = filled(dev, range(10))
    one, two = root.view(3, I32, 8).ensure_allocated(), root.view(4, I32, 0).ensure_allocated()
    for order in ((one, two, root), (root, one, two)):
        got = dict(zip([id(b) for b in order], pickle.loads(pickle.dumps(order)), strict=True))
        new_one, new_two, new_root = got[id(one)], got[id(two)], got[id(root)]
        assert new_one.base is new_root and new_two.base is new_root
        assert read(new_one.ensure_allocated()).tolist() == [2, 3, 4]
        new_root.copyin(np.arange(100, 110, dtype=I32))
        assert read(new_one).tolist() == [102, 103, 104]
    assert read(root).tolist() == list(range(10))


@promise("buffer.pickle_out_of_band")
def test_contents_travel_out_of_band(dev):
    data = noise(100_000)
    buf = filled(dev, data)
    parts = []
    stream = pickle.dumps(buf, protocol=5, buffer_callback=parts.append)
    assert len(stream) < 10_000 and sum(part.raw().nbytes for part in parts) == 100_000
    for arrived in ([bytes(part.raw()) for part in parts], [bytearray(part.raw()) for part in parts]):
        copy = pickle.loads(stream, buffers=arrived)
        assert (read(copy) == data).all()
        copy.copyin(bytes(100_000))
        assert not read(copy).any()
        assert bytes(arrived[0]) == data.tobytes() or isinstance(arrived[0], bytearray)
    assert (read(buf) == data).all()


@promise("buffer.pickle_waits")
@needs("queues", "async", "host_memory")
def test_pickling_waits_for_queued_work(fresh):
    source, out = filled(fresh, [42]), filled(fresh, [0])
    gate, value = fresh.signal_t(), fresh.next_timeline()
    queue = fresh.hw_copy_queue_t().wait(gate, 1).copy(out._buf.va_addr, source._buf.va_addr, 4)
    queue.signal(fresh.timeline_signal, value).submit(fresh)
    opener = later(lambda: setattr(gate, "value", 1))
    assert read(pickle.loads(pickle.dumps(out))).tolist() == [42]
    opener.join()


@pytest.mark.core
@promise("buffer.pickle_npy", "npy.source")
def test_npy_buffers_carry_their_array(driver):
    array = np.arange(12, dtype=I32)
    buf = Buffer("NPY", 12, I32, opaque=array)
    assert read(buf).tolist() == list(range(12))
    copy = pickle.loads(pickle.dumps(buf))
    array[0] = 99
    assert copy.device == "NPY" and read(copy).tolist() == list(range(12))
