"""What breakages of several areas use: the null device's classes, and changes to a device just opened."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from hcq.drivers.null.device import NullDevice
from hcq.drivers.null.queue import NullComputeQueue, NullCopyQueue
from hcq.testing.breakages import changed, together

Context = AbstractContextManager[Any]


def opened(change: Callable[[Any], None]) -> Context:
    """Each null device is changed just after it was opened."""

    def make(init: Any) -> Any:
        def broken(self: Any, name: str) -> None:
            init(self, name)
            change(self)

        return broken

    return changed(NullDevice, "__init__", make)


def queues(name: str, make: Callable[[Any], Any]) -> Context:
    """A method of both kinds of queue."""
    return together(changed(NullComputeQueue, name, make), changed(NullCopyQueue, name, make))


class Launcher:
    """Stands for a program; `launch(program, *bufs, **options)` is what calling it does."""

    def __init__(self, program: Any, launch: Callable[..., Any]) -> None:
        self._program, self._launch = program, launch

    def __call__(self, *bufs: Any, **options: Any) -> Any:
        return self._launch(self._program, *bufs, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)


def launches(launch: Callable[..., Any]) -> Context:
    """Programs of the null device are called by way of `launch(program, *bufs, **options)`."""

    def change(device: Any) -> None:
        runtime = device.runtime
        device.runtime = lambda name, lib: Launcher(runtime(name, lib), launch)

    return opened(change)
