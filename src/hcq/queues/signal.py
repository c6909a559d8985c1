"""Signals: what queues, host threads and tasks are ordered by.

HCQSignal is the native one, 64 bytes; PythonSignal is for drivers that keep the value elsewhere. What does not live
here: the commands that set and wait for signals (command_queue), and who is named when a wait runs out (faults).
"""

from __future__ import annotations

import abc
import itertools
import operator
import threading
import time
from typing import TYPE_CHECKING, Any

from hcq import _native
from hcq.runtime import process, watch
from hcq.runtime.later import Later

if TYPE_CHECKING:
    from decimal import Decimal

    from hcq.errors import DeviceLost
    from hcq.queues import faults, profile
else:
    faults, profile = Later("hcq.queues.faults"), Later("hcq.queues.profile")

_SPINS = 20
_FIRST_NAP = 20e-6
_LONGEST_NAP = 1e-3
_AWAIT_NAPS = (0.0, 50e-6, 10e-3)  # at once, then growing from the second to the third
_FOREVER = 2**64 - 1

_REACHED, _FAILED = 0, 2  # of _native.signal_state

_ids = itertools.count(1)


class PythonSignal:
    """A signal whose value lives where the driver wants it: `_get_value`, `_set_value` and `_get_timestamp` say where.

    As it stands it keeps value and time-stamp in the object, for drivers whose commands run in Python threads.

    - `value` (get, set): an unsigned integer; it is reached when it is at least what was waited for.
    - `timestamp`: Decimal microseconds, written by a time-stamp command through `_set_timestamp`.
    - `wait(value, timeout)`, `await reached(value)`.

    Threads may share a signal. Setting `value` in this process wakes its waiters at once; a value that changes behind
    the object's back (a device writes memory) is seen within a millisecond.
    """

    def __init__(self, value: int = 0) -> None:
        from decimal import Decimal

        self._id = next(_ids)
        self._generation = process.generation
        self._failures: list[tuple[int, int, BaseException]] = []
        self._changed: threading.Condition | None = None
        self._stored = 0
        self._stamp = Decimal(0)
        self._set_value(check_value(value))

    @property
    def value(self) -> int:
        """The signal's value now. Setting it wakes whoever waits."""
        process.check(self._generation, "this signal")
        return self._get_value()

    @value.setter
    def value(self, value: int) -> None:
        process.check(self._generation, "this signal")
        check_value(value)
        if watch.active:
            watch.set_signal(self, value)
        self._set_value(value)
        self.notify()

    @property
    def timestamp(self) -> Decimal:
        """When the last time-stamp command on this signal ran, in microseconds on the device's clock."""
        return self._get_timestamp()

    def wait(self, value: int, timeout: float = 10_000) -> None:
        """Block until the value is at least `value`. Raises SignalTimeout after `timeout` milliseconds.

        Raises DeviceLost at once where that value will never come. Control-C ends the wait.
        """
        process.check(self._generation, "this signal")
        wanted = check_value(value)
        if watch.active:
            watch.wait(self, wanted)
        self._wait(wanted, timeout)
        if watch.active:
            watch.waited(self, wanted)

    def _wait(self, wanted: int, timeout: float) -> None:
        for _ in range(_SPINS):
            if self.is_reached(wanted):
                return
        began = time.perf_counter_ns() if _native.recording() else 0
        try:
            self._sleep_until(wanted, time.monotonic() + timeout / 1000)
        finally:
            if began:
                label = f"wait for a signal to reach {wanted}"
                _native.record_span(profile.WAIT, label, began, time.perf_counter_ns())

    async def reached(self, value: int) -> None:
        """Await that the value is at least `value`, spending no thread on it. Raises like `wait`, with no deadline."""
        import asyncio  # whoever awaits has it already; importing it takes as long as all the rest of hcq

        process.check(self._generation, "this signal")
        wanted = check_value(value)
        if watch.active:
            watch.wait(self, wanted)
        nap, growing, longest = _AWAIT_NAPS
        while not self.is_reached(wanted):
            await asyncio.sleep(nap)
            nap = min(max(nap * 1.5, growing), longest)
        if watch.active:
            watch.waited(self, wanted)

    def is_reached(self, value: int) -> bool:
        """Whether a wait for `value` would return now; raises DeviceLost where it will never come."""
        if self._failures:
            for first, last, cause in self._failures:
                if first <= value <= last:
                    raise faults.again(cause)
        return self._get_value() >= value

    def fail(self, cause: BaseException, first: int, last: int = _FOREVER) -> None:
        """Mark the values `first` to `last` as never coming: whoever waits for one gets `cause`, or an earlier one."""
        self._failures = [*self._failures, (first, last, cause)]
        self.notify()

    def notify(self) -> None:
        """Wake the threads that wait; for drivers that write the value by other means than `value`."""
        changed = self._changed
        if changed is not None:
            with changed:
                changed.notify_all()

    def _get_value(self) -> int:
        return self._stored

    def _set_value(self, value: int) -> None:
        self._stored = value

    def _get_timestamp(self) -> Decimal:
        return self._stamp

    def _set_timestamp(self, microseconds: Decimal) -> None:
        self._stamp = microseconds

    def _sleep_until(self, wanted: int, deadline: float) -> None:
        if self._changed is None:
            self._changed = threading.Condition()
        nap = _FIRST_NAP
        while True:
            with self._changed:
                # Looked at with the condition held: a value set before is seen here, one set later notifies.
                if self.is_reached(wanted):
                    return
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(min(nap, left))
            nap = min(nap * 2, _LONGEST_NAP)
        if not self.is_reached(wanted):  # it may have come between the last look and the deadline
            raise faults.timed_out(self, wanted)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._id}, value {self._get_value()}>"


