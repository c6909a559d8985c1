"""The GGUF format: metadata of typed keys and values, descriptions of tensors, and their bytes, each aligned.

Follows ggml's docs/gguf.md, versions 2 and 3, little-endian. What does not live here: the types of elements (blocks),
reading tensors (reading).
"""

from __future__ import annotations

import math
import re
import struct
from typing import Any

from hcq.errors import FormatError
from hcq.formats.blocks import BY_NUMBER
from hcq.formats.entry import RAW, Entry, check_places
from hcq.formats.source import Source

MAGIC = b"GGUF"
PARTS, TENSORS_OF_ALL = "split.count", "split.tensors.count"  # keys of files that were split
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf\Z")
_MOST_HEADER = 1 << 28  # bytes; vocabularies take some 10 MB
MOST_DIMENSIONS = 4
MOST_NESTING = 4  # arrays of arrays
_FIRST_READ = 1 << 16
ALIGNMENT = "general.alignment"

STRING, ARRAY, BOOL = 8, 9, 7
# Types of values: by number, the struct code.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}


def parse(source: Source) -> tuple[list[Entry], dict[str, Any]]:
    """The entries of a GGUF file, in the file's order, and its metadata. FormatError for what is wrong.

    Dimensions are in the order of arrays in C, the last one contiguous; the file has them the other way round.
    """
    head = _Head(source)
    tensors, pairs = _begin(head)
    metadata: dict[str, Any] = {}
    for _ in range(pairs):
        at = head.at
        key = head.text("a key")
        if key in metadata:
            raise FormatError(source.path, at, f"the key {key!r} occurs twice")
        metadata[key] = head.value(head.number("I", "the type of a value"))
    try:
        alignment = check_alignment(metadata.get(ALIGNMENT, 32))
    except ValueError as error:
        raise FormatError(source.path, None, str(error)) from None
    found = [_description(head) for _ in range(tensors)]
    begin = head.at + -head.at % alignment
    if found and begin > source.size:
        raise FormatError(source.path, source.size, f"truncated: the tensors would begin at byte {begin}")
    entries = [_entry(source, begin, alignment, *description) for description in found]
    check_places(source, entries, begin, max(begin, source.size), holes=True)
    return entries, metadata


