"""The staging ring: page-locked batches through which copies between the host and a device's own memory go.

What does not live here: choosing the way of a copy, and queueing it (allocator).
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from hcq import config
from hcq.errors import SignalTimeout
from hcq.runtime.options import BufferOptions

if TYPE_CHECKING:
    from hcq.queues.device import HCQCompiled

_HOST = BufferOptions(host=True)


class Batch:
    """One piece of staging memory, and the (signal, value) behind which it may be used again."""

    def __init__(self, opaque: Any, size: int) -> None:
        self.opaque = opaque
        self.va_addr: int = opaque.va_addr
        self.view = host_view(self.va_addr, size)
        self.busy_until: tuple[Any, int] | None = None


class Staging:
    """Batches used in turn. One more is made when those there are busy, up to `batch_cnt`. Threads may share it."""

    def __init__(self, allocator: Any, batch_size: int, batch_cnt: int) -> None:
        self.batch_size = batch_size
        self.batch_cnt = batch_cnt
        self._allocator = allocator
        self._ring: deque[Batch] = deque()  # the one used longest ago first
        self._made = 0
        self._changed = threading.Condition()

    def take(self, device: HCQCompiled) -> Batch:
        """A batch that nothing uses; it is the caller's until `give`. Blocks while all are in use.

        Who holds a batch already uses `take_one_more`: two threads that waited for each other's would never end.
        """
        with self._changed:
            while not self._ring and self._made == self.batch_cnt:
                if not self._changed.wait(config.TIMEOUT_MS() / 1000):
                    raise SignalTimeout(
                        f"{device.dname}: other threads kept all {self.batch_cnt} staging batches "
                        f"for {config.TIMEOUT_MS()} ms"
                    )
            batch = self._next()
        return self._wait_for(device, batch)

    def take_one_more(self, device: HCQCompiled) -> Batch | None:
        """take, but None where the batches are all with threads."""
        with self._changed:
            if not self._ring and self._made == self.batch_cnt:
                return None
            batch = self._next()
        return self._wait_for(device, batch)

    def give(self, batch: Batch, busy_until: tuple[Any, int] | None) -> None:
        """Give a batch back; queued work uses it until (signal, value) is reached."""
        batch.busy_until = busy_until
        with self._changed:
            self._ring.append(batch)
            self._changed.notify()

    def free(self) -> None:
        """Give the memory back; nothing must be queued any more. On a lost device there is nothing to give it to."""
        with self._changed:
            batches, self._ring, self._made = self._ring, deque(), 0
        for batch in batches:
            batch.view.release()
            if not self._allocator.device.lost:
                self._allocator._free(batch.opaque, _HOST)

    def _next(self) -> Batch:
        if self._ring and (self._made == self.batch_cnt or not _busy(self._ring[0])):
            return self._ring.popleft()
        return self._make()

    def _wait_for(self, device: HCQCompiled, batch: Batch) -> Batch:
        if batch.busy_until is not None:
            try:
                device.wait_for([batch.busy_until])
            except BaseException:
                self.give(batch, batch.busy_until)
                raise
            batch.busy_until = None
        return batch

    def _make(self) -> Batch:
        batch = Batch(self._allocator._alloc(self.batch_size, _HOST), self.batch_size)
        self._made += 1
        return batch


def host_view(address: int, size: int) -> memoryview:
    """A view of `size` bytes of memory that the host reaches at `address`; the memory is not kept alive."""
    import ctypes  # opening a device that needs none of it should not wait for it

    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")


def _busy(batch: Batch) -> bool:
    return batch.busy_until is not None and batch.busy_until[0].value < batch.busy_until[1]
