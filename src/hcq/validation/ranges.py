"""What launches and copies touch: address ranges, from buffers, handles, and kernargs that were filled before.

What does not live here: what is made of them (model).
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from hcq.validation.events import KINDS, READ, UNKNOWN, WRITE, Access, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from hcq.validation.memory import Memory

_FILLS_KEPT = 1 << 16
_HOST = "host memory"


class _Fill(NamedTuple):
    program: Any
    accesses: tuple[Access, ...]


def space_of(device: Any) -> Hashable:
    """The address space of a device's memory: one for all whose memory the host reaches, and one for the others of a
    kind, whose copy queues take each other's addresses."""
    reached = getattr(getattr(device, "allocator", None), "host_access", False)
    return _HOST if reached else str(device.dname).partition(":")[0]


class Ranges:
    """Looks allocations up in the model's memory; makes accesses."""

    def __init__(self, memory: Memory, adopt: Callable[[Any, Hashable, int, int, str], None]) -> None:
        self._memory = memory
        self._adopt = adopt  # for buffers that were allocated before anybody looked
        self._fills: OrderedDict[int, _Fill] = OrderedDict()

    def launch(self, device: Any, program: Any, bufs: Sequence[Any]) -> Work:
        """A launch with these buffers."""
        return Work(f"kernel {program.name}", self._arguments(device, program, bufs))

    def filled(self, program: Any, bufs: Sequence[Any], address: int) -> None:
        """Remember what kernargs name: how far a buffer goes is not written in them."""
        self._fills.pop(address, None)
        self._fills[address] = _Fill(program, self._arguments(program.device, program, bufs))
        if len(self._fills) > _FILLS_KEPT:
            self._fills.popitem(last=False)

    def exec(self, device: Any, program: Any, kernargs: int, groups: Sequence[int]) -> Work:
        """An exec command: the kernargs as they are now."""
        name = f"kernel {program.name}"
        if 0 in groups:
            return Work(name)
        fill, space = self._fills.get(kernargs), space_of(device)
        at = kernargs + getattr(program, "kernargs_args_offset", 0)
        if fill is not None and fill.program is program:
            if space is not _HOST or _untyped(program):
                return Work(name, fill.accesses)
            return Work(name, tuple(_moved(a, _word(at + 8 * i)) for i, a in enumerate(fill.accesses)))
        # Written by the client: where buffers begin is known, how far they go isn't.
        known = getattr(program, "accesses", None)  # a driver's own programs need not have it
        if space is not _HOST or known is None:
            return Work(name)
        accesses = []
        for index in range(len(known)):
            address = _word(at + 8 * index)
            region = self._memory.find(space, address)
            if region is not None:
                accesses.append(Access(space, address, region.last, UNKNOWN, f"buffer {index}"))
        return Work(name, tuple(accesses))

    def copy(self, device: Any, dest: int, src: int, nbytes: int, name: str = "copy") -> Work:
        """A copy between addresses. Memory that isn't kept book of (staging, a caller's) is left out."""
        space = space_of(device)
        sides = [
            Access(space, address, address + nbytes, kind, what)
            for address, kind, what in ((src, READ, "the source"), (dest, WRITE, "the destination"))
            if nbytes and self._memory.find(space, address) is not None
        ]
        return Work(f"{name} of {nbytes} bytes", tuple(sides), moves=True)

    def node(self, graph: Any, node: Any) -> Work:
        """A command of a graph, as it is replayed."""
        program = getattr(node, "program", None)
        known = getattr(program, "accesses", None)
        unknown = program is not None and (known is None or None in known)
        kinds: dict[Any, int] = {}  # what is read and written counts as one access, as it does in a launch
        for spans, kind in ((node.reads, READ), (node.writes, UNKNOWN if unknown else WRITE)):
            for span in spans:
                kinds[span] = kinds.get(span, 0) | kind
        accesses = []
        for span, kind in kinds.items():
            first, last = graph.inputs.moved(span)
            if self._memory.find(_HOST, first) is not None:
                accesses.append(Access(_HOST, first, last, kind, "memory"))
        return Work(f"{node.kind} {node.name}", tuple(accesses), moves=unknown)

    def of_buffer(self, device: Any, buf: Any, kind: int, what: str) -> Access | None:
        """All of a Buffer or handle; None for anything else."""
        handle = getattr(buf, "_buf", buf)
        if not hasattr(handle, "va_addr"):
            return None
        space, first = space_of(device), handle.va_addr
        region = self._memory.find(space, first)
        if region is None:
            root = getattr(getattr(buf, "base", None), "_buf", handle)
            if not hasattr(root, "va_addr"):
                return None
            self._adopt(device, space, root.va_addr, root.va_addr + root.size, _name(buf))
            region = self._memory.find(space, first)
        if region is not None and getattr(buf, "base", None) is buf and region.name.startswith("memory of"):
            region.name = f"{_name(buf)} on {device.dname}"
        number = region.number if region is not None else 0
        nbytes = getattr(buf, "nbytes", handle.size)
        return Access(space, first, first + nbytes, kind, what, number)

    def _arguments(self, device: Any, program: Any, bufs: Sequence[Any]) -> tuple[Access, ...]:
        known = getattr(program, "accesses", None)  # a driver's own programs need not have it
        accesses = []
        for index, buf in enumerate(bufs):
            said = known[index] if known is not None and index < len(known) else None
            access = self.of_buffer(device, buf, KINDS[said], f"buffer {index}")
            if access is not None:
                accesses.append(access)
        return tuple(accesses)


def _moved(access: Access, address: int) -> Access:
    """The access with the address that the kernargs have by now: clients patch them."""
    if address == access.first:
        return access
    return access._replace(first=address, last=address + access.last - access.first, region=0)


def _untyped(program: Any) -> bool:
    # Kernargs of native programs without a signature have another layout, and nobody patches them by hand.
    return getattr(program, "signature", ()) is None


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _name(buf: Any) -> str:
    dtype = getattr(buf, "dtype", None)
    if dtype is None:
        return f"memory of {buf.size} bytes"
    return f"a buffer of {buf.size} x {getattr(dtype, 'name', dtype)}"
