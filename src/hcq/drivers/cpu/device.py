"""The host CPU as a device of hardware command queues, twice: CLANG takes C, LLVM takes LLVM IR.

What does not live here: the queues' processor (native/core), programs (program), memory (allocator), compilers.
"""

from __future__ import annotations

import atexit
import functools
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hcq import _native, config
from hcq.drivers.cpu.allocator import CPUAllocator, StagedCPUAllocator
from hcq.drivers.cpu.program import CPUProgram
from hcq.drivers.cpu.queue import CPUComputeQueue, CPUCopyQueue
from hcq.errors import DeviceLost
from hcq.queues import faults
from hcq.queues.device import HCQCompiled
from hcq.queues.signal import HCQSignal
from hcq.runtime.compiled import DeviceLimits
from hcq.runtime.compiler import Compiler

_LEAVE_SECONDS = 5.0


class CPUDevice(_native.CommandDevice, HCQCompiled):
    """A command-queue device on the host's processor. `D:1`, `D:2` ... are further queues on the same cores.

    The compute and the copy queue run side by side, asynchronously to Python; what a launch runs is spread over
    HCQ_CPU_THREADS threads that all CPU devices share. Threads may share a device.
    """

    limits = DeviceLimits(local_memory_bytes=1 << 20, buffer_alignment=64, view_alignment=1)

    def __init__(self, name: str, compiler: Compiler) -> None:
        _native.set_worker_limit(config.CPU_THREADS())
        _native.set_queue_limit(config.QUEUE_LIMIT())
        limits = self.limits
        self._open(name, HCQSignal(), limits.max_groups, limits.max_group_size, limits.max_group_items)
        HCQCompiled.__init__(
            self,
            name,
            (StagedCPUAllocator if config.FORCE_STAGING() else CPUAllocator)(self),
            None,
            compiler,
            functools.partial(CPUProgram, self),
            HCQSignal,
            CPUComputeQueue,
            CPUCopyQueue,
        )

    def _init_timeline(self, timeline_signals: Any) -> None:
        """The timeline is native."""
        self._open_streams: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def lost(self) -> DeviceLost | None:  # type: ignore[override]
        """Why the device is lost; None while it is well."""
        error = self._fault
        return faults.from_native(error) if error else None

    def enqueue(self, build: Callable[[Any, int], Any]) -> tuple[Any, int]:
        """Put work on the timeline: `build(signal, value)` gives a queue that waits for value - 1 and sets value."""
        with self.timeline_lock:
            signal, value = self.timeline_signal, self.timeline_value
            queue = build(signal, value)
            self.timeline_value = value + 1
            try:
                queue.submit(self)
            except BaseException:
                self.timeline_value = value  # nothing was submitted: a submit is all or nothing
                raise
        return signal, value

    def ordering(self) -> list[tuple[Any, int]]:
        """(signal, value) pairs for a queue to wait for so as to come after all work queued until now."""
        return self._all_queued()

    def wait_for(self, pairs: Iterable[tuple[Any, int]]) -> None:
        """Wait until all (signal, value) are reached."""
        for signal, value in pairs:
            signal.wait(value, config.TIMEOUT_MS())

    def _all_queued(self) -> list[tuple[Any, int]]:
        return [(self.timeline_signal, self.timeline_value - 1), *(s.position for s in self._open_streams)]

    def _after_wait(self) -> None:
        self.synchronize()

    def stream(self) -> Any:
        """A new ordered handle: what is given to different streams runs side by side (native)."""
        self.check_usable()
        stream = self._stream()
        self._open_streams.add(stream)
        return stream

    def _close(self) -> None:
        self._shut()

    def _info(self) -> Mapping[str, object]:
        return {
            "kind": "host CPU",
            "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "cores": os.cpu_count(),
            "threads": _native.worker_limit(),
            "queues": ("compute", "copy"),
            "compiler": type(self.compiler).__name__,
        }


@atexit.register
def _leave() -> None:
    # What is queued gets some time to finish; what is wrong with it is nobody's concern any more.
    _native.drain(_LEAVE_SECONDS)
