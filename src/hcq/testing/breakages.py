"""Deliberate breakages of promises, applied to the null driver, each with the tests of the suite that must notice it.

That a test can fail is shown here, once for each: tests/test_mutants.py runs the pairs. A breakage is a context
manager; it may patch hcq's own classes, so it is only ever applied while no other test runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import hcq


@dataclass(frozen=True)
class Breakage:
    """What is broken (a context manager's function), the promise that breaks, and the tests that must fail then."""

    name: str
    promise: str
    tests: tuple[str, ...]
    apply: Callable[[], AbstractContextManager[None]]


REGISTRY: dict[str, Breakage] = {}


def breaks(promise: str, *tests: str) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Iterator[None]]]:
    """Registers a generator function as a breakage of a promise that `tests` must notice."""

    def register(function: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        name = function.__name__
        REGISTRY[name] = Breakage(name, promise, tests, contextmanager(function))
        return function

    return register


def of_test(test: str) -> list[str]:
    """The breakages that a test must notice."""
    _load()
    return [name for name, breakage in REGISTRY.items() if test in breakage.tests]


@contextmanager
def applied(name: str, device: str) -> Iterator[None]:
    """Runs the body with a promise broken; devices are closed before and after, so that none outlives the patch."""
    _load()
    _close(device)
    try:
        with REGISTRY[name].apply():
            yield
    finally:
        _close(device)


def _load() -> None:
    from hcq.testing import mutants  # noqa: F401  registers


def _close(device: str) -> None:
    kind = device.partition(":")[0]
    for name in (kind, f"{kind}:1", f"{kind}:2", f"{kind}:3"):
        try:
            hcq.Device.close(name)
        except Exception:  # a broken device may fail to close: what matters is that it's forgotten
            pass
