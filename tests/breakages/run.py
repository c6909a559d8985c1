"""Shows that the tests of hcq.cudacpu can fail: breaks a copy of the sources, one small thing at a time, and runs the
tests that must notice it.

    python tests/breakages/run.py [--seconds N] [WORDS ...]

Those whose name or file has one of the words, else all; with --seconds as many as that is enough for, in any order.

The copy is in build/breakages of the checkout, with a build of its own, so that native code is compiled anew file by
file. Where nothing is broken the same tests must pass. Ends with 1 where a breakage was not noticed, and names it.
The breakages are in the tables beside this (table.py); those of the contract's promises are in hcq.testing.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COPY = Path(os.environ.get("HCQ_BREAKAGES") or ROOT / "build" / "breakages")  # two runs need two
SECONDS = 240  # for the tests of one breakage: one that hangs is noticed by that
LIBRARIES = {
    "cudacpu": ("libcuda.so.1", "src/hcq/cudacpu/libcuda.so.1"),
    "_native": (f"_native{sysconfig.get_config_var('EXT_SUFFIX')}", "src/hcq/"),
}


def main(words: list[str]) -> int:
    until = float("inf")
    if words[:1] == ["--seconds"]:
        until = time.monotonic() + float(words[1])
        words = words[2:]
    sys.path.insert(0, str(HERE))
    from table import everything

    chosen = [
        each for each in everything() if not words or any(word in each.name or word in each.file for word in words)
    ]
    if until < float("inf"):
        random.shuffle(chosen)
    prepare({target for each in chosen if (target := each.target)})
    failures = []
    lived = tried = 0
    fine: set[tuple[str, ...]] = set()  # tests that pass with nothing broken
    for each in chosen:
        if time.monotonic() > until:
            break
        if each.tests not in fine:
            code, said, _ = run(each.tests)
            if code:
                failures.append(f"with nothing broken {' '.join(each.tests)} ended with {code}:\n{said[-2000:]}")
                break
            fine.add(each.tests)
        tried += 1
        code, said, seconds = broken(each)
        noticed = code == 1 or code < 0 or "ended with -" in said  # tests that failed, or a process that was ended
        lived += not noticed
        first = next((line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
        print(f"{'noticed' if noticed else 'LIVES  '} {seconds:5.1f} s  {each.name}: {first[:150]}", flush=True)
        if not noticed and code:
            failures.append(f"{each.name}: the tests ended with {code}:\n{said[-2000:]}")
    print(*failures, sep="\n")
    print(f"{tried - lived} of {tried} breakages were noticed, {len(chosen) - tried} were not tried")
    return 1 if lived or failures else 0


def prepare(targets: set[str]) -> None:
    """The copy, built where something native is to be broken."""
    COPY.mkdir(parents=True, exist_ok=True)
    for folder in ("src", "native"):
        _mirror(ROOT / folder, COPY / folder)
    for file in ("CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / file).exists():
            _put(ROOT / file, COPY / file)
    # By the sources' contents, so that a change within a second counts.
    compileall = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", str(COPY / "src")]
    subprocess.run(compileall, check=True)
    if not targets:
        return
    build = COPY / "build"
    configure = ["cmake", "-S", str(COPY), "-B", str(build), "-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}"]
    subprocess.run([*configure, "-DCMAKE_BUILD_TYPE=Release"], check=True, stdout=subprocess.DEVNULL)
    for target in sorted(targets):
        make(target)


def _mirror(source: Path, target: Path) -> None:
    """Files as they are, changed only where they differ, so that what was built of them stays good."""
    kept = set()
    for path in source.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            place = target / path.relative_to(source)
            kept.add(place)
            _put(path, place)
    for path in target.rglob("*"):
        if path.is_file() and path not in kept and "__pycache__" not in path.parts:
            path.unlink()


def _put(source: Path, place: Path) -> None:
    if place.exists() and place.read_bytes() == source.read_bytes():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, place)


def make(target: str) -> None:
    """Build a library of the copy and put it where the copy's package looks for it."""
    done = subprocess.run(["cmake", "--build", str(COPY / "build"), "--target", target], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{target} can't be built:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    name, place = LIBRARIES[target]
    to = COPY / place
    new = (to / name if place.endswith("/") else to).with_suffix(".new")
    shutil.copyfile(COPY / "build" / name, new)
    new.replace(to / name if place.endswith("/") else to)


def broken(each: object) -> tuple[int, str, float]:
    """Run a breakage's tests with it, and put the sources right again."""
    file = COPY / each.file  # type: ignore[attr-defined]
    text = file.read_text()
    changed = each.changed(text)  # type: ignore[attr-defined]
    target = each.target  # type: ignore[attr-defined]
    try:
        file.write_text(changed)
        if target:
            make(target)
        return run(each.tests)  # type: ignore[attr-defined]
    finally:
        file.write_text(text)
        if target:
            make(target)


def run(tests: tuple[str, ...]) -> tuple[int, str, float]:
    """pytest's result, what it printed, and the seconds it took."""
    environment = {**os.environ, "PYTHONPATH": str(COPY / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    began = time.monotonic()
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=SECONDS)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        said, _ = process.communicate()
        code = -9
    return code, said, time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
