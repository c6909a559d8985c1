"""Checks that need the CUDA driver on the CPU in their process: each file of them has one process of its own.

A process keeps the libcuda.so.1 that it once loaded, so pytest's own must not have this one. A file `NAME_checks.py`
has functions `check_*`; `test_name = inside.each_of("NAME_checks.py")` makes tests of them. The process starts when the
first is asked for, runs each that is asked for, and ends after the last. An error of a CUDA context stays, so each
check begins with the context reset.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def each_of(file: str, seconds: float = 100, **environment: str) -> Any:
    """A test for each check of a file beside this one, in a process with these variables of the environment."""
    import pytest  # here: the process that runs the checks has no use for it

    checks = Checks(file, seconds, **environment)

    @pytest.mark.parametrize("name", checks.names)
    def test(name: str) -> None:
        checks.passed(name)

    return test


class Checks:
    """The checks of a file beside this one. A check may take `seconds`; where one takes longer its process is ended,
    and the others of the file fail without being tried."""

    def __init__(self, file: str, seconds: float = 100, **environment: str) -> None:
        self._file = HERE / file
        self._seconds = seconds
        self._environment = environment
        tree = ast.parse(self._file.read_text())
        found = [f.name for f in tree.body if isinstance(f, ast.FunctionDef) and f.name.startswith("check_")]
        self.names = [name.removeprefix("check_") for name in found]
        self._process: subprocess.Popen[str] | None = None
        self._errors: Any = None  # the file that it writes them to
        self._late = ""  # what was said of a check that took too long

    def _start(self) -> subprocess.Popen[str]:
        path = os.pathsep.join(filter(None, [str(HERE), *sys.path]))
        environment = {**os.environ, "PYTHONPATH": path, **self._environment}
        command = [sys.executable, "-m", "hcq.cudacpu", str(HERE / "inside.py"), str(self._file)]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed in _end)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors}
        return subprocess.Popen(command, env=environment, text=True, **pipes)

    def _ask(self, name: str) -> str:
        """The line that tells of a check; empty where the process ended of it."""
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{name}\n")
            self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith('{"'):  # not what the check itself prints
                return line
        return ""

    def _end(self, name: str) -> str:
        """Waits for the process; says how it ended where it wasn't well."""
        process, self._process = self._process, None
        with suppress(BrokenPipeError):
            process.stdin.close()
        code = process.wait()
        process.stdout.close()
        self._errors.seek(0)
        said = f"{name}: the process ended with {code}\n{self._errors.read().decode(errors='replace')}"
        self._errors.close()
        if code == -signal.SIGKILL:
            self._late = f"took too long: {said}"
        return said if code else ""

    def passed(self, name: str) -> None:
        """Fails with the traceback of a check that failed."""
        assert not self._late, self._late
        process = self._process = self._process or self._start()
        patience = threading.Timer(self._seconds, process.kill)
        patience.start()
        try:
            line, said = self._ask(name), ""
            if not line or name == self.names[-1]:
                said = self._end(name)
        except BaseException:  # pytest lost patience: nothing may run beside the tests that follow
            process.kill()
            if self._process:
                self._end(name)
            raise
        finally:
            patience.cancel()
        failure = json.loads(line)[name] if line else said or f"{name}: the process ended"
        assert failure is None, failure
        assert not said, said


def _main(path: str) -> None:
    import runpy
    import traceback

    import driver

    functions = runpy.run_path(path)
    for line in sys.stdin:
        name, failure = line.strip(), None
        try:
            driver.fresh()
            functions[f"check_{name}"]()
        except BaseException:
            failure = traceback.format_exc()
        print(json.dumps({name: failure}), flush=True)


if __name__ == "__main__":
    _main(sys.argv[1])
