"""The line of the user's program that an event comes from, as the model keeps it.

What does not live here: finding it (hcq.runtime.lines), and showing it (events.Site).
"""

from __future__ import annotations

import functools

from hcq.runtime import lines
from hcq.validation.events import Site


def here() -> Site | None:
    """The innermost line outside of hcq and of the standard library; None where there is none, as in finalizers."""
    return _site(lines.here())


@functools.lru_cache(maxsize=4096)
def _site(number: int) -> Site | None:
    line = lines.of(number)
    return None if line is None else Site(*line)
