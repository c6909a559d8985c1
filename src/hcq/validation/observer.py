"""From the watch point to the model: each event of the runtime, in the model's words.

What does not live here: what is wrong with it (model), allocations (allocations), red zones (redzones), raising
(switch).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from hcq.queues.device import HCQCompiled
from hcq.runtime import watch
from hcq.validation import sites, wraps
from hcq.validation.allocations import Allocations
from hcq.validation.events import READ, WRITE, Deed, Link, Set, Wait, Work
from hcq.validation.hosts import HostAccesses
from hcq.validation.lanes import Book, Lanes, key_of
from hcq.validation.model import Model
from hcq.validation.ranges import Ranges, space_of
from hcq.validation.report import Finding, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from hcq.validation.events import Command, Site
    from hcq.validation.lanes import LaneKey

_AHEAD = 2**16  # values that a timeline may have before its queues are heard of


class Watcher(watch.Observer):
    """Told of everything. `report` gets what is found, and raises where that is to be raised."""

    def __init__(self, report: Callable[[Sequence[Finding]], None]) -> None:
        self.model = Model()
        self._report = report
        self._book = Book(self.model)
        self._allocations = Allocations(self.model, self._book)
        self._ranges = Ranges(self.model.memory, self._allocations.adopt)
        self._promised: set[tuple[Hashable, int]] = set()  # what queues of drivers in Python will set
        self._late: list[Finding] = []
        self._lock = threading.RLock()
        self._inside = False
        self._host = HostAccesses(self.model, self._ranges)

    # Work

    def submit(self, device: Any, queue: Any) -> bool:
        """Before a queue is submitted: it is refused where it closes a cycle of waits."""
        with self._lock:
            if not self._inside:
                lanes = self._book.lanes(device, _settings(queue))
                commands = self._commands(device, queue, sites.here())
                if not lanes.native:
                    self._promised |= {(c.signal, c.value) for c, _ in commands if isinstance(c, Set)}
                finding = self.model.deadlock(self._lane_of(lanes, queue), commands)
                found = [finding] if finding is not None else []
                self._report(found + wraps.wrong(self._book, self.model, commands))
        return False

    def submitted(self, device: Any, queue: Any) -> None:
        site = sites.here()

        def event() -> list[Finding]:
            lanes = self._book.lanes(device, _settings(queue))
            commands = self._commands(device, queue, site)
            if not lanes.native and queue._submitted is not None:
                commands.append(self._own_mark(lanes, queue._submitted, site))
            return self.model.submit(self._lane_of(lanes, queue), commands)

        self._do(event)

    def launched(
        self, device: Any, program: Any, bufs: Any, vals: Any, groups: Any, items: Any, signal: Any, value: int
    ) -> None:
        site = sites.here()
        self._do(
            lambda: self._link(
                device, "compute queue", signal, value, site, lambda: self._ranges.launch(device, program, bufs)
            )
        )

    def copied(self, device: Any, dest: int, src: int, nbytes: int, signal: Any, value: int) -> None:
        site = sites.here()
        self._do(
            lambda: self._link(
                device, "copy queue", signal, value, site, lambda: self._ranges.copy(device, dest, src, nbytes)
            )
        )

    def filled(self, program: Any, bufs: Any, vals: Any, address: int) -> None:
        self._do(lambda: self._ranges.filled(program, bufs, address))

    def stream_wait(self, stream: Any, signal: Any, value: int) -> None:
        site = sites.here()

        def event() -> list[Finding]:
            lanes = self._book.lanes(stream.device)
            if lanes.native:
                key = self._stream(lanes, stream.position[0])
                return self.model.submit(key, [self._waiting(signal, value, "stream.wait", str(key), site)])
            lanes.stream_waits.setdefault(key_of(stream.signal), []).append((signal, value))
            return []

        self._do(event)

    def replayed(self, graph: Any, pairs: Any) -> None:
        site = sites.here()

        def event() -> list[Finding]:
            first, *others = (self._book.lanes(device) for device, _, _ in pairs)
            lane = first.key("graph replays" + "".join(f", with {other.name}" for other in others))
            for other in others:
                other.queues.add(lane)  # it is over, all of it, where any of its devices is
            keys = [(self._book.signal(signal, value - 1), value) for _, signal, value in pairs]
            whole = Deed("a graph's replay", str(lane), site)
            commands: list[tuple[Command, Deed]] = [(Wait(key, value - 1), whole) for key, value in keys]
            for node in graph.nodes:
                work = self._ranges.node(graph, node)
                deed = Deed(f"{work.name} of a graph", str(lane), site)
                self._allocations.note(work, deed)
                commands.append((work, deed))
            return self.model.submit(lane, [*commands, *((Set(key, value), whole) for key, value in keys)])

        self._do(event)

    # The host

    def waited(self, signal: Any, value: int) -> None:
        def event() -> None:
            key = self._book.known(signal)
            if key is not None:
                self.model.waited(key, value)

        self._do(event)

    def read_signal(self, signal: Any, value: int) -> None:
        def event() -> None:
            key = self._book.known(signal)
            if key is not None:
                self.model.saw(key, value)

        self._do(event)

    def wait(self, signal: Any, value: int) -> None:
        site = sites.here()

        def event() -> list[Finding]:
            key = self._book.known(signal)
            wait = Deed(f"a wait for {value}", "the host", site)
            if key is None:
                return []
            found = wraps.wrong(self._book, self.model, [(Wait(key, value), wait)])
            return found + self.model.machine.signals[key].lost(value, wait)

        self._do(event)

    def set_signal(self, signal: Any, value: int) -> None:
        site = sites.here()

        def event() -> list[Finding]:
            key = self._book.known(signal)
            if key is None:
                return []
            # A driver's thread does what a queue was told to, value by value; further ahead only the user goes.
            ahead = value > self.model.machine.signals[key].highest + _AHEAD
            if (key, value) in self._promised or (self._book.is_drivers(key) and not ahead):
                self._promised.discard((key, value))
                return []
            deed = Deed(f"signal.value = {value}", "the host", site)
            found = self.model.set(key, value, deed)
            # What the signal lets go on is not this call's fault, and must go on: it is told at the next one.
            own = [finding for finding in found if finding.kind is Kind.SIGNAL and deed in finding.deeds]
            self._late += [finding for finding in found if finding not in own]
            return own

        self._do(event, deferred=False, quietly=True)

    def synchronized(self, device: Any) -> None:
        def event() -> list[Finding]:
            if not isinstance(device, HCQCompiled):
                return []
            found = self.model.finish(list(self._book.lanes(device).queues))
            return found + self._host.look()

        self._do(event, deferred=False)

    def host_read(self, buf: Any, offset: int, nbytes: int) -> None:
        self._host_access(buf, offset, nbytes, READ)

    def host_write(self, buf: Any, offset: int, nbytes: int) -> None:
        self._host_access(buf, offset, nbytes, WRITE)

    def exported(self, buf: Any) -> None:
        def event() -> None:
            region = self._allocations.find(getattr(buf, "_buf", buf))
            if region is not None:
                self.model.share(region.number)

        self._do(event)

    def explain(self) -> str:
        self._host.drop()
        with self._lock:
            return "" if self._inside else self.model.standing()

    # Memory

    def opened(self, device: Any) -> None:
        if isinstance(device, HCQCompiled):
            self._do(lambda: self._seen(device))

    def allocated(self, device: Any, handle: Any, size: int, options: Any) -> None:
        if not hasattr(handle, "va_addr") or not isinstance(device, HCQCompiled):
            return
        site = sites.here()

        def event() -> None:
            first, name = handle.va_addr, f"memory of {size} bytes"
            self._allocations.make(device, space_of(device), first, first + size, name, site, id(handle))

        self._do(event)

    def freed(self, device: Any, handle: Any) -> None:
        if hasattr(handle, "va_addr") and device is not None:
            self._allocations.given_back(device, handle, sites.here())

    def taken(self, device: Any, first: int, last: int) -> None:
        """A driver's `_alloc` was called by itself: memory there is none that was known."""

        def event() -> None:
            self.model.memory.forget(space_of(device), first, last)

        self._do(event)

    def returned(self, device: Any, address: int) -> None:
        """Memory is the driver's again: others may get it who tell nobody. From finalizers too."""
        with self._lock:
            if not self._inside:
                self._allocations.end()
            region = self.model.memory.find(space_of(device), address)
            if region is not None and region.first == address and region.is_free:
                self.model.memory.forget(region.space, region.first, region.last)

    def untold(self) -> list[Finding]:
        """What was found and waits for an event at which it can be told: this was the last one."""
        with self._lock:
            found, self._late = [*self._late, *self._host.look()], []
        return found

    def find(self, device: Any, address: int) -> Any:
        """The allocation at an address, for red zones."""
        return self.model.memory.find(space_of(device), address)

    def given(self, device: Any) -> list[int]:
        """Where the allocations of a device lie that commands could write since red zones were looked at."""
        with self._lock:
            return self._allocations.written(device)

    def writers(self, number: int) -> tuple[Deed, ...]:
        """Who could write an allocation since then, the last ones. They are told once."""
        return self._allocations.writers(number)  # without the lock: red zones ask while they hold theirs

    def forget_writers(self, device: Any) -> None:
        """Red zones of a device were looked at: who had its memory until now is of no more use."""
        with self._lock:
            self._allocations.forget_writers(device)

    # Helpers

    def _seen(self, device: Any) -> list[Finding]:
        gone = self._book.gone()
        self._book.lanes(device)
        found = self.model.retire([key for lanes in gone for key in lanes.queues])
        for lanes in gone:
            self.model.memory.forget_of(lanes)
        return found

    def _do(self, event: Callable[[], Sequence[Finding] | None], deferred: bool = True, quietly: bool = False) -> None:
        with self._lock:
            if self._inside:
                return  # a finalizer, in the middle of another event
            self._inside = True
            try:
                self._book.sweep()
                self._allocations.end()
                found = self._host.look() if deferred else []
                if self._late and not quietly:
                    found += self._late
                    self._late = []
                found += event() or []
            finally:
                self._inside = False
            self._report(found)

    def _link(
        self, device: Any, queue: str, signal: Any, value: int, site: Site | None, make: Callable[[], Work]
    ) -> list[Finding]:
        lanes, work = self._book.lanes(device, ((signal, value),)), make()
        key = self._book.signal(signal, value - 1)
        lane = lanes.key(queue) if key in lanes.timelines or not lanes.native else self._stream(lanes, signal)
        deed = Deed(work.name, str(lane), site)
        self._allocations.note(work, deed)
        commands: list[tuple[Command, Deed]] = [
            self._waiting(*pair, "stream.wait", str(lane), site) for pair in lanes.stream_waits.pop(key, ())
        ]
        commands.append((Link(key, value, work), deed))
        if not lanes.native:
            lanes.marks.add(key)
            hardware = device.lane(device.hw_compute_queue_t)
            commands.append(self._own_mark(lanes, (hardware.signal, hardware.submitted), site))
        return self.model.submit(lane, commands)

    def _commands(self, device: Any, queue: Any, site: Site | None) -> list[tuple[Command, Deed]]:
        where = str(self._lane_of(self._book.lanes(device), queue))
        made: list[tuple[Command, Deed]] = []
        for name, *args in watch.commands(queue):
            if name == "wait":
                made.append(self._waiting(args[0], args[1], "wait", where, site))
            elif name == "signal":
                key = self._book.signal(args[0])
                made.append((Set(key, args[1]), Deed(f"signal({self._name(key)}, {args[1]})", where, site)))
            elif name in ("exec", "copy"):
                work = (
                    self._ranges.exec(device, args[0], args[1], args[2])
                    if name == "exec"
                    else self._ranges.copy(device, *args)
                )
                deed = Deed(work.name, where, site)
                self._allocations.note(work, deed)
                made.append((work, deed))
        return made

    def _waiting(self, signal: Any, value: int, verb: str, where: str, site: Site | None) -> tuple[Command, Deed]:
        key = self._book.signal(signal)
        return Wait(key, value), Deed(f"{verb}({self._name(key)}, {value})", where, site)

    def _own_mark(self, lanes: Lanes, pair: tuple[Any, int], site: Site | None) -> tuple[Command, Deed]:
        """What a lane of a driver in Python sets behind each submit (hcq.queues.lane)."""
        signal, number = pair
        key = self._book.signal(signal, number - 1)
        lanes.marks.add(key)
        return Set(key, number), Deed("the end of the submit", "its queue", site)

    def _lane_of(self, lanes: Lanes, queue: Any) -> LaneKey:
        return lanes.key("copy queue" if queue.lane_name == "COPY" else "compute queue")

    def _stream(self, lanes: Lanes, signal: Any) -> LaneKey:
        return lanes.key(f"stream of {self._name(self._book.signal(signal))}")

    def _name(self, key: Hashable) -> str:
        return self.model.machine.signals[key].name

    def _host_access(self, buf: Any, offset: int, nbytes: int, kind: int) -> None:
        site = sites.here()
        with self._lock:
            if self._inside:
                return
            self._allocations.end()
            region = self._allocations.find(getattr(buf, "_buf", buf))
            device = region.owner.device() if region is not None else None
            if device is not None:
                self._host.tell(device, buf, offset, nbytes, kind, site)


def _settings(queue: Any) -> list[tuple[Any, int]]:
    """The (signal, value) pairs that a queue sets."""
    return [(args[0], args[1]) for name, *args in watch.commands(queue) if name == "signal"]
