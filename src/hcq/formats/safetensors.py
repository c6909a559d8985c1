"""The safetensors format: an eight-byte length, a JSON header, and the tensors' bytes without gaps.

Follows the format's specification (the `safetensors` project's README, "Format"). What does not live here: the index
over several files (index), reading tensors (reading).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from hcq import _native, dtypes
from hcq.dtypes import DType
from hcq.errors import FormatError
from hcq.formats.entry import MOST_COUNT, MOST_DIMENSIONS, RAW, Entry, check_places, rows_of
from hcq.formats.source import Source

MOST_HEADER = 100_000_000  # bytes: what other readers accept
_ALIGNMENT = 4096  # of the first tensor's byte: direct I/O can start there, and it costs at most a page
_METADATA = "__metadata__"  # the key of texts beside tensors
_DTYPES: dict[str, DType] = {
    "BOOL": dtypes.bool,
    "I8": dtypes.int8,
    "I16": dtypes.int16,
    "I32": dtypes.int32,
    "I64": dtypes.int64,
    "U8": dtypes.uint8,
    "U16": dtypes.uint16,
    "U32": dtypes.uint32,
    "U64": dtypes.uint64,
    "F8_E4M3": dtypes.float8_e4m3fn,
    "F8_E5M2": dtypes.float8_e5m2,
    "BF16": dtypes.bfloat16,
    "F16": dtypes.float16,
    "F32": dtypes.float32,
    "F64": dtypes.float64,
    "C64": dtypes.complex64,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
# Types that no dtype stands for, by the bits of an element.
_RAW_BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8}


class _Duplicate(ValueError):
    pass


def parse(source: Source) -> tuple[list[Entry], dict[str, str]]:
    """The entries of a safetensors file, in the header's order, and its metadata. FormatError for what is wrong."""
    count = int.from_bytes(source.read(0, 8), "little")
    if count > MOST_HEADER:
        raise FormatError(source.path, 0, f"the header would have {count} bytes, and {MOST_HEADER} are the limit")
    if count > source.size - 8:
        raise FormatError(
            source.path, 0, f"truncated: the header would have {count} bytes, and {source.size - 8} are there"
        )
    text = source.read(8, count)
    begin = 8 + count
    plain = _native.safetensors_header(text)  # as nearly all are: read natively
    if plain is not None:
        found, metadata = plain
        entries = [_entry(source, begin, *tensor) for tensor in zip(*[iter(found)] * 5, strict=True)]
    else:
        header = _decode(source, text)
        metadata = header.pop(_METADATA, {})
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            raise FormatError(source.path, 8, f"{_METADATA} must map text to text")
        entries = [_entry(source, begin, name, *_fields(source, name, said)) for name, said in header.items()]
    check_places(source, entries, begin, source.size, holes=False)
    return entries, metadata


def describe(tensors: Sequence[tuple[str, Any, tuple[int, ...], int]], metadata: Mapping[str, str]) -> bytes:
    """The head of a file, length and header, for tensors of (name, dtype, shape, bytes) that follow in this order.

    It is filled up with spaces so that the tensors begin at a multiple of 4096 bytes. TypeError for dtypes that the
    format has no name for, ValueError for a name that is the format's own.
    """
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    at = 0
    for name, dtype, shape, nbytes in tensors:
        check(name, dtype)
        header[name] = {"dtype": type_name(dtype), "shape": list(shape), "data_offsets": [at, at + nbytes]}
        at += nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    if len(text) > MOST_HEADER:
        raise ValueError(f"the header would have {len(text)} bytes, and {MOST_HEADER} are the format's limit")
    return len(text).to_bytes(8, "little") + text


def check(name: str, dtype: Any) -> None:
    """ValueError for a tensor's name that the format uses itself, TypeError for dtypes that it has no name for."""
    if name == _METADATA:
        raise ValueError(
            f"no tensor of a safetensors file can have the name {name!r}: the format keeps its texts there"
        )
    type_name(dtype)


def type_name(dtype: Any) -> str:
    """The format's name for a dtype; TypeError where it has none."""
    try:
        return _NAMES[dtypes.of(dtype)]
    except (KeyError, TypeError):
        raise TypeError(f"safetensors has no name for {dtype!r}; it has {', '.join(_DTYPES)}") from None


def _decode(source: Source, text: bytes) -> dict[str, Any]:
    if not text.startswith(b"{"):
        raise FormatError(source.path, 8, "the header is no JSON object: is this a safetensors file?")
    try:
        header: dict[str, Any] = json.loads(text.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except _Duplicate as error:
        raise FormatError(source.path, 8, f"the header has the key {error.args[0]!r} twice") from None
    except UnicodeDecodeError as error:
        raise FormatError(source.path, 8 + error.start, "the header is not UTF-8") from None
    except json.JSONDecodeError as error:
        at = 8 + len(error.doc[: error.pos].encode())
        raise FormatError(source.path, at, f"the header is not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise FormatError(source.path, 8, f"the header is not JSON: {error}") from None
    return header  # a dict, for it begins with a brace


def _fields(source: Source, name: str, fields: Any) -> tuple[str, tuple[int, ...], int, int]:
    """Type, shape, and where the bytes begin and end, of what the header says of a tensor."""
    try:
        type_, shape, (low, high) = fields["dtype"], fields["shape"], fields["data_offsets"]
        right = type(type_) is str and type(shape) is list and len(shape) <= MOST_DIMENSIONS
        for count in (low, high, *shape):
            right = right and type(count) is int and 0 <= count <= MOST_COUNT
    except (KeyError, TypeError, ValueError):
        right = False
    if not right:
        raise FormatError(
            source.path,
            8,
            f"tensor {name!r}: expected dtype, shape and data_offsets, in whole numbers, not {fields!r:.100}",
        )
    return type_, tuple(shape), low, high


def _entry(source: Source, begin: int, name: str, type_: str, shape: tuple[int, ...], low: int, high: int) -> Entry:
    dtype = _DTYPES.get(type_)
    if dtype is not None and high - low == dtype.itemsize * math.prod(shape):
        return Entry(name, type_, dtype, shape, source, begin + low, high - low)
    bits = dtype.itemsize * 8 if dtype is not None else _RAW_BITS.get(type_)
    if bits is None:
        raise FormatError(source.path, 8, f"tensor {name!r}: unknown dtype {type_!r:.40}")
    needed, rest = divmod(math.prod(shape) * bits, 8)
    if rest or high - low != needed:
        raise FormatError(
            source.path,
            8,
            f"tensor {name!r}: {type_} of shape {list(shape)!r:.100} needs {math.prod(shape) * bits / 8:g} bytes, "
            f"and data_offsets {low} to {high} are {high - low}",
        )
    return Entry(name, type_, RAW, shape, source, begin + low, needed, rows_of(shape, needed))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        raise _Duplicate(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
