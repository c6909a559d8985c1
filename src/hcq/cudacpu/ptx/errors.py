"""What the parser and the translation say of PTX that they do not take: always with the line."""

from __future__ import annotations

from hcq.errors import CompileError


class PtxError(CompileError):
    """PTX that is wrong. `line` is its line, counted from 1 (0: no line is to blame)."""

    def __init__(self, message: str = "", line: int = 0, log: str = "", source: str | bytes | None = None) -> None:
        super().__init__(f"PTX line {line}: {message}" if line else message, log, source)
        self.line = line
        self.reason = message

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.reason, self.line, self.log, self.source)


class Unsupported(PtxError):
    """PTX that is right, but that is not run here. The message names what it is."""


class OtherTarget(Unsupported):
    """PTX that is right, but for another device."""


class NoRoom(PtxError):
    """PTX whose variables are more than the device has memory."""


class LaterVersion(Unsupported):
    """PTX of a version that isn't known here."""
