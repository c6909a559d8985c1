"""`hcq trace`: run a Python script with a profile around it, and write the trace."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from pathlib import Path

from hcq.cli.output import DONE, FAILED, Failure, Mistake


def show(script: str, arguments: list[str], output: Path | None, plot: Path | None, table: bool) -> int:
    """Run `script` as `python script arguments` would; the exit code is its own. The trace is written in any case."""
    from hcq.profiling.files import has_perfetto
    from hcq.profiling.session import Profile

    if not os.path.isfile(script):
        raise Mistake(f"there is no script {script}")
    path = output or Path(Path(script).stem + (".pftrace" if has_perfetto() else ".json"))
    if plot is not None and plot.suffix.lower() != ".svg":
        raise Mistake(f"{plot}: the picture is an SVG, so its name must end in .svg")
    for target in filter(None, (path, plot)):
        if not target.parent.is_dir():
            raise Mistake(f"there is no folder {target.parent} to write {target.name} into")
    try:
        profile = Profile(path)
    except ValueError as error:
        raise Mistake(str(error)) from None
    before = sys.argv[:], sys.path[:]
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    profile.__enter__()
    try:
        code = _run(script)
    finally:
        sys.argv[:], sys.path[:] = before
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


def _run(script: str) -> int:
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return leaving.code or DONE
        print(leaving.code, file=sys.stderr)
        return FAILED
    except Exception:
        # The frames of this command are nothing to the script's author.
        kind, error, trace = sys.exc_info()
        while trace is not None and trace.tb_frame.f_code.co_filename != script:
            trace = trace.tb_next
        traceback.print_exception(kind, error, trace)
        return FAILED
    return DONE
