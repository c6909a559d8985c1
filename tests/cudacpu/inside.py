"""Checks that need the CUDA driver on the CPU in their process: each file of them runs in one process of its own.

A process keeps the libcuda.so.1 that it once loaded, so pytest's own must not have this one. A file `NAME_checks.py`
has functions `check_*`; `Checks(...)` runs them all there, once, when the first is asked for. An error of a CUDA
context stays, so each check begins with the context reset.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from functools import cached_property
from pathlib import Path

HERE = Path(__file__).parent


class Checks:
    """The checks of a file beside this one, with what came of each."""

    def __init__(self, file: str, seconds: float = 120, **environment: str) -> None:
        self._file = HERE / file
        self._seconds = seconds
        self._environment = environment
        tree = ast.parse(self._file.read_text())
        found = [f.name for f in tree.body if isinstance(f, ast.FunctionDef) and f.name.startswith("check_")]
        self.names = [name.removeprefix("check_") for name in found]

    @cached_property
    def _outcome(self) -> dict[str, str | None]:
        path = os.pathsep.join(filter(None, [str(HERE), *sys.path]))
        environment = {**os.environ, "PYTHONPATH": path, **self._environment}
        command = [sys.executable, "-m", "hcq.cudacpu", str(HERE / "inside.py"), str(self._file)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=self._seconds)
        outcome: dict[str, str | None] = {}
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                outcome.update(json.loads(line))
        said = f"its process ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return {name: outcome.get(name, said) for name in self.names}

    def passed(self, name: str) -> None:
        """Fails with the traceback of a check that failed."""
        failure = self._outcome[name]
        assert failure is None, failure


def _main(path: str) -> None:
    import runpy
    import traceback

    import driver

    names = runpy.run_path(path)
    for name, function in names.items():
        if not name.startswith("check_"):
            continue
        failure = None
        try:
            driver.fresh()
            function()
        except BaseException:
            failure = traceback.format_exc()
        print(json.dumps({name.removeprefix("check_"): failure}), flush=True)


if __name__ == "__main__":
    _main(sys.argv[1])
