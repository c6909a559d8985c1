"""Timelines whose signal and value don't belong together: one was moved without the other.

A queue that compares 32 bits goes on with a fresh signal and small values now and then. What does not live here: how
other signals may be set (signals).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.validation.events import Set, Wait
from hcq.validation.report import Finding, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.validation.events import Command, Deed
    from hcq.validation.lanes import Book
    from hcq.validation.model import Model

_FAR = 2**30  # further than this from where a timeline is, a value is of another one


def wrong(book: Book, model: Model, commands: Sequence[tuple[Command, Deed]]) -> list[Finding]:
    """What is wrong with the values of these commands, which are about to be queued, or done by the host."""
    for command, deed in commands:
        if not isinstance(command, (Wait, Set)):
            continue
        highest = model.machine.signals[command.signal].highest
        if max(command.value, highest) < _FAR or (device := book.timeline_of(command.signal)) is None:
            continue
        if command.value > device.timeline_value + _FAR:
            text = (
                f"wrap kept wrong: {deed}\n  {device.dname} is at value {device.timeline_value} of a fresh signal, "
                f"and {command.value} belongs to the one before: keep (signal, value) together, and read "
                "dev.timeline_signal anew"
            )
            return [Finding(Kind.SIGNAL, text, (deed,))]
        if isinstance(command, Set) and command.value + _FAR < highest:
            text = (
                f"wrap kept wrong: {deed}\n  sets the timeline of {device.dname} back from {highest}, which satisfies "
                "the waits of what comes next at once: values begin anew with a fresh signal only"
            )
            return [Finding(Kind.SIGNAL, text, (deed,))]
    return []
