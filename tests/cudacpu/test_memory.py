"""Memory of the driver on the CPU: blocks, copies, fills, pools, pointers, addresses."""

import pytest
from inside import Checks

MEMORY = Checks("memory_checks.py", HCQ_CUDACPU_MEMORY="256M")
GUARDS = Checks("guard_checks.py", HCQ_CUDACPU_CHECK="1")
POOLS = Checks("pool_checks.py", HCQ_CUDACPU_MEMORY="64M")
ORDER = {check: Checks("pool_order_checks.py", HCQ_CUDACPU_CHECK=check) for check in "01"}


@pytest.mark.parametrize("name", MEMORY.names)
def test_memory(name):
    MEMORY.passed(name)


@pytest.mark.parametrize("name", POOLS.names)
def test_pools(name):
    POOLS.passed(name)


@pytest.mark.parametrize("check", ORDER)
@pytest.mark.parametrize("name", ORDER["0"].names)
def test_pools_and_kernels(name, check):
    ORDER[check].passed(name)


@pytest.mark.parametrize("name", GUARDS.names)
def test_guards(name):
    GUARDS.passed(name)
