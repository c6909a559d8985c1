"""Graph: what was recorded, and its replays.

What does not live here: recording them (recording), and the commands on devices (native, queued).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from hcq.graph import parts
from hcq.graph.inputs import Inputs, overlaps
from hcq.graph.native import value_keys
from hcq.graph.nodes import Launch, Node, Sync, Value, span_of
from hcq.graph.ranges import Ranges
from hcq.runtime import process, watch

if TYPE_CHECKING:
    from collections.abc import Mapping
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
        self._side: Parts | None = None  # by the order of memory as it was captured
        self._serial: Parts | None = None  # in the order of recording, for inputs that share bytes
        self._now: Parts | None = None
        self._changes: dict[tuple[str, int, int], tuple[Any, ...]] = {}  # what is no longer as captured

    def value(self, name: str, number: int) -> Value:
        """A whole number for `vals=` or a size of what is recorded, which `replay(vals={name: ...})` changes."""
        return Value(name, number)

    def finish(self) -> None:
        """The end of recording, which hcq.capture calls: place the commands and pack them."""
        self._link_waits()
        ranges = Ranges()
        self._before = {node.index: [source.index for source in ranges.add(node)] for node in self.nodes}
        self._uses = {node.index: uses for node in self.nodes if (uses := self._inputs.uses(node))}
        self._side = self._now = self._make(serial=False)
        # By name: keys of values that change together, values of single launches, launches with sizes of that name.
        self._named: dict[str, tuple[set[tuple[str, str]], list[tuple[Launch, int]], list[Launch]]] = {}
        self._fixed = self._fixed_spans()

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
        if self._generation != process.generation:
            raise process.forked(self._generation, "this graph")
        with self._lock:
            now = self._now
            if now is None:
                raise RuntimeError("this graph is not finished: leave the block of hcq.capture first")
            if watch.active and watch.capturing() is not None:
                raise RuntimeError("a replay inside hcq.capture: a graph can't be recorded into another")
            if inputs or vals or sizes:
                now = self._change(now, inputs, vals or {}, sizes or {})
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
        vals: dict[int, list[Any]] = {}
        launches = [node for node in self.nodes if isinstance(node, Launch) and node.vals]
        for change in self._changes.values():
            if change[0] == "value":
                vals.setdefault(change[1], list(change[3].vals))[change[2]] = change[4]
            elif change[0] == "values":
                for node in launches:
                    for position, key in enumerate(value_keys(node)):
                        if key in change[3]:
                            vals.setdefault(node.index, list(node.vals))[position] = change[4]
        return vals

    def current_sizes(self, launch: Launch) -> tuple[Any, Any]:
        """(groups, items) of a launch as they are now."""
        return _Sizes(self._changes).of(launch)

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
        made = parts.Parts(self.nodes, self._before, self._uses, self._inputs, serial)
        for change in self._changes.values():
            if (
                change[0] == "input"
                and not self._inputs.slots[change[1]].by_host
                and getattr(change[3], "_buf", change[3]) is not self._inputs.slots[change[1]].handle
            ):
                change = (*change[:3], self._inputs.slots[change[1]].handle)  # deallocated since
            made.apply(change)
        return made

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

    def _fixed_spans(self) -> list[tuple[int, int]]:
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

    def _change(self, now: Parts, inputs: Any, vals: Mapping[Any, Any], sizes: Mapping[Any, Any]) -> Parts:
        changes: list[tuple[Any, ...]] = []
        sized = _Sizes(self._changes)
        chosen = self._inputs.resolve(inputs, smaller=bool(vals or sizes)) if inputs else {}
        for key, value in vals.items():
            changes += self._value_changes(key, value, sized)
        for key, value in sizes.items():
            changes += self._size_changes(key, value, sized)
        for change in changes:
            now.check(change)
        for slot, buf in chosen.items():
            place = self._inputs.slots[slot]
            if buf is not place.buf or span_of(buf) != now.inputs_at.get(slot, place.captured):
                place.take(buf)
                changes.append(("input", slot, 0, buf))
        for change in changes:
            self._changes.pop(change[:3], None)  # so that they stay in the order of their coming
            self._changes[change[:3]] = change
        for made in (self._side, self._serial):
            if made is not None:
                for change in changes:
                    made.apply(change)
        if chosen:
            now = self._now = self._by_order_of_memory(self._side or now)
        return now

    def _by_order_of_memory(self, side: Parts) -> Parts:
        # Where inputs share bytes with each other or with something else, the order that was found when capturing
        # does not hold: then everything goes in the order of recording.
        if side.in_order or all(place.now == place.captured for place in self._inputs.slots):
            return side
        if not overlaps([place.now for place in self._inputs.slots], self._fixed):
            return side
        if self._serial is None:
            self._serial = self._make(serial=True)
        return self._serial

    def _value_changes(self, key: Any, value: Any, now: _Sizes) -> list[tuple[Any, ...]]:
        if not isinstance(key, str):
            if not (isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], int)):
                raise TypeError(f"vals takes names or (command, position) as keys, not {key!r}")
            node, position = key
            launch = self._launch(node)
            if not 0 <= position < len(launch.vals):
                raise IndexError(f"{launch.name} has no value {position}: it has {len(launch.vals)}, counted from 0")
            return [("value", launch.index, position, launch, value)]
        if not self._named:
            self._name_values()
        if key not in self._named:
            raise ValueError(f"no value {key!r} in this graph: it has {', '.join(sorted(self._named)) or 'none'}")
        together, single, sized = self._named[key]
        changes: list[tuple[Any, ...]] = [("values", key, 0, tuple(together), value)] if together else []
        changes += [("value", launch.index, position, launch, value) for launch, position in single]
        for launch in sized:
            counts = [
                tuple(Value(key, value) if _named(count, key) else count for count in size) for size in now.of(launch)
            ]
            changes.append(now.change(launch, *counts))
        return changes

    def _size_changes(self, key: Any, value: Any, now: _Sizes) -> list[tuple[Any, ...]]:
        if isinstance(key, str):
            launches = [node for node in self.nodes if isinstance(node, Launch) and node.name == key]
            if not launches:
                names = sorted({node.name for node in self.nodes if isinstance(node, Launch)})
                raise ValueError(f"no program {key!r} in this graph: it has {', '.join(names) or 'none'}")
        else:
            launches = [self._launch(key)]
        groups, items = _split_size(key, value)
        return [now.change(launch, groups, items or now.of(launch)[1]) for launch in launches]

    def _launch(self, node: Any) -> Launch:
        try:
            found = node if isinstance(node, Node) else self.nodes[node]
        except TypeError:
            raise TypeError(f"a command of this graph is named by its number, not by {node!r}") from None
        except IndexError:
            raise ValueError(f"no command {node} in this graph: it has {len(self)}, counted from 0") from None
        if not isinstance(found, Launch):
            raise ValueError(f"{found!r} is no launch")
        return found

    def _name_values(self) -> None:
        named = self._named
        for node in self.nodes:
            if not isinstance(node, Launch):
                continue
            for position, key in enumerate(value_keys(node) if node.vals else ()):
                name = key[0].removeprefix("=")
                if name:
                    named.setdefault(name, (set(), [], []))[0].add(key)
                if name and name == key[0]:
                    named.setdefault(f"{node.name}.{name}", (set(), [], []))[1].append((node, position))
            for name in {count.name for count in (*node.groups, *node.items) if isinstance(count, Value)}:
                named.setdefault(name, (set(), [], []))[2].append(node)

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        where = ", ".join(device.dname for device in self.devices)
        return f"<Graph of {len(self)} commands on {where}>"


class _Sizes:
    """The sizes that launches have while one replay's changes are gathered: several names may be in one size."""

    def __init__(self, changes: Mapping[tuple[str, int, int], tuple[Any, ...]]) -> None:
        self._changes = changes
        self._given: dict[int, tuple[Any, Any]] = {}

    def of(self, launch: Launch) -> tuple[Any, Any]:
        if launch.index in self._given:
            return self._given[launch.index]
        known = self._changes.get(("sizes", launch.index, 0))
        return (launch.groups, launch.items) if known is None else (known[4], known[5])

    def change(self, launch: Launch, groups: Any, items: Any) -> tuple[Any, ...]:
        self._given[launch.index] = groups, items
        return "sizes", launch.index, 0, launch, groups, items


def _split_size(key: Any, value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...] | None]:
    # (groups, items), of which items may be left out.
    try:
        groups, items = value if len(value) == 2 else (value, None)
        return tuple(groups), None if items is None else tuple(items)
    except TypeError:
        message = f"sizes[{key!r}] must be groups (x, y, z) or (groups, items), three numbers each, not {value!r}"
        raise TypeError(message) from None


def _named(count: Any, name: str) -> bool:
    return isinstance(count, Value) and count.name == name
