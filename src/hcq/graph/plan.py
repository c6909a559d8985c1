"""Which queue takes which command, and which waits are needed for that.

A command goes to the queue where it can start first, by estimates: what depends on each other tends to stay on one
queue, which keeps order for nothing, and what is independent goes to queues that run side by side. A wait is left out
where a wait that was kept, or a queue's own order, gives it already: knowledge passes on along those alone. What does
not live here: the dependencies themselves (ranges), and packets.
"""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hcq.graph.nodes import Node

_CROSSING = 3_000.0  # ns: what a wait for another queue costs


class LaneKey(NamedTuple):
    """A queue of a device: `ordinal` 0 is the one that sets the device's timeline; `takes` are kinds of commands."""

    device: Any
    ordinal: int
    takes: str  # "all", "compute" or "copy"


class Step(NamedTuple):
    """A command in its place: it waits for these others, each on another lane, and the last thing before them."""

    node: Node
    lane: int
    waits: tuple[int, ...]  # indices of nodes


class Plan:
    """`lanes` that are used, `steps` in an order that respects all dependencies, `marked`: nodes others wait for.

    `ends` says for each lane that sets a timeline which others it must wait for at its end.
    """

    def __init__(self, lanes: list[LaneKey], steps: list[Step], ends: dict[int, list[int]]) -> None:
        self.lanes = lanes
        self.steps = steps
        self.ends = ends
        self.marked = {index for step in steps for index in step.waits}

    @property
    def waits(self) -> int:
        """How many waits between lanes there are."""
        return sum(len(step.waits) for step in self.steps)


def plan(
    nodes: Sequence[Node],
    before: Mapping[int, Sequence[int]],
    offered: Callable[[Any], Sequence[LaneKey]],
    serial: bool = False,
) -> Plan:
    """Place `nodes` on the lanes that `offered(device)` has; `before` are indices of what comes before, by index.

    `serial`: every command comes after the one before it as well. Raises ValueError for a cycle.
    """
    sources = {node.index: list(before[node.index]) for node in nodes}
    order = nodes
    if any(found and found[-1] >= index for index, found in sources.items()):
        order = _sorted(nodes, sources)
    if serial:  # after sorting: a wait recorded before its signal comes behind it here too
        for earlier, node in itertools.pairwise(order):
            sources[node.index] = sorted({*sources[node.index], earlier.index})
    places = _Places(order, offered)
    steps = [places.put(node, sources[node.index]) for node in order]
    return Plan(places.lanes, steps, places.ends())


class _Places:
    def __init__(self, order: Sequence[Node], offered: Callable[[Any], Sequence[LaneKey]]) -> None:
        self.lanes: list[LaneKey] = []
        self._choices: dict[tuple[int, str], list[int]] = {}
        self._begun: list[bool] = []
        used = {id(device): device for node in order for device in (node.device, *node.peers)}
        for device in used.values():
            for key in offered(device):
                for kind in ("compute", "copy"):
                    if key.takes in ("all", kind):
                        self._choices.setdefault((id(device), kind), []).append(len(self.lanes))
                self.lanes.append(key)
                self._begun.append(key.ordinal == 0)
        count = len(self.lanes)
        self._free = [0.0] * count  # when a lane has done what it was given, in ns
        self._length = [0] * count
        self._known = [[0] * count for _ in range(count)]  # how far others are, for what a lane does next
        total = max((node.index for node in order), default=-1) + 1
        self._lane = [0] * total
        self._position = [0] * total
        self._end = [0.0] * total
        self._knew: list[Sequence[int]] = [()] * total

    def put(self, node: Node, sources: Sequence[int]) -> Step:
        """Choose a lane and the waits that are needed there."""
        lane = self._choose(node, sources)
        known, waits = self._known[lane], []
        # The latest first: it often brings what the others would.
        for source in sorted(sources, key=self._position_of, reverse=True):
            other = self._lane[source]
            if other == lane or known[other] >= self._position[source]:
                continue
            waits.append(source)
            for index, position in enumerate(self._knew[source]):
                if position > known[index]:
                    known[index] = position
        self._begun[lane] = True
        self._length[lane] += 1
        known[lane] = self._length[lane]
        self._lane[node.index], self._position[node.index] = lane, self._length[lane]
        self._knew[node.index] = tuple(known)
        return Step(node, lane, tuple(waits))

    def ends(self) -> dict[int, list[int]]:
        """For each lane of ordinal 0, the other lanes that it does not know to be over."""
        return {
            lane: [other for other, length in enumerate(self._length) if length > self._known[lane][other]]
            for lane, key in enumerate(self.lanes)
            if key.ordinal == 0
        }

    def _choose(self, node: Node, sources: Sequence[int]) -> int:
        choices = self._choices[id(node.device), node.takes]
        estimate = node.estimate
        best, start = choices[0], float("inf")
        for lane in choices:
            at = self._free[lane] + (0.0 if self._begun[lane] else _CROSSING)
            for source in sources:
                ready = self._end[source] + (0.0 if self._lane[source] == lane else _CROSSING)
                if ready > at:
                    at = ready
            if at < start:
                best, start = lane, at
            if len(choices) == 1:
                break
        self._free[best] = self._end[node.index] = start + estimate
        return best

    def _position_of(self, index: int) -> float:
        return self._end[index]


def _sorted(nodes: Sequence[Node], sources: Mapping[int, Sequence[int]]) -> list[Node]:
    # In the order of recording, save where something was recorded before what it waits for.
    by_index = {node.index: node for node in nodes}
    missing = {index: len(found) for index, found in sources.items()}
    users: dict[int, list[int]] = {index: [] for index in sources}
    for index, found in sources.items():
        for source in found:
            users[source].append(index)
    ready = [index for index, count in missing.items() if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(by_index[index])
        for user in users[index]:
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, user)
    if len(order) < len(nodes):
        stuck = [str(by_index[index]) for index, count in missing.items() if count][:4]
        raise ValueError(f"these commands wait for each other in a circle: {', '.join(stuck)}")
    return order
