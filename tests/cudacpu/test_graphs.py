"""Stream capture, graphs and memory operations of streams of the CUDA driver on the CPU."""

from __future__ import annotations

import inside
import pytest

CAPTURES = inside.Checks("capture_checks.py")
GRAPHS = inside.Checks("graph_checks.py")
MEMORY = inside.Checks("stream_memory_checks.py")


@pytest.mark.parametrize("name", CAPTURES.names)
def test_captures(name):
    CAPTURES.passed(name)


@pytest.mark.parametrize("name", GRAPHS.names)
def test_graphs(name):
    GRAPHS.passed(name)


@pytest.mark.parametrize("name", MEMORY.names)
def test_memory_operations(name):
    MEMORY.passed(name)
