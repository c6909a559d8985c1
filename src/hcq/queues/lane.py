"""A lane: one hardware queue of a device as the host keeps book of it, and where its submits stand.

Every submit of a Python driver's queues ends in a command that sets the lane's private signal, so that what a submit
uses can be dropped once it has been passed, whatever timelines clients write. What does not live here: queues of native
devices, which keep positions of their own.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from hcq import _native, config
from hcq.errors import SignalTimeout
from hcq.queues import profile, progress, report
from hcq.runtime import lines, watch

if TYPE_CHECKING:
    from hcq.queues.command_queue import HWCommandQueue
    from hcq.queues.device import HCQCompiled

_NAP = 100e-6
WRAP = 2**31


class Submit(NamedTuple):
    """A submit under way: its number, the queue, which holds what its commands use, and the user's line, if known."""

    number: int
    queue: HWCommandQueue
    kept: tuple[Any, ...]
    line: int = 0

    @property
    def said(self) -> str:
        """It in words, for errors."""
        return report.said(self.number, self.queue, self.line)


class Lane:
    """The submits of one hardware queue. Threads may share it; publishing is one at a time."""

    def __init__(self, device: HCQCompiled, name: str) -> None:
        self.device = device
        self.name = name
        self.signal = device.signal_t(0)
        self.submitted = 0
        """Number of the last submit; `signal` reaches it when that is over. Read (signal, submitted) by `position`."""
        self.under_way: deque[Submit] = deque()
        self._last = ""  # of what was over, in words: it keeps nothing
        self._lock = threading.RLock()
        self._publisher: int | None = None

    @property
    def position(self) -> tuple[Any, int]:
        """(signal, value) that is reached once everything submitted until now is over. Takes no lock.

        What this very thread is in the middle of publishing is left out: a finalizer that waits must not wait for it.
        """
        while True:
            signal, number = self.signal, self.submitted
            if signal is self.signal:
                return signal, number - (self._publisher == threading.get_ident())

    def publish(self, queue: HWCommandQueue) -> tuple[Any, int] | None:
        """Submit the queue's commands; None where the hardware queue has no room (nothing was submitted then)."""
        over: list[Submit] = []
        with self._lock:
            if self._publisher is not None:
                # A finalizer of this thread: its submit would overtake the one it interrupts.
                raise RuntimeError(f"a submit to {self.device.dname} in the middle of another one, by the same thread")
            self._collect(over)
            number = self.submitted + 1
            # Before the commands are handed over: what is freed from now on waits for them too.
            self.submitted = number
            self._publisher = threading.get_ident()
            line = lines.here() if watch.active or profile.sink is not None else 0
            self.under_way.append(Submit(number, queue, tuple(queue._kept), line))
            began = time.perf_counter_ns() if profile.sink is not None else 0
            try:
                # `lose` marks what it finds under way: either it finds this submit, or we find the device lost.
                self.device.check_usable()
                done = self._hand_over(queue, number, line)
            except Exception:
                self._take_back(number)
                raise
            except BaseException:
                # Control-C in the middle: it may have been submitted or not. A repeated end does no harm.
                self._seal(type(queue), number)
                raise
            finally:
                self._publisher = None
            if not done:
                self._take_back(number)
                return None
            if began:
                label = f"submit of {len(queue)} commands to {self.device.dname}"
                _native.record_span(profile.SUBMIT, label, began, time.perf_counter_ns())
            return self.signal, number

    def collect(self) -> None:
        """Drop what submits that are over have used."""
        over: list[Submit] = []
        with self._lock:
            self._collect(over)

    def unfinished(self) -> list[Submit]:
        """The submits that are not over, oldest first. Takes no lock."""
        seen = self.signal.value
        return [submit for submit in list(self.under_way) if submit.number > seen]

    @property
    def finished(self) -> str:
        """The last command that is over, in words; empty where none is. Takes no lock."""
        seen = self.signal.value
        for submit in reversed(list(self.under_way)):
            if submit.number <= seen:
                return progress.last(submit)
        return self._last

    def renew(self) -> None:
        """Go on with a fresh signal and number 1 where the numbers come near 32 bits and nothing is under way."""
        with self._lock:
            if self.submitted > WRAP and self._publisher is None and self.signal.value >= self.submitted:
                self.under_way.clear()
                # In this order: (old signal, 0) is reached, whatever a reader without the lock makes of it.
                self.submitted = 0
                self.signal = self.device.signal_t(0)

    def _collect(self, over: list[Submit]) -> None:
        # Into a list of the caller's, which drops it after the lock is released: finalizers may submit.
        seen = self.signal.value
        while self.under_way and self.under_way[0].number <= seen:
            over.append(self.under_way.popleft())
        if over:
            self._last = progress.last(over[-1])

    def _take_back(self, number: int) -> None:
        self.under_way.pop()
        self.submitted = number - 1

    def _hand_over(self, queue: HWCommandQueue, number: int, line: int) -> bool:
        stamps = None if profile.sink is None else profile.Stamps(self.device, queue)
        words = queue.q
        if stamps is not None and stamps.words is not None:
            queue.q = stamps.words
        start = len(queue.q)
        bound = queue.binded_device is not None
        around = None if stamps is None else stamps.around
        try:
            if not bound:
                queue._signal(self.signal, number)
            elif around is not None and not self._stamp_before(type(queue), around[0]):
                return False
            done = queue._submit(self.device) is not False
        finally:
            del queue.q[start:]
            queue.q = words
        if done and bound:
            self._seal(type(queue), number, around and around[1])
        if done and stamps is not None:
            stamps.note(number, line)
        return done

    def _stamp_before(self, kind: type[HWCommandQueue], stamp: Any) -> bool:
        begin = kind()
        begin._timestamp(stamp)
        return begin._submit(self.device) is not False

    def _seal(self, kind: type[HWCommandQueue], number: int, stamp: Any = None) -> None:
        end = kind()
        if stamp is not None:
            end._timestamp(stamp)
        end._signal(self.signal, number)
        deadline = time.monotonic() + config.TIMEOUT_MS() / 1000
        while end._submit(self.device) is False:
            if time.monotonic() > deadline:
                cause = SignalTimeout(f"the {self.name} queue of {self.device.dname} had no room to end a submit")
                self.device.lose(cause, "submit")
                raise cause
            time.sleep(_NAP)
