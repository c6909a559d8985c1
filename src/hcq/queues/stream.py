"""Stream: an ordered handle on a device for work that need not be ordered with the rest.

What does not live here: hardware queues. On devices with one queue of a kind, streams share it, and run side by side as
far as it does.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Self

from hcq import _native, config
from hcq.queues.lane import WRAP
from hcq.runtime import watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.queues.command_queue import HWCommandQueue
    from hcq.queues.device import HCQCompiled

_NAP = 100e-6


class Stream:
    """What is given to one stream runs in order, what is given to different ones side by side: `dev.stream()`.

    It starts after all work that was queued on the device when it was made. `prg(..., stream=s)` and
    `hcq.copy(..., stream=s)` use it; `dev.synchronize()` waits for it too. Threads may share a stream.
    """

    def __init__(self, device: HCQCompiled) -> None:
        self.device = device
        self._lock = threading.RLock()
        self.signal = device.signal_t(0)
        self._value = 0
        self._waits: list[tuple[Any, int]] = device.ordering()
        if watch.active:
            for signal, value in self._waits:
                watch.stream_wait(self, signal, value)

    @property
    def position(self) -> tuple[Any, int]:
        """(signal, value) that is reached once all work given to the stream until now is over."""
        self.device.check_usable()  # before the lock: in a forked child nobody would release it
        with self._lock:
            return self.signal, self._value

    def wait(self, other: Stream | HCQCompiled | tuple[Any, int]) -> Self:
        """Let work given from now on run only after what `other` has now; doesn't block.

        `other` is a stream of any device, a device (its work without a stream), or a (signal, value).
        """
        if isinstance(other, tuple):
            pair = other
        elif isinstance(other, (Stream, _native.Stream)):
            pair = other.position
        else:
            with other.timeline_lock:
                pair = other.timeline_signal, other.timeline_value - 1
        self.device.check_usable()
        if watch.active:
            watch.stream_wait(self, *pair)
        with self._lock:
            self._waits.append(pair)
        return self

    def enqueue(self, build: Callable[[Any, int], HWCommandQueue]) -> tuple[Any, int]:
        """HCQCompiled.enqueue for this stream: the queue of `build(signal, value)` waits for value - 1, sets value."""
        from hcq.queues.command_queue import queue_full

        self.device.check_usable()
        deadline = time.monotonic() + config.TIMEOUT_MS() / 1000
        while True:
            with self._lock:
                signal, value = self.signal, self._value + 1
                queue = build(signal, value)
                if self._value != value - 1:
                    continue  # a finalizer used this stream while the queue was built
                self._send_waits(queue)
                self._value = value
                try:
                    done = queue.try_submit(self.device)
                except Exception:
                    self._value = value - 1
                    raise
                except BaseException:
                    self.device.end_again(type(queue), signal, value)
                    raise
                if done:
                    return signal, value
                self._value = value - 1
            if time.monotonic() > deadline:
                raise queue_full(self.device, queue.lane_name)
            time.sleep(_NAP)

    def synchronize(self) -> None:
        """Return when all work given to this stream has finished. Raises like HCQCompiled.synchronize. Blocks."""
        self.device.wait_for([self.position])

    def renew(self) -> None:
        """Go on with a fresh signal where the values come near 32 bits and nothing is under way (the device's call)."""
        with self._lock:
            if self._value > WRAP and self.signal.value >= self._value:
                self.signal, self._value = self.device.signal_t(0), 0

    def _send_waits(self, queue: HWCommandQueue) -> None:
        # In a queue of their own, in front: `build` made the commands already. The same hardware queue keeps the order.
        waits = [(signal, value) for signal, value in self._waits if signal.value < value]
        if waits:
            ahead = type(queue)()
            for signal, value in waits:
                ahead.wait(signal, value)
            ahead.submit(self.device)
        self._waits.clear()

    def __repr__(self) -> str:
        return f"<Stream of {self.device.dname}, {self._value} given>"
