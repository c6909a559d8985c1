"""The breakages: one small wrong thing each, of the kind that a driver might really do. breakages.py applies them.

A module an area; importing them registers.
"""

from hcq.testing.mutants import (
    buffers,
    checks,
    contents,
    disk,
    faults,
    formats,
    graphs,
    kernels,
    launches,
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
    "buffers",
    "checks",
    "contents",
    "disk",
    "faults",
    "formats",
    "graphs",
    "kernels",
    "launches",
    "memory",
    "processes",
    "queues",
    "registry",
    "signals",
    "timeline",
    "traces",
    "transfers",
]
