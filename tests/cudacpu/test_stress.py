"""The CUDA driver on the CPU under threads and over many rounds: nothing is lost, kept or mixed up."""

from __future__ import annotations

import inside
import pytest

STRESS = inside.Checks("stress_checks.py", STRESS_ROUNDS="100")
MORE = inside.Checks("stress_checks.py", 1500, STRESS_ROUNDS="10000")


@pytest.mark.parametrize("name", STRESS.names)
def test_stress(name):
    STRESS.passed(name)


@pytest.mark.thorough
@pytest.mark.timeout(1600)
@pytest.mark.parametrize("name", MORE.names)
def test_stress_of_ten_thousand_rounds(name):
    MORE.passed(name)
