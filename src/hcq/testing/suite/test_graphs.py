"""Graphs: what a capture records and refuses, and what replays do."""

import ctypes
import gc
import threading

import numpy as np
import pytest

import hcq
from hcq.errors import LaunchError
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import BYTE, address, empty, eventually, filled, in_child, live, noise, read, together

COUNT = 16


@promise("graph.capture", "graph.replay")
@needs("queues", "host_memory")
def test_copies_are_recorded_and_replayed(dev):
    data = noise(4096)
    source, middle, dest = filled(dev, data), filled(dev, np.zeros(4096, BYTE)), filled(dev, np.zeros(4096, BYTE))
    value = dev.timeline_value
    with hcq.capture() as g:
        hcq.copy(middle, source)
        hcq.copy(dest, middle)
    assert len(g) == 2
    assert dev.timeline_value == value
    dev.synchronize()
    assert not read(dest).any()
    g.replay().wait()
    assert (read(dest) == data).all()
    source.copyin(noise(4096, 1))
    replay = g.replay()
    replay.wait()
    assert replay.done
    assert (read(dest) == noise(4096, 1)).all()


@promise("graph.capture", "graph.replay")
@needs("computes", "queues")
def test_launches_are_recorded_and_replayed(dev, kernels):
    total, one, two = filled(dev, [0]), filled(dev, [1]), filled(dev, [2])
    prepared = kernels.add.prepare(total, total, two, vals=(1,))
    with hcq.capture() as g:
        kernels.add(total, total, one, vals=(1,))
        prepared()
    dev.synchronize()
    assert read(total)[0] == 0
    for _ in range(3):
        g.replay()
    dev.synchronize()
    assert read(total)[0] == 9


@promise("graph.capture")
@needs("computes", "queues")
def test_explicit_queues_are_recorded_with_their_order(dev, kernels):
    log, flag, done, stamp = filled(dev, [0] * 8), dev.signal_t(), dev.signal_t(), dev.signal_t()
    first = kernels.append.fill_kernargs([log._buf], (1,))
    second = kernels.append.fill_kernargs([log._buf], (2,))
    with hcq.capture() as g:
        dev.hw_compute_queue_t().exec(kernels.append, first).signal(flag, 1).submit(dev)
        queue = dev.hw_compute_queue_t().wait(flag, 1).memory_barrier().exec(kernels.append, second)
        queue.timestamp(stamp).signal(done, 7).submit(dev)
    assert (flag.value, done.value) == (0, 0)
    # The arguments are the graph's own, whatever becomes of that memory.
    kernels.append.fill_kernargs([log._buf], (9,), kernargs_ptr=first)
    g.replay()
    g.replay().wait()
    assert read(log)[:5].tolist() == [4, 1, 2, 1, 2]
    assert (flag.value, done.value) == (1, 7)
    assert stamp.timestamp > 0


@promise("graph.capture")
@needs("queues", "async")
def test_a_replay_waits_for_signals_from_outside(dev):
    gate, done = dev.signal_t(), dev.signal_t()
    with hcq.capture() as g:
        dev.hw_compute_queue_t().wait(gate, 1).signal(done, 1).submit(dev)
    replay = g.replay()
    assert not replay.done
    assert done.value == 0
    gate.value = 1
    replay.wait()
    assert done.value == 1


@promise("graph.capture")
@needs("computes", "queues")
def test_timeline_values_of_captured_submits_are_not_lost(dev, kernels):
    out = filled(dev, [0])
    kernargs = kernels.increment.fill_kernargs([out._buf])
    with hcq.capture() as g, dev.timeline_lock:
        signal, value = dev.timeline_signal, dev.next_timeline()
        dev.hw_compute_queue_t().wait(signal, value - 1).exec(kernels.increment, kernargs).signal(signal, value).submit(
            dev
        )
    dev.synchronize()
    assert read(out)[0] == 0
    g.replay()
    dev.synchronize()
    assert read(out)[0] == 1


@promise("graph.refuses")
@needs("queues", "host_memory")
def test_what_needs_results_is_refused_while_recording(dev):
    buf, sig = filled(dev, [1, 2]), dev.signal_t(1)
    with hcq.capture():
        for touch in (
            lambda: buf.copyout(bytearray(8)),
            lambda: buf.copyin(bytes(8)),
            lambda: buf.as_buffer(allow_zero_copy=True),
            buf.numpy,
            dev.synchronize,
            lambda: sig.wait(1),
            lambda: dev.allocator.copyout(bytearray(8), buf._buf),
        ):
            with pytest.raises(RuntimeError, match=r"hcq\.capture"):
                touch()
        assert empty(dev, 4).is_allocated()
    dev.synchronize()
    assert read(buf).tolist() == [1, 2]


