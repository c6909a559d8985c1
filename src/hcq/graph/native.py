"""Graphs on devices of native queues: packets in memory of their own, one indirect packet a queue for a replay.

What does not live here: the packets (native/python/graph_type.cpp), and which queue takes what (plan).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hcq import _native
from hcq.graph.inputs import Seen
from hcq.graph.nodes import Copy, Launch, Node, Sync, span_of
from hcq.graph.plan import LaneKey, Plan, plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hcq.graph.inputs import Use
    from hcq.graph.work import Work

_MOST_LANES = 4


class NativeCommands:
    """The commands of a graph, or of a part of it, as native queues take them. One thread at a time."""

    def __init__(self, work: Work) -> None:
        self.plan: Plan = plan(work.nodes, work.before, lanes, work.serial)
        self.commands = _native.GraphCommands(tuple((key.device, key.ordinal) for key in self.plan.lanes))
        """A slot for each input comes first, then those of value_slots."""
        self.indices = work.indices
        self._at: dict[int, int] = {}  # the command of a node
        self._values = value_slots(work.nodes, len(work.inputs.slots))
        for _ in range(len(work.inputs.slots) + len(self._values)):
            self.commands.slot()
        self._build(work.uses)
        self.commands.seal(self._at)
        self.commands.part = Seen(work.nodes, work.inputs)
        self.in_order = len({step.lane for step in self.plan.steps}) < 2
        self.replay = self.commands.replay

    def set_input(self, slot: int, buf: Any) -> None:
        """Use `buf` from the next replay on."""
        self.commands.set_address(slot, span_of(buf)[0], buf)

    def set_value(self, node: Launch, position: int, value: Any, dry: bool = False) -> None:
        """Use another value from the next replay on; `dry` only raises where it can't be. LaunchError."""
        self.commands.set_one(self._at[node.index], position, value, dry)

    def set_values(self, keys: Sequence[tuple[str, str]], value: Any, dry: bool = False) -> None:
        """Use another value in all launches that have one of these keys (see value_keys)."""
        for key in keys:
            if key in self._values:
                self.commands.set_value(self._values[key], value, dry)

    def set_sizes(self, node: Launch, groups: Any, items: Any, dry: bool = False) -> None:
        """Use other sizes from the next replay on."""
        self.commands.set_sizes(self._at[node.index], groups, items, dry)

    def _build(self, uses: Mapping[int, Sequence[Use]]) -> None:
        commands, plan = self.commands, self.plan
        filled: set[int] = set()
        started = {}
        if len(plan.ends) > 1:  # work of one device comes after what was queued on the others before
            started = {main: commands.mark(main) for main in plan.ends}
            filled |= started.keys()
        for lane, key in enumerate(plan.lanes):
            for main, mark in started.items():
                if plan.lanes[main].device is not key.device:
                    commands.wait_mark(lane, main, mark)
        marks: dict[int, tuple[int, int]] = {}  # by node
        last: dict[int, tuple[int, int] | None] = {}  # by lane: the mark behind its last command, if there is one
        for node, lane, waits in plan.steps:
            for source in waits:
                commands.wait_mark(lane, *marks[source])
            if self._add(node, lane, uses.get(node.index, ())) or waits:
                filled.add(lane)
            last[lane] = None
            if node.index in plan.marked:
                marks[node.index] = last[lane] = lane, commands.mark(lane)
        for main, others in plan.ends.items():
            for other in others:
                end = last[other]
                if end is None:
                    end = last[other] = other, commands.mark(other)
                commands.wait_mark(main, *end)
            if not others and main not in filled:
                commands.mark(main)  # a timeline is set behind commands, be it one that does nothing

    def _add(self, node: Node, lane: int, uses: Sequence[Use]) -> bool:
        commands = self.commands
        commands.set_line(node.line)
        if isinstance(node, Launch):
            if node.kernargs is not None:
                at = commands.exec_packed(lane, node.program, node.kernargs.data, node.groups, node.items)
            else:
                at = commands.exec(lane, node.program, node.handles, node.vals, node.groups, node.items)
            for position, key in enumerate(value_keys(node) if node.vals else ()):
                commands.bind_value(self._values[key], at, position)
        elif isinstance(node, Copy):
            at = commands.copy(lane, node.dest_at, node.src_at, node.nbytes)
        elif isinstance(node, Sync):
            if node.inside:
                return False
            at = commands.signal_command(lane, node.kind, node.signal, node.value)
        else:
            raise TypeError(f"{node!r} is nothing for a native queue")
        self._at[node.index] = at
        for use in uses:
            commands.bind_address(use.slot, at, use.which, use.offset)
        return True


def lanes(device: Any) -> list[LaneKey]:
    """The queues of a native device that graphs may use: its own compute queue, and a few beside it."""
    count = min(_MOST_LANES, max(2, _native.worker_limit()))
    return [LaneKey(device, ordinal, "all") for ordinal in range(count)]


def value_slots(nodes: Sequence[Node], first: int) -> dict[tuple[str, str], int]:
    """The slot of each key of values: the same in all commands of a graph that is one part."""
    keys = (key for node in nodes if isinstance(node, Launch) and node.vals for key in value_keys(node))
    return {key: slot for slot, key in enumerate(dict.fromkeys(keys), first)}


def value_keys(node: Launch) -> list[tuple[str, str]]:
    """(name, type) of each value of a launch: values of one key change together. A name that was given has = before."""
    signature = getattr(node.program, "signature", None)
    if signature is None:
        known = [("", "")] * len(node.vals)
    else:
        known = [(name, kind) for kind, name in signature if kind != "pointer"]
    if not node.names:
        return known
    return [(f"={node.names[at]}" if at in node.names else name, kind) for at, (name, kind) in enumerate(known)]
