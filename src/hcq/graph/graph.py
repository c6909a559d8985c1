"""Graph: what was recorded, and its replays.

What does not live here: recording them (recording), what a replay's arguments mean (changes), and the commands on
devices (native, queued).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hcq.graph import parts
from hcq.graph.changes import Changes
from hcq.graph.inputs import Inputs
from hcq.graph.nodes import Launch, Node, Sync, Value, span_of
from hcq.graph.ranges import Ranges
from hcq.graph.work import Work
from hcq.runtime import process, watch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hcq.graph.parts import Parts


class Graph:
    """Work recorded by `hcq.capture`, queued again by `replay`.

    It owns what it captured: buffers, programs, signals, and the buffers that inputs are now. `nodes` are its commands
    in the order of recording; `len(g)` counts them. Threads may share a graph: replays are queued one after the other.
    """

    def __init__(self, nodes: list[Node], kept: dict[int, Any], inputs: Mapping[str, Any]) -> None:
        self.nodes = nodes
        self._kept = kept
        self._inputs = Inputs(inputs)
        for place in self._inputs.slots:
            handle = getattr(place.buf, "_buf", place.buf)
            parts.keep(kept, place.buf, handle)
        self._generation = process.generation
        self._lock = threading.RLock()  # one replay at a time; a finalizer may replay in the middle of another
        self._before: dict[int, list[int]] = {}
        self._made: list[Parts] = []  # by the order of memory as it was captured; and, once needed, of recording
        self._now: Parts | None = None
        self._changes = Changes(nodes, self._inputs)
        self._take = self._changes.take

    def value(self, name: str, number: int) -> Value:
        """A whole number for `vals=` or a size of what is recorded, which `replay(vals={name: ...})` changes."""
        return Value(name, number)

    def finish(self) -> None:
        """The end of recording, which hcq.capture calls: place the commands and pack them."""
        self._link_waits()
        ranges = Ranges()
        self._before = {node.index: [source.index for source in ranges.add(node)] for node in self.nodes}
        self._uses = {node.index: uses for node in self.nodes if (uses := self._inputs.uses(node))}
        self._made = [self._make(serial=False)]
        self._changes.begin(self._made[0], self._other_spans())
        self._now = self._made[0]

    def replay(
        self, *, vals: Mapping[Any, Any] | None = None, sizes: Mapping[Any, Any] | None = None, **inputs: Any
    ) -> Any:
        """Queue all of it, after all work queued on its devices, and return a handle with `wait()` and `done`.

        `name=buffer` replaces the input of that name, now and in later replays. `vals={...}` gives values: by the name
        of a `g.value`, by that of a parameter ("n", or "program.n") where the library recorded it, or by (node, index).
        `sizes={...}` gives (groups, items), or groups alone, by node (its index) or program name. What isn't given
        stays as it was. Earlier replays that still run are not disturbed. Doesn't block, save where host copies
        or devices of different kinds are in it. Raises TypeError, ValueError and LaunchError with nothing changed or
        queued, and what launches raise.
        """
        return self.replay_with(inputs, vals, sizes)

    def replay_with(
        self, inputs: Mapping[str, Any] | Sequence[Any], vals: Mapping[Any, Any] | None, sizes: Mapping[Any, Any] | None
    ) -> Any:
        """replay with its keywords as one mapping, or all of them as a sequence, in the order of their names."""
        if self._generation != process.generation:
            raise process.forked(self._generation, "this graph")
        with self._lock:
            now = self._now
            if now is None:
                raise RuntimeError("this graph is not finished: leave the block of hcq.capture first")
            if watch.active and watch.capturing() is not None:
                raise RuntimeError("a replay inside hcq.capture: a graph can't be recorded into another")
            if inputs or vals or sizes:
                in_order = self._take(inputs, vals, sizes)
                if in_order is None:
                    named = (
                        inputs if isinstance(inputs, Mapping) else dict(zip(self._inputs.by_name, inputs, strict=True))
                    )
                    in_order = self._changes.change(self._made, named, vals or {}, sizes or {})
                now = self._now = self._in_order() if in_order else self._made[0]
            return now.replay()

    @property
    def inputs(self) -> dict[str, Any]:
        """What the named inputs are now."""
        return {name: self._inputs.slots[slot].buf for name, slot in self._inputs.by_name.items()}

    @property
    def devices(self) -> list[Any]:
        """The devices that its commands run on, each once."""
        return list({id(node.device): node.device for node in self.nodes if node.device is not None}.values())

    @property
    def parts(self) -> list[Any]:
        """What its commands became: one part for each kind of device in turn, with the `plan` of its queues."""
        return [] if self._now is None else self._now.parts

    def dependencies(self, node: Node) -> list[Node]:
        """What this one comes after, directly."""
        return [self.nodes[index] for index in self._before[node.index]]

    def draw(self, path: str | Path | None = None, *, dot: bool = False) -> str:
        """A picture of commands, queues and waits: SVG, or with `dot` the text that Graphviz draws.

        Written to `path` where one is given; a name that ends in .dot or .gv means `dot`. Returns the text.
        Raises ValueError, and writes nothing, for a name that ends neither so nor in .svg; OSError.
        """
        from hcq.graph.draw import draw

        return draw(self, path, dot)

    def save(self, path: str | Path, contents: bool = False) -> None:
        """Write all of it to one file, for `hcq replay`: commands, programs (source and binary), sizes of buffers.

        With `contents` also what the buffers hold now, after the work queued. Values, sizes and inputs are as the last
        replay left them. Raises ValueError, and writes nothing, for programs of which neither source nor library is
        known, and for waits for signals from outside; OSError.
        """
        from hcq.graph.saving import save

        save(self, path, contents)

    def current_vals(self) -> dict[int, list[Any]]:
        """The values of launches that are no longer as captured, by the launch's index."""
        return self._changes.vals()

    def current_sizes(self, launch: Launch) -> tuple[Any, Any]:
        """(groups, items) of a launch as they are now."""
        return self._changes.sizes(launch)

    def where_now(self, span: tuple[int, int]) -> tuple[Any, tuple[int, int]] | None:
        """For bytes of an input as captured: what buffer that is now, and where in memory; None for any others."""
        found = self._inputs.find(span)
        if found is None:
            return None
        buf = self._inputs.slots[found[0]].buf
        start, end = span_of(buf)
        at = start + found[1]
        return buf, (at, min(at + span[1] - span[0], end))

    def _make(self, serial: bool) -> Parts:
        return parts.Parts(Work(self.nodes, self._before, self._uses, self._inputs, serial))

    def _in_order(self) -> Parts:
        # Inputs share bytes with each other or with something else: the order found when capturing does not hold.
        if len(self._made) == 1:
            serial = self._make(serial=True)
            self._changes.repeat(serial)
            self._changes.use([*self._made, serial])
            self._made.append(serial)
        return self._made[1]

    def _link_waits(self) -> None:
        signals: dict[int, list[Sync]] = {}
        for node in self.nodes:
            if isinstance(node, Sync) and node.kind == "signal":
                signals.setdefault(id(node.signal), []).append(node)
        for node in self.nodes:
            if isinstance(node, Sync) and node.kind == "wait":
                setters = [setter for setter in signals.get(id(node.signal), ()) if setter.value >= node.value]
                if setters:
                    node.inside = True
                    node.after.append(setters[0])

    def _other_spans(self) -> list[tuple[int, int]]:
        # What commands touch that is no input's, joined.
        if not self._inputs.slots:
            return []
        spans = {span for node in self.nodes for span in (*node.reads, *node.writes) if not self._inputs.find(span)}
        joined: list[tuple[int, int]] = []
        for start, end in sorted(spans):
            if joined and start < joined[-1][1]:
                joined[-1] = joined[-1][0], max(end, joined[-1][1])
            else:
                joined.append((start, end))
        return joined

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        where = ", ".join(device.dname for device in self.devices)
        return f"<Graph of {len(self)} commands on {where}>"
