"""Running programs of tinygrad in processes of their own, on hcq and alone. What does not live here: any test."""

import json
import os
import subprocess
import sys
from pathlib import Path

from hcq_tinygrad_hook import STARTUP

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PROGRAMS = HERE / "programs"
OLD_LLVMLITE = Path(sys.prefix) / "llvmlite-of-its-time"
"""An llvmlite that tinygrad's own LLVM device can still call, where scripts/ci.d/full/clients.sh could install it."""


def environment(alone=False, **more):
    """The environment of a child: without the hook, which the client puts there, and no device chosen but by `more`."""
    kept = {name: value for name, value in os.environ.items() if name not in ("CLANG", "LLVM", "AMD", "HCQ_DEVICE")}
    paths = [path for path in kept.get("PYTHONPATH", "").split(os.pathsep) if path and path != STARTUP]
    if alone and more.get("LLVM") == "1":
        paths.insert(0, str(OLD_LLVMLITE))
    kept["PYTHONPATH"] = os.pathsep.join(paths)
    return {**kept, **more}


def client(*arguments, cwd=ROOT, **more):
    """What `python -m tests.clients.tinygrad ARGUMENTS` prints; more are environment variables. It must succeed."""
    more.setdefault("PYTHONPATH", os.pathsep.join([environment()["PYTHONPATH"], str(ROOT)]))
    return _output([sys.executable, "-m", "tests.clients.tinygrad", *map(str, arguments)], cwd, environment(**more))


def alone(*arguments, **more):
    """The same of tinygrad by itself, without hcq."""
    return _output([sys.executable, *map(str, arguments)], ROOT, environment(alone=True, **more))


def last_json(output):
    return json.loads(output.strip().splitlines()[-1])


def _output(command, cwd, env):
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=cwd, env=env, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
