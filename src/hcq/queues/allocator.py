"""HCQAllocator: memory of devices with command queues, and how bytes get there and back.

What does not live here: HCQBuffer (native), the cache of freed memory (LRUAllocator), the batches of the staging
ring (staging), and choosing between devices (hcq.copy).
"""

from __future__ import annotations

import functools
import time
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar

from hcq import config
from hcq._native import HCQBuffer as HCQBuffer
from hcq.errors import LaunchError
from hcq.runtime import watch
from hcq.runtime.allocator import LRUAllocator
from hcq.runtime.later import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hcq.queues import profile, staging
    from hcq.queues.command_queue import HWCommandQueue
    from hcq.queues.device import HCQCompiled
    from hcq.queues.staging import Batch, Staging
    from hcq.queues.stream import Stream
else:  # the host reaches most devices' memory by itself
    profile, staging = Later("hcq.queues.profile"), Later("hcq.queues.staging")

_IN_FLIGHT = 4  # batches of a copyout that are on their way while the host empties another


class HCQAllocator(LRUAllocator):
    """An allocator whose `_alloc` gives HCQBuffers (`va_addr`, `size`); a driver adds `_alloc` and `_free`.

    Where the host reaches the device's memory at `va_addr` (`host_access`), copies wait for the work queued and are
    direct. Elsewhere, and with HCQ_FORCE_STAGING=1, they go through a ring of `batch_cnt` host buffers of `batch_size`
    bytes and the device's copy queue. Threads may share an allocator.
    """

    host_access: ClassVar[bool] = False

    device: HCQCompiled

    def __init__(self, device: Any, batch_size: int = 2 << 20, batch_cnt: int = 32) -> None:
        super().__init__(device)
        if batch_size <= 0 or batch_cnt <= 0:
            raise ValueError(f"a staging ring of {batch_cnt} batches of {batch_size} bytes: both must be more than 0")
        self._ring = batch_size, batch_cnt

    @functools.cached_property
    def staging(self) -> Staging:
        """The ring, made when it is first needed."""
        made: Staging = vars(self).setdefault("staging", staging.Staging(self, *self._ring))
        return made  # another thread's, where that was first

    def copyin(self, dest: Any, src: Any) -> None:
        """Copy the bytes of `src`, any C-contiguous buffer, to the start of `dest`, after all work queued until now.

        `src` is the caller's again when this returns; on the way through the ring, the copy itself is only queued then.
        """
        data = _bytes_of(src)
        _check_size(data.nbytes, dest)
        if watch.active:
            watch.host_write(dest, 0, data.nbytes)
        if self._direct(dest):
            self.device.synchronize()
            began = time.perf_counter_ns()
            with self.device.at_memory():
                staging.host_view(dest.va_addr, data.nbytes)[:] = data
            profile.host_copy(self.device, f"CPU -> {self.device.dname}", began, data.nbytes)
            return

        def fill(view: memoryview, start: int) -> None:
            view[:] = data[start : start + len(view)]

        self._through_ring(dest, data.nbytes, fill, f"CPU -> {self.device.dname}")

    def copyout(self, dest: Any, src: Any) -> None:
        """Copy from the start of `src` into `dest`, any writable C-contiguous buffer, after all work queued. Blocks."""
        data = _bytes_of(dest)
        if data.readonly:
            raise TypeError("copyout writes into its destination, and this one is read-only")
        _check_size(data.nbytes, src)
        if watch.active:
            watch.host_read(src, 0, data.nbytes)
        self.device.synchronize()
        if self._direct(src):
            began = time.perf_counter_ns()
            with self.device.at_memory():
                data[:] = staging.host_view(src.va_addr, data.nbytes)
            profile.host_copy(self.device, f"{self.device.dname} -> CPU", began, data.nbytes)
            return
        under_way: deque[tuple[Batch, tuple[Any, int], int, int]] = deque()
        name = f"{self.device.dname} -> CPU"
        try:
            start = 0
            while start < data.nbytes:
                batch = self._batch_beside(len(under_way))
                if batch is None:
                    self._empty(under_way, data)
                    continue
                count = min(self.staging.batch_size, data.nbytes - start)
                try:
                    pair = _enqueue_copy(self.device, batch.va_addr, src.va_addr + start, count, (src,), name)
                except BaseException:
                    self.staging.give(batch, None)
                    raise
                under_way.append((batch, pair, start, count))
                start += count
            while under_way:
                self._empty(under_way, data)
        finally:
            for batch, pair, _, _ in under_way:
                self.staging.give(batch, pair)

    def copy_from_disk(self, dest: Any, src: Any, size: int) -> None:
        """Read `size` bytes from the start of `src` into `dest`: straight into it where the host reaches it, else
        reading the next batch while earlier ones are copied.

        `src` has `readinto(view, offset) -> int`, bytes read. A source that ends early raises EOFError.
        """
        _check_size(size, dest)

        def fill(view: memoryview, start: int) -> None:
            done = 0
            while done < len(view):  # a short read is continued
                count = src.readinto(view[done:], start + done)
                if not count:
                    raise EOFError(f"{src!r} ends after {start + done} bytes: {size} were to be read")
                done += count

        name = f"DISK -> {self.device.dname}"
        if self._direct(dest):
            if watch.active:
                watch.host_write(dest, 0, size)
            self.device.synchronize()
            began = time.perf_counter_ns()
            with self.device.at_memory():
                fill(staging.host_view(dest.va_addr, size), 0)
            profile.host_copy(self.device, name, began, size)
            return
        self._through_ring(dest, size, fill, name)

    def transfer(
        self,
        dest: Any,
        src: Any,
        size: int,
        src_dev: HCQCompiled,
        dest_dev: HCQCompiled,
        stream: Stream | None = None,
    ) -> None:
        """Copy `size` bytes from `src` on `src_dev` to `dest` on `dest_dev`, on the source's copy queue.

        The copy comes after what is queued on both, and what is queued later on either comes after the copy; with a
        `stream` it is done by that stream's device, and ordered with that stream alone. Ranges may overlap within one
        device. Doesn't block, save between kinds of devices whose queues don't know each other's signals.
        """
        _check_size(size, src)
        _check_size(size, dest)
        if not size:
            return
        src_dev.check_usable()
        dest_dev.check_usable()
        if watch.active and watch.transfer(dest, src, size, src_dev, dest_dev, stream):
            return
        if src_dev is dest_dev:
            self._within(src_dev, dest, src, size, stream)
            return
        owner = src_dev if stream is None else stream.device
        if owner is not src_dev and owner is not dest_dev:
            raise LaunchError(f"a copy from {src_dev.dname} to {dest_dev.dname} with a stream of {owner.dname}")
        owner.allocator.map(dest if owner is src_dev else src)
        if stream is not None:
            owner.allocator._within(owner, dest, src, size, stream)
            return
        name = f"{src_dev.dname} -> {dest_dev.dname}"
        if src_dev.signal_t is not dest_dev.signal_t:
            # Neither's queues can wait for the other's signals: this thread does.
            dest_dev.synchronize()
            src_dev.wait_for([_enqueue_copy(src_dev, dest.va_addr, src.va_addr, size, (dest, src), name)])
            return
        # Both locks, always in the same order: two transfers that cross each other must not deadlock.
        first, second = sorted((src_dev, dest_dev), key=id)
        with first.timeline_lock, second.timeline_lock:
            after = dest_dev.ordering()
            pair = _enqueue_copy(src_dev, dest.va_addr, src.va_addr, size, (dest, src), name, after)
            # The destination sets its own timeline: were the source lost, this submit alone would fail there.
            dest_dev.enqueue(
                lambda timeline, v: _queue_of(dest_dev).wait(*pair).wait(timeline, v - 1).signal(timeline, v)
            )

    def offset(self, buf: Any, size: int, offset: int) -> Any:
        """The handle of a view: `size` bytes that begin `offset` bytes into `buf`."""
        return HCQBuffer(buf.va_addr + offset, size)

    def map(self, buf: Any) -> None:
        """Make `buf`, another device's memory, reachable for this device's queues; host memory is, everywhere.

        NotImplementedError where it can't be had, as of an image: then copies go through the host.
        """
        if not self.host_access:
            raise NotImplementedError(f"{self.device.dname} doesn't reach memory of other devices")
        if getattr(buf, "opaque", False):
            raise NotImplementedError("an image is reached by the queues of its own device alone")

    def _direct(self, *memory: Any) -> bool:
        """Whether the host copies from or to `memory` itself. Drivers that have memory it doesn't reach say so here."""
        return self.host_access and not config.FORCE_STAGING()

    def _through_ring(self, dest: Any, size: int, fill: Callable[[memoryview, int], None], name: str) -> None:
        device = self.device
        device.check_usable()
        after: Sequence[tuple[Any, int]] = device.ordering()
        for start in range(0, size, self.staging.batch_size):
            count = min(self.staging.batch_size, size - start)
            batch = self.staging.take(device)
            pair = None
            try:
                with device.at_memory():
                    fill(batch.view[:count], start)
                pair = _enqueue_copy(device, dest.va_addr + start, batch.va_addr, count, (dest,), name, after)
            finally:
                self.staging.give(batch, pair)
            after = ()  # the timeline orders the rest

    def _batch_beside(self, held: int) -> Batch | None:
        if not held:
            return self.staging.take(self.device)
        return self.staging.take_one_more(self.device) if held < _IN_FLIGHT else None

    def _empty(self, under_way: deque[tuple[Batch, tuple[Any, int], int, int]], data: memoryview) -> None:
        batch, pair, start, count = under_way[0]
        self.device.wait_for([pair])
        with self.device.at_memory():
            data[start : start + count] = batch.view[:count]
        under_way.popleft()
        self.staging.give(batch, None)

    def _within(self, device: HCQCompiled, dest: Any, src: Any, size: int, stream: Stream | None) -> None:
        name = f"{device.dname} -> {device.dname}"
        if abs(dest.va_addr - src.va_addr) >= size:
            _enqueue_copy(device, dest.va_addr, src.va_addr, size, (dest, src), name, stream=stream)
        elif dest.va_addr != src.va_addr:
            # As if read first: by way of other memory, which the allocator keeps until both copies are over.
            between = self.alloc(size)
            try:
                _enqueue_copy(device, between.va_addr, src.va_addr, size, (between, src), name, stream=stream)
                _enqueue_copy(device, dest.va_addr, between.va_addr, size, (between, dest), name, stream=stream)
            finally:
                self.free(between, size)


