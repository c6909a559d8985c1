"""scripts/setup-venv: what it builds again and what not, and that it says what it is at while it is at it.

It runs in a checkout made up for it, whose .venv/bin/python only writes down what it is asked; nothing is installed.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not (ROOT / "scripts/setup-venv").exists(), reason="a script of a Linux checkout"
)


def executable(path: Path, text: str) -> None:
    path.write_text("#!/usr/bin/env bash\n" + text)
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path):
    for folder in ("scripts", "src", "native", ".venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "scripts/setup-venv", tmp_path / "scripts")
    for name in ("src/a.py", "native/a.cpp", "CMakeLists.txt", "pyproject.toml"):
        (tmp_path / name).touch()
    executable(tmp_path / "any-python", "exit 0")
    executable(tmp_path / ".venv/bin/python", 'echo "${@: -1}" >> asked; touch .venv/bin/hcq; chmod +x .venv/bin/hcq')
    return tmp_path


def start(checkout: Path, extras: str, **options) -> subprocess.Popen:
    environment = {**os.environ, "PYTHON": str(checkout / "any-python")}
    return subprocess.Popen(["scripts/setup-venv", extras], cwd=checkout, env=environment, text=True, **options)


def asked(checkout: Path, extras: str) -> list[str]:
    """What pip was asked to install, in a run with these extras."""
    (checkout / "asked").write_text("")
    assert start(checkout, extras).wait(60) == 0
    return (checkout / "asked").read_text().split()


def test_other_extras_do_not_build_the_package_again(checkout):
    assert asked(checkout, "demo") == [".[demo]"]
    assert asked(checkout, "demo") == []
    assert asked(checkout, "perfetto") == ["hcq[perfetto]"]  # what is installed, and what it asks for
    assert asked(checkout, "perfetto") == asked(checkout, "demo") == []


def test_a_source_that_changed_is_built_again(checkout):
    asked(checkout, "demo"), asked(checkout, "perfetto")
    later = time.time() + 10
    os.utime(checkout / "native/a.cpp", (later, later))
    assert asked(checkout, "demo") == [".[demo]"]
    (checkout / ".venv/bin/hcq").unlink()  # uninstalled: no other package of that name is fetched
    os.utime(checkout / "native/a.cpp", (0, 0))
    assert asked(checkout, "perfetto") == [".[perfetto]"]


def test_steps_are_said_while_they_go_on(checkout):
    fake = "echo Collecting numpy; for i in {1..300}; do [ -e seen ] && exit 0; sleep 0.1; done; exit 1"
    executable(checkout / ".venv/bin/python", fake)
    with start(checkout, "demo", stderr=subprocess.PIPE) as process:
        for line in process.stderr:
            if "fetching packages" in line:  # pip is at it yet: it goes on when it sees the file
                (checkout / "seen").touch()
    assert process.returncode == 0
