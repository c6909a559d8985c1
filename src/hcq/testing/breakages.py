"""Deliberate breakages of promises, applied to the null driver, each with the tests of the suite that must notice it.

That a test can fail is shown here, once for each: tests/test_mutants.py runs the pairs, in `.ci/run full`. The
breakages are in hcq.testing.mutants: functions that give a context manager, which patches hcq's own classes while it
lasts. So one is only ever applied while no other test runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from hcq.testing import standing

VARIABLE = "HCQ_SUITE_BREAKAGE"  # names the breakage for the processes that a test starts (suite/tools.py)
SHORT = 300  # milliseconds: how long a test waits at most for what a breakage has made impossible

Apply = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Breakage:
    """What is broken, the promise that breaks, and the tests that must fail then.

    A test is given by name, or with one of its parameter sets: `test_x[compute]` is the one whose id contains
    `compute`; without, the first is taken.
    """

    name: str
    promise: str
    tests: tuple[str, ...]
    apply: Apply

    def covers(self, test: str) -> str | None:
        """The parameters to take where this breakage must be noticed by `test`, '' for the first ones; else None."""
        for name, _, parameters in (entry.partition("[") for entry in self.tests):
            if name == test:
                return parameters.removesuffix("]")
        return None


REGISTRY: dict[str, Breakage] = {}
for_good: list[AbstractContextManager[Any]] = []  # in a process that a test started which is to notice a breakage


def breaks(promise: str, *tests: str) -> Callable[[Apply], Apply]:
    """Registers a function as a breakage of a promise that `tests` must notice."""

    def register(function: Apply) -> Apply:
        name = function.__name__
        if name in REGISTRY:
            raise ValueError(f"two breakages are called {name}")
        REGISTRY[name] = Breakage(name, promise, tests, function)
        return function

    return register


def changed(owner: Any, name: str, make: Callable[[Any], Any]) -> AbstractContextManager[Any]:
    """While it lasts, attribute `name` of `owner` is what `make` makes of the one before."""
    return patch.object(owner, name, make(getattr(owner, name)))


def prop(owner: Any, name: str, get: Any, put: Any = None) -> AbstractContextManager[Any]:
    """An attribute of instances that is computed: `get(before, self)`, `put(before, self, value)`."""
    before = owner.__dict__.get(name) or getattr(owner, name)
    setter = None if put is None else lambda self, value: put(before, self, value)
    return patch.object(owner, name, property(lambda self: get(before, self), setter))


def attribute(owner: Any, name: str) -> Any:
    """The descriptor behind an attribute of instances: its `__get__` and `__set__` are those from before a change."""
    return inspect.getattr_static(owner, name)


def raw(buf: Any) -> bytes:
    """The bytes of a buffer as they lie there now, without waiting for anybody."""
    return ctypes.string_at(buf._buf.va_addr, buf.nbytes)


def together(*contexts: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
    """Several patches as one."""
    stack = contextlib.ExitStack()
    for context in contexts:
        stack.enter_context(context)
    return stack


def all_of_them() -> dict[str, Breakage]:
    """The breakages by name."""
    from hcq.testing import mutants  # noqa: F401  registers

    return REGISTRY


def of_test(test: str) -> list[str]:
    """The breakages that a test must notice."""
    return [name for name, breakage in all_of_them().items() if breakage.covers(test) is not None]


@contextmanager
def applied(name: str, device: str) -> Iterator[None]:
    """Runs the body with a promise broken; devices are closed before and after, so that none outlives the patch."""
    breakage = all_of_them()[name]
    _close(device)
    os.environ[VARIABLE] = name
    try:
        with _short_waits(), breakage.apply():
            yield
            os.environ.pop(VARIABLE, None)
    finally:
        os.environ.pop(VARIABLE, None)
        _close(device)


def apply_for_good(name: str) -> None:
    """Breaks this process, which a test started; prefixed to its code by suite/tools.py."""
    for_good.append(all_of_them()[name].apply())  # kept: a context manager that is dropped ends
    for_good[-1].__enter__()


def _short_waits() -> AbstractContextManager[Any]:
    from hcq import HCQSignal

    def make(wait: Any) -> Any:
        return lambda self, value, timeout=10_000: wait(self, value, min(timeout, SHORT))

    return changed(HCQSignal, "wait", make)


def _close(device: str) -> None:
    from hcq import Device

    kind = device.partition(":")[0]
    opened = [Device[name] for name in Device.opened if name.partition(":")[0] == kind]
    for each in opened:
        with contextlib.suppress(Exception):
            standing.lose(each, "a breakage ends")
    standing.close(opened)
