"""Devices on the native command processor: what the CPU devices, the null device and OpenCL have in common.

What does not live here: the processor itself (native/core), programs and compilers (drivers), and devices whose queues
are written in Python (device, command_queue), which need nothing of this.
"""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING, Any

from hcq import _native, config
from hcq.errors import DeviceLost, LaunchError, SignalTimeout
from hcq.queues.allocator import HCQAllocator
from hcq.queues.device import HCQCompiled
from hcq.queues.program import HCQProgram
from hcq.queues.signal import HCQSignal
from hcq.runtime import lines as lines  # native code finds the user's lines by its rules
from hcq.runtime import watch
from hcq.runtime.allocator import HostAllocator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hcq.queues.native_queue import NativeComputeQueue, NativeCopyQueue
    from hcq.runtime.compiler import Compiler

_CLOSE_SECONDS = 5.0


class NativeAllocator(HostAllocator, HCQAllocator):
    """Pooled host memory. Host copies wait for what is queued on the device, then are direct (native)."""

    host_access = True

    def __init__(self, device: Any) -> None:
        HCQAllocator.__init__(self, device)

    def transfer(self, dest: Any, src: Any, size: int, src_dev: Any, dest_dev: Any, stream: Any = None) -> None:
        """As HCQAllocator's; a copy within one device is one native call."""
        if src_dev is dest_dev and 0 < size <= dest.size and size <= src.size and not watch.active:
            src_dev.enqueue_copy(dest.va_addr, src.va_addr, size, stream)
        else:
            super().transfer(dest, src, size, src_dev, dest_dev, stream)

    def copy_from_disk(self, dest: Any, src: Any, size: int) -> None:
        """As HCQAllocator's; a file's own queue reads straight into `dest`, where that pays."""
        read_to = getattr(src, "read_to", None)
        if read_to is None or not self._direct(dest) or not 0 <= size <= min(dest.size, src.size):
            super().copy_from_disk(dest, src, size)
            return
        if not read_to(dest.va_addr, size, self.device):
            super().copy_from_disk(dest, src, size)

    def _within(self, device: Any, dest: Any, src: Any, size: int, stream: Any) -> None:
        device.enqueue_copy(dest.va_addr, src.va_addr, size, stream)  # overlapping ranges: as if read first


class Staged:
    """Before a NativeAllocator: host copies go through the staging ring and the copy queue (HCQ_FORCE_STAGING=1)."""

    copyin = HCQAllocator.copyin
    copyout = HCQAllocator.copyout


class InterfaceProgram(HCQProgram):
    """Behind _native.Program: a program whose launches an interface carries out (native/core/interface.hpp)."""

    def _launch_arrays(
        self, bufs: tuple[Any, ...], groups: Any, items: Any, vals: tuple[Any, ...], wait: Any, stream: Any
    ) -> float | None:
        """A launch over arrays of the host, which the device doesn't reach: native code calls it."""
        import numpy

        for buf in bufs:
            if not (hasattr(buf, "_buf") or isinstance(buf, (numpy.ndarray, _native.HCQBuffer))):
                what = type(buf).__name__
                raise LaunchError(f"{self.name}: expected Buffers or NumPy arrays, got a {what}: hcq.array takes it")
        return self._with_arrays(numpy, bufs, groups, items, vals, bool(wait), stream)


class NativeDevice(_native.CommandDevice, HCQCompiled):
    """A device with two hardware queues that run side by side, asynchronously to Python. Threads may share one."""

    def __init__(
        self,
        name: str,
        allocator_t: Callable[[Any], HCQAllocator],
        compiler: Compiler,
        runtime: Callable[..., Any],
        comp_queue_t: type[NativeComputeQueue] | None,
        copy_queue_t: type[NativeCopyQueue] | None,
    ) -> None:
        _native.set_worker_limit(config.CPU_THREADS())
        _native.set_queue_limit(config.QUEUE_LIMIT())
        limits = self.limits
        self._open(name, HCQSignal(), limits.max_groups, limits.max_group_size, limits.max_group_items)
        queues = comp_queue_t, copy_queue_t
        HCQCompiled.__init__(self, name, allocator_t(self), None, compiler, runtime, HCQSignal, *queues)

    def _init_timeline(self, timeline_signals: Any) -> None:
        """The timeline is native."""
        self._open_streams: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def lost(self) -> DeviceLost | None:  # type: ignore[override]
        """Why the device is lost; None while it is well."""
        error = self._fault
        if not error:
            return None
        from hcq.queues import faults

        return faults.from_native(error)

    def enqueue(self, build: Callable[[Any, int], Any]) -> tuple[Any, int]:
        """Put work on the timeline: `build(signal, value)` gives a queue that waits for value - 1 and sets value."""
        with self.timeline_lock:
            signal, value = self.timeline_signal, self.timeline_value
            queue = build(signal, value)
            self._submit_as(queue, value)  # one native call: Control-C comes before or after both
        return signal, value

    def ordering(self) -> list[tuple[Any, int]]:
        """(signal, value) pairs for a queue to wait for so as to come after all work queued until now."""
        return [*self._all_queued(), *self._marks()]

    async def idle(self) -> None:
        """Await what synchronize waits for; raises the same, without a deadline."""
        from hcq.queues import awaiting

        self.check_usable()
        for signal, value in [*self._all_queued(), *self._marks()]:
            try:
                await awaiting.reached(signal, value)  # streams have plain native signals
            except DeviceLost:
                continue  # told below
        self.check_usable()
        if not self.busy():  # else there is more by now, which is not waited for here
            self.synchronize()

    def _marks(self) -> list[tuple[Any, int]]:
        # Submits need not set any signal that we know of: one more command behind them does.
        marks: list[tuple[Any, int]] = []
        for queue_t in (self.hw_compute_queue_t, self.hw_copy_queue_t):
            if queue_t is not None and self.busy():
                marks.append((HCQSignal(), 1))
                queue_t().signal(*marks[-1]).submit(self)
        return marks

    def wait_for(self, pairs: Iterable[tuple[Any, int]]) -> None:
        """Wait until all (signal, value) are reached. SignalTimeout where a queue stands at a wait for too long."""
        for signal, value in pairs:
            while True:
                try:
                    signal.wait(value, config.TIMEOUT_MS())
                    break
                except SignalTimeout:
                    if not self.running():  # what runs may take HCQ_KERNEL_TIMEOUT_MS
                        raise

    def _all_queued(self) -> list[tuple[Any, int]]:
        return [(self.timeline_signal, self.timeline_value - 1), *(s.position for s in self._open_streams)]

    def stream(self) -> Any:
        """A new ordered handle: what is given to different streams runs side by side (native)."""
        self.check_usable()
        stream = self._stream()
        self._open_streams.add(stream)
        return stream

    def _close(self) -> None:
        self._shut()

    def _ended(self) -> bool:
        """Behind _close, of a device with memory of its own: whether all that was queued is over, also what threads
        queued beside the closing, which gets some time. The staging ring is given back then."""
        deadline = time.monotonic() + _CLOSE_SECONDS
        while self.busy():
            if self.lost is not None or time.monotonic() >= deadline:
                return False
            time.sleep(0.0005)
        self._free_held()
        return True
