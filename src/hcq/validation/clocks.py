"""Vector clocks: how far of each agent's work something is known to come after.

A clock is a dict from agent to a count; an agent that is not in it counts as 0. Clocks are never changed once made, so
that they can be shared. What does not live here: who ticks when (machine).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    Clock = Mapping[Hashable, int]

EMPTY: Clock = {}


def join(a: Clock, b: Clock) -> Clock:
    """After both."""
    if a is b or not b:
        return a
    if not a:
        return b
    joined = dict(a)
    for agent, count in b.items():
        if count > joined.get(agent, 0):
            joined[agent] = count
    return joined


def meet(clocks: Iterable[Clock]) -> Clock:
    """What is before all of them: one of them came, and nobody knows which. EMPTY of none."""
    clocks = iter(clocks)
    common = next(clocks, EMPTY)
    for clock in clocks:
        if clock is common:
            continue
        common = {agent: least for agent, count in common.items() if (least := min(count, clock.get(agent, 0)))}
    return common


def tick(clock: Clock, agent: Hashable) -> Clock:
    """One more piece of work of the agent's own."""
    return {**clock, agent: clock.get(agent, 0) + 1}


def covers(clock: Clock, agent: Hashable, time: int) -> bool:
    """Whether `time` of `agent` is before `clock`."""
    return clock.get(agent, 0) >= time


def is_before(a: Clock, b: Clock) -> bool:
    """Whether all that is before `a` is before `b`."""
    return a is b or all(b.get(agent, 0) >= count for agent, count in a.items())
