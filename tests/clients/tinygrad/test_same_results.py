"""Unmodified programs give the results that they give on tinygrad alone: training, a convolution, a replayed chain."""

import functools

import numpy as np
import pytest
from running import OLD_LLVMLITE, PROGRAMS, alone, client, last_json

NAMES = ["digits", "convolution", "matmuls"]


@functools.cache
def without_hcq(name, device):
    return last_json(alone(PROGRAMS / f"{name}.py", **{device: "1"}))


def with_hcq(name, device):
    return last_json(client(PROGRAMS / f"{name}.py", **{device: "1"}))


def assert_close(ours, theirs):
    assert ours.keys() == theirs.keys()
    for key in theirs:
        np.testing.assert_allclose(np.ravel(ours[key]), np.ravel(theirs[key]), rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", NAMES)
def test_clang_gives_the_results_of_tinygrad_alone(name):
    assert_close(with_hcq(name, "CLANG"), without_hcq(name, "CLANG"))


@pytest.mark.parametrize("name", NAMES)
def test_llvm_gives_the_results_of_tinygrad_alone(name):
    # tinygrad's own LLVM device calls what llvmlite has dropped since; its C device then says what the results are.
    device = "LLVM" if OLD_LLVMLITE.is_dir() else "CLANG"
    assert_close(with_hcq(name, "LLVM"), without_hcq(name, device))


def test_the_network_has_learned():
    assert with_hcq("digits", "LLVM")["accuracy"] > 0.8
