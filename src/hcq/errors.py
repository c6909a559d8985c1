"""Every exception that hcq raises for a condition of its own, all under HCQError.

ValueError, TypeError, IndexError and the operating system's own errors are used where they say it best. All classes
here can be raised by third-party drivers; the extra facts are keyword arguments and attributes of the same name.
"""

from __future__ import annotations


class HCQError(Exception):
    """Base of all errors of hcq."""


class DeviceUnavailable(HCQError, RuntimeError):
    """A driver cannot open here, now. `reason` says why, `hint` what to do; asking again tries again."""

    def __init__(self, reason: str = "", hint: str = "") -> None:
        super().__init__(f"{reason} ({hint})" if hint else reason)
        self.reason = reason
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.reason, self.hint)


class UnknownDevice(HCQError, KeyError):
    """No device has this name. The message lists the known names and the nearest one."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0]) if self.args else ""


class UnknownTensor(HCQError, KeyError):
    """A file has no tensor of this name, or none that matches. The message names the file and the nearest names."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ForkedDeviceError(HCQError, RuntimeError):
    """A device, buffer, queue or signal of the parent process was used in a forked child. Open the device anew."""


class CompileError(HCQError, RuntimeError):
    """The compiler refused the source. `log` is the compiler's own output, `source` what it was given (or None)."""

    def __init__(self, message: str = "", log: str = "", source: str | bytes | None = None) -> None:
        super().__init__(f"{message}\n{log}" if message and log and log not in message else message or log)
        self.message = message
        self.log = log or message
        self.source = source

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.log, self.source)


class InvalidProgram(HCQError, RuntimeError):
    """A library is damaged, not one of ours, or lacks the function asked for (the message lists those it has)."""


class LaunchError(HCQError, RuntimeError, ValueError):
    """A launch was refused before anything was queued: wrong argument counts, types, sizes or buffers."""


class OutOfMemory(HCQError, RuntimeError, MemoryError):
    """An allocation was refused. In bytes: `asked`, `live` and `cached` on `device`; the message has the holders."""

    def __init__(
        self, message: str = "", device: str | None = None, asked: int = 0, live: int = 0, cached: int = 0
    ) -> None:
        super().__init__(message or f"{device}: out of memory: asked {asked} bytes, {live} live, {cached} cached")
        self.device = device
        self.asked = asked
        self.live = live
        self.cached = cached

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.args[0], self.device, self.asked, self.live, self.cached)


class ValidationError(HCQError, RuntimeError):
    """What `hcq.checks()`, HCQ_CHECK=1 or the device PYTHON found. `sites`: the (file, line) that took part."""

    def __init__(self, message: str = "", sites: tuple[tuple[str, int], ...] = ()) -> None:
        super().__init__(message)
        self.sites = sites

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.args[0], self.sites)


class RaceError(ValidationError):
    """Two commands touch the same bytes, one writes, and nothing orders them."""


class ReuseError(RaceError):
    """Memory was handed out again while queued work still used it as what it was before."""


class UseAfterFreeError(ValidationError):
    """Something was queued that touches memory which was freed."""


class UnwrittenReadError(ValidationError):
    """Memory was read that nothing ever wrote."""


class OutOfBoundsError(ValidationError):
    """Bytes beside an allocation were written, or a command reaches past its end."""


class DivergenceError(ValidationError):
    """Not all work-items of a group come to a barrier, or not all of a sub-group to a shuffle."""


class SignalOrderError(ValidationError):
    """A signal goes back, or may, while somebody counts on it; or a wait names a value of another timeline signal."""


class DeadlockError(ValidationError):
    """Queues wait for each other in a cycle, which nothing can end."""


class ValidationWarning(UserWarning):
    """A conflict that is only possible: what a program does to a buffer is not known (`prg.accesses`)."""


class SignalTimeout(HCQError, RuntimeError, TimeoutError):
    """A wait passed its deadline. The message names the signal, the values wanted and seen, and who was to set it; then
    what the queues are at: what finished last, what runs, what stands at which wait, what comes next."""


class DeviceLost(HCQError, RuntimeError):
    """The device failed. `cause` is the first failure, `command` the command that caused it, `device` its name.

    `report` says, in lines, what the queues were at when it did; the message has it after its first line.
    """

    def __init__(
        self,
        message: str = "",
        device: str | None = None,
        cause: BaseException | str | None = None,
        command: str | None = None,
        report: str = "",
    ) -> None:
        if not message:
            message = f"{device} is lost"
            message += f": {command} failed" if command else ""
            message += f": {cause}" if cause else ""
            message += f"\nThe queues, just before:\n{report}" if report else ""
        super().__init__(message)
        self.device = device
        self.cause = cause
        self.command = command
        self.report = report

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.args[0], self.device, self.cause, self.command, self.report)


class FormatError(HCQError, ValueError):
    """A file of tensors is damaged, or is none that is known. `reason` says what is wrong in the file `path`, and
    `offset`, in bytes, where; it is None for what lies in no one place."""

    def __init__(self, path: str = "", offset: int | None = None, reason: str = "") -> None:
        super().__init__(f"{path}: {reason}" + (f" (at byte {offset})" if offset is not None else ""))
        self.path = path
        self.offset = offset
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.offset, self.reason)
