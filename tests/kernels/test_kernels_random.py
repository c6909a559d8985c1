"""Random kernels over the whole language give equal bits on PYTHON, LLVM, CLANG and, where it is there, VULKAN."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from kernel_helpers import there
from kernel_writer import Kernel
from test_kernels_errors import load

DEVICES = ("PYTHON", "LLVM", "CLANG", *there("VULKAN"))
FULL = settings.get_profile("full").max_examples
EXAMPLES = 200 if settings().max_examples >= FULL else 12
"""Each is compiled four times; shrinking would do it a thousand times more."""


def result(array):
    """An array's bits; of a NaN, that it is one."""
    kept = array.copy()
    kept[kept != kept] = 0 if kept.dtype.kind in "biu" else np.nan
    return kept.tobytes()


@settings(max_examples=EXAMPLES, phases=[Phase.explicit, Phase.generate])
@example(seed=20302)  # LLVM 22 ended the process: no code for an f16 made of a comparison's bit, on AVX-512
@given(seed=st.integers(0, 2**32))
def test_random_kernels_give_equal_bits_on_all_devices(seed, tmp_path_factory):
    pytest.importorskip("llvmlite", reason="the LLVM device needs llvmlite")
    kernel = Kernel(random.Random(seed))
    text = kernel.text()
    module = load(tmp_path_factory.mktemp("random") / "random_kernel.py", text, "random_kernel")
    results = {}
    for device in DEVICES:
        arguments = kernel.arguments()
        module.kernel[kernel.groups, kernel.items](*arguments, device=device)
        results[device] = [result(each) for each in arguments if isinstance(each, np.ndarray)]
    for device in DEVICES[1:]:
        assert results[device] == results["PYTHON"], f"{device}, seed {seed}:\n{text}"
