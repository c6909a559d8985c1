"""How the CUDA driver on the CPU runs the threads of a block."""

from __future__ import annotations

import inside
import pytest

THREADS = inside.Checks("executor_checks.py")


@pytest.mark.parametrize("name", THREADS.names)
def test_threads(name):
    THREADS.passed(name)
