"""What the compiler makes of a module of PTX, as bytes: the host's object, and what is in it.

What does not live here: making one (compiler), and loading one (loading).
"""

from __future__ import annotations

import json
import struct
from typing import NamedTuple

from hcq.errors import InvalidProgram

_MAGIC = b"HCQCUDA4"


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


def pack(image: Image) -> bytes:
    """The bytes that `unpack` takes."""
    sizes = [len(each) for each in image.objects]
    head = json.dumps([*image[:4], sizes], separators=(",", ":")).encode()
    return _MAGIC + struct.pack("<I", len(head)) + head + b"".join(image.objects)


def unpack(library: bytes) -> Image:
    """The image. Raises InvalidProgram for what is none."""
    if library[:8] != _MAGIC:
        raise InvalidProgram("not an image of hcq.cudacpu")
    (size,) = struct.unpack_from("<I", library, 8)
    at = 12 + size
    kernels, variables, files, lines, sizes = json.loads(library[12:at])
    objects = []
    for each in sizes:
        objects.append(library[at : at + each])
        at += each
    return Image(
        tuple(_kernel(k) for k in kernels),
        tuple(Global(*g) for g in variables),
        tuple(files),
        tuple((ptx, file, line) for ptx, file, line in lines),
        tuple(objects),
    )


def _kernel(row: list[object]) -> Kernel:
    kernel = Kernel(*row)  # type: ignore[arg-type]  # as pack() wrote them
    params = tuple((int(offset), int(size)) for offset, size in kernel.params)
    x, y, z = kernel.required
    return kernel._replace(params=params, required=(x, y, z))
