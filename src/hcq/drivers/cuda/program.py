"""The CUDA device's programs: a kernel of a library, whose launch is one native call.

What does not live here: what a library is (compiler), passing arguments (native/cuda).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from hcq import _native
from hcq.drivers.cuda.compiler import read_library
from hcq.errors import InvalidProgram
from hcq.queues.launch import VALUE_TYPES
from hcq.queues.native import InterfaceProgram

if TYPE_CHECKING:
    from hcq.drivers.cuda.device import CUDADevice


@_native.inherit_vectorcall
class CUDAProgram(_native.Program, InterfaceProgram):
    """A kernel: `CUDAProgram(device, name, lib)`. Its arguments may stand in any order in the source: launches take
    buffers, then values.

    Where PTX does not say which of its parameters are pointers, launches take what they are given in the kernel's own
    order, buffers first. Threads may share it.
    """

    def __new__(cls, dev: CUDADevice, name: str, lib: bytes) -> Self:
        """Load it. Raises InvalidProgram, and DeviceLost where a kernel has failed on the device."""
        library = read_library(lib)
        if name not in library.kernels:
            known = ", ".join(library.kernels) or "none"
            raise InvalidProgram(f"no kernel {name!r} in the library: it has {known}")
        symbol, arguments, names, items = library.kernels[name]
        for index, kind in enumerate(arguments):
            if kind.startswith("?"):
                raise InvalidProgram(
                    f"{name}: argument {index} is a structure of {kind[1:]} bytes: expected scalars and pointers"
                )
        typed = "word" not in arguments
        kinds = [kind if kind != "word" else "u64" for kind in arguments]
        try:
            module = _native.cuda_module(dev.native, library.image)
            made = _native.cuda_program(module, symbol, name, kinds, names, typed, items)
        except RuntimeError as error:
            dev.raise_if_lost()
            raise InvalidProgram(f"{name}: {dev.dname} does not load the library: {error}") from error
        self = super().__new__(cls, dev, name, made)
        if typed:
            values = [kind for kind in arguments if kind not in ("ptr", "const")]
            self.buffer_count = len(arguments) - len(values)
            if all(kind in VALUE_TYPES for kind in values):  # PTX doesn't say whether integers have a sign
                self.value_types = values
        return self

    def __init__(self, dev: CUDADevice, name: str, lib: bytes) -> None:
        """`__new__` has done everything."""
