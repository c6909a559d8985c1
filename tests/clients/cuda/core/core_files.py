"""Files of examples for cuda.core, and what came of them on the CUDA driver on the CPU.

A process keeps the libcuda.so.1 that it loaded first, and pytest's own must not have this one: each file runs in a
process of its own, once, when its first example is asked for.
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
_SECONDS = 100


class Examples:
    """The examples of a file beside this one."""

    def __init__(self, file: Path, **environment: str) -> None:
        self._file = file
        self._environment = environment
        tree = ast.parse(file.read_text())
        found = [each.name for each in tree.body if isinstance(each, ast.FunctionDef)]
        self.names = [name for name in found if name.startswith("example_")]

    @cached_property
    def _outcome(self) -> dict[str, str | None]:
        path = os.pathsep.join(filter(None, [str(HERE), *sys.path]))
        environment = {**os.environ, "PYTHONPATH": path, **self._environment}
        command = [sys.executable, "-m", "hcq.cudacpu", str(HERE / "core_serve.py"), str(self._file)]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS)
            text, said = done.stdout, f"its process ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        except subprocess.TimeoutExpired as late:
            text = (late.stdout or b"").decode()
            said = f"its process did not end within {_SECONDS} s:\n{text}\n{(late.stderr or b'').decode()}"
        outcome: dict[str, str | None] = {}
        for line in text.splitlines():
            if line.startswith("{"):
                outcome.update(json.loads(line))
        return {name: outcome.get(name, said) for name in self.names}

    def passed(self, name: str) -> None:
        """Fails with the traceback of an example that failed."""
        failure = self._outcome[name]
        assert failure is None, failure
