"""Cycles of queues: each stands at a wait that only a command behind another one's wait can end.

Values alone decide that, so no clocks are needed, and it can be asked before a submit is queued. What does not live
here: waits that Python can still end; those are named when their deadline passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hcq.validation.events import Link, Set, Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from hcq.validation.events import Command


class Standing(NamedTuple):
    """A queue of a cycle: the wait it stands at, by position in its commands, and who could end it."""

    position: int
    wait: Wait
    setters: tuple[tuple[Hashable, int], ...]
    """(queue, position) of the commands that would."""


def find(
    pending: Mapping[Hashable, Sequence[Command]], value_of: Callable[[Hashable], int]
) -> dict[Hashable, Standing]:
    """The queues that can never go on, each with its wait; empty where there is no cycle.

    A wait is taken to be for the command that sets just its value, or for a later one behind that; where all that is
    queued sets more, the one that is meant has yet to come.

    `pending` are the commands that have not run, of every queue; `value_of` a signal's highest value until now.
    """
    at = dict.fromkeys(pending, 0)
    values: dict[Hashable, int] = {}
    moving = True
    while moving:
        moving = False
        for queue, commands in pending.items():
            position = at[queue]
            while position < len(commands):
                command = commands[position]
                if isinstance(command, Link):
                    if _stands(Wait(command.signal, command.value - 1), values, value_of):
                        break
                    values[command.signal] = max(command.value, values.get(command.signal, 0))
                elif isinstance(command, Set):
                    values[command.signal] = max(command.value, values.get(command.signal, value_of(command.signal)))
                elif _stands(command, values, value_of):
                    break
                position += 1
            moving |= position != at[queue]
            at[queue] = position
    standing = {}
    for queue, position in at.items():
        wait = pending[queue][position] if position < len(pending[queue]) else None
        if isinstance(wait, Link):
            wait = Wait(wait.signal, wait.value - 1)
        if isinstance(wait, Wait):
            setters = tuple(_setters(pending, at, wait))
            # Without one that sets just that value, who is meant may yet be submitted, or is Python: signals go up.
            if any(getattr(pending[setter][index], "value", None) == wait.value for setter, index in setters):
                standing[queue] = Standing(position, wait, setters)
    # A queue that some setter outside can set free is in no cycle; nor is who waits for that queue.
    while True:
        free = [queue for queue, s in standing.items() if any(setter not in standing for setter, _ in s.setters)]
        if not free:
            return standing
        for queue in free:
            del standing[queue]


def _stands(command: Command, values: Mapping[Hashable, int], value_of: Callable[[Hashable], int]) -> bool:
    if not isinstance(command, Wait):
        return False
    return values.get(command.signal, value_of(command.signal)) < command.value


def _setters(
    pending: Mapping[Hashable, Sequence[Command]], at: Mapping[Hashable, int], wait: Wait
) -> list[tuple[Hashable, int]]:
    return [
        (queue, position)
        for queue, commands in pending.items()
        for position in range(at[queue], len(commands))
        if isinstance(command := commands[position], (Set, Link))
        and command.signal == wait.signal
        and command.value >= wait.value
    ]
