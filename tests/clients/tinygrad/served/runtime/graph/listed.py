"""A graph of tinygrad's JIT that is one of hcq's: the kernels are listed, and a replay queues them in one go.

Served as `tinygrad.runtime.graph.listed`, a name that tinygrad itself doesn't have; devices point to it by `graph`.
"""

from __future__ import annotations

from typing import Any

from tinygrad.engine.jit import GraphException, GraphRunner
from tinygrad.engine.realize import CompiledRunner
from tinygrad.shape.symbolic import sym_infer

from hcq.graph import LaunchItem, ListGraph

__all__ = ["ListedGraph"]


class ListedGraph(GraphRunner):  # type: ignore[misc]
    """What `device.graph(jit_cache, input_rawbuffers, var_vals)` makes."""

    def __init__(self, jit_cache: list[Any], input_rawbuffers: list[Any], var_vals: dict[Any, int]) -> None:
        super().__init__(jit_cache, input_rawbuffers, var_vals)
        if not all(isinstance(item.prg, CompiledRunner) for item in jit_cache):
            raise GraphException("only kernels can be listed")
        self.graph = ListGraph([_launch(item) for item in jit_cache], input_rawbuffers, var_vals)

    def __call__(self, rawbufs: list[Any], var_vals: dict[Any, int], wait: bool = False) -> float | None:
        return self.graph(rawbufs, var_vals, wait)


def _launch(item: Any) -> LaunchItem:
    program = item.prg.p
    return LaunchItem(
        item.prg.clprg, item.bufs, _sizes(program.global_size), _sizes(program.local_size), tuple(program.vars)
    )


def _sizes(sizes: Any) -> tuple[Any, ...]:
    """Numbers as they are; sizes that depend on variables as hcq has them found."""
    return tuple(n if isinstance(n, int) else lambda values, n=n: sym_infer(n, values) for n in sizes or (1, 1, 1))
