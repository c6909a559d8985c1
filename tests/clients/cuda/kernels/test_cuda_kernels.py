"""CUDA C of the kinds people write, compiled by NVRTC, gives on hcq.cudacpu what NumPy and SciPy give.

Each case runs for one architecture, its file's; with HCQ_TEST_CUDA_ARCHITECTURES=all for each: `.ci/run full` runs
both, `.ci/run` neither. One process runs them all; it is started anew where it died of a case. What does not live here:
the cases (case_*.py), the kernels (*.cu).
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_sources import ARCHITECTURES, SOURCES, compiled, headers

pytestmark = pytest.mark.thorough

HERE = Path(__file__).parent
CASE = re.compile(r"^@case(.*)\ndef (\w+)", re.MULTILINE)
USUAL = {"case_language": 75, "case_grids": 90}  # so that a source is compiled once; else 80
EVERY = os.environ.get("HCQ_TEST_CUDA_ARCHITECTURES") == "all"


def runs():
    """(case, architecture). The cases are named here by their text, since their modules need a CUDA binding."""
    for path in sorted(HERE.glob("case_*.py")):
        usual = USUAL.get(path.stem, 80)
        for options, name in CASE.findall(path.read_text()):
            oldest = int((re.search(r"oldest=(\d+)", options) or [0, 75])[1])
            for architecture in ARCHITECTURES if EVERY else () if "heavy" in options else [max(usual, oldest)]:
                if architecture >= oldest:
                    yield name, architecture


@pytest.fixture(scope="module")
def toolkit():
    needed = "CUDA C needs cuda-bindings, nvidia-cuda-nvrtc and the toolkit's headers (hcq[cuda], nvidia-cuda-cccl)"
    pytest.importorskip("cuda.bindings.nvrtc", reason=needed)
    if not any((Path(each) / "nv" / "target").exists() for each in headers()):
        pytest.skip(needed)


class Server:
    """The process that runs cases."""

    def __init__(self, errors):
        self.errors = errors
        self.process = None

    def run(self, name, architecture):
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "cuda_serve.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.errors.open("a"),
                text=True,
                env={**os.environ, "HCQ_CUDACPU_CC": "9.0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        said_before = self.errors.stat().st_size
        self.process.stdin.write(f"{name} {architecture}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait(20)
            said = self.errors.read_bytes()[said_before:].decode(errors="replace")
            return f"the process ended with {code}\n{said[-4000:]}"
        said = json.loads(line)
        if "skipped" in said:
            pytest.skip(said["skipped"].partition("error: ")[2].partition("\n")[0] + " (pip install nvidia-cuda-crt)")
        return said["error"]

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            try:
                self.process.wait(20)
            finally:
                self.process.kill()
                self.process.stdout.close()


@pytest.fixture(scope="module")
def server(toolkit, tmp_path_factory):
    made = Server(tmp_path_factory.mktemp("cuda") / "errors.txt")
    made.errors.touch()
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(("name", "architecture"), list(runs()))
def test_a_kernel_gives_what_numpy_gives(server, name, architecture):
    error = server.run(name, architecture)
    assert error is None, f"\n{error}"


def test_what_one_process_ran_ends_well(server):
    """Last of all: the process that ran the cases ends by itself, and told of nothing but the trap."""
    if server.process is None:
        pytest.skip("no case ran")
    server.process.stdin.close()
    assert server.process.wait(30) == 0
    said = [line for line in server.errors.read_text().splitlines() if "kernel 'asserts', block (0, 0, 0)" not in line]
    assert said == []


@pytest.mark.parametrize("name", SOURCES if EVERY else ["tensor"])
def test_ptxas_takes_the_same_text(toolkit, name, tmp_path):
    """The sources are right CUDA C: what is compiled here would be for a GPU."""
    ptxas = [at for each in headers() for at in Path(each).parent.glob("bin/ptxas")]
    if not ptxas:
        pytest.skip("PTX is checked by ptxas (pip install nvidia-cuda-nvcc)")
    for architecture in ARCHITECTURES if EVERY else ARCHITECTURES[1:2]:
        if architecture < SOURCES[name].oldest:
            continue
        file = tmp_path / "kernel.ptx"
        file.write_bytes(compiled(name, architecture).ptx.rstrip(b"\0"))
        command = [ptxas[0], f"-arch=sm_{architecture}", file, "-o", os.devnull]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
