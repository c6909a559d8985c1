"""Modules that are imported when something of them is first used.

For what most programs never need, such as words for errors, where a module names it in many places; where it is needed
in one or two, it is imported there. Importing a module takes some 0.2 ms and 20 KB, and opening a device waits for it.
Not for what is asked at every launch: looking through takes 0.3 us.

A module that another thread is importing stands in sys.modules already, with some of its names: it is not taken for
the whole.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


class Later:
    """Stands for the module of that name: its attributes are the module's, as they are now. Threads may share it."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(loaded(self._name) or import_module(self._name), attribute)


def loaded(name: str) -> ModuleType | None:
    """The module of that name if it has been imported; None where it has not, or is being imported just now."""
    module = sys.modules.get(name)
    return None if module is None or getattr(module.__spec__, "_initializing", False) else module
