"""One kernel for one combination of types and constants: its form in the middle, and its programs by device.

What does not live here: binding arguments and launching (launch), what a device's language looks like (lower).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from hcq.errors import CompileError, ForkedDeviceError, LaunchError
from hcq.kernels import lower, probe, types, work
from hcq.kernels.frontend import translate
from hcq.kernels.passes import simplify
from hcq.kernels.verify import verify
from hcq.queues.launch import VALUE_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FunctionType

    from hcq.kernels.accesses import Bounds
    from hcq.kernels.frontend.parameters import Parameter
    from hcq.kernels.ir import Function


class Specialisation:
    """A kernel whose types are all known. Threads may share one."""

    def __init__(
        self,
        function: FunctionType,
        parameters: Sequence[Parameter],
        given: Mapping[str, types.Scalar],
        constants: Mapping[str, Any],
    ) -> None:
        self.ir: Function = translate(function, parameters, given, constants)
        simplify(self.ir)
        verify(self.ir)
        self.lock = threading.RLock()
        self._programs: dict[Any, Loaded] = {}
        self._bounds: Bounds | None = None

    @property
    def bounds(self) -> Bounds:
        """What it reads and writes, and which elements, as far as that is known."""
        if self._bounds is None:
            from hcq.kernels.accesses import Bounds

            self._bounds = Bounds(self.ir)
        return self._bounds

    def source(self, language: str, device: Any = None) -> Any:
        """The kernel in a device's language: a str; SPIR-V's bytes. Raises CompileError for one that nobody writes."""
        words = probe.target(device, self.ir) if language == "spirv" else getattr(device, "kernel_target", None)
        return lower.source(self.ir, language, words)

    def loaded(self, device: Any) -> Loaded:
        """Its program on a device, compiled when it is first asked for."""
        found = self._programs.get(device)
        if found is not None:
            return found
        with self.lock:
            found = self._programs.get(device)
            if found is None:
                for gone in [each for each in self._programs if _is_gone(each)]:
                    del self._programs[gone]
                found = self._programs[device] = Loaded(self, device)
        return found


class Loaded:
    """A specialisation on one device. `adapt` turns the values of its numbers into those that the program takes."""

    def __init__(self, specialisation: Specialisation, device: Any) -> None:
        language = getattr(device, "kernel_language", None)
        if language is None:
            raise LaunchError(
                f"{device.dname} runs no portable kernels: a driver says which language it takes in kernel_language"
            )
        ir = specialisation.ir
        text = specialisation.source(language, device)
        try:
            self.program = device.program(ir.name if language == "ir" else lower.entry_name(ir.name), text)
        except CompileError as error:
            raise CompileError(
                f"{ir.name}: {device.dname} refused what was written for it ({ir.file})", str(error), text
            ) from error
        self.specialisation = specialisation
        self.device = device
        self.program.accesses = specialisation.bounds.access_words
        work.note(self.program.name, ir)
        kinds = _recorded(self.program, len(ir.pointers), len(ir.scalars))
        self.adapt = [
            _adapter(types.element_of(value.type), kind) for value, kind in zip(ir.scalars, kinds, strict=True)
        ]


def _is_gone(device: Any) -> bool:
    """Whether a device was closed, or is the parent's of a forked process."""
    try:
        return bool(device.closed)
    except ForkedDeviceError:
        return True


def _recorded(program: Any, buffers: int, numbers: int) -> Sequence[str | None]:
    """What a program says that its numbers are, by NumPy's names; None where it says nothing."""
    signature = getattr(program, "signature", None)
    if signature is not None:
        return [kind for kind, _ in signature][buffers:]
    words = getattr(program, "value_types", None)
    return [VALUE_TYPES[each][1] for each in words] if words is not None else [None] * numbers


def _adapter(type_: types.Scalar, kind: str | None) -> Any:
    """From a Python number to what the program takes: a NumPy scalar of the type, or of what it is held in."""
    convert = type_.dtype.numpy.type
    if kind is None or kind == type_.dtype.name or kind.startswith("bits"):
        return convert
    import numpy

    held = numpy.dtype(kind)
    if held.kind == "f" or type_.kind == "b":
        return lambda value: held.type(convert(value))
    return lambda value: convert(value).view(held)
