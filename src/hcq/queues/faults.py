"""What is said when a wait can't end: SignalTimeout and DeviceLost, built from what is known about the queues.

What does not live here: finding out that a device failed (the driver's `lose`).
"""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING, Any, NoReturn

from hcq.errors import DeviceLost, SignalTimeout
from hcq.queues import report
from hcq.runtime import watch

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST = 4

_tokens = itertools.count(1)
_causes: dict[int, BaseException] = {}


def timed_out(signal: Any, wanted: int) -> SignalTimeout:
    """The error for a wait that ran out: the signal, what was wanted and seen, and who was to set it."""
    who = setters(signal) or "no queued command is to set it"
    with watch.quiet():
        seen = signal.value
    return SignalTimeout(report.explained(f"{signal!r}: waited for value {wanted}, saw {seen}; {who}"))


def setters(signal: Any) -> str:
    """Who of the queues of Python drivers is to set the signal, in words; empty where none. Native code asks this."""
    with watch.quiet():  # a look of the library's own at signals
        found = list(_setters(signal))
    more = [f"and {len(found) - _MOST} more"] if len(found) > _MOST else []
    return "; ".join([*found[:_MOST], *more])


def lost(device: str, cause: BaseException | str, command: str | None = None, told: str = "") -> DeviceLost:
    """The error for a device that failed, with the first cause; `told` is what the queues were at."""
    error = DeviceLost(device=device, cause=cause, command=command, report=told)
    if isinstance(cause, BaseException):
        error.__cause__ = cause
    return error


def again(error: BaseException) -> BaseException:
    """A fresh object for one more raise of `error`: an exception object is changed by being raised in two threads."""
    fresh = copy.copy(error)
    fresh.__cause__ = error.__cause__
    return fresh


def keep_cause(cause: BaseException) -> int:
    """A number that native fault records carry for this exception. It is kept until `forget_cause`, or for good."""
    token = next(_tokens)
    _causes[token] = cause
    return token


def forget_cause(token: int) -> None:
    """Let go of an exception that no fault record carries after all."""
    _causes.pop(token, None)


def from_native(error: int) -> DeviceLost:
    """The error for a native fault record (a signal's or device's error word), with the first cause."""
    from hcq import _native

    known = _native.fault_info(error)
    if known is None:
        process_id = error >> 32
        return DeviceLost(
            f"what process {process_id} was to signal failed there; its own error tells why", cause="another process"
        )
    device, command, message, token, system, path, told = known
    return lost(device, _causes.get(token) or _from_system(system, message, path), command or None, told)


def _from_system(number: int, message: str, path: str) -> BaseException | str:
    """What a failed system call says, by its errno; -1 is a file that ended too early."""
    if number < 0:
        return EOFError(message)
    return OSError(number, message, path) if number else message


def raise_fault(error: int) -> NoReturn:
    """Raise what a native fault record stands for."""
    raise from_native(error)


def native_word(error: DeviceLost) -> int:
    """The error word that stands for `error` on native signals; the same for the same object."""
    from hcq import _native

    word: int = error.__dict__.get("_native_word", 0)
    if not word:
        token = keep_cause(error.cause) if isinstance(error.cause, BaseException) else 0
        word = _native.fault_record(
            error.device or "", error.command or "", str(error.cause or error), token, error.report
        )
        error.__dict__["_native_word"] = word
    return word


def standing(device: Any) -> list[str]:
    """The waits, in words, that hardware queues of the device stand at; a queue that runs something is left out."""
    heads = [(lane, submits[0]) for lane in device.lanes if (submits := lane.unfinished())]
    return [f"{report.where(lane)} stands at {wait}" for lane, submit in heads if (wait := _wait(submit)) is not None]


def running(device: Any) -> str | None:
    """The program or command, in words, that the device's queues are at."""
    for lane in device.lanes:
        for submit in lane.unfinished()[:1]:
            for name, args in zip(submit.queue.cmds_meta, submit.queue.cmds_args, strict=False):
                if name == "exec":
                    return f"exec of {args[0].name} on {report.where(lane)}"
            return f"submit {submit.number} of {report.where(lane)}"
    return None


def _wait(submit: Any) -> str | None:
    wait = report.open_wait(submit)
    return None if wait is None else f"wait({wait[0]!r}, {wait[1]})"


def _setters(signal: Any) -> Iterator[str]:
    for lane, submit, value, now in report.setters(signal):
        wait = _wait(now)
        state = f"stands at {wait}" if wait else f"is at submit {now.number}"
        yield f"{report.where(lane)} sets it to {value} in submit {submit.number}, and {state}"
