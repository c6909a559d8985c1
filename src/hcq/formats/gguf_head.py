"""The head of a GGUF file that is to be written: metadata of typed keys and values, descriptions of tensors.

Follows ggml's docs/gguf.md, version 3, little-endian. What does not live here: reading (gguf), tensors' bytes (saving).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hcq import dtypes
from hcq.formats.blocks import BY_DTYPE, BY_NAME, BlockType
from hcq.formats.entry import utf8
from hcq.formats.gguf import (
    ALIGNMENT,
    ARRAY,
    BOOL,
    MAGIC,
    MOST_DIMENSIONS,
    MOST_NESTING,
    SCALARS,
    STRING,
    check_alignment,
)

_UINT32, _INT32, _FLOAT32, _UINT64, _INT64, _FLOAT64 = 4, 5, 6, 10, 11, 12
_MOST_NAME, _MOST_KEY = 64, (1 << 16) - 1  # bytes
_OF_SPLIT = "split."  # keys of one of several files
_OF_NUMPY = {"u1": 0, "i1": 1, "u2": 2, "i2": 3, "u4": 4, "i4": 5, "f4": 6, "b1": 7, "u8": 10, "i8": 11, "f8": 12}


class Described(NamedTuple):
    """The type of elements and the shape, in elements, that the file says of a tensor."""

    kind: BlockType
    shape: tuple[int, ...]


def describe(name: str, dtype: Any, shape: tuple[int, ...], type_name: str | None) -> Described:
    """What the file is to say of a tensor. `type_name` is the type of the blocks that a tensor of bytes holds.

    TypeError for dtypes that GGUF doesn't have, ValueError for names, shapes and types that it can't.
    """
    if len(name.encode()) > _MOST_NAME:
        raise ValueError(f"tensor {name!r:.100}: GGUF has names of {_MOST_NAME} bytes at most")
    if len(shape) > MOST_DIMENSIONS:
        raise ValueError(f"tensor {name!r} has {len(shape)} dimensions; GGUF has {MOST_DIMENSIONS} at most")
    if dtypes.of(dtype) is not dtypes.uint8:
        kind = BY_DTYPE.get(dtypes.of(dtype))
        if kind is None:
            known = ", ".join(each.name for each in BY_DTYPE.values())
            raise TypeError(f"tensor {name!r}: GGUF has no type for {dtype!r}; it has {known}, and blocks, as uint8")
        return Described(kind, shape)
    kind = BY_NAME.get(type_name or "")
    if kind is None or kind.dtype is not None:
        what = f"no blocks are called {type_name!r}" if type_name else "GGUF has no type for uint8"
        raise TypeError(f"tensor {name!r}: {what}; types={{{name!r}: 'Q8_0'}} says which blocks its bytes are")
    row, rest = divmod(shape[-1] if shape else 1, kind.nbytes)
    if rest:
        reason = f"rows of {shape[-1] if shape else 1} bytes are no whole blocks of {kind.name}, of {kind.nbytes} each"
        raise ValueError(f"tensor {name!r}: {reason}")
    return Described(kind, (*shape[:-1], row * kind.size))


def head(tensors: Sequence[tuple[str, Described]], metadata: Mapping[str, Any]) -> tuple[bytes, int]:
    """The bytes before the first tensor, and what each tensor's first byte and the file's end are multiples of.

    Keys of a file that was split (`split.*`) are left out: what is written is whole. TypeError and ValueError for
    metadata that GGUF can't have.
    """
    pairs = {key: said for key, said in metadata.items() if not (isinstance(key, str) and key.startswith(_OF_SPLIT))}
    alignment = check_alignment(pairs.get(ALIGNMENT, 32))
    begin = [MAGIC, struct.pack("<IQQ", 3, len(tensors), len(pairs))]
    for key, said in pairs.items():
        if not isinstance(key, str) or not 0 < len(utf8(key, "metadata's key")) <= _MOST_KEY:
            raise TypeError(f"a key of metadata is text of 1 to {_MOST_KEY} bytes, not {key!r:.60}")
        number, value = _value(key, said, 0)
        begin += [_text(key), struct.pack("<I", number), value]
    at = 0
    for name, (kind, shape) in tensors:
        begin += [_text(name), struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))]
        begin.append(struct.pack("<IQ", kind.number, at))
        at += math.prod(shape) // kind.size * kind.nbytes
        at += -at % alignment
    data = b"".join(begin)
    return data + bytes(-len(data) % alignment), alignment


def _text(text: str) -> bytes:
    data = utf8(text, "metadata's text")
    return struct.pack("<Q", len(data)) + data


def _value(key: str, said: Any, nesting: int) -> tuple[int, bytes]:
    """The number of a value's type, and its bytes."""
    if isinstance(said, str):
        return STRING, _text(said)
    number = _OF_NUMPY.get(getattr(getattr(said, "dtype", None), "str", "")[1:])
    if number is not None:  # NumPy's scalars and arrays say their type
        if getattr(said, "ndim", 0) > 1:
            return _value(key, list(said), nesting)
        items = said.tolist()
        if not isinstance(items, list):
            return number, struct.pack("<" + SCALARS[number], items)
        return ARRAY, struct.pack(f"<IQ{len(items)}{SCALARS[number]}", number, len(items), *items)
    if isinstance(said, (list, tuple)):
        return ARRAY, _array(key, said, nesting)
    number = _type_of(key, [said], in_array=False)
    return number, struct.pack("<" + SCALARS[number], said)


def _array(key: str, items: Sequence[Any], nesting: int) -> bytes:
    if nesting >= MOST_NESTING:
        raise ValueError(f"metadata {key!r}: arrays are nested more than {MOST_NESTING} deep")
    if items and all(isinstance(item, str) for item in items):
        return struct.pack("<IQ", STRING, len(items)) + b"".join(map(_text, items))
    if items and all(isinstance(item, (list, tuple)) or getattr(item, "ndim", 0) for item in items):
        made = [_value(key, item, nesting + 1)[1] for item in items]
        return struct.pack("<IQ", ARRAY, len(items)) + b"".join(made)
    number = _type_of(key, items, in_array=True)
    return struct.pack(f"<IQ{len(items)}{SCALARS[number]}", number, len(items), *items)


def _type_of(key: str, items: Sequence[Any], in_array: bool) -> int:
    """The type of Python's numbers: as other writers choose it, unless that would not hold them."""
    types = set(map(type, items))
    if types == {bool}:
        return BOOL
    if types <= {int}:  # also of an array without items
        low, high = min(items, default=0), max(items, default=0)
        for number, least, most in (
            (_INT32 if in_array else _UINT32, -(1 << 31) if in_array else 0, (1 << 31 if in_array else 1 << 32) - 1),
            (_INT32, -(1 << 31), (1 << 31) - 1),
            (_UINT32, 0, (1 << 32) - 1),
            (_INT64, -(1 << 63), (1 << 63) - 1),
            (_UINT64, 0, (1 << 64) - 1),
        ):
            if least <= low and high <= most:
                return number
        raise ValueError(f"metadata {key!r}: {low} to {high} fit no type of GGUF, which has 64 bits")
    if types <= {int, float}:
        try:
            return _FLOAT32 if all(map(_is_single, map(float, items))) else _FLOAT64
        except OverflowError:
            raise ValueError(f"metadata {key!r}: a number among {items!r:.80} is too large beside fractions") from None
    raise TypeError(f"metadata {key!r}: GGUF has texts, numbers, bools, and arrays of one of them, not {items!r:.80}")


def _is_single(value: float) -> bool:
    try:
        single: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return False
    return single == value or value != value
