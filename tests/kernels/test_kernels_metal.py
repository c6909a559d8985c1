"""Kernels in Metal without Metal: read by a C++ compiler, and run on the processor with stand-ins for Metal's library.

What this can't tell: whether Metal's own compiler takes them, and whether address spaces are right.
"""

import ctypes
import functools
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import test_kernels_lower as lowered
from kernel_makers import SCALARS, all_conversions, all_operations, block_sums
from test_kernels_gpu_code import everything_else

from hcq.kernels import lower
from hcq.kernels.types import f32, f64, i32

NAMES = [each.name for each in SCALARS if each is not f64]
OPTIONS = ["-std=c++17", "-ffp-contract=off", "-w", "-x", "c++", "-I", str(Path(__file__).parent / "metal")]


class Three(ctypes.Structure):
    _fields_ = (("of", ctypes.c_uint * 3),)


class OnProcessor:
    """Runs a kernel's items one after the other: kernels without barriers."""

    language, target, lacks = "metal", None, (f64,)

    def __init__(self, compiler, folder):
        self.compiler, self.folder, self.count = compiler, folder, 0

    def compile(self, text, *options):
        self.count += 1
        made = self.folder / f"kernel_{self.count}.so"
        command = [self.compiler, *OPTIONS, *options, "-o", str(made), "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, f"{done.stderr}\n{text}"
        return made

    def launch(self, name, text, buffers, vals, groups, items):
        assert "barrier" not in text and isinstance(groups, int)
        run = getattr(ctypes.CDLL(str(self.compile(text, "-shared", "-fPIC"))), name)
        values = [np.array(each) for each in vals]
        given = [ctypes.c_void_p(each.ctypes.data) for each in (*buffers, *values)]
        counts, size = Three((groups, 1, 1)), Three((items, 1, 1))
        for group in range(groups):
            for item in range(items):
                run(*given, Three((group, 0, 0)), counts, Three((item, 0, 0)), size, item % 32, item // 32, 32)


@functools.cache
def compiler():
    return next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)


@pytest.fixture(scope="module")
def metal(tmp_path_factory):
    if compiler() is None:
        pytest.skip("Metal's text is read by a C++ compiler")
    return OnProcessor(compiler(), tmp_path_factory.mktemp("metal"))


@pytest.mark.parametrize("name", NAMES)
def test_every_operation_gives_what_its_definition_says(metal, name):
    lowered.test_every_operation_gives_what_its_definition_says(metal, name, 1)


@pytest.mark.parametrize("name", NAMES)
def test_every_conversion_gives_what_its_definition_says(metal, name):
    lowered.test_every_conversion_gives_what_its_definition_says(metal, name, 1)


@pytest.mark.parametrize("name", ["u32", "f32"])
@pytest.mark.parametrize("how", ["add", "min", "exchange", "cas"])
def test_atomic_operations_change_memory(metal, how, name):
    lowered.test_atomics(metal, how, name, "global")


def test_loops_and_branches(metal):
    lowered.test_branches_give_values_and_may_leave(metal)
    lowered.test_loops_without_bounds_go_on_until_a_break(metal)
    lowered.test_loops_are_left_from_every_depth(metal, "continue", 2)


def test_local_memory_barriers_sub_groups_and_vectors_are_taken(metal):
    vectors = all_conversions(i32, 4, (f64,))[0], all_operations(f32, 4, 64)[0]
    for function in (block_sums(), everything_else(), *vectors):
        metal.compile(lower.source(function, "metal"), "-fsyntax-only")
