"""`hcq check SCRIPT`: what the checks find in a script is told as it goes on, and in the exit code."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
    import sys
    import hcq

    SOURCE = "void fill(float *out, int n) { for (int i = 0; i < n; i++) out[i] = 1; }"
    dev = hcq.Device["CLANG"]
    fill = dev.program("fill", SOURCE)
    a = hcq.empty(64, hcq.dtypes.float32)
    one, two = dev.stream(), dev.stream()
    fill(a, vals=(64,), stream=one)
    if "mended" in sys.argv:
        two.wait(one)
    fill(a, vals=(64,), stream=two)
    two.synchronize()
    one.synchronize()
    if "mended" not in sys.argv:
        fill(a, vals=(65,))
    print("went on", *sys.argv[1:])
    if "fails" in sys.argv:
        sys.exit(3)
"""
NOTHING_KNOWN = """
    import hcq
    null = hcq.Device["NULL"]
    nothing, a = null.program("nothing", ""), hcq.empty(4, hcq.dtypes.float32, "NULL")
    for stream in (null.stream(), null.stream()):
        nothing(a, stream=stream)
"""


@pytest.fixture
def check(tmp_path):
    def run(script, *arguments):
        (tmp_path / "script.py").write_text(textwrap.dedent(script).lstrip("\n"))
        env = {**os.environ, "HCQ_DEVICE": "CLANG", "HCQ_CHECK": ""}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))
        command = [sys.executable, "-m", "hcq.cli", "check", *arguments]
        return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    return run


def test_all_findings_are_told_with_their_lines_and_the_script_goes_on(check):
    done = check(SCRIPT, "script.py", "x")
    assert (done.returncode, done.stdout) == (1, "went on x\n"), done.stderr
    assert "script.py:12: race: " in done.stderr and "out of bounds: something wrote 4 bytes" in done.stderr
    assert done.stderr.endswith("hcq: checks: 2 found\n") and "Traceback" not in done.stderr


def test_a_script_that_is_right_leaves_its_own_exit_code(check):
    for arguments, code in (("mended",), 0), (("mended", "fails"), 3):
        done = check(SCRIPT, "script.py", *arguments)
        assert (done.returncode, done.stderr) == (code, "hcq: checks: nothing found\n")


def test_the_first_finding_may_stop_the_script(check):
    done = check(SCRIPT, "--stop", "script.py")
    assert done.returncode == 1 and done.stdout == "" and "hcq.errors.RaceError: race: " in done.stderr
    assert done.stderr.endswith("hcq: checks: 1 found\n")


def test_what_is_only_possible_counts_if_asked_for(check):
    done = check(NOTHING_KNOWN, "script.py")
    assert done.returncode == 0 and "nothing found, 1 more possible" in done.stderr
    assert check(NOTHING_KNOWN, "--strict", "script.py").returncode == 1


def test_modules_run_as_python_would_run_them(check):
    done = check(SCRIPT, "-m", "script", "mended")
    assert (done.returncode, done.stdout, done.stderr) == (0, "went on mended\n", "hcq: checks: nothing found\n")


def test_a_script_that_is_not_there_is_a_mistake(check):
    done = check(SCRIPT, "other.py")
    assert done.returncode == 2 and "there is no script other.py" in done.stderr
