"""printf and assert of kernels, on the CUDA driver on the CPU."""

from __future__ import annotations

import inside

test_printf = inside.each_of("printf_checks.py")
