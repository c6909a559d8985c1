"""Every program in examples/ runs, exits with 0 and writes nothing to standard error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example, tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))}
    command = [sys.executable, str(example)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout and not done.stderr
