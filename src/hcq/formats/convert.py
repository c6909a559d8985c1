"""Loading tensors as another floating type than the file has.

What has to be converted is read and converted in pieces, so that there is never more of it than a few MiB beside the
result: by kernels on the device, where it runs portable kernels, else on the host. What does not live here: the
arithmetic of blocks (block_kernels, dequantize).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hcq import dtypes
from hcq.dtypes import DType
from hcq.formats import reading
from hcq.formats.blocks import BY_NAME
from hcq.formats.entry import Entry
from hcq.formats.npy import HostEntry
from hcq.runtime.buffer import Buffer
from hcq.runtime.registry import Device

if TYPE_CHECKING:
    import numpy

WANTED = (dtypes.float32, dtypes.float16, dtypes.bfloat16)
KNOWN = frozenset({"Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"})
"""The types of blocks that can become floating numbers."""
_PIECE = 2 << 20  # elements that are converted at once
_IN_KERNELS = frozenset({dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64})  # that kernels compute with


def target(dtype: Any) -> DType:
    """The dtype that was asked for; ValueError where blocks and floating numbers are not converted to it."""
    wanted = dtypes.of(dtype)
    if wanted not in WANTED:
        raise ValueError(f"floating tensors can be loaded as {', '.join(map(repr, WANTED))}, not as {wanted!r}")
    return wanted


def converted(entries: Sequence[Entry], wanted: DType) -> list[Entry]:
    """Those of `entries` that are floating, in a type other than `wanted`, or blocks.

    ValueError for blocks that nobody here can convert, naming the tensors. Complex numbers are not floating.
    """
    unknown = [entry for entry in entries if entry.is_raw and entry.type not in KNOWN]
    if unknown:
        what = ", ".join(f"{entry.name!r} ({entry.type})" for entry in unknown[:5])
        raise ValueError(
            f"{len(unknown)} tensors are of types that can't be loaded as {wanted!r}: {what}; "
            f"choose others by their names, or load bytes, without dtype. Known are {', '.join(sorted(KNOWN))}"
        )
    return [entry for entry in entries if entry.is_raw or (entry.dtype.kind == "f" and entry.dtype is not wanted)]


def convert(entry: Entry, buf: Buffer) -> None:
    """Read a tensor, piece by piece, into an allocated buffer of another floating type. Blocks."""
    if isinstance(entry, HostEntry):
        data = memoryview(bytearray(entry.nbytes))
        entry.read_into(data)
        _put(buf, 0, _values(entry, data))
    elif Device[buf.device].kernel_language is not None and (entry.is_raw or entry.dtype in _IN_KERNELS):
        _on_device(entry, buf)
    else:
        _on_host(entry, buf)


def _pieces(entry: Entry) -> Iterator[tuple[int, Entry]]:
    """The number of the first element of each piece, and the piece."""
    size, nbytes = (1, entry.dtype.itemsize) if not entry.is_raw else BY_NAME[entry.type][2:4]
    count = math.prod(entry.shape)
    for at in range(0, count, _PIECE):
        elements = min(_PIECE, count - at)
        place = entry.offset + at // size * nbytes
        length = elements // size * nbytes
        raw = (length,) if entry.is_raw else None
        yield at, Entry(entry.name, entry.type, entry.dtype, (elements,), entry.source, place, length, raw)


def _on_device(entry: Entry, buf: Buffer) -> None:
    from hcq import ops
    from hcq.formats import block_kernels

    scratch: Buffer | None = None
    for at, piece in _pieces(entry):
        if scratch is None:  # the first piece is the longest
            scratch = Buffer(buf.device, piece.nbytes, dtypes.uint8, preallocate=True)
        data = scratch.view(piece.nbytes // piece.dtype.itemsize, piece.dtype, 0)
        reading.fill([(piece, data.ensure_allocated())], 1, _nobody)
        part = buf.view(piece.shape[0], buf.dtype, at * dtypes.itemsize(buf.dtype))
        if piece.is_raw:
            block_kernels.dequantize(piece.type, part.ensure_allocated(), data)
        else:
            ops.cast(data, buf.dtype, out=part.ensure_allocated())


def _on_host(entry: Entry, buf: Buffer) -> None:
    scratch: bytearray | None = None
    for at, piece in _pieces(entry):
        if scratch is None:
            scratch = bytearray(piece.nbytes)
        data = memoryview(scratch)[: piece.nbytes]
        piece.source.read_into([data], piece.offset)
        _put(buf, at, _values(piece, data))


def _values(entry: Entry, data: memoryview) -> numpy.ndarray[Any, Any]:
    import numpy

    if not entry.is_raw:
        return numpy.frombuffer(data, dtypes.to_numpy(entry.dtype))
    from hcq.formats.dequantize import blocks_to_floats

    return blocks_to_floats(entry.type, data, BY_NAME[entry.type].nbytes)


def _put(buf: Buffer, at: int, values: numpy.ndarray[Any, Any]) -> None:
    """Write numbers, in the buffer's type, from its element `at` on."""
    import numpy

    wanted = dtypes.to_numpy(buf.dtype)
    exporter = buf._export()
    if exporter is None:
        part = buf.view(len(values), buf.dtype, at * wanted.itemsize).ensure_allocated()
        part.copyin(values.astype(wanted).view(numpy.uint8))
    else:
        numpy.frombuffer(memoryview(exporter), wanted)[at : at + len(values)] = values


def _nobody(nbytes: int) -> None:
    """Takes the place of a progress bar."""
