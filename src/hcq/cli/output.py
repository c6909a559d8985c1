"""What all commands print through: consoles, JSON, and errors that are worded rather than traced."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from hcq.errors import HCQError, UnknownDevice

if TYPE_CHECKING:
    from rich.console import Console

DONE, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130
"""Exit codes: done; what was asked for failed; it was asked wrongly (as typer's own); Control-C."""

PLAIN_WIDTH = 140
"""Columns where standard output is no terminal: nothing is cut to 80 in a log or a bug report."""


class Mistake(Exception):
    """A user's mistake: the message says what to do. Ends the command with the exit code WRONG, without a traceback."""


class Failure(Exception):
    """What was asked for could not be done here. Ends the command with the exit code FAILED, without a traceback."""


def console(stderr: bool = False) -> Console:
    """A console for results (standard output), or for progress and errors (standard error)."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    plain = not stream.isatty() and not os.environ.get("COLUMNS")
    # No markup: what is shown has square brackets of its own, as in pip install 'hcq[opencl]'.
    return Console(stderr=stderr, width=PLAIN_WIDTH if plain else None, highlight=False, markup=False)


def print_json(value: object) -> None:
    """Print `value` as JSON. What JSON has no form for is printed as text."""
    print(json.dumps(value, indent=2, default=str))


def leave(message: str, code: int) -> NoReturn:
    """Print an error and exit."""
    import typer

    print(f"hcq: {message}", file=sys.stderr)
    raise typer.Exit(code)


def worded(command: Callable[..., int | None]) -> Callable[..., None]:
    """Decorates a command: its result is the exit code, and the errors a user can meet are printed in words.

    Everything else is a bug, and its traceback is what a bug report needs.
    """

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        import typer

        try:
            code = command(*arguments, **options)
        except (Mistake, UnknownDevice) as error:
            leave(str(error), WRONG)
        except (Failure, HCQError) as error:
            leave(str(error), FAILED)
        except KeyboardInterrupt:
            leave("interrupted", INTERRUPTED)
        if code:
            raise typer.Exit(code)

    return run


def check_environment() -> None:
    """Raise Mistake where an environment variable of hcq has a value that makes no sense."""
    from hcq import config

    for variable in config.VARIABLES.values():
        if callable(variable):
            try:
                variable()
            except ValueError as error:
                raise Mistake(str(error)) from None


def bytes_text(size: int | float | None) -> str:
    """A number of bytes for people: `1.5 GiB`; None is `-`."""
    if size is None:
        return "-"
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def facts_text(facts: Mapping[str, object]) -> str:
    """One line of `name value` pairs, without the empty ones."""
    return ", ".join(f"{name} {value}" for name, value in facts.items() if value not in (None, "", (), []))
