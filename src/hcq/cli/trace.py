"""`hcq trace`: run a Python script or module with a profile around it, and write the trace."""

from __future__ import annotations

import sys
from pathlib import Path

from hcq.cli.output import Failure, Mistake
from hcq.cli.script import Module, Script, run_program


def show(program: Script | Module, arguments: list[str], output: Path | None, plot: Path | None, table: bool) -> int:
    """Run `program` with its arguments; the exit code is its own. The trace is written in any case."""
    from hcq.profiling.files import has_perfetto
    from hcq.profiling.session import Profile

    path = output or Path(program.stem + (".pftrace" if has_perfetto() else ".json"))
    if plot is not None and plot.suffix.lower() != ".svg":
        raise Mistake(f"{plot}: the picture is an SVG, so its name must end in .svg")
    for target in filter(None, (path, plot)):
        if not target.parent.is_dir():
            raise Mistake(f"there is no folder {target.parent} to write {target.name} into")
    try:
        profile = Profile(path)
    except ValueError as error:
        raise Mistake(str(error)) from None
    profile.__enter__()
    try:
        code = run_program(program, arguments)
    finally:
        profile.stop()
    try:
        written = profile.save(path)
        if plot is not None:
            profile.plot(plot)
    except OSError as error:
        raise Failure(f"the trace could not be written: {error}") from None
    print(f"hcq: trace of {len(profile.spans)} spans in {written}", file=sys.stderr)
    if table:
        print(profile.table(), file=sys.stderr)
    return code
