"""What all queues of the process are at, in words, for errors about work that does not end or ended badly.

One report for every kind of queue: native ones are read by native/core/report.cpp, those of drivers in Python here,
from their lanes. What does not live here: the errors (faults), and what observers add (watch).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hcq import _native
from hcq.queues import progress
from hcq.runtime import lines, watch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hcq.queues.lane import Lane, Submit

_BUSY = 8  # queues with work that are told of
_IDLE = 4  # queues without
_NEXT = 3  # commands that come next
_COMMANDS = 4  # commands of a submit


def queues(first: Any = None) -> str:
    """The report: some lines for each queue; those of the device `first` before others. Empty where none had work.

    Any thread; takes no lock of a device. Observers are not told of its looks at signals.
    """
    with watch.quiet():
        told = [*_python_queues(first), _native.queue_report()]
    return "\n".join(filter(None, told))


def explained(message: str) -> str:
    """An error's text, followed by the report and by what observers know of those that stand at waits."""
    report = queues()
    return watch.explained(f"{message}\nThe queues:\n{report}" if report else message)


def commands(queue: Any) -> str:
    """What a submit does, in words: 'exec of fill, copy of 4 bytes, and more'."""
    work: list[str] = []
    for name, args in zip(queue.cmds_meta, queue.cmds_args, strict=False):
        if name in ("exec", "copy"):
            if len(work) == _COMMANDS:
                work.append("and more")
                break
            work.append(f"exec of {args[0].name}" if name == "exec" else f"copy of {args[2]} bytes")
    return ", ".join(work) or "waits and signals"


def where(lane: Lane) -> str:
    """A hardware queue of a driver in Python, in words."""
    return f"the {lane.name} queue of {lane.device.dname}"


def open_wait(submit: Submit) -> tuple[Any, int] | None:
    """The (signal, value) that a submit stands at, if it is its turn: its first wait that is not reached."""
    for name, args in zip(submit.queue.cmds_meta, submit.queue.cmds_args, strict=False):
        if name == "wait" and len(args) == 2 and args[0].value < args[1]:
            return args[0], args[1]
    return None


def setters(signal: Any) -> Iterator[tuple[Lane, Submit, int, Submit]]:
    """Who of the queues of Python drivers is to set a signal: lane, submit, value, and the submit its lane is at."""
    for lane in _lanes():
        submits = lane.unfinished()
        for submit in submits:
            for name, args in zip(submit.queue.cmds_meta, submit.queue.cmds_args, strict=False):
                if name == "signal" and len(args) == 2 and args[0] is signal:
                    yield lane, submit, args[1], submits[0]


def _lanes() -> list[Lane]:
    from hcq.queues.device import HCQCompiled

    return [lane for device in HCQCompiled.devices for lane in device.lanes]


def _python_queues(first: Any) -> Iterator[str]:
    known = sorted(_lanes(), key=lambda lane: lane.device is not first)
    stand = [(lane, lane.unfinished()) for lane in known]
    busy = [(lane, submits) for lane, submits in stand if submits]
    idle = [lane for lane, submits in stand if not submits and lane.finished]
    for lane, submits in busy[:_BUSY]:
        yield _busy(lane, submits)
    for lane in idle[:_IDLE]:
        yield f"  {where(lane)} is idle; finished last: {lane.finished}"
    more = max(len(busy) - _BUSY, 0) + max(len(idle) - _IDLE, 0)
    if more:
        yield f"  and {more} more queues of drivers in Python"


def _busy(lane: Lane, submits: Sequence[Submit]) -> str:
    at = progress.of(submits, lane.device.timeline_signal)
    state = f"runs: {at.now}"
    if at.wait is not None:
        signal, value = at.wait
        state = f"stands at: {at.now}; it is {signal.value}, and {_ending(signal, value)}"
    told = [f"  {where(lane)}:", f"    finished last: {at.finished or lane.finished or 'nothing'}", f"    {state}"]
    if at.next:
        more = [f"and {len(at.next) - _NEXT} more"] if len(at.next) > _NEXT else []
        told.append("    next: " + ", ".join([*at.next[:_NEXT], *more]))
    return "\n".join(told)


def _ending(signal: Any, wanted: int) -> str:
    highest = 0
    for lane, submit, value, _ in setters(signal):
        if value >= wanted:
            return f"{submit.said} on {where(lane)} is to set it"
        highest = max(highest, value)
    return f"queued commands set it to {highest} at most" if highest else "nothing that is queued sets it"


def said(number: int, queue: Any, line: int) -> str:
    """A submit in words: 'submit 3 (exec of fill; sets <MiniSignal 1, value 2> to 3; train.py:15)'."""
    sets = [
        f"sets {args[0]!r} to {args[1]}"
        for name, args in zip(queue.cmds_meta, queue.cmds_args, strict=False)
        if name == "signal" and len(args) == 2
    ]
    place = [lines.words(line)] if line else []
    return f"submit {number} ({'; '.join([commands(queue), *sets[-1:], *place])})"
