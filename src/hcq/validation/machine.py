"""The queues as the model sees them: commands that have not run yet, run here as early as signals allow.

Running one means: its clock is made, and who is told of it (`Machine.run`) looks for conflicts. Since clocks say who
comes after whom whatever the order in which commands are looked at, one order is enough. What does not live here: what
is wrong with what ran (model), and signals' own rules (signals).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from hcq.validation.clocks import EMPTY, join, meet, tick
from hcq.validation.events import HOST, Deed, Link, Set, Wait, Work
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
        self._busy: dict[Hashable, Queue] = {}  # those with commands that have not run
        self._live: dict[Hashable, Signal] = {}  # those that something is remembered of

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
        queue = self.queue(key)
        pending = queue.pending
        self._busy[key] = queue
        for one in queued:
            pending.insert(_place(pending, one.command), one)
        return self.advance()

    def advance(self) -> list[Finding]:
        """Run commands until every queue is empty or stands at a wait."""
        found: list[Finding] = []
        moving = True
        while moving:
            moving = False
            for key, queue in list(self._busy.items()):
                while queue.pending and self._step(queue, found):
                    moving = True
                if not queue.pending:
                    del self._busy[key]
        return found

    def busy(self) -> list[tuple[Hashable, Queue]]:
        """The queues with commands that have not run."""
        return [(key, queue) for key, queue in self._busy.items() if queue.pending]

    def floor(self) -> Clock:
        """What everything that is still to come comes after."""
        heads = [queue.pending[0].clock for queue in self._busy.values() if queue.pending]
        return meet([self.host, *heads]) if heads else self.host

    def standing(self) -> dict[Hashable, Wait]:
        """The queues that stand at a wait, and at which."""
        heads = {key: queue.pending[0].command for key, queue in self._busy.items() if queue.pending}
        return {key: wait for key, command in heads.items() if (wait := wait_of(command)) is not None}

    def set_by_host(self, key: Hashable, value: int, deed: Deed) -> list[Finding]:
        """The host sets a signal."""
        self.host = tick(self.host, HOST)
        self._live[key] = self.signal(key)
        found = self.signal(key).set(value, self.host, self.host, deed)
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
                    clock = join(queue.clock, stood.clock)
                    for other in keys:  # what ended the wait was not told of yet: it may come after any of them
                        clock = join(clock, self.queue(other).clock)
                    queue.clock = tick(clock, key)
        found += self.advance()
        for key in keys:
            self.seen_by_host(self.queue(key).clock)
        self.settle()
        return found

    def in_use(self) -> set[Hashable]:
        """The signals that something is still remembered of."""
        named = {
            command.signal
            for queue in self._busy.values()
            for queued in queue.pending
            if not isinstance(command := queued.command, Work)
        }
        return named | self._live.keys()

    def settle(self) -> None:
        """Forget what everything still to come comes after anyway."""
        floor = self.floor()
        for key, signal in list(self._live.items()):
            signal.settle(floor)
            if not signal.in_use:
                del self._live[key]

    def _step(self, queue: Queue, found: list[Finding]) -> bool:
        queued = queue.pending[0]
        command = queued.command
        clock = join(queue.clock, queued.clock)
        wait = wait_of(command)
        if wait is not None:
            signal = self.signal(wait.signal)
            before = signal.reaching(wait.value)
            if before is None:
                return False
            self._live[wait.signal] = signal
            queue.clock = clock = tick(join(clock, before), queue.key)
            found += signal.use(queue.key, wait.value, clock[queue.key], queued.deed)
        queue.pending.popleft()
        if isinstance(command, (Work, Link)):
            queue.clock = clock = tick(clock, queue.key)
            found += self._run(queue, queued)
        if isinstance(command, (Set, Link)):
            queue.clock = tick(clock, queue.key)
            queue.settings.append((queue.clock[queue.key], command.signal, command.value))
            signal = self._live[command.signal] = self.signal(command.signal)
            # Timelines only go up: a launch that a thread is told of after another one has waited past it is just late.
            if isinstance(command, Set) or command.value > signal.highest:
                found += signal.set(command.value, queue.clock, queued.clock, queued.deed)
        return True


def wait_of(command: Command) -> Wait | None:
    """What a command waits for before anything else."""
    if isinstance(command, Link):
        return Wait(command.signal, command.value - 1)
    return command if isinstance(command, Wait) else None


def _place(pending: deque[Queued], command: Command) -> int:
    at = len(pending)
    while isinstance(command, Link) and at:
        before = pending[at - 1].command
        if not isinstance(before, Link) or before.signal != command.signal or before.value < command.value:
            break
        at -= 1
    return at
