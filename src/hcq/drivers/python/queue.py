"""The PYTHON device's command queues, and the threads that run them.

What does not live here: running a kernel (run).
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from hcq.errors import DeviceLost
from hcq.queues.signal import HCQSignal
from hcq.queues.words import TupleComputeQueue, TupleCopyQueue

if TYPE_CHECKING:
    from hcq.drivers.python.device import PythonDevice


class PythonDeviceSignal(HCQSignal):
    """Signals of a kind of their own, so that copies to and from other kinds of devices go by the host: it notes what
    they write, which their queues would not."""

    __slots__ = ()


class PythonComputeQueue(TupleComputeQueue):
    """Launches of kernels."""


class PythonCopyQueue(TupleCopyQueue):
    """Copies, which take along what was never written."""


class Worker:
    """One hardware queue: a thread that runs what is submitted, in order, until the device is closed or lost."""

    def __init__(self, dev: PythonDevice, lane: str) -> None:
        self.dev = dev
        self.todo: SimpleQueue[list[tuple[Any, ...]] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=f"{dev.dname} {lane}", daemon=True).start()

    def stop(self) -> None:
        """The thread ends once it has run what was submitted."""
        self.todo.put(None)

    def _run(self) -> None:
        while (words := self.todo.get()) is not None and self.dev.lost is None:
            for index, (what, *args) in enumerate(words):
                try:
                    getattr(self, what)(*args)
                except DeviceLost as error:  # another device's failure: only this submit is dropped
                    self.dev.drop(error, [word[1:] for word in words[index:] if word[0] == "signal"])
                    break
                except BaseException as error:
                    self.dev.lose(error, f"exec {args[0].name}" if what == "exec" else what)
                    return
            del words

    def signal(self, signal: Any, value: int) -> None:
        signal.value = value

    def wait(self, signal: Any, value: int) -> None:
        for nap in itertools.chain((0.0, 1e-5, 1e-4), itertools.repeat(1e-3)):
            if self.dev.is_reached(signal, value) or self.dev.lost is not None:
                return
            time.sleep(nap)

    def timestamp(self, signal: Any) -> None:
        signal._set_timestamp(time.perf_counter_ns() / 1000)

    def barrier(self) -> None:
        """Nothing: Python's threads see each other's memory."""

    def copy(self, dest: int, src: int, nbytes: int) -> None:
        ctypes.memmove(dest, src, nbytes)
        self.dev.blocks.copied(dest, src, nbytes)

    def exec(self, prg: Any, kernargs: int, groups: Any, items: Any) -> None:
        prg.run(kernargs, groups, items)
