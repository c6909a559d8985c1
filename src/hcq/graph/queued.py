"""Graphs on any devices with command queues: bound queues, whose waits and signals are updated for each replay.

What does not live here: the queues themselves (bound), devices of native queues (native), and which queue takes what
(plan).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from hcq.graph.bound import BoundQueues, Replay
from hcq.graph.inputs import Seen
from hcq.graph.native import value_keys
from hcq.graph.nodes import Copy, Launch, Node, span_of
from hcq.graph.plan import LaneKey, plan
from hcq.queues import launch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.graph.inputs import Use
    from hcq.graph.work import Work

_MOST_UNDER_WAY = 4
"""Replays with different arguments that may run at a time; a further one waits for the oldest."""


@functools.cache
def commands_for(signal_t: Any) -> type[QueuedCommands]:
    """The class of graphs on devices with that kind of signal: queues that can wait for each other."""
    return type("QueuedCommands", (QueuedCommands,), {"signal_t": signal_t})


class QueuedCommands:
    """The commands of a graph, or of a part of it, in queues of its devices. One thread at a time."""

    signal_t: Any

    def __init__(self, work: Work) -> None:
        self.plan = plan(work.nodes, work.before, lanes, work.serial)
        self.seen = Seen(work.nodes, work.inputs)
        self.indices = work.indices
        self.in_order = len({step.lane for step in self.plan.steps}) < 2
        self._uses = work.uses
        self._inputs: dict[int, Any] = {}  # by slot; those that are no longer as captured
        self._launches = {node.index: node for node in work.nodes if isinstance(node, Launch)}
        self._vals: dict[int, Sequence[Any]] = {}  # by launch; those that are no longer as captured
        self._sizes = {index: (node.groups, node.items) for index, node in self._launches.items()}
        self._keys: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for index, node in self._launches.items():
            for position, key in enumerate(value_keys(node) if node.vals else ()):
                self._keys.setdefault(key, []).append((index, position))
        self._changed = 0  # counts changes
        self._copies: list[BoundQueues] = []

    def replay(self) -> Replay:
        """Queue all commands, once."""
        return self._current().submit(self)

    def set_input(self, slot: int, buf: Any) -> None:
        """Use `buf` from the next replay on."""
        self._inputs[slot] = buf
        self._changed += 1

    def set_value(self, node: Launch, position: int, value: Any, dry: bool = False) -> None:
        """Use another value from the next replay on; `dry` only raises where it can't be. LaunchError."""
        changed = list(self.vals(node))
        changed[position] = value
        launch.pack_values(changed, node.program.value_types)
        if not dry:
            self._vals[node.index] = changed
            self._changed += 1

    def set_values(self, keys: Sequence[tuple[str, str]], value: Any, dry: bool = False) -> None:
        """Use another value in all launches that have one of these keys."""
        for key in keys:
            for index, position in self._keys.get(key, ()):
                self.set_value(self._launches[index], position, value, dry)

    def set_sizes(self, node: Launch, groups: Any, items: Any, dry: bool = False) -> None:
        """Use other sizes from the next replay on."""
        checked = launch.check_sizes(groups, items, node.device.limits)
        if not dry:
            self._sizes[node.index] = checked
            self._changed += 1

    def arguments(self, node: Launch) -> tuple[list[Any], Sequence[Any]]:
        """The handles and values that a launch has now."""
        handles = list(node.handles)
        for use in self._uses.get(node.index, ()):
            if use.slot in self._inputs:
                buf = self._inputs[use.slot]
                handle = getattr(buf, "_buf", buf)
                size = handles[use.which].size if use.offset else handle.size
                allocator = node.device.allocator
                handles[use.which] = allocator.offset(handle, size, use.offset) if use.offset else handle
        return handles, self.vals(node)

    def vals(self, node: Launch) -> Sequence[Any]:
        """The values that a launch has now; those of the node itself while nothing has changed."""
        return self._vals.get(node.index, node.vals)

    def replaced(self, node: Node) -> list[Use]:
        """What a command uses of inputs that are no longer as captured."""
        return [use for use in self._uses.get(node.index, ()) if use.slot in self._inputs]

    def address(self, use: Use) -> int:
        """Where that is now."""
        return span_of(self._inputs[use.slot])[0] + use.offset

    def addresses(self, node: Copy) -> tuple[int, int]:
        """Where a copy goes to and comes from now."""
        at = [node.dest_at, node.src_at]
        for use in self.replaced(node):
            at[use.which] = self.address(use)
        return at[0], at[1]

    def sizes(self, node: Launch) -> tuple[Any, Any]:
        """The sizes that a launch has now."""
        return self._sizes[node.index]

    @property
    def used(self) -> list[Any]:
        """What replaced inputs, for submits to keep."""
        return list(self._inputs.values())

    def _current(self) -> BoundQueues:
        # An unchanged one can be queued again while it runs; arguments in memory are changed only where nothing does.
        for copy in self._copies:
            if copy.version == self._changed:
                return copy
        for copy in self._copies:
            if copy.over():
                copy.renew(self, self._changed)
                return copy
        if len(self._copies) == _MOST_UNDER_WAY:
            oldest = min(self._copies, key=lambda copy: copy.submits)
            oldest.wait()
            oldest.renew(self, self._changed)
            return oldest
        self._copies.append(BoundQueues(self, self._changed, self.signal_t))
        return self._copies[-1]


def lanes(device: Any) -> list[LaneKey]:
    """The hardware queues of a device in Python: one that runs programs, and one that copies, if there is one."""
    compute = LaneKey(device, 0, "compute")
    return [compute] if device.hw_copy_queue_t is None else [compute, LaneKey(device, 1, "copy")]
