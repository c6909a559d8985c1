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
        self._moving = _Moving(variables)
        self._growing: dict[tuple[Any, Any], list[int]] = {}  # nodes, by (groups, items)
        with capture({f"i{index}": buf for index, buf in enumerate(inputs)}) as self.graph:
            for item in listed:
                self._record(item)
        self._last = self._moving.find(variables)
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
        with self._lock:
            now = self._moving.find(variables)
            vals, sizes = (None, None) if now == self._last else self._changes(now)
            began = time.perf_counter() if wait else 0.0
            replay = self.graph.replay_with(tuple(inputs), vals, sizes)
            self._last = now  # a replay that raised has changed nothing
        if not wait:
            return None
        replay.wait()
        return time.perf_counter() - began

    def _changes(self, now: list[Any]) -> tuple[dict[str, Any], dict[int, Any]]:
        names = zip(self._moving.names, now, self._last, strict=True)
        vals = {name: value for name, value, last in names if value != last and name}
        sizes: dict[int, Any] = {}
        if self._growing:
            moved = [value != last for value, last in zip(now, self._last, strict=True)]
            for (groups, items), nodes in self._growing.items():
                if any(isinstance(count, _Number) and moved[count.number] for count in (*groups, *items)):
                    sizes.update(dict.fromkeys(nodes, (_size(groups, now), _size(items, now))))
        return vals, sizes

    def _record(self, item: LaunchItem | CopyItem) -> None:
        if isinstance(item, CopyItem):
            from hcq.runtime.copy import copy

            copy(item.dest, item.src)
            return
        vals, groups, items = (
            tuple(map(self._moving.number, given)) for given in (item.vals, item.global_size, item.local_size)
        )
        now = self._moving.now
        recorded = len(self.graph)
        item.program(*item.bufs, global_size=_size(groups, now), local_size=_size(items, now), vals=_size(vals, now))
        node = self.graph.nodes[-1] if len(self.graph) > recorded else None
        if not isinstance(node, Launch):
            raise TypeError(f"{item.program!r} queued no launch: a LaunchItem takes what dev.runtime gives")
        for position, value in enumerate(vals):
            if isinstance(value, _Number):
                node.names[position] = self._moving.name(value.number)
        if any(isinstance(count, _Number) for count in (*groups, *items)):
            self._growing.setdefault((groups, items), []).append(node.index)


class _Number(NamedTuple):
    """The number of what moves: a key, or a function, which gives values or sizes."""

    number: int


class _Moving:
    """What values and sizes are found by: each key and function once, however often it is used."""

    def __init__(self, variables: Mapping[Any, Any]) -> None:
        self.now: list[Any] = []
        """What they give for the first variables."""
        self.names: list[str] = []
        """What replays call the values that they give; empty for what gives sizes alone."""
        self._variables = variables
        self._numbers: dict[tuple[bool, Any], int] = {}
        self._how: list[tuple[bool, Any]] = []  # whether it is a function, and the key or function

    def number(self, how: Any) -> Any:
        """A number as it is; the _Number of anything else."""
        if hasattr(how, "__index__") or hasattr(how, "__float__"):
            return how
        key = callable(how), how if how.__hash__ is not None else id(how)
        number = self._numbers.setdefault(key, len(self._how))
        if number == len(self._how):
            self._how.append((key[0], how))
            self.names.append("")
            self.now.append(_found(key[0], how, self._variables))
        return _Number(number)

    def name(self, number: int) -> str:
        """The name of values that it gives, from now on; no library's parameter is called so."""
        self.names[number] = f"variable {number}"
        return self.names[number]

    def find(self, variables: Mapping[Any, Any]) -> list[Any]:
        """What they give now."""
        try:
            return [how(variables) if called else variables[how] for called, how in self._how]
        except KeyError:
            return [_found(called, how, variables) for called, how in self._how]


def _found(called: bool, how: Any, variables: Mapping[Any, Any]) -> Any:
    if called:
        return how(variables)
    if how not in variables:
        raise ValueError(f"no variable {how!r} was given: there is {', '.join(map(repr, variables)) or 'none'}")
    return variables[how]


def _size(counts: Sequence[Any], now: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(now[count.number] if isinstance(count, _Number) else count for count in counts)
