"""The two marks of the suite's tests: which promises a test holds, and what a device must be able to do for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def promise(*ids: str) -> Callable[[F], F]:
    """Marks a test with the ids (promises.toml) of the promises it holds a driver to."""
    import pytest

    def mark(test: F) -> F:
        return pytest.mark.promise(*ids)(test)  # type: ignore[no-any-return]

    return mark


def needs(*tags: str) -> Callable[[F], F]:
    """Marks a test with the capability tags (driver.TAGS) that a device must have for it."""
    import pytest

    def mark(test: F) -> F:
        return pytest.mark.needs(*tags)(test)  # type: ignore[no-any-return]

    return mark
