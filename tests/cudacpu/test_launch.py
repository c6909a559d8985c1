"""Modules, functions, libraries and launches of the CUDA driver on the CPU."""

from __future__ import annotations

import inside
import pytest

LAUNCHES = inside.Checks("launch_checks.py")


@pytest.mark.parametrize("name", LAUNCHES.names)
def test_launches(name):
    LAUNCHES.passed(name)
