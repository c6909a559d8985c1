"""The NULL device's programs: launches take their place in the queue, and run no code."""

from __future__ import annotations

from typing import Any, Self

from hcq import _native
from hcq.drivers.null.compiler import MAGIC
from hcq.errors import InvalidProgram
from hcq.queues.program import HCQProgram


@_native.inherit_vectorcall
class NullProgram(_native.Program, HCQProgram):
    """A function of that name; any arguments will do. Checked, ordered, timed and counted as every launch is."""

    __slots__ = ()

    def __new__(cls, device: Any, name: str, lib: bytes) -> Self:
        """Raises InvalidProgram for bytes that are no library of ours."""
        if not bytes(lib).startswith(MAGIC):
            raise InvalidProgram(f"{device.dname}: this is no library of the null compiler ({len(lib)} bytes)")
        return super().__new__(cls, device, name, None)

    def __init__(self, device: Any, name: str, lib: bytes) -> None:
        """Everything is done by the native type."""
