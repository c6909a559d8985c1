"""The native command processor without Python, under the thread sanitizer: no race, no lost or reordered command."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]  # compiles the core with the sanitizer


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    compiler = shutil.which("g++") or shutil.which("clang++")
    folder = tmp_path_factory.mktemp("native")
    probe = folder / "probe.cpp"
    probe.write_text("int main() { return 0; }\n")
    works = (
        compiler is not None
        and not subprocess.run(
            [compiler, "-fsanitize=thread", probe, "-o", folder / "probe"], capture_output=True, check=False
        ).returncode
    )
    if not works:
        pytest.skip("no C++ compiler with a thread sanitizer")
    include = sysconfig.get_paths()["include"]
    # -w: the sanitizer doesn't follow fences (they order atomics only here) and the compiler says so.
    flags = ["-std=c++17", "-O1", "-g1", "-w", "-fsanitize=thread", f"-I{ROOT / 'native'}", f"-I{include}", "-pthread"]
    # Half of the time is spent on headers, unless they are read once.
    common = folder / "common.hpp"
    names = "Python.h", "algorithm", "atomic", "deque", "mutex", "string", "unordered_map", "vector"
    common.write_text("".join(f"#include <{name}>\n" for name in names))
    if "clang" not in compiler:
        subprocess.run([compiler, *flags, "-x", "c++-header", common, "-o", f"{common}.gch"], check=True)

    def objects(*sources: Path) -> list[Path]:
        command = [compiler, *flags, "-include", str(common), "-c", *map(str, sources)]
        subprocess.run(command, check=True, cwd=folder)
        return [folder / f"{source.stem}.o" for source in sources]

    core = objects(*ROOT.glob("native/core/*.cpp"), *ROOT.glob("native/platform/*.cpp"))

    def made(name: str, *more: Path) -> Path:
        target = folder / name
        parts = [*core, *objects(ROOT / f"tests/native/{name}.cpp", *more)]
        subprocess.run([compiler, *flags, *map(str, parts), "-o", target], check=True)
        return target

    return made


@pytest.fixture(scope="module")
def program(build: Callable[..., Path]) -> Path:
    return build("stress")


@pytest.mark.parametrize("recorded", [False, True])
def test_queues_under_threads_have_no_race_and_lose_nothing(program: Path, recorded: bool) -> None:
    arguments = ["600", "recorded"] if recorded else ["1500"]
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 errors" in done.stdout
    assert "ThreadSanitizer" not in done.stderr


def test_files_are_copied_by_many_queues_without_a_race(build: Callable[..., Path], tmp_path: Path) -> None:
    program = build("disk_stress", *(ROOT / f"native/disk/{name}.cpp" for name in ("file", "transfer", "engine")))
    done = subprocess.run([program, "60", tmp_path], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 errors" in done.stdout
    assert "ThreadSanitizer" not in done.stderr