@promise("graph.refuses")
@needs("computes", "queues")
def test_launches_that_wait_or_take_arrays_are_refused_while_recording(dev, kernels):
    buf = filled(dev, [1])
    with hcq.capture() as g:
        with pytest.raises(RuntimeError, match="wait=True"):
            kernels.increment(buf, wait=True)
        with pytest.raises((LaunchError, RuntimeError)):
            kernels.increment(np.zeros(1, np.int32))
        with pytest.raises(LaunchError):
            kernels.increment(buf, buf)
    assert len(g) == 0
    g.replay().wait()


@promise("graph.per_thread")
@needs("queues", "host_memory")
def test_a_capture_is_of_its_thread_and_does_not_nest(dev):
    a, b, c = filled(dev, noise(64)), filled(dev, np.zeros(64, BYTE)), filled(dev, np.zeros(64, BYTE))
    with hcq.capture() as g:
        with pytest.raises(RuntimeError, match="nest"), hcq.capture():
            pass
        together(lambda: hcq.copy(b, a))
        hcq.copy(c, a)
        with pytest.raises(RuntimeError, match="finished"):
            g.replay()
    assert len(g) == 1
    assert (read(b) == noise(64)).all()
    assert not read(c).any()


@promise("graph.capture")
@needs("queues", "host_memory")
def test_a_block_that_raises_leaves_nothing_behind(dev):
    a, b = filled(dev, noise(64)), filled(dev, np.zeros(64, BYTE))
    with pytest.raises(ZeroDivisionError), hcq.capture() as g:
        hcq.copy(b, a)
        raise ZeroDivisionError
    with pytest.raises(RuntimeError, match="finished"):
        g.replay()
    hcq.copy(b, a)
    assert (read(b) == noise(64)).all()


@promise("graph.owns")
@needs("queues", "host_memory")
def test_a_graph_owns_its_buffers(dev):
    before = live(dev.dname)
    dest = filled(dev, np.zeros(4096, BYTE))
    with hcq.capture() as g:
        between = empty(dev, 4096, BYTE)
        hcq.copy(between, filled_before(dev))
        hcq.copy(dest, between)
        between.deallocate()
    del between
    gc.collect()
    others = [filled(dev, noise(4096, 7)) for _ in range(8)]  # would get the memory, were it free
    g.replay().wait()
    assert (read(dest) == noise(4096, 3)).all()
    assert all((read(other) == noise(4096, 7)).all() for other in others)
    del g, others, dest
    dev.synchronize()
    assert live(dev.dname) == before


def filled_before(dev):
    """Made outside of any capture: a thread of its own does it."""
    [buf] = together(lambda: filled(dev, noise(4096, 3)))
    return buf


@promise("graph.owns")
@needs("queues", "host_memory", "async")
def test_a_replay_goes_on_when_the_graph_is_dropped(dev):
    dest, source, gate = filled(dev, np.zeros(4096, BYTE)), filled(dev, noise(4096)), dev.signal_t()
    with hcq.capture() as g:
        dev.hw_copy_queue_t().wait(gate, 1).copy(address(dest), address(source), 4096).submit(dev)
    replay = g.replay()
    del g, source, replay
    gc.collect()
    gate.value = 1
    dev.synchronize()
    assert (read(dest) == noise(4096)).all()


@promise("graph.inputs")
@needs("queues", "host_memory")
def test_inputs_are_replaced_by_name(dev):
    x, out = filled(dev, noise(64, 1)), filled(dev, np.zeros(64, BYTE))
    with hcq.capture(inputs={"x": x, "out": out}) as g:
        hcq.copy(out, x)
    other, there = filled(dev, noise(64, 2)), filled(dev, np.zeros(64, BYTE))
    g.replay(x=other).wait()
    assert (read(out) == noise(64, 2)).all()
    g.replay(out=there).wait()  # x stays as it was set
    assert (read(there) == noise(64, 2)).all()
    g.replay(x=x, out=out).wait()
    assert (read(out) == noise(64, 1)).all()
    with pytest.raises(TypeError, match="no input 'y'"):
        g.replay(y=x)
    with pytest.raises(ValueError, match="bytes"):
        g.replay(x=filled(dev, noise(8)))
    with pytest.raises(ValueError, match="allocated"):
        g.replay(x=hcq.Buffer(dev.dname, 64, BYTE))
    with pytest.raises(TypeError):
        g.replay(x=bytes(64))
    assert g.inputs == {"x": x, "out": out}


