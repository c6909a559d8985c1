"""Stream capture, graphs and memory operations of streams of the CUDA driver on the CPU."""

from __future__ import annotations

import inside

test_captures = inside.each_of("capture_checks.py")
test_graphs = inside.each_of("graph_checks.py")
test_memory_operations = inside.each_of("stream_memory_checks.py")
