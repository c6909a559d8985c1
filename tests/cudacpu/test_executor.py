"""How the CUDA driver on the CPU runs the threads of a block."""

from __future__ import annotations

import inside
import pytest

THREADS = inside.Checks("executor_checks.py")
COROUTINES = inside.Checks("executor_checks.py", HCQ_TEST_CUDACPU_REGIONS="0")
FAULTS = inside.Checks("fault_checks.py")
FAULTS_OF_COROUTINES = inside.Checks("fault_checks.py", HCQ_TEST_CUDACPU_REGIONS="0")
TIERS = inside.Checks("tier_checks.py")
RANDOM = inside.Checks("random_tier_checks.py")


@pytest.mark.parametrize("name", THREADS.names)
def test_threads(name):
    THREADS.passed(name)


@pytest.mark.parametrize("name", FAULTS.names)
def test_kernels_that_fail(name):
    FAULTS.passed(name)


@pytest.mark.parametrize("name", FAULTS_OF_COROUTINES.names)
def test_coroutines_that_fail(name):
    FAULTS_OF_COROUTINES.passed(name)


@pytest.mark.parametrize("name", COROUTINES.names)
def test_threads_that_are_coroutines(name):
    COROUTINES.passed(name)


@pytest.mark.parametrize("name", TIERS.names)
def test_regions_do_what_coroutines_do(name):
    TIERS.passed(name)


@pytest.mark.parametrize("name", RANDOM.names)
def test_regions_do_what_coroutines_do_by_chance(name):
    RANDOM.passed(name)
