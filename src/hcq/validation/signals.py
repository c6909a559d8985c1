"""A signal as the model sees it: who set it to what, knowing what, and who counted on that.

What does not live here: queues (machine).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from hcq.validation.clocks import covers, is_before, meet
from hcq.validation.report import Finding, Kind

if TYPE_CHECKING:
    from collections.abc import Hashable

    from hcq.validation.clocks import Clock
    from hcq.validation.events import Deed


class Setting(NamedTuple):
    """One time that a signal was set: the value, what comes before it, and whose doing it was."""

    value: int
    clock: Clock
    deed: Deed


class _Use(NamedTuple):
    wanted: int
    time: int
    deed: Deed


class Signal:
    """`base` is the value it had before all settings that are remembered: nothing is known to come before that."""

    def __init__(self, name: str, base: int) -> None:
        self.name = name
        self.base = base
        self.settings: list[Setting] = []
        self._in_order = True  # each setting comes after the one before, and is not lower
        self._uses: dict[Hashable, list[_Use]] = {}

    @property
    def highest(self) -> int:
        """The highest value that it has had, as far as is known."""
        if self._in_order:
            return self.settings[-1].value if self.settings else self.base
        return max((setting.value for setting in self.settings), default=self.base)

    @property
    def in_use(self) -> bool:
        """Whether anything is remembered of it but its value."""
        return bool(self.settings or self._uses)

    def reaching(self, value: int) -> Clock | None:
        """What is before a wait for `value` that has ended; None where nothing that is known can end it."""
        if self.base >= value:
            return {}
        if self._in_order:
            if (
                self.settings
                and self.settings[-1].value == value
                and (len(self.settings) == 1 or self.settings[-2].value < value)
            ):
                return self.settings[-1].clock  # a timeline's usual one
            at = bisect_left(self.settings, value, key=_value)
            return self.settings[at].clock if at < len(self.settings) else None
        able = [setting.clock for setting in self.settings if setting.value >= value]
        return meet(able) if able else None

    def showing(self, value: int) -> Clock:
        """What is before somebody saw just this value."""
        return meet(setting.clock for setting in self.settings if setting.value == value)

    def use(self, agent: Hashable, wanted: int, time: int, deed: Deed) -> list[Finding]:
        """Note a wait that went on; tell where it might as well not have."""
        uses = self._uses.setdefault(agent, [])
        # One that waits for as much, later, says all that an earlier one would.
        uses[:] = [use for use in uses if use.wanted > wanted]
        uses.append(_Use(wanted, time, deed))
        return self.lost(wanted, deed)

    def lost(self, wanted: int, deed: Deed) -> list[Finding]:
        """Where a wait for `wanted` may come too late, after the signal has gone back: what is wrong."""
        if self._in_order or self.base >= wanted:
            return []
        able = [setting for setting in self.settings if setting.value >= wanted]
        for low in self.settings:
            if low.value < wanted and any(not is_before(low.clock, setting.clock) for setting in able):
                high = next(setting for setting in able if not is_before(low.clock, setting.clock))
                text = (
                    f"signal goes back: {deed}\n  is for what this sets: {high.deed}\n  and this may come after it, "
                    f"before the wait has seen it: {low.deed}"
                )
                return [Finding(Kind.SIGNAL, text, (deed, high.deed, low.deed))]
        return []

    def set(self, value: int, clock: Clock, known: Clock, deed: Deed) -> list[Finding]:
        """Note that it is set; tell where it goes back under somebody's eyes. `known` is what the host knew then."""
        found = self._going_back(value, clock, deed)
        lower = value < self.highest
        if lower and not found and all(is_before(setting.clock, known) for setting in self.settings):
            # A reset, by who knew that all before was over: a new beginning.
            self.base, self.settings, self._in_order = value, [Setting(value, clock, deed)], True
            return found
        after_all = all(is_before(setting.clock, clock) for setting in self._latest())
        self._in_order = self._in_order and not lower and after_all
        self.settings.append(Setting(value, clock, deed))
        return found

    def settle(self, floor: Clock) -> None:
        """Forget settings that come before everything that is still to come."""
        if self._in_order:
            over = 0
            while over < len(self.settings) and is_before(self.settings[over].clock, floor):
                over += 1
            if over:
                self.base = max(self.base, self.settings[over - 1].value)
                del self.settings[:over]
        elif all(is_before(setting.clock, floor) for setting in self.settings):
            self.base = self.settings[-1].value  # whichever came last: they are not ordered
            self.settings, self._in_order = [], True
        for agent in list(self._uses):
            left = [use for use in self._uses[agent] if not covers(floor, agent, use.time)]
            if left:
                self._uses[agent] = left
            else:
                del self._uses[agent]

    def _latest(self) -> list[Setting]:
        """Those that come before no other."""
        return self.settings[-1:] if self._in_order else self.settings

    def _going_back(self, value: int, clock: Clock, deed: Deed) -> list[Finding]:
        for agent, uses in self._uses.items():
            for use in uses:
                if use.wanted > value and not covers(clock, agent, use.time):
                    text = (
                        f"signal goes back: {self.name} is set to {value}: {deed}\n"
                        f"  while a wait for {use.wanted} may not have seen it yet: {use.deed}"
                    )
                    return [Finding(Kind.SIGNAL, text, (deed, use.deed))]
        return []


def _value(setting: Setting) -> int:
    return setting.value
