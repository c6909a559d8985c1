"""The CPU devices' programs: a loaded function whose launch is one native call."""

from __future__ import annotations

from hcq import _native
from hcq.errors import InvalidProgram
from hcq.queues.program import HCQProgram


@_native.inherit_vectorcall
class CPUProgram(_native.Program, HCQProgram):
    """A function of a library, loaded for a CPU device: `CPUProgram(device, name, lib)`.

    `prg(*bufs, global_size=(1, 1, 1), local_size=(1, 1, 1), vals=(), wait=False, stream=None)` queues a launch.
    """

    library: object
    """What it was loaded from."""

    def __init__(self, device: object, name: str, lib: object) -> None:
        """The native type has done everything, save to refuse None, by which it means a program that runs nothing."""
        if lib is None:
            raise InvalidProgram(f"{name!r} needs a library: what this device's compiler returned, not None")
        self.library = lib
