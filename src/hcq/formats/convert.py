"""Loading tensors as another floating type than the file has.

What has to be converted is read and converted in pieces, so that there is never more of it than a few MiB beside the
result. What does not live here: the arithmetic of blocks (dequantize).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hcq import dtypes
from hcq.dtypes import DType
from hcq.formats.blocks import BY_NAME
from hcq.formats.dequantize import KNOWN, blocks_to_floats
from hcq.formats.entry import Entry
from hcq.formats.npy import HostEntry

if TYPE_CHECKING:
    import numpy

    from hcq.runtime.buffer import Buffer

WANTED = (dtypes.float32, dtypes.float16, dtypes.bfloat16)
_PIECE = 2 << 20  # elements that are converted at once


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
    kind = BY_NAME[entry.type] if entry.is_raw else None
    size, nbytes = (kind.size, kind.nbytes) if kind is not None else (1, entry.dtype.itemsize)
    count = math.prod(entry.shape)
    step = _PIECE if not isinstance(entry, HostEntry) else count
    scratch = bytearray(min(step, count) // size * nbytes)
    target_type = dtypes.to_numpy(buf.dtype)
    memory = _memory(buf, target_type)
    for at in range(0, count, step):
        elements = min(step, count - at)
        data = memoryview(scratch)[: elements // size * nbytes]
        if isinstance(entry, HostEntry):
            entry.read_into(data)
        else:
            entry.source.read_into([data], entry.offset + at // size * nbytes)
        values = _values(entry, data, nbytes)
        if memory is not None:
            memory[at : at + elements] = values
        else:
            part = buf.view(elements, buf.dtype, at * target_type.itemsize).ensure_allocated()
            part.copyin(_bytes(values.astype(target_type)))


def _values(entry: Entry, data: memoryview, block_bytes: int) -> numpy.ndarray[Any, Any]:
    import numpy

    if entry.is_raw:
        return blocks_to_floats(entry.type, data, block_bytes)
    return numpy.frombuffer(data, dtypes.to_numpy(entry.dtype))


def _memory(buf: Buffer, dtype: numpy.dtype[Any]) -> numpy.ndarray[Any, Any] | None:
    import numpy

    exporter = buf._export()
    return None if exporter is None else numpy.frombuffer(memoryview(exporter), dtype)


def _bytes(values: Any) -> memoryview:
    import numpy

    return memoryview(values.view(numpy.uint8))
