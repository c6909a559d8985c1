"""The queues as the model sees them: commands that have not run yet, run here as early as signals allow.

Running one means: its clock is made, and who is told of it (`Machine.run`) looks for conflicts. Since clocks say who
comes after whom whatever the order in which commands are looked at, one order is enough. What does not live here: what
is wrong with what ran (model), and signals' own rules (signals).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from hcq.validation.clocks import EMPTY, join, meet, tick
from hcq.validation.events import HOST, Deed, Set, Wait, Work
from hcq.validation.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from hcq.validation.clocks import Clock
    from hcq.validation.events import Command
    from hcq.validation.memory import Region
    from hcq.validation.report import Finding


class Queued(NamedTuple):
    """A command on a queue: what was known when it was submitted, and the allocations its accesses mean."""

    command: Command
    deed: Deed
    clock: Clock
    regions: tuple[Region | None, ...] = ()


class Queue:
    """One hardware queue. Its commands run in order."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.pending: deque[Queued] = deque()
        self.clock: Clock = EMPTY
        self.settings: deque[tuple[int, Hashable, int]] = deque(maxlen=256)
        """(time, signal, value) of its latest set commands that ran."""


class Machine:
    """Queues, signals, and the host, which is one more agent. `run` is called for work whose turn has come."""

    def __init__(self, run: Callable[[Queue, Queued], list[Finding]]) -> None:
        self.queues: dict[Hashable, Queue] = {}
        self.signals: dict[Hashable, Signal] = {}
        self.host: Clock = EMPTY
        self._run = run

    def signal(self, key: Hashable, name: str = "", base: int = 0) -> Signal:
        """The signal of that key; made with its name and the value it has now where it is new."""
        known = self.signals.get(key)
        if known is None:
            known = self.signals[key] = Signal(name or f"signal {key}", base)
        return known

    def queue(self, key: Hashable) -> Queue:
        """The queue of that key, made where it is new."""
        known = self.queues.get(key)
        if known is None:
            known = self.queues[key] = Queue(key)
        return known

    def submit(self, key: Hashable, queued: Iterable[Queued]) -> list[Finding]:
        """Put commands behind those of a queue, and run what can run."""
        self.queue(key).pending.extend(queued)
        return self.advance()

    def advance(self) -> list[Finding]:
        """Run commands until every queue is empty or stands at a wait."""
        found: list[Finding] = []
        moving = True
        while moving:
            moving = False
            for queue in list(self.queues.values()):
                while queue.pending and self._step(queue, found):
                    moving = True
        return found

    def floor(self) -> Clock:
        """What everything that is still to come comes after."""
        heads = [queued.clock for queue in self.queues.values() for queued in queue.pending]
        return meet([self.host, *heads]) if heads else self.host

    def standing(self) -> dict[Hashable, Wait]:
        """The queues that stand at a wait, and at which."""
        heads = {key: queue.pending[0].command for key, queue in self.queues.items() if queue.pending}
        return {key: command for key, command in heads.items() if isinstance(command, Wait)}

    def set_by_host(self, key: Hashable, value: int, deed: Deed) -> list[Finding]:
        """The host sets a signal."""
        self.host = tick(self.host, HOST)
        found = self.signal(key).set(value, self.host, deed)
        return found + self.advance()

    def seen_by_host(self, clock: Clock) -> None:
        """The host has come to know of what is before `clock`."""
        self.host = join(self.host, clock)

    def finish(self, keys: Sequence[Hashable]) -> list[Finding]:
        """The host has seen that these queues are empty: what still stands there was let through unseen."""
        found: list[Finding] = []
        for key in keys:
            queue = self.queue(key)
            while queue.pending:
                if not self._step(queue, found):
                    stood = queue.pending.popleft()
                    queue.clock = tick(join(queue.clock, stood.clock), key)
        found += self.advance()
        for key in keys:
            self.seen_by_host(self.queue(key).clock)
        self.settle()
        return found

    def settle(self) -> None:
        """Forget what everything still to come comes after anyway."""
        floor = self.floor()
        for signal in self.signals.values():
            signal.settle(floor)

    def _step(self, queue: Queue, found: list[Finding]) -> bool:
        queued = queue.pending[0]
        command = queued.command
        clock = join(queue.clock, queued.clock)
        if isinstance(command, Wait):
            signal = self.signal(command.signal)
            before = signal.reaching(command.value)
            if before is None:
                return False
            queue.clock = tick(join(clock, before), queue.key)
            signal.use(queue.key, command.value, queue.clock[queue.key], queued.deed)
        elif isinstance(command, Set):
            queue.clock = tick(clock, queue.key)
            queue.settings.append((queue.clock[queue.key], command.signal, command.value))
            found += self.signal(command.signal).set(command.value, queue.clock, queued.deed)
        elif isinstance(command, Work):
            queue.clock = tick(clock, queue.key)
            queue.pending.popleft()
            found += self._run(queue, queued)
            return True
        queue.pending.popleft()
        return True
