"""How far the submits of a Python driver's queue are, command by command, in words: for errors.

A driver says which submits are over, not which commands. Commands run in order, so those before a wait that is not
reached are over, and those before a value that the device's timeline has. What does not live here: what all queues of
the process are at (report).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hcq.runtime import lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.queues.lane import Submit

_WORK = ("exec", "copy")


class Progress(NamedTuple):
    """Where a queue is: the last work that is over (of these submits: else empty), the wait it stands at, that or what
    runs in words, and what is next."""

    finished: str
    wait: tuple[Any, int] | None
    now: str
    next: list[str]


def of(submits: Sequence[Submit], timeline: Any) -> Progress:
    """Of submits that are not over, the oldest first, of a device with this timeline."""
    now, *behind = submits
    known = list(zip(now.queue.cmds_meta, now.queue.cmds_args, strict=False))
    over, wait = _over(known, timeline), None
    for at, (name, args) in enumerate(known[over:], over):
        if name == "wait" and len(args) == 2 and args[0].value < args[1]:
            over, wait = at, (args[0], args[1])
            break
    work = [at for at, (name, _) in enumerate(known) if name in _WORK]
    done, left = [at for at in work if at < over], [at for at in work if at >= over]
    finished = _said(now, done[-1]) if done else ""
    if wait is not None:
        state = _said(now, over)
    elif left:
        ends = next((at for at in range(left[0], len(known)) if known[at][0] == "wait"), len(known))
        together = [at for at in left if at < ends]
        left = [at for at in left if at >= ends]
        state = _said(now, together[0])
        if len(together) > 1:
            state += f" or one of the {len(together) - 1} after it"
    else:
        state = f"the end of submit {now.number}"
    coming = [_said(now, at) for at in left]
    for submit in behind:
        parts = [_said(submit, at) for at, name in enumerate(submit.queue.cmds_meta) if name in _WORK]
        coming += parts or [f"waits and signals (submit {submit.number}{_line(submit)})"]
    return Progress(finished, wait, state, coming)


def last(submit: Submit) -> str:
    """The last work of a submit that is over; the submit itself where it had none."""
    work = [at for at, name in enumerate(submit.queue.cmds_meta) if name in _WORK]
    return _said(submit, work[-1]) if work else f"waits and signals (submit {submit.number}{_line(submit)})"


def command(name: str, args: Sequence[Any]) -> str:
    """A command in words."""
    if name == "exec":
        return f"exec of {args[0].name}"
    if name == "copy":
        return f"copy of {args[2]} bytes"
    if name in ("wait", "signal") and len(args) == 2:
        return f"wait for {args[0]!r} to reach {args[1]}" if name == "wait" else f"signal of {args[0]!r} to {args[1]}"
    return name


def _over(known: Sequence[tuple[str, Sequence[Any]]], timeline: Any) -> int:
    """How many commands are over for sure. Other signals may have had their value before."""
    over = 0
    for at, (name, args) in enumerate(known):
        if name == "signal" and len(args) == 2 and args[0] is timeline and args[0].value >= args[1]:
            over = at + 1
    return over


def _said(submit: Submit, at: int) -> str:
    words = command(submit.queue.cmds_meta[at], submit.queue.cmds_args[at])
    return f"{words} (command {at} of submit {submit.number}{_line(submit)})"


def _line(submit: Submit) -> str:
    return f", {lines.words(submit.line)}" if submit.line else ""
