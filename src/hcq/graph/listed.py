"""ListGraph: the lower form of a graph, over a list of calls that a client has made itself.

Clients look for it as `dev.graph` of an opened device, and may replace it there. What does not live here: recording by
running code (recording), which is what this is built on.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from hcq.graph.nodes import Launch
from hcq.graph.recording import capture

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class LaunchItem(NamedTuple):
    """A launch. Values and sizes are numbers, keys of the mapping of variables, or functions of that mapping."""

    program: Any
    bufs: Sequence[Any]
    global_size: Sequence[Any] = (1, 1, 1)
    local_size: Sequence[Any] = (1, 1, 1)
    vals: Sequence[Any] = ()


class CopyItem(NamedTuple):
    """hcq.copy(dest, src)."""

    dest: Any
    src: Any


class ListGraph:
    """`ListGraph(items, inputs, variables)`: `items` in the order of the client's own run, LaunchItems and CopyItems.

    `inputs` are the buffers among theirs that each call replaces, in that order, `variables` the mapping for values
    and sizes. A call queues everything: `graph(inputs, variables, wait=False)` returns None, or with `wait` the seconds
    until it was over. A client whose items are of its own kind overrides `item`. Raises what launches raise.
    """

    def __init__(self, items: Iterable[Any], inputs: Sequence[Any], variables: Mapping[Any, Any]) -> None:
        listed = [self.item(item) for item in items]
        self._takes = len(inputs)
        names = {f"i{index}": buf for index, buf in enumerate(inputs)}
        self._moving: list[tuple[int, int, Any]] = []  # (node, position, how its value is found)
        self._growing: list[tuple[int, Any, Any]] = []  # (node, groups, items)
        with capture(names) as self.graph:
            for item in listed:
                self._record(item, variables)
        self._before: dict[tuple[int, int], Any] = {}  # what replays have now
        self._lock = threading.RLock()  # what changed is found and given to the replay together

    def item(self, item: Any) -> LaunchItem | CopyItem:
        """What an item of the client's list is; clients override this."""
        if not isinstance(item, LaunchItem | CopyItem):
            raise TypeError(f"expected a LaunchItem or CopyItem, not {type(item).__name__}")
        return item

    def __call__(self, inputs: Sequence[Any], variables: Mapping[Any, Any], wait: bool = False) -> float | None:
        """Queue all items with these inputs and variables. TypeError for more or fewer inputs than it was made with,
        ValueError for a variable that is missing: then nothing is queued.
        """
        if len(inputs) != self._takes:
            raise TypeError(
                f"this graph takes {self._takes} input buffers, in the order of its making: {len(inputs)} given"
            )
        named = {f"i{index}": buf for index, buf in enumerate(inputs)}
        with self._lock:
            vals, sizes = {}, {}
            changed: dict[tuple[int, int], Any] = {}
            for node, position, how in self._moving:
                value = _found(how, variables)
                if self._before.get((node, position)) != value:
                    changed[node, position] = vals[node, position] = value
            for node, groups, items in self._growing:
                size = _size(groups, variables), _size(items, variables)
                if self._before.get((node, -1)) != size:
                    changed[node, -1] = sizes[node] = size
            began = time.perf_counter()
            replay = self.graph.replay(vals=vals, sizes=sizes, **named)
            self._before.update(changed)  # a replay that raised has changed nothing
        if not wait:
            return None
        replay.wait()
        return time.perf_counter() - began

    def _record(self, item: LaunchItem | CopyItem, variables: Mapping[Any, Any]) -> None:
        if isinstance(item, CopyItem):
            from hcq.runtime.copy import copy

            copy(item.dest, item.src)
            return
        vals = tuple(_found(how, variables) for how in item.vals)
        sizes = _size(item.global_size, variables), _size(item.local_size, variables)
        recorded = len(self.graph)
        item.program(*item.bufs, global_size=sizes[0], local_size=sizes[1], vals=vals)
        node = self.graph.nodes[-1] if len(self.graph) > recorded else None
        if not isinstance(node, Launch):
            raise TypeError(f"{item.program!r} queued no launch: a LaunchItem takes what dev.runtime gives")
        for position, how in enumerate(item.vals):
            if not _fixed(how):
                self._moving.append((node.index, position, how))
        if not all(map(_fixed, (*item.global_size, *item.local_size))):
            self._growing.append((node.index, item.global_size, item.local_size))


def _fixed(how: Any) -> bool:
    return hasattr(how, "__index__") or hasattr(how, "__float__")


def _found(how: Any, variables: Mapping[Any, Any]) -> Any:
    if _fixed(how):
        return how
    if callable(how):
        return how(variables)
    if how not in variables:
        raise ValueError(f"no variable {how!r} was given: there is {', '.join(map(repr, variables)) or 'none'}")
    return variables[how]


def _size(counts: Sequence[Any], variables: Mapping[Any, Any]) -> tuple[Any, ...]:
    return tuple(_found(count, variables) for count in counts)
