"""Copies of Python drivers: the staging ring, transfers, kernargs and freed memory behind queued work."""

import ctypes
import gc
import threading

import numpy as np
import pytest
from third_party.mini import MiniAllocator, MiniDevice

import hcq
from hcq.errors import DeviceLost, LaunchError, SignalTimeout
from hcq.queues import kernargs as kernargs_module
from hcq.queues import profile
from hcq.queues import staging as staging_module
from hcq.queues.allocator import HCQAllocator

BATCH = 4096
COUNT = 4


class SmallRing(MiniAllocator):
    """The host doesn't write this memory directly; small batches, so that little data goes round the ring."""

    host_access = False

    def __init__(self, device):
        self.staged = 0
        super().__init__(device)
        self.staging.batch_size, self.staging.batch_cnt = BATCH, COUNT

    def map(self, buf):
        pass  # its queues reach the memory of peers, though the host were not to

    def _alloc(self, size, options):
        self.staged += options.host
        return super()._alloc(size, options)


class StagedDevice(MiniDevice):
    def __init__(self, device):
        super().__init__(device)
        self.allocator = SmallRing(self)


@pytest.fixture
def names():
    for name, factory in (("STAGED", StagedDevice), ("SMALL", MiniDevice)):
        hcq.Device.register(name, factory)
    yield
    for name in ("STAGED", "SMALL"):
        for number in ("", ":1"):
            hcq.Device.close(name + number)
        hcq.Device.unregister(name)


@pytest.fixture
def dev(names):
    return hcq.Device["STAGED"]


@pytest.fixture
def mini(names):
    return hcq.Device["SMALL"]


def noise(size, seed=0):
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def filled(dev, data):
    buf = dev.allocator.alloc(data.nbytes)
    ctypes.memmove(buf.va_addr, data.ctypes.data, data.nbytes)
    return buf


def seen(buf):
    return np.frombuffer(ctypes.string_at(buf.va_addr, buf.size), np.uint8)


