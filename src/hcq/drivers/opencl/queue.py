"""The GPU device's command queues: words are tuples; a thread a hardware queue gives them to an in-order OpenCL queue.

OpenCL has no signal that a queue waits for and the host sets, and none of 64 bits: those the thread keeps. What does
not live here: arguments of kernels (program).
"""

from __future__ import annotations

import atexit
import ctypes
import threading
import time
import weakref
from collections import deque
from decimal import Decimal
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from hcq.drivers.opencl import platforms
from hcq.errors import DeviceLost, SignalTimeout
from hcq.queues.signal import HCQSignal
from hcq.queues.words import TupleComputeQueue, TupleCopyQueue

if TYPE_CHECKING:
    from hcq.drivers.opencl.device import OpenCLDevice

_LOOK_MS = 20.0  # how often a standing wait looks whether its device was lost
_LEAVE_SECONDS = 5.0
_MOST_PENDING = 256

_running: weakref.WeakSet[Worker] = weakref.WeakSet()


class OpenCLSignal(HCQSignal):
    """A signal that these queues wait for. Its own class says that queues of other drivers are not to count on it being
    set by hardware: copies between kinds are waited for by the thread that asks."""

    __slots__ = ()


class OpenCLComputeQueue(TupleComputeQueue):
    """Launches of kernels."""

    def _exec(self, prg: Any, kernargs: int, global_size: Any, local_size: Any) -> None:
        prg.check_group(local_size)
        super()._exec(prg, kernargs, global_size, local_size)


class OpenCLCopyQueue(TupleCopyQueue):
    """Copies between addresses of shared memory."""


class Worker:
    """One hardware queue: an in-order OpenCL queue and the thread that feeds it, until the device is closed or lost."""

    def __init__(self, dev: OpenCLDevice, lane: str) -> None:
        self.dev = dev
        self.cl = platforms.interface()
        self.queue = self.cl.CommandQueue(
            dev.context, dev.cl_device, properties=self.cl.command_queue_properties.PROFILING_ENABLE
        )
        self.todo: SimpleQueue[list[tuple[Any, ...]] | None] = SimpleQueue()
        self._first: Any = None  # the events of the first and the last command that are not known to be over
        self._last: Any = None
        self._starts: list[tuple[Any, int]] = []  # signals that take the time at which `_first` begins; when asked
        self._pending: deque[tuple[Any, Any, int, str]] = deque()  # signals to set: after which event, to what
        self._runs = self._gave = ""  # the command under way, and the last one given to OpenCL, in words
        _running.add(self)
        self._thread = threading.Thread(target=self._run, name=f"{dev.dname} {lane}", daemon=True)
        self._thread.start()

    def stop(self, seconds: float = _LEAVE_SECONDS) -> None:
        """End the thread once it has run what was submitted, and wait for it, so long at most."""
        _running.discard(self)
        self.todo.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def _run(self) -> None:
        while (words := self._next()) is not None and self.dev.lost is None:
            for index, (what, *args) in enumerate(words):
                self._runs = f"exec {args[0].name}" if what == "exec" else what
                try:
                    getattr(self, what)(*args)
                except DeviceLost as error:  # another device's failure: only this submit is dropped
                    self._finish()
                    self.dev.drop(error, [word[1:] for word in words[index:] if word[0] == "signal"])
                    break
                except BaseException as error:
                    self.dev.lose(error, self._runs)
                    return
            del words

    def _next(self) -> list[tuple[Any, ...]] | None:
        """The next submit; None ends the thread. While there is none, commands are seen to be over, oldest first."""
        while self._pending and self.todo.empty():
            try:
                self._settle_one()
            except BaseException as error:
                self.dev.lose(error, self._runs)
                return None
        return self.todo.get()

    def _settle_one(self) -> None:
        event, signal, value, self._runs = self._pending[0]
        event.wait()
        if event is self._last and not self._starts:
            self._first = self._last = None
        self._pending.popleft()
        signal.value = value

    def _finish(self) -> int:
        """Wait until all that was given to OpenCL is over, its writes visible everywhere, and set the signals that said
        so; returns the time, in ns.

        Time-stamps that were asked for before the commands get the time at which the first began: OpenCL's own times
        tell how long ago that was, whatever its clock.
        """
        first, last, starts = self._first, self._last, self._starts
        self._first = self._last = None
        if last is not None:
            doing, self._runs = self._runs, self._gave  # what failed where this raises
            last.wait()
            self._runs = doing
        now = time.perf_counter_ns()
        if starts:
            self._starts = []
            took = 0 if last is None else last.profile.end - first.profile.start
            for signal, asked in starts:
                signal._set_timestamp(Decimal(asked if last is None else now - took) / 1000)
        while self._pending:
            self._settle_one()
        return now

    def _given(self, event: Any) -> None:
        self._last, self._gave = event, self._runs
        self._first = self._first or event

    def signal(self, signal: Any, value: int) -> None:
        if self._last is None or self._starts or len(self._pending) >= _MOST_PENDING:
            self._finish()
            signal.value = value
        else:
            self._pending.append((self._last, signal, value, self._gave))

    def wait(self, signal: Any, value: int) -> None:
        for _, ours, promised, _ in reversed(self._pending):
            if ours is signal:
                if promised >= value:
                    return  # what comes next is behind it in OpenCL's queue
                break
        if self._over(signal, value):
            return
        self._finish()  # others may count on it before they end this wait
        while not self._over(signal, value):
            try:
                signal.wait(value, _LOOK_MS)
            except (SignalTimeout, DeviceLost):
                continue  # `_over` says what becomes of it

    def _over(self, signal: Any, value: int) -> bool:
        return self.dev.is_reached(signal, value) or self.dev.lost is not None

    def timestamp(self, signal: Any) -> None:
        if self._last is None:
            self._starts.append((signal, time.perf_counter_ns()))
        else:
            signal._set_timestamp(Decimal(self._finish()) / 1000)

    def barrier(self) -> None:
        """Nothing: what the host wrote before a command is given to OpenCL, that command sees."""

    def copy(self, dest: int, src: int, nbytes: int) -> None:
        if not nbytes or dest == src:
            return
        if abs(dest - src) >= nbytes:
            self._copy(dest, src, nbytes)
            return
        between = ctypes.create_string_buffer(nbytes)  # OpenCL refuses ranges that overlap
        self._copy(ctypes.addressof(between), src, nbytes)
        self._copy(dest, ctypes.addressof(between), nbytes)
        self._finish()

    def _copy(self, dest: int, src: int, nbytes: int) -> None:
        to, source = self.dev.shared(dest, nbytes), self.dev.shared(src, nbytes)
        self._given(self.cl._cl._enqueue_svm_memcpy(self.queue, 0, to, source, None, nbytes))

    def exec(self, prg: Any, kernargs: int, groups: Any, items: Any) -> None:
        if 0 in groups:
            return
        prg.set_arguments(kernargs)
        sizes = (groups[0] * items[0], groups[1] * items[1], groups[2] * items[2])
        self._given(self.cl.enqueue_nd_range_kernel(self.queue, prg.kernel, sizes, items))


@atexit.register
def _leave() -> None:
    # An implementation takes itself down when the process ends: no thread of ours may be in it then.
    deadline = time.monotonic() + _LEAVE_SECONDS
    for worker in list(_running):
        worker.stop(max(0.0, deadline - time.monotonic()))
