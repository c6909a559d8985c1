"""The breakages: one small wrong thing each, of the kind that a driver might really do. breakages.py applies them.

A module an area; importing them registers.
"""

from hcq.testing.mutants import (
    checks,
    disk,
    faults,
    formats,
    graphs,
    kernels,
    memory,
    processes,
    queues,
    registry,
    signals,
    timeline,
    traces,
    transfers,
)

__all__ = [
    "checks",
    "disk",
    "faults",
    "formats",
    "graphs",
    "kernels",
    "memory",
    "processes",
    "queues",
    "registry",
    "signals",
    "timeline",
    "traces",
    "transfers",
]
