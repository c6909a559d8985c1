"""printf and assert of kernels, on the CUDA driver on the CPU."""

from __future__ import annotations

import inside
import pytest

PRINTF = inside.Checks("printf_checks.py")


@pytest.mark.parametrize("name", PRINTF.names)
def test_printf(name):
    PRINTF.passed(name)