def other_parts(path: str, metadata: dict[str, Any]) -> list[str]:
    """The paths of the other parts of a file that was split, which its name and its metadata tell; else none."""
    count = metadata.get(PARTS, 1)
    if type(count) is not int or not 0 <= count < 100_000:
        raise FormatError(path, None, f"{PARTS} must be a number of files, not {count!r:.40}")
    if count <= 1:
        return []
    found = _PART.search(path)
    if found is None or int(found[2]) != count:
        reason = f"one of {count} parts, and its name doesn't end as theirs do, -00001-of-{count:05}.gguf"
        raise FormatError(path, None, reason)
    parts = (f"{path[: found.start()]}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1))
    return [part for part in parts if part != path]


def check_alignment(said: Any) -> int:
    """What the metadata says that tensors are aligned to; ValueError where that is no number of bytes that can be."""
    if type(said) is not int or said <= 0 or said % 8 or said > 1 << 20:
        raise ValueError(f"{ALIGNMENT} must be a multiple of 8, and is {said!r:.40}")
    return said


class _Head:
    """The head of the file, from which values are taken one after the other. More of it is read as it is needed."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.at = 0
        self.data = source.read(0, min(_FIRST_READ, source.size))

    def need(self, count: int, what: str) -> int:
        """Where the next `count` bytes begin, which are there; they are then passed."""
        at, end = self.at, self.at + count
        if end > len(self.data):
            self._read_up_to(end, what)
        self.at = end
        return at

    def number(self, code: str, what: str) -> Any:
        at = self.need(struct.calcsize("<" + code), what)
        return struct.unpack_from("<" + code, self.data, at)[0]

    def text(self, what: str) -> str:
        count = self.number("Q", what)
        at = self.need(count, what)
        try:
            return self.data[at : at + count].decode()
        except UnicodeDecodeError as error:
            raise FormatError(self.source.path, at + error.start, f"{what} is not UTF-8") from None

    def value(self, kind: int, nesting: int = 0) -> Any:
        if kind == STRING:
            return self.text("a text")
        if kind == ARRAY:
            return self._array(nesting)
        code = self._code(kind)
        at = self.at
        value = self.number(code, "a value")
        return self._flags([value], at)[0] if kind == BOOL else value

    def _array(self, nesting: int) -> list[Any]:
        at = self.at
        kind = self.number("I", "the type of an array")
        count = self.number("Q", "the length of an array")
        if nesting >= MOST_NESTING:
            raise FormatError(self.source.path, at, f"arrays are nested more than {MOST_NESTING} deep")
        if kind in (STRING, ARRAY):
            least = 8 if kind == STRING else 12
            if count * least > self.source.size - self.at:
                raise FormatError(self.source.path, at, f"truncated: there is no room for an array of {count} values")
            return [self.value(kind, nesting + 1) for _ in range(count)]
        code = f"<{count}{self._code(kind)}"
        begin = self.need(count * struct.calcsize("<" + code[-1]), f"an array of {count} values")
        values = list(struct.unpack_from(code, self.data, begin))
        return self._flags(values, begin) if kind == BOOL else values

    def _code(self, kind: int) -> str:
        code = SCALARS.get(kind)
        if code is None:
            raise FormatError(self.source.path, self.at, f"there is no type of values with the number {kind}")
        return code

    def _flags(self, values: list[int], at: int) -> list[bool]:
        wrong = next((n for n, value in enumerate(values) if value > 1), None)
        if wrong is not None:
            raise FormatError(self.source.path, at + wrong, f"a bool must be 0 or 1, and is {values[wrong]}")
        return list(map(bool, values))

    def _read_up_to(self, end: int, what: str) -> None:
        if end > self.source.size:
            reason = f"truncated: {what} would end at byte {end}, and the file has {self.source.size}"
            raise FormatError(self.source.path, self.at, reason)
        if end > _MOST_HEADER:
            raise FormatError(self.source.path, self.at, f"the header is longer than {_MOST_HEADER} bytes, the limit")
        have = len(self.data)
        upto = min(max(end, 2 * have), self.source.size)
        self.data += self.source.read(have, upto - have)


def _begin(head: _Head) -> tuple[int, int]:
    """How many tensors and how many pairs of key and value."""
    source = head.source
    if head.data[:4] != MAGIC:
        raise FormatError(source.path, 0, "no GGUF file: it doesn't begin with GGUF")
    head.need(4, "the magic")
    version = head.number("I", "the version")
    if version not in (2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        which = f"version {swapped}, big-endian" if swapped in (1, 2, 3) else f"version {version}"
        raise FormatError(source.path, 4, f"GGUF of {which}; versions 2 and 3, little-endian, are read")
    tensors = head.number("Q", "the number of tensors")
    pairs = head.number("Q", "the number of keys")
    for at, count, least, what in ((8, tensors, 24, "tensors"), (16, pairs, 13, "keys")):
        if count * least > source.size:
            raise FormatError(source.path, at, f"the header claims {count} {what}, for which the file has no room")
    return tensors, pairs


def _description(head: _Head) -> tuple[int, str, tuple[int, ...], int, int]:
    """Of one tensor: where this is said, name, shape, type and offset."""
    at = head.at
    name = head.text("the name of a tensor")
    dimensions = head.number("I", "the number of dimensions")
    if dimensions > MOST_DIMENSIONS:
        raise FormatError(
            head.source.path, at, f"tensor {name!r} has {dimensions} dimensions; {MOST_DIMENSIONS} are the most"
        )
    shape = tuple(reversed([head.number("Q", "a dimension") for _ in range(dimensions)]))
    return at, name, shape, head.number("I", "the type of a tensor"), head.number("Q", "the place of a tensor")


def _entry(
    source: Source, begin: int, alignment: int, at: int, name: str, shape: tuple[int, ...], number: int, offset: int
) -> Entry:
    kind = BY_NUMBER.get(number)
    if kind is None:
        raise FormatError(source.path, at, f"tensor {name!r}: there is no type with the number {number}")
    row = shape[-1] if shape else 1
    if row % kind.size:
        reason = f"tensor {name!r}: rows of {row} elements are no whole blocks of {kind.name}, of {kind.size} each"
        raise FormatError(source.path, at, reason)
    if offset % alignment:
        raise FormatError(source.path, at, f"tensor {name!r} is not aligned to {alignment} bytes: offset {offset}")
    nbytes = math.prod(shape) // kind.size * kind.nbytes
    if kind.dtype is not None:
        return Entry(name, kind.name, kind.dtype, shape, source, begin + offset, nbytes)
    raw = (*shape[:-1], row // kind.size * kind.nbytes)
    return Entry(name, kind.name, RAW, shape, source, begin + offset, nbytes, raw)
