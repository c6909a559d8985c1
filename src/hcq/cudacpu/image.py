"""What the compiler makes of a module of PTX, as bytes: the host's object, and what is in it.

What does not live here: making one (compiler), and loading one (loading).
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, NamedTuple

from hcq.cudacpu.debug import Table
from hcq.errors import InvalidProgram

if TYPE_CHECKING:
    from collections.abc import Callable

_MAGIC = b"HCQCUDA6"


class Kernel(NamedTuple):
    """A kernel of an object. `params` are (offset, bytes) each; `required` is .reqntid, (0, 0, 0) without."""

    name: str
    symbol: str
    kind: str  # loop, threads, regions
    params: tuple[tuple[int, int], ...]
    shared: int
    local: int
    registers: int
    max_threads: int  # 0: as many as the device takes
    required: tuple[int, int, int]
    scratch_group: int
    scratch_item: int
    accesses: bytes  # as lower.accesses has them


class Global(NamedTuple):
    """A variable of an object that the host may ask for."""

    name: str
    symbol: str
    size: int
    constant: bool


class Image(NamedTuple):
    """A compiled module. `lines` are (line of the PTX, file's place in `files`, line of it), where that changes."""

    kernels: tuple[Kernel, ...]
    globals: tuple[Global, ...]
    files: tuple[str, ...]
    lines: tuple[tuple[int, int, int], ...]
    objects: tuple[bytes, ...]  # ELF, to be linked with each other
    code: tuple[Table, ...]  # of each object
    later: bool = False  # the kernels' code is not in it: `part` makes each
    part: Callable[[str], Image] | None = None  # not packed; an image of one kernel, by its name


def pack(image: Image) -> bytes:
    """The bytes that `unpack` takes."""
    parts = [*image.objects, *(each.rows for each in image.code), *(each.accesses for each in image.kernels)]
    code = [(each.symbol, each.offset) for each in image.code]
    told = [[each[:-1] for each in image.kernels], *image[1:4], code, [len(each) for each in parts], image.later]
    head = json.dumps(told, separators=(",", ":")).encode()
    return _MAGIC + struct.pack("<I", len(head)) + head + b"".join(parts)


def unpack(library: bytes) -> Image:
    """The image. Raises InvalidProgram for what is none."""
    if library[:8] != _MAGIC:
        raise InvalidProgram("not an image of hcq.cudacpu")
    (size,) = struct.unpack_from("<I", library, 8)
    at = 12 + size
    kernels, variables, files, lines, code, sizes, later = json.loads(library[12:at])
    parts = []
    for each in sizes:
        parts.append(library[at : at + each])
        at += each
    objects, rows, accesses = parts[: len(code)], parts[len(code) : 2 * len(code)], parts[2 * len(code) :]
    return Image(
        tuple(_kernel(k, a) for k, a in zip(kernels, accesses, strict=True)),
        tuple(Global(*g) for g in variables),
        tuple(files),
        tuple((ptx, file, line) for ptx, file, line in lines),
        tuple(objects),
        tuple(Table(symbol, offset, each) for (symbol, offset), each in zip(code, rows, strict=True)),
        later,
    )


def _kernel(row: list[object], accesses: bytes) -> Kernel:
    kernel = Kernel(*row, accesses)  # type: ignore[arg-type, call-arg]  # as pack() wrote them
    params = tuple((int(offset), int(size)) for offset, size in kernel.params)
    x, y, z = kernel.required
    return kernel._replace(params=params, required=(x, y, z))
