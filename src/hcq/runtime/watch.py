"""The watch point: who is told of what is submitted and touched.

Native code and the Python bases call the functions of `watching`, as `watch.launch(...)`, one an event, and only while
`active` is not 0: a capture in some thread, or observers of the whole process (the validation layer). What does not
live here: the events and who is told of them (watching), which is imported when anybody is, and what a capture or a
check makes of it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hcq.runtime.watching import *  # noqa: F403
    from hcq.runtime.watching import Observer

CAPTURING = 1
OBSERVED = 2

active = 0
"""Not 0 while somebody watches: CAPTURING | OBSERVED. The native word has the same value."""

observers: tuple[Observer, ...] = ()
"""Who looks at the work of all threads, in the order of their coming."""


def __getattr__(name: str) -> Any:
    from hcq.runtime import watching

    try:
        found = getattr(watching, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    if callable(found):  # the rest may change
        globals()[name] = found
    return found