def check_value(value: Any, bits: int = 64) -> int:
    """A signal's value: a whole number of that many bits, unsigned."""
    number = operator.index(value)
    if not 0 <= number < 1 << bits:
        raise ValueError(f"{value} is not a signal's value here: expected 0 to 2^{bits}-1")
    return number


def check_signal(signal: Any) -> Any:
    """Refuse what is no signal."""
    if not hasattr(signal, "timestamp") or not hasattr(signal, "value"):
        raise TypeError(f"expected a signal, such as dev.signal_t() makes, not {signal!r}")
    return signal


class HCQSignal(_native.Signal, metaclass=abc.ABCMeta):
    """A signal in 64 bytes of shared memory: what native queues, host threads, tasks and other processes order work by.

    `HCQSignal(value=0, memory=None)`: `memory` places it in 64 writable bytes, aligned to 8, of a host or `shm:`
    buffer; whoever places one at the same bytes, in this process or another, has the same signal. Threads may share it.

    `value` (get, set), `timestamp` and `wait(value, timeout=10000)` are native. PythonSignals count as HCQSignals for
    isinstance, though native queues don't take them.
    """

    __slots__ = ()

    async def reached(self, value: int) -> None:
        """Wait, in a task, until the value is at least `value`. Raises DeviceLost where it will never come."""
        from hcq.queues import awaiting

        if watch.active:
            watch.wait(self, check_value(value))
        await awaiting.reached(self, check_value(value))
        if watch.active:
            watch.waited(self, value)

    def is_reached(self, value: int) -> bool:
        """Whether a wait for `value` would return now; raises DeviceLost where it will never come."""
        state = _native.signal_state(self, value)
        if state == _FAILED:
            faults.raise_fault(_native.signal_error(self))
        return bool(state == _REACHED)

    def fail(self, cause: DeviceLost, first: int, last: int = _FOREVER) -> None:
        """Mark the values `first` to `last` as never coming: whoever waits for one gets `cause`. For drivers."""
        _native.signal_fail(self, faults.native_word(cause), first, last)

    def _set_timestamp(self, microseconds: Decimal) -> None:
        """What a time-stamp command of a driver in Python does; hardware writes ns into the signal's second word."""
        import ctypes

        ctypes.c_uint64.from_address(self.value_addr + 8).value = int(microseconds * 1000)


HCQSignal.register(PythonSignal)
