"""Logging: the standard library's `logging`, under the logger `hcq`, switched on by HCQ_LOG.

Importing `logging` costs more than the rest of hcq's start, so it happens at the first message and not before.
"""

from __future__ import annotations

from hcq import config

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging

_LEVELS = ("debug", "info", "warning", "error", "critical")


def logger(name: str) -> logging.Logger:
    """The logger `hcq.<name>`. Any thread. A warning nobody configured logging for goes to standard error."""
    import logging

    return logging.getLogger(f"hcq.{name}")


def configure() -> None:
    """Do what HCQ_LOG says: its level for `hcq`, and messages to standard error. Without HCQ_LOG nothing happens."""
    level = config.LOG()
    if level is None:
        return
    import logging

    root = logging.getLogger("hcq")
    if level.lower() not in _LEVELS:
        root.warning("HCQ_LOG=%s is not a level; expected one of %s", level, ", ".join(_LEVELS))
        return
    root.setLevel(level.upper())
    if not root.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        root.addHandler(handler)
