"""The line of the user's program that an event comes from.

What does not live here: showing it (events.Site).
"""

from __future__ import annotations

import os
import sys
import threading

import hcq
from hcq.validation.events import Site

_PACKAGE = os.path.dirname(os.path.abspath(hcq.__file__)) + os.sep
_OURS = (_PACKAGE + "testing" + os.sep, _PACKAGE + "demo" + os.sep)  # written like a user's
_LIBRARIES = (os.path.dirname(os.path.abspath(threading.__file__)) + os.sep, "<frozen ")

_users: dict[str, bool] = {}  # by file: whether its lines are a user's


def here() -> Site | None:
    """The innermost line outside of hcq and of the standard library; None where there is none, as in finalizers."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        users = _users.get(file)
        if users is None:
            inside = file.startswith(_PACKAGE) and not file.startswith(_OURS)
            users = _users[file] = not inside and (not file.startswith(_LIBRARIES) or "-packages" in file)
        if users:
            return Site(os.path.relpath(file) if _is_near(file) else file, frame.f_lineno, code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _is_near(file: str) -> bool:
    try:
        return file.startswith(os.getcwd() + os.sep)
    except OSError:  # the directory is gone
        return False
