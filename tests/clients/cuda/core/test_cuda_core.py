"""cuda.core, a client that was not written for hcq, on the CUDA driver on the CPU."""

from __future__ import annotations

import importlib.util

import pytest
from core_files import HERE, Examples


def _installed() -> bool:
    try:
        return all(importlib.util.find_spec(each) for each in ("cuda.bindings", "cuda.core", "nvidia.cu13"))
    except ModuleNotFoundError:  # of the package around it
        return False


FILES = {
    path.stem.removeprefix("core_"): Examples(path, HCQ_CUDACPU_DEVICES="2")
    for path in sorted(HERE.glob("core_*.py"))
    if "def example_" in path.read_text()
}
QUICK = ("graphs", "streams")  # what every change is held to; scripts/ci.d/full/cuda-clients.sh runs all


def _example(file: str, name: str):
    marks = () if file in QUICK else (pytest.mark.thorough,)
    return pytest.param(file, name, marks=marks, id=f"{file}-{name.removeprefix('example_')}")


@pytest.mark.skipif(not _installed(), reason="cuda.core and the toolkit are not installed (cuda-core, hcq[cuda])")
@pytest.mark.parametrize(
    ("file", "name"), [_example(file, name) for file, examples in FILES.items() for name in examples.names]
)
def test_example(file, name):
    FILES[file].passed(name)
