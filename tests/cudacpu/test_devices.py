"""Devices, contexts and names of the driver on the CPU."""

import os
import re
import subprocess
import sys
from pathlib import Path

import inside
import pytest

from hcq.cudacpu import library_path

TABLE = Path(__file__).parents[2] / "native" / "cudacpu" / "api" / "names.inc"

# By ctypes alone: it starts in no time.
COUNT = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
name, count = ctypes.c_char_p(), ctypes.c_int(-1)
cuda.cuGetErrorName(cuda.cuInit(0), ctypes.byref(name))
print(name.value.decode(), cuda.cuDeviceGetCount(ctypes.byref(count)), count.value)
"""

# What cuda-bindings asks for when it is first used, before cuInit.
BINDINGS = """
from cuda.bindings import driver
print(driver.cuDriverGetVersion()[1], driver.cuInit(0)[0].name, driver.cuDeviceGetCount()[1])
"""


def run(code, **environment):
    command = [sys.executable, "-c", code, library_path()]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=100)


test_devices = inside.each_of(
    "device_checks.py", HCQ_CUDACPU_DEVICES="3", HCQ_CUDACPU_CC="9.0", HCQ_CUDACPU_MEMORY="64M"
)
test_names = inside.each_of("names_checks.py")
test_lacking = inside.each_of(
    "lacking_checks.py",
    HCQ_CUDACPU_WITHOUT="memory-operations,managed-access,pools,registering,graphs",
)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"HCQ_CUDACPU_DEVICES": "0"}, "CUDA_ERROR_NO_DEVICE 3 -1"),
        ({"HCQ_CUDACPU_DEVICES": "4"}, "CUDA_SUCCESS 0 4"),
        ({"HCQ_CUDACPU_DEVICES": "4", "CUDA_VISIBLE_DEVICES": "3,1,9,0"}, "CUDA_SUCCESS 0 2"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "CUDA_ERROR_NO_DEVICE 3 -1"),
    ],
)
def test_the_environment_says_which_devices_there_are(environment, said):
    done = run(COUNT, **environment)
    assert (done.stdout.strip(), done.stderr) == (said, "")


@pytest.mark.parametrize(
    "setting",
    [
        "HCQ_CUDACPU_DEVICES=two",
        "HCQ_CUDACPU_DEVICES=65",
        "HCQ_CUDACPU_CC=9",
        "HCQ_CUDACPU_MEMORY=some",
        "HCQ_CUDACPU_WITHOUT=pools,nothing",
    ],
)
def test_a_setting_that_makes_no_sense_is_named(setting):
    name, value = setting.split("=")
    done = run(COUNT, **{name: value})
    assert done.stdout.startswith("CUDA_ERROR_INVALID_VALUE 3")
    assert setting in done.stderr


def test_the_table_of_names_has_one_symbol_for_each():
    rows = re.findall(r'X\("(\w+)", (\d+), ([01]), "(\w+)"\)', TABLE.read_text())
    assert len(rows) > 600
    keys = [row[:3] for row in rows]
    assert len(set(keys)) == len(keys)
    assert all(symbol.startswith("cu") and name.startswith("cu") for name, _, _, symbol in rows)


def test_the_bindings_find_all_they_look_for():
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed (hcq[cuda])")
    command = [sys.executable, "-m", "hcq.cudacpu", "-c", BINDINGS]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.stdout.split() == ["13050", "CUDA_SUCCESS", "1"], done.stderr


# Pageable memory (CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS): the checks know only what the API gave out.
PAGEABLE = """
import ctypes, sys
cuda, found = ctypes.CDLL(sys.argv[1]), ctypes.c_int(-1)
cuda.cuInit(0)
print(cuda.cuDeviceGetAttribute(ctypes.byref(found), 88, 0), found.value)
"""


@pytest.mark.parametrize(("value", "pageable"), [("1", 0), ("on", 0), ("0", 1), ("", 1), ("no", 1), ("False", 1)])
def test_the_checks_are_switched_as_others_of_hcqs_switches(value, pageable):
    assert run(PAGEABLE, HCQ_CUDACPU_CHECK=value).stdout.split() == ["0", str(pageable)]
