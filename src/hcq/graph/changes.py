"""What replays change of a graph: values and sizes, found by name or by place, and inputs.

Ordinary changes of a graph on native devices are one native call (`take`); here are the names it knows, everything that
it declines, and what went wrong. What does not live here: the inputs themselves (inputs), and carrying changes out
(native, queued).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hcq import _native
from hcq.graph.native import value_keys, value_slots
from hcq.graph.nodes import Launch, Node, Value, span_of
from hcq.runtime.later import loaded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hcq.graph.inputs import Inputs
    from hcq.graph.nodes import Span
    from hcq.graph.parts import Parts


class Named(NamedTuple):
    """What a name of values stands for."""

    keys: set[tuple[str, str]]
    """Values that change together, by the key that they share."""
    places: list[tuple[Launch, int]]
    """Values of single launches."""
    sized: list[Launch]
    """Launches that have it in their sizes."""


class ValueChange(NamedTuple):
    """Value `position` of a launch."""

    launch: Launch
    position: int
    value: Any

    @property
    def key(self) -> Any:
        return self.launch.index, self.position

    def send(self, part: Any, dry: bool) -> None:
        if self.launch.index in part.indices:
            part.set_value(self.launch, self.position, self.value, dry)


class NamedChange(NamedTuple):
    """All values of some keys."""

    name: str
    keys: Sequence[tuple[str, str]]
    value: Any

    @property
    def key(self) -> Any:
        return self.name

    def send(self, part: Any, dry: bool) -> None:
        part.set_values(self.keys, self.value, dry)


class SizesChange(NamedTuple):
    """The sizes of a launch."""

    launch: Launch
    groups: Any
    items: Any

    @property
    def key(self) -> Any:
        return self.launch.index

    def send(self, part: Any, dry: bool) -> None:
        if self.launch.index in part.indices:
            part.set_sizes(self.launch, self.groups, self.items, dry)


Change = ValueChange | NamedChange | SizesChange


class Changes:
    """The changes of one graph so far. One thread at a time."""

    def __init__(self, nodes: list[Node], given: Inputs) -> None:
        self._nodes = nodes
        self._inputs = given
        self._batch = _native.GraphChanges(tuple(given.slots), given.by_name, nodes)
        self._names: dict[str, Named] = {}
        self.take = self._batch.take
        """(inputs, vals, sizes): whether commands go in the order of recording from now on; None: nothing changed."""

    def begin(self, side: Parts, others: list[Span]) -> None:
        """Recording is over: changes go to these parts from now on. `others`: memory that is no input's, joined."""
        self._batch.fix(others)
        self.use([side])

    def use(self, made: Sequence[Parts]) -> None:
        """Changes go to all of them: the first is by the order of memory."""
        commands = [parts.commands for parts in made]
        self._batch.use(() if None in commands else tuple(commands), made[0].in_order)

    def change(
        self, made: Sequence[Parts], given: Mapping[str, Any], vals: Mapping[Any, Any], sizes: Mapping[Any, Any]
    ) -> bool:
        """What `take` does, for any devices and arguments. Raises with nothing changed."""
        changes: list[Change] = []
        sized = _Sizes(self)
        chosen = self._inputs.resolve(given, smaller=bool(vals or sizes)) if given else {}
        for key, value in vals.items():
            changes += self._value_changes(key, value, sized)
        for key, value in sizes.items():
            changes += self._size_changes(key, value, sized)
        for change in changes:
            for part in made[0].parts:
                change.send(part, dry=True)
        for slot, buf in chosen.items():
            place = self._inputs.slots[slot]
            if buf is not place.buf or span_of(buf) != place.now:
                for parts in made:
                    parts.set_input(slot, buf)
                place.take(buf, getattr(buf, "_buf", buf), *span_of(buf))
        for change in changes:
            for parts in made:
                for part in parts.parts:
                    change.send(part, dry=False)
            self._batch.note(change.key, *change[-2:] if isinstance(change, SizesChange) else change[-1:])
        return self._batch.look()

    def repeat(self, made: Parts) -> None:
        """Carry all changes out once more, in parts that have none of them."""
        for slot, place in enumerate(self._inputs.slots):
            if place.replaced:
                same = place.by_host or getattr(place.buf, "_buf", place.buf) is place.handle  # else deallocated since
                made.set_input(slot, place.buf if same else place.handle)
        for change in self._so_far():
            for part in made.parts:
                change.send(part, dry=False)

    def vals(self) -> dict[int, list[Any]]:
        """The values of launches that are no longer as captured, by the launch's index."""
        vals: dict[int, list[Any]] = {}
        for change in self._so_far():
            if isinstance(change, ValueChange):
                vals.setdefault(change.launch.index, list(change.launch.vals))[change.position] = change.value
            elif isinstance(change, NamedChange):
                for node in self._launches():
                    for position, key in enumerate(value_keys(node)):
                        if key in change.keys:
                            vals.setdefault(node.index, list(node.vals))[position] = change.value
        return vals

    def sizes(self, launch: Launch) -> tuple[Any, Any]:
        """(groups, items) of a launch as they are now."""
        known = self._batch.record.get(launch.index)
        return (launch.groups, launch.items) if known is None else known[1:]

    def _so_far(self) -> Iterable[Change]:
        # In the order of their coming: several may mean the same value.
        known = [(what, key) for key, what in self._batch.record.items() if what is not None]
        for what, key in sorted(known, key=lambda pair: pair[0][0]):
            if isinstance(key, str):
                yield NamedChange(key, tuple(self._names[key].keys), what[1])
            elif isinstance(key, tuple):
                yield ValueChange(self._launch(key[0]), key[1], what[1])
            else:
                yield SizesChange(self._launch(key), what[1], what[2])

    def _launches(self) -> list[Launch]:
        return [node for node in self._nodes if isinstance(node, Launch) and node.vals]

    def _value_changes(self, key: Any, value: Any, now: _Sizes) -> list[Change]:
        value = _kept(value)
        if not isinstance(key, str):
            if not (isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], int)):
                raise TypeError(f"vals takes names or (command, position) as keys, not {key!r}")
            node, position = key
            launch = self._launch(node)
            if not 0 <= position < len(launch.vals):
                raise IndexError(f"{launch.name} has no value {position}: it has {len(launch.vals)}, counted from 0")
            return [ValueChange(launch, int(position), value)]
        if not self._names:
            self._find_names()
        if key not in self._names:
            raise ValueError(f"no value {key!r} in this graph: it has {', '.join(sorted(self._names)) or 'none'}")
        named = self._names[key]
        changes: list[Change] = [NamedChange(str(key), tuple(named.keys), value)] if named.keys else []
        changes += [ValueChange(launch, position, value) for launch, position in named.places]
        for launch in named.sized:
            groups, items = (
                tuple(Value(key, value) if _is(count, key) else count for count in size) for size in now.of(launch)
            )
            changes.append(now.change(launch, groups, items))
        return changes

    def _size_changes(self, key: Any, value: Any, now: _Sizes) -> list[Change]:
        if isinstance(key, str):
            launches = [node for node in self._nodes if isinstance(node, Launch) and node.name == key]
            if not launches:
                names = sorted({node.name for node in self._nodes if isinstance(node, Launch)})
                raise ValueError(f"no program {key!r} in this graph: it has {', '.join(names) or 'none'}")
            self._batch.sized[str(key)] = tuple(launch.index for launch in launches)
        else:
            launches = [self._launch(key)]
        groups, items = _split_size(key, value)
        return [now.change(launch, groups, items or now.of(launch)[1]) for launch in launches]

    def _launch(self, node: Any) -> Launch:
        try:
            found = node if isinstance(node, Node) else self._nodes[node]
        except TypeError:
            raise TypeError(f"a command of this graph is named by its number, not by {node!r}") from None
        except IndexError:
            raise ValueError(f"no command {node} in this graph: it has {len(self._nodes)}, counted from 0") from None
        if not isinstance(found, Launch):
            raise ValueError(f"{found!r} is no launch")
        return found

    def _find_names(self) -> None:
        named = self._names
        slots = value_slots(self._nodes, len(self._inputs.slots))
        for node in self._nodes:
            if not isinstance(node, Launch):
                continue
            for position, key in enumerate(value_keys(node) if node.vals else ()):
                name = key[0].removeprefix("=")
                if name:
                    named.setdefault(name, Named(set(), [], [])).keys.add(key)
                if name and name == key[0]:
                    named.setdefault(f"{node.name}.{name}", Named(set(), [], [])).places.append((node, position))
            for name in {count.name for count in (*node.groups, *node.items) if isinstance(count, Value)}:
                named.setdefault(name, Named(set(), [], [])).sized.append(node)
        for name, what in named.items():
            if not what.sized:  # those need the sizes as they are
                places = tuple((launch.index, position) for launch, position in what.places)
                self._batch.values[name] = tuple(slots[key] for key in what.keys), places