def read(buf):
    array = np.zeros(buf.nbytes // 4, np.int32)
    buf.copyout(array)
    return array.tolist()


def standing_copies(dev):
    """Lets the copy queue stand still until the signal returned is 1."""
    gate = dev.signal_t()
    dev.hw_copy_queue_t().wait(gate, 1).submit(dev)
    return gate


@pytest.mark.parametrize("size", [1, 3, BATCH - 1, BATCH, BATCH + 1, BATCH * COUNT, BATCH * COUNT * 3 + 17])
@pytest.mark.parametrize("way", ["ring", "direct", "forced"])
def test_bytes_survive_copyin_and_copyout(dev, mini, way, size, monkeypatch):
    if way == "forced":
        monkeypatch.setenv("HCQ_FORCE_STAGING", "1")
    device = dev if way == "ring" else mini
    data, back = noise(size), np.zeros(size, np.uint8)
    buf = device.allocator.alloc(size)
    device.allocator.copyin(buf, memoryview(data))
    device.allocator.copyout(memoryview(back), buf)
    assert (back == data).all()


def test_forced_staging_goes_through_the_copy_queue(mini, monkeypatch):
    buf = mini.allocator.alloc(100)
    mini.allocator.copyin(buf, bytes(100))
    assert mini.timeline_value == 1
    monkeypatch.setenv("HCQ_FORCE_STAGING", "1")
    mini.allocator.copyin(buf, bytes(100))
    assert mini.timeline_value == 2


def test_the_ring_is_allocated_at_first_use_and_as_far_as_needed(dev):
    buf = dev.allocator.alloc(BATCH)
    assert dev.allocator.staged == 0
    dev.allocator.copyin(buf, bytes(100))
    dev.synchronize()
    dev.allocator.copyin(buf, bytes(100))
    assert dev.allocator.staged == 1


@pytest.mark.parametrize("what", ["staging", "kernargs"])
def test_whoever_needs_the_ring_or_kernargs_while_they_are_made_has_the_same_ones(mini, what, monkeypatch):
    module, name, owner = {
        "staging": (staging_module, "Staging", mini.allocator),
        "kernargs": (kernargs_module, "Kernargs", mini),
    }[what]
    made, others = getattr(module, name), []

    def make(*args):
        if not others:  # as a finalizer that runs just now, or another thread
            others.append(None)
            others[0] = getattr(owner, what)
        return made(*args)

    monkeypatch.setattr(module, name, make)
    vars(owner).pop(what, None)
    assert getattr(owner, what) is others[0] is getattr(owner, what)


def test_copyin_returns_before_the_copy_and_the_memory_is_the_callers_again(dev):
    data = noise(BATCH * 2)
    expected, source = data.copy(), data
    buf = filled(dev, np.zeros(BATCH * 2, np.uint8))
    gate = standing_copies(dev)
    dev.allocator.copyin(buf, source)
    source[:] = 0
    assert not seen(buf).any()
    gate.value = 1
    dev.synchronize()
    assert (seen(buf) == expected).all()


def test_batches_are_used_again_only_behind_the_timeline(dev):
    bufs = [filled(dev, np.zeros(BATCH, np.uint8)) for _ in range(COUNT * 3)]
    gate = standing_copies(dev)
    for number, buf in enumerate(bufs[:COUNT]):
        dev.allocator.copyin(buf, np.full(BATCH, number + 1, np.uint8))
    began = threading.Event()

    def rest():
        began.set()
        for number, buf in enumerate(bufs[COUNT:], COUNT):
            dev.allocator.copyin(buf, np.full(BATCH, number + 1, np.uint8))

    thread = threading.Thread(target=rest)
    thread.start()
    began.wait()
    thread.join(0.05)
    assert thread.is_alive() and dev.allocator.staged == COUNT  # all batches hold data that was not copied yet
    gate.value = 1
    thread.join()
    dev.synchronize()
    assert [set(seen(buf)) for buf in bufs] == [{number + 1} for number in range(len(bufs))]


def test_a_full_ring_behind_a_standing_queue_times_out_and_names_it(dev, monkeypatch):
    buf = dev.allocator.alloc(BATCH)
    gate = standing_copies(dev)
    with monkeypatch.context() as short, pytest.raises(SignalTimeout, match="COPY queue of STAGED stands at wait"):
        short.setenv("HCQ_TIMEOUT_MS", "50")
        for _ in range(COUNT + 1):
            dev.allocator.copyin(buf, bytes(BATCH))
    gate.value = 1
    dev.synchronize()
    dev.allocator.copyin(buf, bytes(BATCH))
    dev.synchronize()


def test_threads_share_the_ring(dev):
    blocks = [noise(BATCH * COUNT + 5, seed) for seed in range(4)]
    bufs = [dev.allocator.alloc(data.nbytes) for data in blocks]
    wrong = []

    def work(number):
        try:
            for _ in range(5):
                back = np.zeros_like(blocks[number])
                dev.allocator.copyin(bufs[number], blocks[number])
                dev.allocator.copyout(back, bufs[number])
                assert (back == blocks[number]).all()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("held", ["hw_compute_queue_t", "stream"])
def test_copyin_and_copyout_come_after_all_work_queued(dev, held):
    """Work that never touches the timeline counts too: explicit submits, and streams."""
    data, old = noise(100), noise(100, 1)
    buf, other = filled(dev, old), filled(dev, np.zeros(100, np.uint8))
    gate = dev.signal_t()
    if held == "stream":
        dev.stream().enqueue(
            lambda signal, value: (
                dev.hw_copy_queue_t().wait(gate, 1).copy(other.va_addr, buf.va_addr, 100).signal(signal, value)
            )
        )
    else:
        copied = dev.signal_t()
        dev.hw_copy_queue_t().wait(gate, 1).copy(other.va_addr, buf.va_addr, 100).signal(copied, 1).submit(dev)
        dev.hw_compute_queue_t().wait(copied, 1).submit(dev)
    dev.allocator.copyin(buf, data)
    gate.value = 1
    back = np.zeros(100, np.uint8)
    dev.allocator.copyout(back, other)
    assert (back == old).all()
    dev.allocator.copyout(back, buf)
    assert (back == data).all()


@pytest.mark.parametrize("name", ["CLANG", "NULL"])
def test_staged_copies_of_native_devices_come_after_all_work_queued(name, monkeypatch):
    hcq.Device.close(name)
    monkeypatch.setenv("HCQ_FORCE_STAGING", "1")
    dev = hcq.Device[name]
    buf = hcq.Buffer(name, 100, hcq.dtypes.uint8, initial_value=bytes(100))
    dev.synchronize()
    gate = dev.signal_t()
    dev.hw_compute_queue_t().wait(gate, 1).submit(dev)  # touches no timeline
    buf.copyin(noise(100))
    before = ctypes.string_at(buf._buf.va_addr, 100)
    gate.value = 1
    back = bytearray(100)
    buf.copyout(back)
    assert before == bytes(100) and back == noise(100).tobytes()
    hcq.Device.close(name)


def test_what_can_not_be_copied_is_refused(dev):
    buf = dev.allocator.alloc(64)
    before = dev.timeline_value
    for source in (np.zeros((8, 8), np.uint8).T[:, ::2], np.zeros(65, np.uint8)):
        with pytest.raises(ValueError):
            dev.allocator.copyin(buf, source)
    with pytest.raises(TypeError, match="read-only"):
        dev.allocator.copyout(bytes(64), buf)
    with pytest.raises(ValueError):
        dev.allocator.copyout(bytearray(65), buf)
    with pytest.raises(TypeError):
        dev.allocator.copyin(buf, 5)
    assert dev.timeline_value == before
    dev.allocator.copyin(buf, np.zeros((0, 3), np.uint8))
    dev.allocator.copyin(buf, np.zeros((4, 2), np.float64))


class File:
    """A source of bytes that reads at most `most` at a time."""

    def __init__(self, data, most=1000):
        self.data, self.most = data, most

    def readinto(self, view, offset):
        part = self.data[offset : offset + min(len(view), self.most)]
        view[: len(part)] = part
        return len(part)


def test_disk_to_device_continues_short_reads_and_never_passes_over_an_end(dev):
    data = noise(BATCH * 6 + 11)
    buf = filled(dev, np.zeros(data.nbytes, np.uint8))
    dev.allocator.copy_from_disk(buf, File(data), data.nbytes)
    dev.synchronize()
    assert (seen(buf) == data).all()
    with pytest.raises(EOFError, match="ends after"):
        dev.allocator.copy_from_disk(buf, File(data[:-1]), data.nbytes)
    dev.synchronize()
    dev.allocator.copyin(buf, data)  # every batch came back
    dev.synchronize()


def test_a_transfer_copies_and_moves_both_timelines(dev, names):
    peer = hcq.Device["STAGED:1"]
    data = noise(5000)
    source, dest = filled(dev, data), filled(peer, np.zeros(5000, np.uint8))
    gate, theirs = standing_copies(dev), peer.signal_t()
    # Work of the destination that was queued before must be over first.
    peer.enqueue(
        lambda timeline, value: (
            peer.hw_compute_queue_t().wait(timeline, value - 1).wait(theirs, 1).signal(timeline, value)
        )
    )
    values = dev.timeline_value, peer.timeline_value
    dev.allocator.transfer(dest, source, 5000, src_dev=dev, dest_dev=peer)
    assert (dev.timeline_value, peer.timeline_value) == (values[0] + 1, values[1] + 1)
    gate.value = 1
    with pytest.raises(SignalTimeout):
        dev.timeline_signal.wait(values[0], timeout=30)
    assert not seen(dest).any()
    theirs.value = 1
    peer.synchronize()
    assert (seen(dest) == data).all()
    dev.synchronize()


def test_transfers_that_cross_each_other_from_two_threads_end(dev):
    peer = hcq.Device["STAGED:1"]
    here, there = filled(dev, noise(64)), filled(peer, noise(64, 1))

    def go(source_dev, dest_dev, dest, source):
        for _ in range(100):
            dev.allocator.transfer(dest, source, 64, src_dev=source_dev, dest_dev=dest_dev)

    threads = [
        threading.Thread(target=go, args=(dev, peer, there, here)),
        threading.Thread(target=go, args=(peer, dev, here, there)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    dev.synchronize()
    peer.synchronize()
    assert (seen(here) == seen(there)).all()


def test_a_transfer_with_a_stream_is_ordered_with_that_alone(dev, names):
    peer, data = hcq.Device["STAGED:1"], noise(100)
    source, dest = filled(dev, data), filled(peer, np.zeros(100, np.uint8))
    gate, values = dev.signal_t(), (dev.timeline_value, peer.timeline_value)
    dev.hw_compute_queue_t().wait(gate, 1).submit(dev)
    for stream in (peer.stream(), peer.stream()):
        dev.allocator.transfer(dest, source, 100, src_dev=dev, dest_dev=peer, stream=stream)
        stream.synchronize()
    assert (seen(dest) == data).all()
    assert (dev.timeline_value, peer.timeline_value) == values
    with pytest.raises(LaunchError, match="stream of SMALL"):
        dev.allocator.transfer(dest, source, 100, src_dev=dev, dest_dev=peer, stream=hcq.Device["SMALL"].stream())
    gate.value = 1


@pytest.mark.parametrize("order", [("SMALL", "NULL"), ("NULL", "SMALL")])
def test_transfers_between_kinds_with_other_signals_come_after_the_work_of_both(mini, order):
    source_dev, dest_dev = (hcq.Device[name] for name in order)
    bufs = [hcq.Buffer(name, 100, hcq.dtypes.uint8).allocate() for name in order]
    bufs[0].copyin(noise(100))
    hcq.copy(bufs[1], bufs[0])
    back = bytearray(100)
    bufs[1].copyout(back)
    assert back == noise(100).tobytes()
    assert source_dev.timeline_value == 2 and dest_dev.timeline_value >= 1
    hcq.Device.close("NULL")


@pytest.mark.parametrize("shift", [1, 7, 999, 1000, -1, -7, -999, 0])
def test_overlapping_ranges_of_one_device_behave_as_if_read_first(dev, shift):
    data = noise(3000)
    whole = filled(dev, data)
    source = dev.allocator.offset(whole, 1000, 1000)
    dest = dev.allocator.offset(whole, 1000, 1000 + shift)
    dev.allocator.transfer(dest, source, 1000, src_dev=dev, dest_dev=dev)
    dev.synchronize()
    expected = data.copy()
    expected[1000 + shift : 2000 + shift] = data[1000:2000]
    assert (seen(whole) == expected).all()


def test_a_transfer_from_a_device_that_is_lost_fails_that_submit_alone(dev):
    peer = hcq.Device["STAGED:1"]
    source, dest = filled(dev, noise(64)), filled(peer, noise(64, 1))
    standing_copies(dev)
    dev.allocator.transfer(dest, source, 64, src_dev=dev, dest_dev=peer)
    dev.lose("it broke", "copy")
    with pytest.raises(DeviceLost, match="it broke"):
        peer.synchronize()
    peer.allocator.copyin(dest, bytes(64))
    peer.synchronize()
    assert not seen(dest).any()


def test_freed_memory_is_handed_out_again_only_when_queued_work_is_over(dev):
    buf = dev.allocator.alloc(512)
    address = buf.va_addr
    gate = standing_copies(dev)
    dev.allocator.free(buf, 512)
    del buf
    others = [dev.allocator.alloc(512) for _ in range(4)]
    assert address not in [other.va_addr for other in others]
    gate.value = 1
    dev.synchronize()
    assert dev.allocator.alloc(512).va_addr == address


def test_a_free_on_a_lost_device_does_nothing(dev):
    bufs = [hcq.Buffer("STAGED", 64, hcq.dtypes.uint8).allocate() for _ in range(3)]
    standing_copies(dev)
    dev.lose("it broke")
    held = dict(dev.memory)
    del bufs
    gc.collect()
    assert dev.memory == held


KERNEL = """
def put(launch, out: "i32*", n: "i32", value: "i32"):
    for index in range(n):
        out[index] = value
"""


def test_kernargs_are_handed_out_again_after_16_mib_and_when_queued_work_is_over(mini, monkeypatch):
    monkeypatch.setattr(kernargs_module, "CHUNK", 1024)
    monkeypatch.setattr(kernargs_module, "KEPT", 4096)
    put = mini.program("put", KERNEL)
    out = hcq.Buffer("SMALL", 4, hcq.dtypes.int32).allocate()
    gate = mini.signal_t()
    early = put.fill_kernargs([out], (4, 1))
    recent = [put.fill_kernargs([out], (4, value)) for value in range(32)]  # 2 KiB of 64 byte pieces
    # Filled a little earlier than submitted: still there.
    mini.hw_compute_queue_t().wait(gate, 1).exec(put, early, None, None).submit(mini)
    later = [put.fill_kernargs([out], (0, -1)) for _ in range(500)]
    assert early not in later and not set(recent) & set(later[:31])
    gate.value = 1
    mini.synchronize()
    assert read(out) == [1] * 4
    again = [put.fill_kernargs([out], (0, -1)) for _ in range(200)]
    assert len(set(again)) < len(again) or set(again) & set(later)


def test_many_launches_take_a_bounded_amount_of_kernargs(mini, monkeypatch):
    monkeypatch.setattr(kernargs_module, "CHUNK", 1024)
    monkeypatch.setattr(kernargs_module, "KEPT", 4096)
    put = mini.program("put", KERNEL)
    out = hcq.Buffer("SMALL", 4, hcq.dtypes.int32).allocate()
    sizes = []
    for _ in range(20):
        for value in range(50):
            put(out, vals=(1, value))
        mini.synchronize()
        sizes.append(len(mini.memory))
    assert max(sizes) <= 16  # four chunks kept, those of 50 launches under way, and the buffer; else it were 60


def test_a_prepared_launch_keeps_its_arguments_whatever_is_filled_meanwhile(mini, monkeypatch):
    monkeypatch.setattr(kernargs_module, "CHUNK", 1024)
    monkeypatch.setattr(kernargs_module, "KEPT", 4096)
    put = mini.program("put", KERNEL)
    out = hcq.Buffer("SMALL", 4, hcq.dtypes.int32).allocate()
    launch = put.prepare(out, vals=(4, 7))
    for _ in range(500):
        put.fill_kernargs([out], (0, 0))
    launch()
    gate = mini.signal_t()
    mini.hw_compute_queue_t().wait(gate, 1).submit(mini)
    launch()
    del launch
    gc.collect()
    gate.value = 1
    assert read(out) == [7] * 4


@pytest.fixture
def records(monkeypatch):
    taken = []
    monkeypatch.setattr(profile, "sink", taken.append)
    return taken


def test_launches_and_copies_leave_records_that_hold_nothing(dev, records):
    peer = hcq.Device["STAGED:1"]
    put = dev.program("put", KERNEL)
    out = hcq.Buffer("STAGED", 4, hcq.dtypes.int32).allocate()
    put(out, vals=(4, 1))
    out.copyin(bytes(16))
    out.copyout(bytearray(16))
    dev.allocator.transfer(peer.allocator.alloc(16), out._buf, 16, src_dev=dev, dest_dev=peer)
    dev.allocator.copy_from_disk(out._buf, File(bytes(16)), 16)
    dev.synchronize()
    assert [(record.name, record.is_copy) for record in records] == [
        ("put", False),
        ("CPU -> STAGED", True),
        ("STAGED -> CPU", True),
        ("STAGED -> STAGED:1", True),
        ("DISK -> STAGED", True),
    ]
    assert all(0 < record.start <= record.end for record in records)
    assert [record.start for record in records] == sorted(record.start for record in records)
    assert not dev.__dict__["_profile_pending"]


def test_hcq_profile_times_what_is_in_the_block(mini, records):
    with hcq.hcq_profile(mini, True, "round it", queue_type=mini.hw_copy_queue_t) as (start, end):
        pass
    queue = mini.hw_compute_queue_t().memory_barrier()
    with hcq.hcq_profile(mini, True, "inside", queue=queue):
        queue.memory_barrier()
    assert queue.cmds_meta == ["memory_barrier", "timestamp", "memory_barrier", "timestamp"]
    queue.submit(mini)
    mini.synchronize()
    assert [(record.device, record.name, record.is_copy) for record in records] == [
        ("SMALL", "round it", True),
        ("SMALL", "inside", False),
    ]
    assert 0 < start.timestamp <= end.timestamp
    with hcq.hcq_profile(mini, False, "nothing") as pair:
        assert pair == (None, None)
    with pytest.raises(TypeError, match="queue"), hcq.hcq_profile(mini, True, "where"):
        pass


def test_the_ring_needs_batches():
    for batch_size, batch_cnt in ((0, 32), (-1, 32), (4096, 0)):
        with pytest.raises(ValueError, match="more than 0"):
            HCQAllocator(None, batch_size, batch_cnt)
    ring = HCQAllocator(None).staging
    assert (ring.batch_size, ring.batch_cnt) == (2 << 20, 32)


def test_a_staged_copy_waits_for_a_long_kernel_past_the_queue_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCQ_FORCE_STAGING", "1")
    device = hcq.Device["CLANG:7"]
    try:
        spin = device.program("spin", "void spin(volatile int *p) { for (int i = 0; i < 400000000; i++) p[0] = i; }")
        buf = hcq.Buffer("CLANG:7", 1, hcq.dtypes.int32).allocate()
        monkeypatch.setenv("HCQ_TIMEOUT_MS", "20")
        spin(buf)
        out = bytearray(4)
        buf.copyout(out)
        assert int.from_bytes(out, "little") == 399_999_999
    finally:
        monkeypatch.setenv("HCQ_TIMEOUT_MS", "30000")
        device.close()
