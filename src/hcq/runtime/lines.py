"""The user's line: which line of their program asked for something. Checks, profiles, captures and errors all ask here.

A line is a number that packets and records carry; what it is in words is looked up when it is shown. No frame is kept.
What does not live here: finding the line (native/python/user_line.cpp).
"""

from __future__ import annotations

import os
from typing import NamedTuple

from hcq import _native

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_OURS = [_PACKAGE + "testing" + os.sep, _PACKAGE + "demo" + os.sep]  # written like a user's
_LIBRARIES = [os.path.dirname(os.path.abspath(os.__file__)) + os.sep, "<frozen "]

_native.user_line_rules([_PACKAGE], _OURS, _LIBRARIES)


class Line(NamedTuple):
    """A line of the user's program."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f", in {self.function}" if self.function else "")


def here() -> int:
    """The innermost line outside of hcq and of the standard library; 0 where there is none, as in finalizers."""
    return _native.user_line()


def of(number: int) -> Line | None:
    """The line of a number; None for 0."""
    found = _native.line_of(number) if number else None
    return Line(*found) if found is not None else None


def words(number: int) -> str:
    """'file:line' of a number; empty for 0."""
    line = of(number)
    return f"{line.file}:{line.line}" if line is not None else ""