@promise("graph.inputs")
@needs("computes", "queues")
def test_views_of_inputs_move_with_them(dev, kernels):
    x, out = filled(dev, range(8)), filled(dev, [0, 0])
    with hcq.capture(inputs={"x": x}) as g:
        view = x.view(2, x.dtype, 8)
        kernels.add(out, view, view, vals=(2,))
    g.replay().wait()
    assert read(out).tolist() == [4, 6]
    g.replay(x=filled(dev, range(100, 108))).wait()
    assert read(out).tolist() == [204, 206]


@promise("graph.inputs")
@needs("computes", "queues")
def test_values_are_replaced_by_name_and_by_place(dev, kernels):
    out, more = filled(dev, [0] * 4), filled(dev, [0] * 4)
    with hcq.capture() as g:
        n = g.value("n", 2)
        kernels.fill(out, vals=(n, 5))
        kernels.fill(more, vals=(n, 6))
    g.replay().wait()
    assert (read(out).tolist(), read(more).tolist()) == ([5, 5, 0, 0], [6, 6, 0, 0])
    g.replay(vals={"n": 3, (1, 1): 8})
    g.replay().wait()
    assert (read(out).tolist(), read(more).tolist()) == ([5, 5, 5, 0], [8, 8, 8, 0])
    g.replay(vals={(0, 0): 4, (0, 1): 9})
    g.replay(vals={"n": 1, (1, 1): 1}).wait()
    assert (read(out).tolist(), read(more).tolist()) == ([9] * 4, [1, 8, 8, 0])
    with pytest.raises(ValueError, match="no value 'm'"):
        g.replay(vals={"m": 1})
    with pytest.raises(LaunchError):
        g.replay(vals={"n": 4, (0, 1): 2**40})
    with pytest.raises(IndexError):
        g.replay(vals={(0, 2): 1})
    g.replay().wait()
    assert read(more).tolist() == [1, 8, 8, 0]


@promise("graph.inputs")
@needs("computes", "queues")
def test_sizes_are_replaced(dev, kernels):
    out = filled(dev, [0] * COUNT)
    with hcq.capture() as g:
        groups = g.value("groups", 1)
        kernels.grid(out, global_size=(groups, 1, 1), local_size=(2, 1, 1))
    g.replay().wait()
    assert np.count_nonzero(read(out)) == 2
    g.replay(vals={"groups": 3}).wait()
    assert np.count_nonzero(read(out)) == 6
    g.replay(sizes={0: ((2, 2, 1), (4, 1, 1))}).wait()
    assert np.count_nonzero(read(out)) == 16
    before = read(out)
    g.replay(sizes={"grid": (0, 1, 1)}).wait()
    assert (read(out) == before).all()
    with pytest.raises(LaunchError):
        g.replay(sizes={0: ((-1, 1, 1), (1, 1, 1))})
    with pytest.raises(ValueError, match="no program"):
        g.replay(sizes={"other": (1, 1, 1)})


@promise("graph.inputs")
@needs("computes", "queues", "async")
def test_earlier_replays_are_not_disturbed_by_later_ones(dev, kernels):
    gate, log = dev.signal_t(), filled(dev, [0] * COUNT)
    inputs = [filled(dev, [0]) for _ in range(4)]
    with hcq.capture(inputs={"x": inputs[0]}) as g:
        kernels.append(log, vals=(g.value("v", 0),))
        kernels.fill(inputs[0], vals=(1, g.value("v", 0)))
    dev.hw_compute_queue_t().wait(gate, 1).submit(dev)
    opener = threading.Timer(0.05, lambda: setattr(gate, "value", 1))  # Python drivers may wait for the oldest
    opener.start()
    replays = [g.replay(x=buf, vals={"v": 10 + index}) for index, buf in enumerate(inputs)]
    gate.value = 1
    for replay in replays:
        replay.wait()
    opener.join()
    assert [read(buf)[0] for buf in inputs] == [10, 11, 12, 13]
    assert read(log)[:5].tolist() == [4, 10, 11, 12, 13]


