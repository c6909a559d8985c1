"""The parts of a graph that one kind of device, or the host, carries out; most graphs have one.

Kinds of devices don't know each other's signals: between two parts the thread that replays waits. What does not live
here: what a part does on its devices (native, queued).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hcq import _native
from hcq.graph.native import NativeCommands
from hcq.graph.nodes import HostCopy, Node
from hcq.graph.queued import commands_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hcq.graph.work import Work


def keep(kept: dict[int, Any], buf: Any, handle: Any) -> None:
    """Keep the memory of a Buffer or handle in `kept`, once."""
    if id(handle) not in kept:
        kept[id(handle)] = handle, _native.memory_keep(buf)


class Parts:
    """A graph's commands, ready to be replayed. One thread at a time."""

    def __init__(self, work: Work) -> None:
        self.parts: list[Any] = []
        run: list[Node] = []
        for node in [*work.nodes, None]:
            if run and (node is None or _kind(node) is not _kind(run[0])):
                inside = {known.index for known in run}
                _check_order(run, work.before, inside)
                among = {index: [other for other in work.before[index] if other in inside] for index in inside}
                self.parts.append(_kind(run[0])(work._replace(nodes=run, before=among)))
                run = []
            if node is not None:
                run.append(node)
        self.in_order = all(part.in_order for part in self.parts)
        """Whether the commands run in the order of recording anyway."""
        if len(self.parts) == 1:  # most graphs: nothing in between
            self.replay = self.parts[0].replay  # type: ignore[method-assign]

    def replay(self) -> Any:
        """Queue everything, waiting between parts; returns the handle."""
        replay: Any = Done()
        for part in self.parts:
            replay.wait()
            replay = part.replay()
        return replay

    def set_input(self, slot: int, buf: Any) -> None:
        """Use `buf` from the next replay on."""
        for part in self.parts:
            part.set_input(slot, buf)

    @property
    def commands(self) -> Any:
        """The native commands, where that is all."""
        part = self.parts[0] if len(self.parts) == 1 else None
        return part.commands if isinstance(part, NativeCommands) else None


class Done:
    """The handle of a replay that is over, or of one that had nothing to do."""

    done = True

    def wait(self, timeout: float | None = None) -> None:
        """Return at once."""


class HostCommands:
    """Copies that the replaying thread does itself, each ordered by hcq.copy after what is queued."""

    in_order = True

    def __init__(self, work: Work) -> None:
        self.indices = work.indices
        self._copies = [
            ([node.dest, node.src], work.uses.get(node.index, ())) for node in work.nodes if isinstance(node, HostCopy)
        ]

    def replay(self) -> Done:
        """Do the copies."""
        from hcq.runtime.copy import copy

        for bufs, _ in self._copies:
            copy(*bufs)
        return Done()

    def set_input(self, slot: int, buf: Any) -> None:
        """Use `buf` from the next replay on."""
        for bufs, uses in self._copies:
            for use in uses:
                if use.slot == slot:
                    old = bufs[use.which]
                    whole = use.offset == 0 and buf.nbytes == old.nbytes
                    bufs[use.which] = buf if whole else buf.view(old.size, old.dtype, use.offset).ensure_allocated()

    def set_values(self, keys: Any, value: Any, dry: bool = False) -> None:
        """There are no values here."""


def _check_order(run: Sequence[Node], before: Mapping[int, Sequence[int]], inside: set[int]) -> None:
    last = run[-1].index
    for node in run:
        if any(other > last for other in before[node.index] if other not in inside):
            raise ValueError(
                f"{node!r} waits for what is recorded behind it, with devices of another kind in between: those parts "
                "are replayed one after the other, so let what sets the signal be submitted first"
            )


def _kind(node: Node) -> Any:
    if node.device is None:
        return HostCommands
    own = node.device.graph_commands
    if own is not None:
        return own
    if isinstance(node.device, _native.CommandDevice):
        return NativeCommands
    return commands_for(node.device.signal_t)
