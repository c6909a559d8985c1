"""Where CUDA can't be had: what the error says. Each opens CUDA in a process of its own, over a library of a few lines
in the place of the driver."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

OPEN = """
import hcq
for _ in range(2):
    try:
        hcq.Device["CUDA"]
    except hcq.errors.DeviceUnavailable as why:
        print(why.reason, "|", why.hint)
"""
FUNCTIONS = Path(__file__).parents[2] / "native/cuda/api.hpp"


def opened(folder, **environment):
    variables = {**os.environ, "LD_LIBRARY_PATH": str(folder), "HCQ_CUDA": "", **environment}
    done = subprocess.run([sys.executable, "-c", OPEN], env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == second, "the reason is the same each time"
    return first


@pytest.fixture
def driver(tmp_path):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")

    def make(version, init, names=()):
        source = [f"int cuDriverGetVersion(int* v) {{ *v = {version}; return 0; }}"]
        source += [f"int cuInit(unsigned flags) {{ return {init}; }}"]
        source += ['int cuGetErrorName(int e, const char** n) { *n = "CUDA_ERROR_OF_OURS"; return 0; }']
        known = ("cuDriverGetVersion", "cuInit", "cuGetErrorName")
        source += [f"int {name}(void) {{ return 999; }}" for name in names if name not in known]
        (tmp_path / "driver.c").write_text("\n".join(source))
        made = tmp_path / "libcuda.so.1"
        command = [compiler, "-shared", "-fPIC", "-o", made, tmp_path / "driver.c", "-Wl,-soname,libcuda.so.1"]
        subprocess.run(command, check=True, timeout=60)
        return tmp_path

    return make


def needed():
    text = FUNCTIONS.read_text()
    start, end = text.index("HCQ_CUDA_FUNCTIONS(X)"), text.index("// Those that a driver")
    import re

    return re.findall(r"X\(\w+,\s*(cu\w+)", text[start:end])


def test_a_missing_driver_is_told(tmp_path):
    if any(Path(folder).joinpath("libcuda.so.1").exists() for folder in ("/usr/lib64", "/usr/lib/x86_64-linux-gnu")):
        pytest.skip("this machine has NVIDIA's driver")
    said = opened(tmp_path)
    assert said.startswith("there is no driver of NVIDIA's here (libcuda.so.1) | install NVIDIA's driver")
    assert "HCQ_CUDA=cpu" in said


def test_a_driver_that_is_too_old_is_told_with_its_version(driver):
    assert "is for CUDA 10.2 and has no cu" in opened(driver(10020, 0))
    said = opened(driver(11020, 0, needed()))
    assert said.startswith("NVIDIA's driver here is for CUDA 11.2 | ") and "CUDA 11.7 or later" in said


def test_no_device_is_told(driver):
    said = opened(driver(12040, 100, needed()))
    assert "finds no device (CUDA_ERROR_NO_DEVICE)" in said and "CUDA_VISIBLE_DEVICES" in said


def test_a_driver_that_does_not_start_is_told_with_its_error(driver):
    assert "cuInit gave CUDA_ERROR_OF_OURS (804)" in opened(driver(12040, 804, needed()))


@pytest.mark.parametrize("variable", ["DEVICES", "CC", "MEMORY", "PEERS"])
def test_a_wrong_variable_of_the_driver_on_the_cpu_is_no_fault_of_nvidias(tmp_path, variable):
    said = opened(tmp_path, HCQ_CUDA="cpu", **{f"HCQ_CUDACPU_{variable}": "many"})
    assert "hcq.cudacpu does not start" in said and variable in said and "nvidia" not in said.lower()


def test_cuda_c_without_nvrtc_says_how_to_have_it():
    code = (
        "import sys\nsys.modules['cuda'] = None\n"
        "import hcq\nfrom hcq.drivers.cuda.compiler import CUDACompiler\n"
        "c = CUDACompiler((8, 0), cachekey=None)\n"
        "assert c.identity() is None\n"
        "try: c.compile('extern \"C\" __global__ void f() {}')\n"
        "except hcq.CompileError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "NVRTC, which is not here" in done.stdout and "pip install 'hcq[cuda]'" in done.stdout, done.stderr
