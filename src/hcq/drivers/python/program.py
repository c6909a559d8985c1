"""The PYTHON device's programs: a kernel read from its text, its arguments, and running it."""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Any

from hcq.drivers.python.compiler import text_of
from hcq.errors import InvalidProgram
from hcq.kernels import types
from hcq.kernels.arithmetic import decode
from hcq.queues.program import HCQProgram

if TYPE_CHECKING:
    from hcq.drivers.python.device import PythonDevice
    from hcq.drivers.python.run import Dims
    from hcq.kernels.types import Scalar


class PythonProgram(HCQProgram):
    """A kernel. Buffers are passed first, then values; types are checked before anything is queued."""

    device: PythonDevice

    def __init__(self, device: PythonDevice, name: str, lib: bytes) -> None:
        """Raises InvalidProgram for bytes that are no library of ours, or have another kernel."""
        from hcq.kernels.text import parse

        text = text_of(lib, device.dname)
        self.function = parse(text)
        if self.function.name != name:
            raise InvalidProgram(f"no function {name!r} in the library: it has {self.function.name}")
        self.buffer_count = len(self.function.pointers)
        self.scalars = [types.element_of(each.type) for each in self.function.scalars]
        self.value_types = [_VALUE_NAMES.get(each.name, each.name) for each in self.scalars]
        held = ["uint16" if each is types.bf16 else each.dtype.name for each in self.scalars]
        self.signature = [("pointer", each.name) for each in self.function.pointers]
        self.signature += [(kind, each.name) for kind, each in zip(held, self.function.scalars, strict=True)]
        self._offsets, size = _layout(self.buffer_count, self.scalars)
        super().__init__(device, name, kernargs_alloc_size=max(size, 8))

    @functools.cached_property
    def translated(self) -> Any:
        """The kernel as a Python function; made at the first launch."""
        from hcq.drivers.python.translate import translate

        return translate(self.function)

    def run(self, kernargs: int, groups: Dims, items: Dims) -> None:
        """Run a launch: all groups, one after the other. Raises what the kernel did wrong."""
        from hcq.drivers.python.run import Launch

        data = ctypes.string_at(kernargs, self.kernargs_alloc_size)
        addresses = [int.from_bytes(data[8 * at : 8 * at + 8], "little") for at in range(self.buffer_count or 0)]
        pairs = zip(self.scalars, self._offsets, strict=True)
        values = [decode(data[at : at + type_.itemsize], type_) for type_, at in pairs]
        Launch(self.device.blocks, self.function, self.translated, groups, items).run(addresses, values)


_VALUE_NAMES = {"bool": "boolean", "bf16": "u16"}  # bfloat16 values are passed as their bits


def _layout(buffers: int, scalars: list[Scalar]) -> tuple[list[int], int]:
    """Where each value lies, at its natural alignment behind the addresses, and how long all are."""
    offsets, at = [], 8 * buffers
    for each in scalars:
        at = -(-at // each.itemsize) * each.itemsize
        offsets.append(at)
        at += each.itemsize
    return offsets, at
