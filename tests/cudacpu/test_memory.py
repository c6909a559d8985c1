"""Memory of the driver on the CPU: blocks, copies, fills, pools, pointers, addresses."""

import inside

test_memory = inside.each_of("memory_checks.py", HCQ_CUDACPU_MEMORY="256M")
test_pools = inside.each_of("pool_checks.py", HCQ_CUDACPU_MEMORY="64M")
test_pools_and_kernels = inside.each_of("pool_order_checks.py", HCQ_CUDACPU_CHECK="0")
test_pools_and_kernels_that_are_checked = inside.each_of("pool_order_checks.py", HCQ_CUDACPU_CHECK="1")
test_guards = inside.each_of("guard_checks.py", HCQ_CUDACPU_CHECK="1")
