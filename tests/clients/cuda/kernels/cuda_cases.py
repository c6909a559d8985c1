"""The register of cases: a function that runs kernels on a device and compares them with NumPy. No case lives here."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np

CASES = {}  # name -> (function, first architecture, whether it takes long)
HERE = Path(__file__).parent


def case(function=None, *, oldest=75, heavy=False):
    """Registers `function(gpu)`. It fails by an exception."""
    if function is None:
        return lambda given: case(given, oldest=oldest, heavy=heavy)
    CASES[function.__name__] = function, oldest, heavy
    return function


def all_cases():
    for path in sorted(HERE.glob("case_*.py")):
        importlib.import_module(path.stem)
    return CASES


def generator(seed=1):
    return np.random.default_rng(seed)


def near(got, expected, relative=1e-5, absolute=0.0, what=""):
    np.testing.assert_allclose(got, expected, rtol=relative, atol=absolute, err_msg=what)


def same(got, expected, what=""):
    np.testing.assert_array_equal(got, expected, err_msg=what)


def blocks(n, size):
    return -(-n // size)
