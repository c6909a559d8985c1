"""How the CUDA driver on the CPU runs the threads of a block."""

from __future__ import annotations

import inside

test_threads = inside.each_of("executor_checks.py")
test_kernels_that_fail = inside.each_of("fault_checks.py")
test_coroutines_that_fail = inside.each_of("fault_checks.py", HCQ_TEST_CUDACPU_REGIONS="0")
test_threads_that_are_coroutines = inside.each_of("executor_checks.py", HCQ_TEST_CUDACPU_REGIONS="0")
test_regions_do_what_coroutines_do = inside.each_of("tier_checks.py")
test_regions_do_what_coroutines_do_by_chance = inside.each_of("random_tier_checks.py")
