"""The CUDA device's programs: a kernel of a library, whose launch is one native call.

What does not live here: what a library is (compiler), passing arguments (native/cuda).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

from hcq import _native, dtypes
from hcq.drivers.cuda.compiler import Kernel, read_library
from hcq.errors import InvalidProgram, LaunchError, OutOfMemory
from hcq.queues.launch import VALUE_TYPES
from hcq.queues.native import InterfaceProgram
from hcq.runtime.buffer import Buffer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hcq.drivers.cuda.device import CUDADevice


class _Loaded(NamedTuple):
    """A kernel of a library that the driver has loaded."""

    module: _native.CudaModule
    kernel: Kernel


@_native.inherit_vectorcall
class CUDAProgram(_native.Program, InterfaceProgram):
    """A kernel: `CUDAProgram(device, name, lib)`. Its arguments may stand in any order in the source: launches take
    buffers, then values.

    Where nothing says which of its parameters are pointers, as in NVRTC's own PTX and in cubins, launches take what
    they are given in the kernel's own order, buffers first. Threads may share it.
    """

    device: CUDADevice
    source: str | bytes
    _loaded: _Loaded

    def __new__(cls, dev: CUDADevice, name: str, lib: bytes) -> Self:
        """Load it. Raises InvalidProgram, and DeviceLost where a kernel has failed on the device."""
        library = read_library(lib)
        if library.kernels is not None and name not in library.kernels:
            raise _missing(name, library.kernels)
        try:
            module = _native.cuda_module(dev.native, library.image)
            kernel = _told(module, name) if library.kernels is None else library.kernels[name]
            return cls._of(dev, name, _Loaded(module, kernel))
        except ValueError as error:
            raise InvalidProgram(f"{name}: {error}") from None
        except MemoryError as error:
            raise OutOfMemory(f"{dev.dname}: no memory for the program {name}: {error}", device=dev.dname) from error
        except RuntimeError as error:
            if isinstance(error, InvalidProgram):
                raise
            dev.raise_if_lost()
            raise InvalidProgram(f"{name}: {dev.dname} does not load the library: {error}") from error

    def __init__(self, dev: CUDADevice, name: str, lib: bytes) -> None:
        """`__new__` has done everything."""

    def symbol(self, name: str, dtype: Any = dtypes.uint8) -> Buffer:
        """A variable of the library, __constant__ or __device__, as a buffer over its memory, with elements of `dtype`.

        `name` is the symbol's: a variable outside of namespaces has its plain one. Each program that a library is
        loaded for has variables of its own, which those made of it (with_local_memory, cooperative) share. The buffer
        keeps the program loaded. Raises InvalidProgram where there is none of that name, ValueError where its size is
        no multiple of an element's.
        """
        dev = self.device
        dev.check_usable()
        if not isinstance(name, str):
            raise TypeError(f"{self.name}: a variable is asked for by its name, not by {name!r}")
        try:
            address, size = self._loaded.module.variable(name) if "\0" not in name else (0, 0)
        except RuntimeError:
            dev.raise_if_lost()
            raise
        if not size:
            raise InvalidProgram(f"{self.name}: the library has no variable {name!r} (those not used may be left out)")
        each = dtypes.itemsize(dtype)
        if size % each:
            raise ValueError(f"{name} has {size} bytes: no multiple of the {each} of {dtype}")
        return Buffer(dev.dname, size // each, dtype, opaque=_Variable(self, address, size))

    @classmethod
    def _of(cls, dev: CUDADevice, name: str, loaded: _Loaded, local_memory: int = 0, together: bool = False) -> Self:
        module, (symbol, arguments, names, items) = loaded
        typed = "word" not in arguments
        kinds = [kind if kind != "word" else "bits64" for kind in arguments]
        made = _native.cuda_program(module, symbol, name, kinds, names, typed, items, local_memory, together)
        self = super().__new__(cls, dev, name, made)
        self._loaded = loaded
        self.local_memory_bytes, self.is_cooperative = local_memory, together
        if typed:
            values = [kind for kind in arguments if kind not in ("ptr", "const")]
            self.buffer_count = len(arguments) - len(values)
            if all(kind in VALUE_TYPES for kind in values):  # PTX doesn't say whether integers have a sign
                self.value_types = values
        return self

    def _most_local_memory(self) -> int:
        most: int = self.device.found.facts["local_memory_most"]
        return most

    def _with_local_memory(self, nbytes: int) -> Self:
        dev, most = self.device, self._most_local_memory()
        dev.check_usable()
        try:
            declared = self._loaded.module.declared_local(self._loaded.kernel.symbol)
            if declared + nbytes > most:
                raise LaunchError(
                    f"{self.name}: {nbytes} bytes of local memory, and the kernel declares {declared}: "
                    f"{dev.dname} gives a group {most}"
                )
            return self._as(nbytes, self.is_cooperative)
        except RuntimeError as error:
            if isinstance(error, LaunchError):
                raise
            dev.raise_if_lost()
            raise LaunchError(f"{self.name}: {dev.dname} gives no {nbytes} bytes of local memory: {error}") from error

    def _cooperative(self) -> Self:
        dev = self.device
        dev.check_usable()
        if not dev.found.facts["cooperative"]:
            return super()._cooperative()
        try:
            return self._as(self.local_memory_bytes, True)
        except RuntimeError:
            dev.raise_if_lost()
            raise

    def _as(self, local_memory: int, together: bool) -> Self:
        made = self._of(self.device, self.name, self._loaded, local_memory, together)
        made.accesses = self.accesses
        if hasattr(self, "source"):
            made.source = self.source
        return made


class _Variable(_native.HCQBuffer):
    """A variable's memory, which is there as long as its program."""

    def __init__(self, program: CUDAProgram, address: int, size: int) -> None:
        super().__init__(address, size)
        self.program = program


def _told(module: _native.CudaModule, name: str) -> Kernel:
    """What the driver says of a kernel: how long its parameters are."""
    known = module.kernels()
    if name not in known:
        raise _missing(name, known)
    sizes = module.parameters(name)
    return Kernel(name, ["word" if size == 8 else f"bytes{size}" for size in sizes], [], (0, 0, 0))


def _missing(name: str, known: Iterable[str]) -> InvalidProgram:
    return InvalidProgram(f"no kernel {name!r} in the library: it has {', '.join(known) or 'none'}")
