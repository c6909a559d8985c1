"""The public names, and how light importing them is."""

import importlib.resources

import pytest

import hcq
from hcq.testing.marks import promise
from hcq.testing.suite.tools import printed

NAMES = """Device Compiled Buffer BufferOptions Allocator LRUAllocator MallocAllocator Compiler CompileError
    HWCommandQueue HWComputeQueue HWCopyQueue hcq_command HCQSignal HCQProgram HCQCompiled HCQAllocator HCQBuffer
    hcq_profile copy profile memory_stats cache dtypes errors array empty zeros testing __version__"""
# capture, kernel, ops, checks, load and save come with the parts that they name.


@pytest.mark.core
@promise("names.public")
@pytest.mark.parametrize("name", NAMES.split())
def test_the_name_is_importable(driver, name):
    assert getattr(hcq, name) is not None


@pytest.mark.core
@promise("names.light")
def test_importing_hcq_is_light(driver):
    heavy = "import sys, hcq; print([m for m in ('numpy', 'llvmlite', 'rich', 'typer', 'pytest') if m in sys.modules])"
    assert printed(heavy) == "[]"


@pytest.mark.core
@promise("names.version")
def test_the_version_is_a_version(driver):
    assert hcq.__version__.split(".")[0].isdigit()


@pytest.mark.core
@promise("names.typed")
def test_the_package_is_marked_as_typed(driver):
    assert importlib.resources.files("hcq").joinpath("py.typed").is_file()
