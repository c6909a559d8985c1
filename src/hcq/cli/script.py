"""Running a Python script or module as the interpreter would, for the commands that watch one.

What does not live here: what is watched (trace, check).
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
import traceback
from pathlib import Path

from hcq.cli.output import DONE, FAILED, Mistake


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


def run_program(program: Script | Module, arguments: list[str]) -> int:
    """Run it with its arguments; the exit code is its own. A traceback begins in the program."""
    before = sys.argv[:], sys.path[:]
    sys.argv = [program.file, *arguments]
    sys.path.insert(0, program.folder)
    try:
        return _run(program)
    finally:
        sys.argv[:], sys.path[:] = before


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
