"""`hcq trace`: run a Python script or module with a profile around it, and write the trace."""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
import traceback
from pathlib import Path

from hcq.cli.output import DONE, FAILED, Failure, Mistake


class Script:
    """A file, run as `python FILE` would."""

    def __init__(self, name: str) -> None:
        if not os.path.isfile(name):
            raise Mistake(f"there is no script {name}")
        self.name = self.file = name
        self.stem = Path(name).stem
        self.folder = os.path.dirname(os.path.abspath(name))

    def run(self) -> None:
        """Run it, in this interpreter."""
        runpy.run_path(self.name, run_name="__main__")


class Module:
    """A module or package, run as `python -m NAME` would."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stem = name.rpartition(".")[2]
        self.folder = os.getcwd()
        self.file = self._find()

    def run(self) -> None:
        """Run it, in this interpreter."""
        runpy.run_module(self.name, run_name="__main__", alter_sys=True)

    def _find(self) -> str:
        sys.path.insert(0, self.folder)
        try:
            found = importlib.util.find_spec(self.name)
            if found is not None and found.submodule_search_locations is not None:
                found = importlib.util.find_spec(f"{self.name}.__main__")
        except (ImportError, ValueError) as error:
            raise Mistake(f"there is no module {self.name}: {error}") from None
        finally:
            sys.path.remove(self.folder)
        if found is None or found.origin is None:
            raise Mistake(f"there is no module {self.name} that can be run")
        return found.origin


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
    before = sys.argv[:], sys.path[:]
    sys.argv = [program.file, *arguments]
    sys.path.insert(0, program.folder)
    profile.__enter__()
    try:
        code = _run(program)
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


def _run(program: Script | Module) -> int:
    try:
        program.run()
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return leaving.code or DONE
        print(leaving.code, file=sys.stderr)
        return FAILED
    except Exception:
        # The frames of this command are nothing to the script's author.
        kind, error, trace = sys.exc_info()
        while trace is not None and trace.tb_frame.f_code.co_filename != program.file:
            trace = trace.tb_next
        traceback.print_exception(kind, error, trace)
        return FAILED
    return DONE
