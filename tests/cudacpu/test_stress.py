"""The CUDA driver on the CPU under threads and over many rounds: nothing is lost, kept or mixed up."""

from __future__ import annotations

import inside
import pytest

test_stress = inside.each_of("stress_checks.py", STRESS_ROUNDS="100")
test_stress_of_ten_thousand_rounds = pytest.mark.thorough(
    pytest.mark.timeout(1600)(inside.each_of("stress_checks.py", 1500, STRESS_ROUNDS="10000"))
)
