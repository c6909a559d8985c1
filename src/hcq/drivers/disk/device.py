"""DiskDevice: what opening DISK sets up, copies that the host waits for, and what a forked child may still do.

What does not live here: the command processor and the engines that read and write (native).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hcq import _native, config
from hcq.drivers.disk.allocator import DiskAllocator, ShmAllocator
from hcq.drivers.disk.place import Place, parse
from hcq.errors import DeviceLost, DeviceUnavailable
from hcq.queues import profile
from hcq.queues.native import NativeDevice
from hcq.queues.native_queue import NativeCopyQueue
from hcq.runtime import process, watch
from hcq.runtime.compiled import Compiled
from hcq.runtime.compiler import Compiler

# Memory that reads go to whose waiting thread was interrupted: (signal, what keeps it), until the signal is set.
_left: list[tuple[Any, Any]] = []


class DiskQueue(NativeCopyQueue):
    """signal, wait, timestamp, copy; one end of a copy may be a file. Commands belong to one thread at a time."""


class DiskDevice(NativeDevice):
    """A file, or a segment of shared memory, under a device's name, with a copy queue. Threads may share one.

    In a forked child what it inherited still reads and writes, by the calling thread.
    """

    survives_fork = True

    def __init__(self, name: str) -> None:
        self.place = self._place(name)
        engine = config.DISK_ENGINE()
        _native.disk_engine(engine)
        if engine == "uring" and not _native.disk_has_uring():
            raise DeviceUnavailable(
                reason=f"{config.DISK_ENGINE.name}=uring, and the system lets this process have no ring",
                hint=f"{config.DISK_ENGINE.name}=auto reads by threads then",
            )
        allocator_t: Any = ShmAllocator if self.place is not None and self.place.is_shm else DiskAllocator
        super().__init__(name, allocator_t, Compiler(), None, DiskQueue, DiskQueue)  # type: ignore[arg-type]
        self.hw_compute_queue_t = None

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child, and the device is its parent's."""
        return self._generation != process.generation

    @property
    def lost(self) -> DeviceLost | None:  # type: ignore[override]
        """Why the device is lost; None while it is well."""
        return None if self.inherited else super().lost

    def synchronize(self) -> None:
        """As of every device with queues; in a forked child nothing is queued."""
        if self.inherited:
            Compiled.check_usable(self)
        else:
            super().synchronize()

    def check_usable(self) -> None:
        """As of every device with queues, save that a forked child may use it."""
        if self.inherited:
            Compiled.check_usable(self)
        else:
            super().check_usable()

    def settle(self) -> None:
        """synchronize, at next to no cost where nothing is queued."""
        if not self.inherited and self.busy():
            self.synchronize()

    def copy_now(
        self, dest: int, src: int, nbytes: int, name: str, after: Iterable[tuple[Any, int]] = (), keep: Any = None
    ) -> None:
        """Copy between addresses by our queue, once the (signal, value) pairs of `after` are reached, and wait for it.

        `name` is what traces call it. `keep` is memory that must stay, should the wait be interrupted. Raises what the
        system said: OSError, or EOFError where the file ends too early.
        """
        done = self.signal_t()
        queue: Any = DiskQueue()
        for signal, value in after:
            if signal.value < value:
                queue.wait(signal, value)
        queue.copy(dest, src, nbytes)
        profile.name_copies(queue, name)
        queue.signal(done, 1).submit(self)
        try:
            while _native.disk_help(done, 1):
                pass
            self.wait_for([(done, 1)])
        except DeviceLost as error:
            self._forget_reported(_native.signal_error(done))
            if watch.active:  # who checks isn't told of waits that failed, and the copy is over
                self.synchronize()
            if isinstance(error.cause, (OSError, EOFError)):
                raise error.cause from None
            raise
        except BaseException:
            _left[:] = [entry for entry in _left if entry[0].value < 1]
            _left.append((done, keep))
            raise

    @contextmanager
    def host_copy(self, name: str, nbytes: int) -> Iterator[None]:
        """Around a copy that the calling thread makes itself: notes it, where somebody profiles."""
        began = time.perf_counter_ns()
        yield
        profile.host_copy(self, name, began, nbytes)

    def _place(self, name: str) -> Place | None:
        """Which file the name means, and how it may be used."""
        return parse(name)

    def _close(self) -> None:
        if not self.inherited:
            super()._close()

    def _info(self) -> Mapping[str, object]:
        place = self.place
        if place is None:
            return {"kind": "files, to copy from and to: DISK:/path"}
        kind = "a segment of shared memory" if place.is_shm else "a file"
        return {"kind": f"{kind}, to copy from and to", "path": place.path, "mode": place.mode, "queues": ("copy",)}
