"""A driver of some 150 lines of Python, written on the public names alone, holds the contract."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

RUN = "from hcq.testing.conformance import main; raise SystemExit(main(driver='third_party.suite:driver', quick=True))"


def test_a_driver_in_python_passes_the_conformance_suite():
    path = os.pathsep.join([str(HERE), *filter(None, map(os.path.abspath, sys.path))])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, timeout=280, env=environment)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr
    assert " passed" in done.stdout


def test_the_driver_is_some_150_lines():
    text = (HERE / "third_party" / "mini.py").read_text()
    code = [line for line in text.splitlines() if line.strip() and not line.strip().startswith(("#", '"""'))]
    assert len(code) <= 180
