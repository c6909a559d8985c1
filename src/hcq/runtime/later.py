"""Modules that are imported when something of them is first used.

For what most programs never need, such as words for errors, where a module names it in many places; where it is needed
in one or two, it is imported there. Importing a module takes some 0.2 ms and 20 KB, and opening a device waits for it.
Not for what is asked at every launch: looking through takes 0.2 us.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Later:
    """Stands for the module of that name: its attributes are the module's, as they are now. Threads may share it."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(sys.modules.get(self._name) or import_module(self._name), attribute)
