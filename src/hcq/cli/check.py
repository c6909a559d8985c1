"""`hcq check`: run a Python script or module with the checks on, and say at the end what they found."""

from __future__ import annotations

import sys
import warnings
from typing import TextIO

from hcq.cli.output import DONE, FAILED
from hcq.cli.script import Module, Script, run_program


def show(program: Script | Module, arguments: list[str], strict: bool, stop: bool) -> int:
    """Run `program` under the checks. The exit code is its own, or 1 where it is 0 and something was found."""
    from hcq.errors import ValidationError, ValidationWarning
    from hcq.validation.switch import checks

    watcher = checks(strict=strict, raises=stop)
    with warnings.catch_warnings():
        warnings.simplefilter("always", ValidationWarning)
        warnings.showwarning = _print
        watcher.__enter__()
        code = run_program(program, arguments)
        try:
            watcher.__exit__(None, None, None)
        except ValidationError as error:
            print(error, file=sys.stderr)
    found, possible = len(watcher.findings), len(watcher.possible)
    rest = f", {possible} more possible: an access that was not declared" if possible else ""
    print(f"hcq: checks: {found or 'nothing'} found{rest}", file=sys.stderr)
    return code or (FAILED if found else DONE)


def _print(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print(f"{filename}:{lineno}: {message}\n" if filename else f"{message}\n", file=sys.stderr)