@promise("graph.inputs")
@needs("computes", "queues")
def test_inputs_and_outputs_may_be_one_buffer(dev, kernels):
    x, y, z = filled(dev, [3]), filled(dev, [4]), filled(dev, [0])
    with hcq.capture(inputs={"x": x, "y": y, "z": z}) as g:
        kernels.add(z, x, y, vals=(1,))  # z = x + y
        kernels.add(y, x, x, vals=(1,))  # y = x + x
        kernels.add(x, z, z, vals=(1,))  # x = z + z
    one = filled(dev, [5])
    g.replay(x=one, y=one, z=one).wait()
    assert read(one)[0] == 40
    g.replay(x=x, y=y, z=z).wait()
    assert (read(x)[0], read(y)[0], read(z)[0]) == (14, 6, 7)


@promise("graph.replay")
@needs("computes", "queues", "async", "host_memory")
def test_independent_work_runs_side_by_side(dev, kernels):
    # One of two independent commands stands at a signal that is set only once the other has run.
    a, b, beside, gate = filled(dev, [0]), filled(dev, [0]), filled(dev, [0]), dev.signal_t()
    with hcq.capture() as g:
        dev.hw_copy_queue_t().wait(gate, 1).copy(address(a), address(b), 4).submit(dev)
        kernels.spin(beside, vals=(1000,))
    replay = g.replay()
    seen = eventually(lambda: ctypes.c_int32.from_address(address(beside)).value == 1000)
    gate.value = 1
    replay.wait()
    assert seen


@promise("graph.replay")
@needs("computes", "queues")
def test_replays_are_in_order_with_other_work(dev, kernels):
    log = filled(dev, [0] * 32)
    with hcq.capture() as g:
        kernels.append(log, vals=(1,))
        kernels.append(log, vals=(2,))
    for _ in range(3):
        kernels.append(log, vals=(0,))
        g.replay()
    kernels.append(log, vals=(3,))
    dev.synchronize()
    assert read(log)[:11].tolist() == [10, 0, 1, 2, 0, 1, 2, 0, 1, 2, 3]


@promise("graph.replay")
@needs("computes", "queues")
def test_threads_replay_one_graph(dev, kernels):
    total = filled(dev, [0])
    with hcq.capture() as g:
        kernels.increment(total)
        kernels.increment(total)

    def replays():
        for _ in range(20):
            g.replay()
        g.replay().wait()

    together(*[replays] * 4)
    dev.synchronize()
    assert read(total)[0] == 4 * 21 * 2


@promise("graph.capture")
@needs("computes", "queues", "peers")
def test_a_graph_over_two_devices(dev, peer, kernels):
    program = kernels.on(peer).increment
    here, there, back = filled(dev, [0]), filled(peer, [0]), filled(dev, [0])
    with hcq.capture(inputs={"here": here}) as g:
        kernels.increment(here)
        hcq.copy(there, here)
        program(there)
        hcq.copy(back, there)
        kernels.increment(back)
    assert set(g.devices) == {dev, peer}
    for _ in range(3):
        g.replay()
    dev.synchronize()
    peer.synchronize()
    assert (read(here)[0], read(there)[0], read(back)[0]) == (3, 4, 5)
    program(there)  # comes after the graph, and before the next replay
    g.replay(here=filled(dev, [40])).wait()
    assert (read(there)[0], read(back)[0]) == (42, 43)
    hcq.Device.close(peer.dname)


@promise("graph.owns")
@needs("queues", "fork", "host_memory")
def test_an_inherited_graph_is_refused(dev):
    a, b = filled(dev, noise(64)), filled(dev, np.zeros(64, BYTE))
    with hcq.capture() as g:
        hcq.copy(b, a)
    g.replay().wait()
    assert "ForkedDeviceError" in str(in_child(g.replay))
    g.replay().wait()


@promise("graph.replay")
@needs("queues", "inject", "async", "computes")
def test_a_failed_command_of_a_replay_reaches_who_waits(dev, kernels):
    from hcq.testing import inject

    out = filled(dev, [0])
    with hcq.capture() as g:
        kernels.increment(out)
        kernels.increment(out)
    g.replay().wait()
    with inject(dev, "exec", nth=2), pytest.raises(hcq.errors.DeviceLost):
        g.replay().wait()
    hcq.Device.close(dev.dname)


@promise("graph.capture")
@needs("queues", "host_memory")
def test_a_picture_names_commands_queues_and_waits(dev):
    a, b, c = (filled(dev, noise(64)) for _ in range(3))
    with hcq.capture() as g:
        hcq.copy(b, a)
        hcq.copy(c, b)
    picture, text = g.draw(), g.draw(dot=True)
    assert picture.startswith("<svg")
    assert dev.dname in picture
    assert text.startswith("digraph")
    assert text.count("[label=") == 2