def _enqueue_copy(
    device: HCQCompiled,
    dest: int,
    src: int,
    size: int,
    used: Sequence[Any],
    name: str,
    after: Sequence[tuple[Any, int]] = (),
    stream: Stream | None = None,
) -> tuple[Any, int]:
    def build(timeline: Any, value: int) -> HWCommandQueue:
        queue: Any = device.hw_copy_queue_t()
        for signal, wanted in after:
            if signal.value < wanted and signal is not timeline:
                queue.wait(signal, wanted)
        queue.wait(timeline, value - 1)
        queue.copy(dest, src, size)
        profile.name_copies(queue, name)
        done: HWCommandQueue = queue.signal(timeline, value).keep(*used)
        return done

    return (device if stream is None else stream).enqueue(build)


def _queue_of(device: HCQCompiled) -> HWCommandQueue:
    queue: HWCommandQueue = (device.hw_copy_queue_t or device.hw_compute_queue_t)()
    return queue


def _bytes_of(data: Any) -> memoryview:
    view = memoryview(data)
    if not view.c_contiguous:
        raise ValueError("strided memory can't be copied: pass a C-contiguous one, such as numpy.ascontiguousarray(a)")
    if view.nbytes == 0:
        return memoryview(b"")  # a view with a zero in its shape can't be cast
    return view.cast("B") if view.ndim != 1 or view.format != "B" else view


def _check_size(size: int, buf: Any) -> None:
    if not 0 <= size <= buf.size:
        raise ValueError(f"a copy of {size} bytes and memory of {buf.size}: it must fit")
