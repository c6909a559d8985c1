"""Making a device fail or stall on purpose: `inject`. Works on the CPU devices and the null device.

Commands and submits fail in native code, where they run; allocations and compiles here, by standing in front of the
device's allocator or compiler while the injection lasts.
"""

from __future__ import annotations

import copy
import threading
import time
from types import TracebackType
from typing import Any, Self

from hcq import config

_NAP = 0.0005  # seconds between looks at what is queued
_STANDING = 100  # looks without anything running after which the rest is taken to wait for somebody

WHAT = ("alloc", "compile", "exec", "copy", "submit")


def inject(
    dev: Any, what: str, nth: int = 1, error: BaseException | type[BaseException] | None = None, delay: float = 0
) -> Injection:
    """A context manager in which the `nth` alloc, compile, exec, copy or submit of `dev` fails or stalls, once.

    error: an exception, or a class of them; RuntimeError("injected") by default, for alloc MemoryError. With a `delay`
    in seconds and no error it only comes late. alloc and compile raise at the call; submit raises and loses the device;
    exec and copy lose it, so that whoever waits gets DeviceLost with this cause. Counts only cache misses as compiles,
    and every call of the allocator as alloc. The device may be used by many threads meanwhile.

    Launches and copies run after they were queued. So a block for exec or copy that ends without an exception waits
    until the failure came, or all that is queued is over or stands at a wait, for at most HCQ_TIMEOUT_MS. It raises
    nothing itself: DeviceLost is left to the next synchronize, wait or launch.

    Raises ValueError or TypeError for wrong arguments, TypeError for a device that can't do this.
    """
    if isinstance(dev, str):
        raise TypeError(f"inject takes an opened device, not a name: inject(hcq.Device[{dev!r}], {what!r})")
    if what not in WHAT:
        raise ValueError(f"{what!r} can't be made to fail: expected one of {', '.join(WHAT)}")
    if not isinstance(nth, int) or nth < 1:
        raise ValueError(f"nth is {nth!r}: expected 1 for the next one, 2 for the one after it, and so on")
    if not (isinstance(delay, (int, float)) and 0 <= delay < 1e6):
        raise ValueError(f"delay is {delay!r}: expected seconds")
    if isinstance(error, type) and issubclass(error, BaseException):
        error = error("injected")
    elif error is None and not delay:
        error = (MemoryError if what == "alloc" else RuntimeError)("injected")
    elif error is not None and not isinstance(error, BaseException):
        raise TypeError(f"error is {error!r}: expected an exception or a class of exceptions")
    if not hasattr(dev, "_inject"):
        name = getattr(dev, "dname", repr(dev))
        raise TypeError(f"{name} can't be made to fail: inject works on the CPU devices and the null device")
    if what == "alloc":
        return _Allocation(dev, nth, error, delay)
    if what == "compile":
        return _Compile(dev, nth, error, delay)
    return _Command(dev, what, nth, error, delay)


class Injection:
    """What `inject` gives: armed from `__enter__` to `__exit__`. `fired` tells whether it came to it."""

    fired = False

    def __enter__(self) -> Self:
        self._arm()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._await_queued()
        self._disarm()

    def _await_queued(self) -> None:
        """What the block queued gets to run before the injection is disarmed. Raises nothing."""

    def _arm(self) -> None:
        raise NotImplementedError

    def _disarm(self) -> None:
        raise NotImplementedError


class _Command(Injection):
    def __init__(self, dev: Any, what: str, nth: int, error: BaseException | None, delay: float) -> None:
        self._dev, self._what, self._nth, self._error, self._delay = dev, what, nth, error, delay

    def _arm(self) -> None:
        from hcq.queues import faults

        token = faults.keep_cause(self._error) if self._error is not None else 0
        self._id = self._dev._inject(self._what, self._nth, token, float(self._delay))

    def _await_queued(self) -> None:
        if self._what == "submit":
            return  # those fail in the caller
        deadline = time.monotonic() + config.TIMEOUT_MS() / 1000
        standing = 0  # how often in a row nothing ran: work that goes on by itself stands still for a moment only
        while self._is_coming() and self._dev.busy() and time.monotonic() < deadline:
            standing = 0 if self._dev.running() else standing + 1
            if standing > _STANDING:
                return
            time.sleep(_NAP)

    def _is_coming(self) -> bool:
        # The command is picked a little before the device is lost.
        return self._dev._armed(self._id) or (self._error is not None and not self._dev.lost)

    def _disarm(self) -> None:
        self.fired = self._dev._uninject(self._id)


class _Call(Injection):
    """Stands in front of one attribute of the device, and counts calls."""

    attribute: str

    def __init__(self, dev: Any, nth: int, error: BaseException | None, delay: float) -> None:
        self._dev, self._left, self._error, self._delay = dev, nth, error, delay
        self._lock = threading.Lock()

    def count(self) -> None:
        """Called before each call."""
        with self._lock:
            self._left -= 1
            if self._left != 0:
                return
            self.fired = True
        time.sleep(self._delay)
        if self._error is not None:
            raise self._error

    def _arm(self) -> None:
        self._before = getattr(self._dev, self.attribute)
        self._during = self._stand_in(self._before)
        setattr(self._dev, self.attribute, self._during)

    def _disarm(self) -> None:
        self._left = 0
        if getattr(self._dev, self.attribute) is self._during:
            setattr(self._dev, self.attribute, self._before)

    def _stand_in(self, before: Any) -> Any:
        raise NotImplementedError


class _Allocation(_Call):
    attribute = "allocator"

    def _stand_in(self, before: Any) -> Any:
        return _FailingAllocator(before, self)


class _FailingAllocator:
    """Everything as the allocator that it stands for, save that calls of `alloc` are counted first."""

    def __init__(self, allocator: Any, injection: _Call) -> None:
        self._allocator, self._injection = allocator, injection

    def alloc(self, size: int, options: Any = None) -> Any:
        self._injection.count()
        return self._allocator.alloc(size, options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._allocator, name)


class _Compile(_Call):
    attribute = "compiler"

    def _stand_in(self, before: Any) -> Any:
        compiler = copy.copy(before)

        def compile(src: Any) -> bytes:
            self.count()
            library: bytes = before.compile(src)
            return library

        compiler.compile = compile
        return compiler