def _kept(value: Any) -> Any:
    """A value as the graph may keep it: what its owner may change, as a structure, as bytes. What is to be refused
    stays as it is."""
    if isinstance(value, int | float | bytes):
        return value
    numpy = loaded("numpy")
    if numpy is not None:
        if isinstance(value, numpy.ndarray) and not value.ndim:
            value = value[()]
        if isinstance(value, numpy.generic) and not isinstance(value, numpy.void):
            return value
    data, wrong = _native.structure_bytes(value)
    return value if data is None or wrong else data


class _Sizes:
    """The sizes that launches have while one replay's changes are gathered: several names may be in one size."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._given: dict[int, tuple[Any, Any]] = {}

    def of(self, launch: Launch) -> tuple[Any, Any]:
        return self._given.get(launch.index) or self._changes.sizes(launch)

    def change(self, launch: Launch, groups: Any, items: Any) -> Change:
        self._given[launch.index] = groups, items
        return SizesChange(launch, groups, items)


def _split_size(key: Any, value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...] | None]:
    # (groups, items), of which items may be left out.
    try:
        groups, items = value if len(value) == 2 else (value, None)
        return tuple(groups), None if items is None else tuple(items)
    except TypeError:
        message = f"sizes[{key!r}] must be groups (x, y, z) or (groups, items), three numbers each, not {value!r}"
        raise TypeError(message) from None


def _is(count: Any, name: str) -> bool:
    return isinstance(count, Value) and count.name == name
