"""Keys of the compile cache: named parts, kept apart by their lengths, and a short digest that names the file.

A key holds everything that changes what the compiler gives out, and nothing that comes from its output. What does not
live here: where entries are kept, and what a compiler puts into its key (that is the compiler's).
"""

from __future__ import annotations

import struct

try:
    # hashlib's own, without OpenSSL, which hashlib loads first: half of the time that opening a device takes.
    from _blake2 import blake2b as _blake2b
except ImportError:
    from hashlib import blake2b as _blake2b

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = "1"
"""Raised when keys or entries change their meaning, so that older ones are no longer found."""

LIBRARY = ".hcq"
NOTE = ".note"

_LENGTH = struct.Struct("<I")


class Key:
    """The full key of one entry. `parts` maps names to bytes; equal parts, and only they, give equal `encoded`.

    `suffix` ends the entry's file name, and tells libraries from notes without opening it.
    """

    __slots__ = ("digest", "encoded", "parts", "suffix")

    def __init__(self, parts: Mapping[str, bytes], suffix: str = LIBRARY) -> None:
        self.suffix = suffix
        self.parts = dict(sorted(parts.items()))
        pieces: list[bytes] = []
        for name, value in self.parts.items():
            for field in (name.encode(), value):
                pieces += (_LENGTH.pack(len(field)), field)
        self.encoded = b"".join(pieces)
        self.digest = digest(self.encoded, size=20).hex()


def digest(*pieces: bytes | memoryview, size: int) -> bytes:
    """The BLAKE2b digest (RFC 7693) of the pieces one after another, `size` bytes of it."""
    state = _blake2b(digest_size=size)
    for piece in pieces:
        state.update(piece)
    return state.digest()


def text(value: str | bytes) -> bytes:
    """The bytes of a part, whatever text it holds: also lone surrogates, which sources may carry."""
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def decode(encoded: bytes) -> dict[str, bytes]:
    """The parts of an encoded key. Raises ValueError where it is none."""
    fields: list[bytes] = []
    at = 0
    while at < len(encoded):
        if at + _LENGTH.size > len(encoded):
            raise ValueError("a length is cut short")
        (length,) = _LENGTH.unpack_from(encoded, at)
        at += _LENGTH.size
        if at + length > len(encoded):
            raise ValueError("a part is cut short")
        fields.append(encoded[at : at + length])
        at += length
    if len(fields) % 2:
        raise ValueError("a name without a value")
    return {name.decode(): value for name, value in zip(fields[::2], fields[1::2], strict=True)}
