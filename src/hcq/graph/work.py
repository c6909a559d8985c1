"""Work: what a part of a graph is made from, on whatever carries it out.

What does not live here: cutting a graph into parts (parts), and what they become (native, queued, or a driver's own).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hcq.graph.inputs import Inputs, Use
    from hcq.graph.nodes import Node


class Work(NamedTuple):
    """The commands of a part, in the order of recording, and what is known of them."""

    nodes: Sequence[Node]
    before: Mapping[int, Sequence[int]]
    """By a command's index: the indices of those that it comes after."""
    uses: Mapping[int, Sequence[Use]]
    """By a command's index: what it uses of inputs. Commands that use none have no entry."""
    inputs: Inputs
    """All inputs of the graph, be they used here or not."""
    serial: bool
    """Everything goes in the order of recording, whatever order memory asks for."""

    @property
    def indices(self) -> set[int]:
        """Which commands of the graph they are."""
        return {node.index for node in self.nodes}
