"""Modules, functions, libraries and launches of the CUDA driver on the CPU."""

from __future__ import annotations

import inside

test_launches = inside.each_of("launch_checks.py")
