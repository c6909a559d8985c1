"""The model: what the checks know of a program, and what they make of each event.

It knows queues, signals, allocations and the host by keys that the caller chooses, and nothing of devices, so that it
can be tested against all schedules of small programs. Methods return what they found. One thread at a time.
What does not live here: telling it of real work (observer), raising (checks).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.validation import deadlocks
from hcq.validation.clocks import covers, tick
from hcq.validation.events import HOST, READ, UNKNOWN, WRITE, Access, Deed, Link, Set, Work
from hcq.validation.machine import Machine, Queue, Queued, wait_of
from hcq.validation.memory import Memory, Record
from hcq.validation.report import Finding, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from hcq.validation.events import Command, Site
    from hcq.validation.signals import Signal


class Model:
    """See the module. Commands are given as (command, deed): what, and who asked for it."""

    def __init__(self) -> None:
        self.machine = Machine(self._run)
        self.memory = Memory()

    # Queues

    def deadlock(self, queue: Hashable, commands: Sequence[tuple[Command, Deed]]) -> Finding | None:
        """What would be wrong with submitting these: a cycle of queues that nothing can end."""
        machine = self.machine
        if self._closes_nothing(queue, commands):
            return None
        pending = {key: list(known.pending) for key, known in machine.busy()}
        waits = [wait for command, _ in commands if (wait := wait_of(command)) is not None]
        if not pending and all(machine.signal(wait.signal).highest >= wait.value for wait in waits):
            return None
        mine = pending.setdefault(queue, [])
        mine += [Queued(command, deed, machine.host) for command, deed in commands]
        cycle = deadlocks.find(
            {key: [queued.command for queued in listed] for key, listed in pending.items()},
            lambda key: machine.signal(key).highest,
        )
        if not cycle:
            return None
        lines = []
        for key, stands in cycle.items():
            lines.append(f"  {key} stands at: {pending[key][stands.position].deed}")
            lines += [f"    set by: {pending[setter][at].deed}" for setter, at in stands.setters]
        text = "deadlock: each of these queues waits for what only another of them sets, behind its own wait:\n"
        deeds = tuple(pending[key][stands.position].deed for key, stands in cycle.items())
        return Finding(Kind.DEADLOCK, text + "\n".join(lines), deeds)

    def _closes_nothing(self, queue: Hashable, commands: Sequence[tuple[Command, Deed]]) -> bool:
        """Whether commands behind those of a queue that stands set nothing that a queue stands at: the usual case, and
        told without going through all that is queued."""
        busy = self.machine.busy()
        if all(key != queue for key, _ in busy):
            return False
        heads = {wait.signal for _, known in busy if (wait := wait_of(known.pending[0].command)) is not None}
        return not any(isinstance(command, (Set, Link)) and command.signal in heads for command, _ in commands)

    def standing(self) -> str:
        """In words: the queues that stand at a wait, who asked for it, and who is to end it. Empty where none does."""
        lines = []
        busy = self.machine.busy()
        for key, queue in busy:
            wait = wait_of(queue.pending[0].command)
            if wait is None:
                continue
            lines.append(f"  {key} stands at: {queue.pending[0].deed}")
            setters = [
                queued.deed
                for _, other in busy
                if other is not queue  # what is behind a wait can't end it
                for queued in other.pending
                if isinstance(queued.command, (Set, Link))
                and queued.command.signal == wait.signal
                and queued.command.value >= wait.value
            ]
            lines += [f"    to be ended by: {deed}" for deed in setters[:4]]
            if not setters:
                lines.append("    nothing that is queued ends it: Python alone can")
        return "\n".join(lines)

    def submit(self, queue: Hashable, commands: Sequence[tuple[Command, Deed]]) -> list[Finding]:
        """Commands are queued behind those of `queue`."""
        found: list[Finding] = []
        queued = []
        for command, deed in commands:
            regions = []
            work = work_of(command)
            for access in work.accesses if work is not None else ():
                region, finding = self.memory.resolve(access, deed)
                regions.append(region)
                if finding is not None:
                    found.append(finding)
            queued.append(Queued(command, deed, self.machine.host, tuple(regions)))
        return found + self.machine.submit(queue, queued)

    def finish(self, queues: Sequence[Hashable]) -> list[Finding]:
        """The host has seen that all that was submitted to these queues is over."""
        return self.machine.finish(queues)

    def retire(self, queues: Sequence[Hashable]) -> list[Finding]:
        """These queues are gone with their devices, and what they held with them."""
        found = self.machine.finish(queues)
        for key in queues:
            self.machine.queues.pop(key, None)
        return found

    # Signals

    def signal(self, key: Hashable, name: str, value: Callable[[], int]) -> Signal:
        """The signal of that key; `value` reads what it is now, where it is new."""
        known = self.machine.signals.get(key)
        return self.machine.signal(key, name, value()) if known is None else known

    def set(self, signal: Hashable, value: int, deed: Deed) -> list[Finding]:
        """The host sets a signal."""
        return self.machine.set_by_host(signal, value, deed)

    def waited(self, signal: Hashable, value: int) -> None:
        """A wait of the host has ended."""
        before = self.machine.signal(signal).reaching(value)
        if before is not None:
            self.machine.seen_by_host(before)
            self.machine.settle()

    def saw(self, signal: Hashable, value: int) -> None:
        """The host has read a signal's value."""
        self.machine.seen_by_host(self.machine.signal(signal).showing(value))

    # Memory

    def allocate(
        self,
        number: int,
        space: Hashable,
        first: int,
        last: int,
        name: str,
        site: Site | None,
        reached: Callable[[Hashable, int], bool] = lambda signal, value: True,
        owner: object = None,
        holder: int | None = None,
    ) -> None:
        """An allocation. `reached` tells whether a signal is at a value, truly: the allocator may know so too."""
        is_over = lambda record: self._is_over(record, reached)  # noqa: E731
        self.memory.allocate(number, space, first, last, name, site, is_over, holder).owner = owner

    def free(self, number: int, site: Site | None) -> None:
        """The end of an allocation. Queued work may go on using it; what is queued from now on may not."""
        self.memory.free(number, site)

    def share(self, number: int) -> None:
        """The host may write an allocation unseen from now on."""
        region = self.memory.region(number)
        if region is not None:
            region.written = None

    def touch(self, access: Access, deed: Deed) -> list[Finding]:
        """The host reads or writes memory, now."""
        machine = self.machine
        region = self.memory.find(access.space, access.first)
        found = []
        if access.kind & READ and (finding := self.memory.unwritten(access, region, deed)) is not None:
            found.append(finding)
        machine.host = tick(machine.host, HOST)
        found += self.memory.touch(access, region, HOST, machine.host, machine.floor(), deed)
        if access.kind & WRITE:
            self.memory.write(region, access.first, access.last)
        return found

    def _run(self, queue: Queue, queued: Queued) -> list[Finding]:
        work, found, floor = work_of(queued.command), [], self.machine.floor()
        if work is None:
            return []
        for access, region in zip(work.accesses, queued.regions, strict=True):
            found += self.memory.touch(access, region, queue.key, queue.clock, floor, queued.deed)
            if access.kind == READ and not work.moves:
                finding = self.memory.unwritten(access, region, queued.deed)
                found += [finding] if finding is not None else []
        if work.moves and len(work.accesses) == 2:
            (src, dest), (source, region) = work.accesses, queued.regions
            self.memory.move(src, source, dest, region)
        else:
            for access, region in zip(work.accesses, queued.regions, strict=True):
                if access.kind & (WRITE | UNKNOWN):
                    self.memory.write(region, access.first, access.last)
        return found

    def _is_over(self, record: Record, reached: Callable[[Hashable, int], bool]) -> bool:
        """Whether work has ended: the host knows, or the signal set after it says so. Yes where nobody can tell."""
        machine = self.machine
        if covers(machine.host, record.agent, record.time):
            return True
        queue = machine.queues.get(record.agent)
        for time, signal, value in queue.settings if queue is not None else ():
            if time >= record.time:
                return reached(signal, value)
        return True


def work_of(command: Command) -> Work | None:
    """What a command does to memory."""
    if isinstance(command, Link):
        return command.work
    return command if isinstance(command, Work) else None
