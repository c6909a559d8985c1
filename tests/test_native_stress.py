"""The native command processor without Python, under the thread sanitizer: no race, no lost or reordered command."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++") or shutil.which("clang++")
    target = tmp_path_factory.mktemp("native") / "stress"
    probe = target.with_suffix(".cpp")
    probe.write_text("int main() { return 0; }\n")
    if (
        compiler is None
        or subprocess.run(
            [compiler, "-fsanitize=thread", probe, "-o", target], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("no C++ compiler with a thread sanitizer")
    sources = [ROOT / "tests/native/stress.cpp", *ROOT.glob("native/core/*.cpp"), *ROOT.glob("native/platform/*.cpp")]
    include = sysconfig.get_paths()["include"]
    flags = ["-std=c++17", "-O1", "-g", "-fsanitize=thread", f"-I{ROOT / 'native'}", f"-I{include}", "-pthread"]
    # The sanitizer doesn't follow fences (they order atomics only here) and the compiler says so.
    subprocess.run([compiler, *flags, "-w", *map(str, sources), "-o", target], check=True)
    return target


@pytest.mark.parametrize("recorded", [False, True])
def test_queues_under_threads_have_no_race_and_lose_nothing(program: Path, recorded: bool) -> None:
    arguments = ["600", "recorded"] if recorded else ["1500"]
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 errors" in done.stdout
    assert "ThreadSanitizer" not in done.stderr
