"""Named inputs of a graph: which arguments of which commands are theirs, and what they are now.

What does not live here: putting new ones into commands (native, queued).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

from hcq import _native
from hcq.graph.nodes import Copy, HostCopy, Launch, Node, span_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hcq.graph.nodes import Span


class Use(NamedTuple):
    """Argument `which` of a command is `offset` bytes into input `slot` (of a copy: 0 is the destination)."""

    which: int
    slot: int
    offset: int


class Seen(NamedTuple):
    """What those who watch are told of a replay: its commands, and the inputs that say where memory is now."""

    nodes: Sequence[Node]
    inputs: Inputs


class Inputs:
    """All inputs of a graph, found by name and by address."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.slots: list[_native.GraphInput] = []
        self._names: list[list[str]] = []  # by slot
        self.by_name: dict[str, int] = {}
        by_span: dict[Span, int] = {}
        for name, buf in given.items():
            if name in ("vals", "sizes"):
                raise ValueError(f"an input can't be called {name!r}: replay has an argument of that name")
            if hasattr(buf, "ensure_allocated"):
                buf.ensure_allocated()
            elif not hasattr(buf, "va_addr"):
                raise TypeError(f"input {name!r} must be a Buffer or a handle, not {type(buf).__name__}")
            slot = by_span.setdefault(span_of(buf), len(self.slots))
            if slot == len(self.slots):
                device = getattr(buf, "device", None)
                self.slots.append(_native.GraphInput(buf, getattr(buf, "_buf", buf), device, *span_of(buf)))
                self._names.append([])
            self._names[slot].append(name)
            self.slots[slot].names = len(self._names[slot])
            self.by_name[name] = slot
        order = sorted(range(len(self.slots)), key=lambda slot: self.slots[slot].captured)
        self._exact = by_span
        self._order = order
        self._starts = [self.slots[slot].captured[0] for slot in order]
        self._reach: list[int] = []  # the furthest end of those up to here
        for slot in order:
            self._reach.append(max(self.slots[slot].captured[1], self._reach[-1] if self._reach else 0))

    def find(self, span: Span) -> tuple[int, int] | None:
        """(slot, offset) of the smallest input that has all of these bytes."""
        slot = self._exact.get(span)
        if slot is not None:
            return slot, 0
        best = None
        index = bisect_right(self._starts, span[0]) - 1
        while index >= 0 and self._reach[index] >= span[1]:
            slot = self._order[index]
            start, end = self.slots[slot].captured
            if end >= span[1] and (best is None or end - start < self.slots[best].nbytes):
                best = slot
            index -= 1
        return None if best is None else (best, span[0] - self.slots[best].captured[0])

    def uses(self, node: Node) -> list[Use]:
        """What a command uses of inputs."""
        if not self.slots:
            return []
        spans: Iterable[Span]
        if isinstance(node, Launch):
            spans = node.spans
        elif isinstance(node, Copy):
            spans = [(at, at + node.nbytes) for at in (node.dest_at, node.src_at)]
        elif isinstance(node, HostCopy):
            spans = [span_of(node.dest), span_of(node.src)]
        else:
            return []
        found = [(index, self.find(span)) for index, span in enumerate(spans)]
        uses = [Use(index, *where) for index, where in found if where is not None]
        if isinstance(node, Copy | HostCopy):
            size = node.src.nbytes if isinstance(node, HostCopy) else node.nbytes
            for use in uses:
                self.slots[use.slot].copied = max(self.slots[use.slot].copied, use.offset + size)
                self.slots[use.slot].by_host = self.slots[use.slot].by_host or isinstance(node, HostCopy)
        return uses

    def moved(self, span: Span) -> Span:
        """Where bytes are now that were captured at `span`: those of an input have moved with it."""
        found = self.find(span) if self.slots else None
        if found is None:
            return span
        start = self.slots[found[0]].now[0] + found[1]
        return start, start + span[1] - span[0]

    def resolve(self, given: Mapping[str, Any], smaller: bool) -> dict[int, Any]:
        """Which slots get which buffers; raises for unknown names and what can't take the place.

        `smaller`: may have fewer bytes than what was captured, since sizes or values change along.
        """
        chosen: dict[int, Any] = {}
        for name, buf in given.items():
            slot = self.by_name.get(name)
            if slot is None:
                known = ", ".join(sorted(self.by_name)) or "none"
                raise TypeError(f"this graph has no input {name!r}; it has {known} (hcq.capture(inputs={{...}}))")
            place = self.slots[slot]
            if slot in chosen and span_of(chosen[slot]) != span_of(buf):
                raise ValueError(
                    f"{' and '.join(self._names[slot])} were one buffer when captured: they get one here too"
                )
            if hasattr(buf, "ensure_allocated"):
                if place.device is not None and buf.device != place.device:
                    raise ValueError(
                        f"input {name!r} was captured on {place.device}, and this buffer is on {buf.device}"
                    )
                if not buf.is_allocated():
                    raise ValueError(f"the buffer for input {name!r} is not allocated: call ensure_allocated() first")
            elif place.by_host:
                raise TypeError(f"input {name!r} is copied by the host: it must be a Buffer, not {type(buf).__name__}")
            elif not hasattr(buf, "va_addr"):
                raise TypeError(f"input {name!r} must be a Buffer or a handle, not {type(buf).__name__}")
            was, now = (getattr(handle, "image", None) for handle in (place.handle, getattr(buf, "_buf", buf)))
            if was != now:  # a kernel takes one or the other, and copies read an image's pixels
                was, now = (what or "plain memory" for what in (was, now))
                raise ValueError(f"input {name!r} was captured with {was}, and this buffer is {now}")
            start, end = span_of(buf)
            least = place.copied if smaller else place.nbytes
            if end - start < least:
                raise ValueError(
                    f"input {name!r} was captured with {place.nbytes} bytes, of which the graph uses {least}, and this "
                    f"buffer has {end - start}; fewer go only together with new vals or sizes"
                )
            chosen[slot] = buf
        return chosen
