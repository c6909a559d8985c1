"""NumPy's formats: .npy, one array, and .npz, a zip of them.

Headers are read and written by numpy.lib.format, containers by zipfile. Pickled objects are never read. What does not
live here: reading the arrays of .npy files that lie as buffers do (reading).
"""

from __future__ import annotations

import errno
import io
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hcq import dtypes
from hcq.errors import FormatError
from hcq.formats.entry import MOST_DIMENSIONS, Entry, is_count
from hcq.formats.source import Source

if TYPE_CHECKING:
    import numpy

MAGIC = b"\x93NUMPY"
ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
_USER_TYPES = 256  # the number of the first type that is not NumPy's own
_MOST_HEADER = 1 << 16  # bytes of a description
_MOST_DEFLATED = 1032  # bytes that one deflated byte can stand for
_PIECE = 1 << 20  # bytes that are unpacked or turned round at once
_BROKEN_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, struct.error, RuntimeError, ValueError)


class HostEntry(Entry):
    """An array whose bytes in the file are not those of a buffer: in a zip, in Fortran's order, or big-endian."""

    __slots__ = ("fortran", "member", "stored")

    stored: numpy.dtype[Any]
    fortran: bool
    member: tuple[zipfile.ZipFile, zipfile.ZipInfo] | None

    def __getitem__(self, rows: slice) -> Entry:
        """As of every entry; whoever loads the rows of such an array reads all of it up to them."""
        part = super().__getitem__(rows)
        entry = HostRows(self.name, self.type, self.dtype, part.shape, self.source, part.offset, part.nbytes)
        entry.stored, entry.fortran, entry.member = self.stored, self.fortran, self.member
        entry.whole, entry.skipped = self, part.offset - self.offset
        return entry

    def read_into(self, view: memoryview) -> None:
        """Fill `view`, bytes. Blocks. FormatError for damage, which zip files show by their sums."""
        with self._reading() as read:
            if self.fortran and len(self.shape) > 1:
                self._turn_round(view, read)
            else:
                read(view)
        if not self.stored.isnative:
            import numpy

            numpy.frombuffer(view, self.stored.newbyteorder("=")).byteswap(inplace=True)

    def _turn_round(self, view: memoryview, read: Callable[[memoryview], None]) -> None:
        """Fill `view` from Fortran's order, in which the last index changes last: some of its values at a time."""
        import numpy

        into = numpy.frombuffer(view, self.stored.newbyteorder("=")).reshape(self.shape)
        count, row = self.shape[-1], math.prod(self.shape[:-1])
        at_once = max(1, min(count, _PIECE // (row * self.stored.itemsize)))
        block = numpy.empty(at_once * row, into.dtype)
        for at in range(0, count, at_once):
            some = min(at_once, count - at)
            part = block[: some * row]
            read(memoryview(part.data).cast("B"))
            into[..., at : at + some] = part.reshape((*self.shape[:-1], some), order="F")

    @contextmanager
    def _reading(self) -> Iterator[Callable[[memoryview], None]]:
        """A function that fills views with the array's bytes, one after the other. All are to be read."""
        if self.member is None:
            at = self.offset

            def read(view: memoryview) -> None:
                nonlocal at
                self.source.read_into([view], at)
                at += len(view)

            yield read
            return
        container, member = self.member
        try:
            stream: Any
            with container.open(member) as stream:
                stream.read(self.offset)

                def unpack(view: memoryview) -> None:
                    done = 0
                    while done < len(view):
                        count = stream.readinto(view[done : done + _PIECE])
                        if not count:
                            raise EOFError("it ends early")
                        done += count

                yield unpack
                stream.read(1)  # the end, where the sum is compared
        except _BROKEN_ZIP as error:
            raise FormatError(self.source.path, None, f"array {self.name!r} can't be read: {error}") from None


class HostRows(HostEntry):
    """Rows of a HostEntry, `whole`, from its byte `skipped` on, counted in the order of a buffer."""

    __slots__ = ("skipped", "whole")

    whole: HostEntry
    skipped: int

    def read_into(self, view: memoryview) -> None:
        """As of the whole array, of which all is read."""
        data = memoryview(bytearray(self.whole.nbytes))
        self.whole.read_into(data)
        view[:] = data[self.skipped : self.skipped + self.nbytes]


class _Positioned(io.RawIOBase):
    """A source for zipfile, with a position of its own: the descriptor's is shared by all who opened the file."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._source.size}[whence]
        if at < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._at = at
        return at

    def readinto(self, into: Any) -> int:
        view = memoryview(into)[: max(0, self._source.size - self._at)]
        if len(view):
            self._source.read_into([view], self._at)
        self._at += len(view)
        return len(view)


def parse(source: Source) -> Entry:
    """The array of a .npy file; its name is empty. FormatError for what is wrong or can't be loaded."""
    return _entry(source, "", source.read(0, min(source.size, _MOST_HEADER)), source.size, None)


def parse_zip(source: Source) -> list[Entry]:
    """The arrays of a .npz file, in the file's order. FormatError for what is wrong or can't be loaded."""
    try:
        container = zipfile.ZipFile(_Positioned(source))  # not by its path, which may lead elsewhere by now
        return [_member(source, container, member) for member in container.infolist()]
    except FormatError:
        raise
    except _BROKEN_ZIP as error:
        raise FormatError(source.path, None, f"a damaged zip file: {error}") from None


def describe(dtype: Any, shape: tuple[int, ...]) -> bytes:
    """The head of a .npy file. TypeError for dtypes that NumPy doesn't have."""
    from numpy.lib import format as npy

    array_type = dtypes.to_numpy(dtype)
    if array_type.kind not in "biufc" or dtypes.of(dtype).name != array_type.name or array_type.num >= _USER_TYPES:
        raise TypeError(f".npy has no name for {dtype!r}, which NumPy doesn't have; safetensors has")
    head = io.BytesIO()
    npy.write_array_header_1_0(head, {"descr": npy.dtype_to_descr(array_type), "fortran_order": False, "shape": shape})
    return head.getvalue()


def _member(source: Source, container: zipfile.ZipFile, member: zipfile.ZipInfo) -> Entry:
    name, dot, _ = member.filename.rpartition(".npy")
    if not dot or member.filename != name + dot:
        raise FormatError(source.path, member.header_offset, f"{member.filename!r} is no array: this is no .npz file")
    if member.header_offset < 0:  # where the end record says that the members begin elsewhere
        raise FormatError(source.path, None, f"a damaged zip file: array {name!r} lies outside of it")
    packed = member.compress_size
    most = packed if member.compress_type == zipfile.ZIP_STORED else packed * _MOST_DEFLATED
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.file_size > most:
        method = f"compressed by method {member.compress_type}"
        reason = f"array {name!r} would have {member.file_size} bytes from {packed}, {method}"
        raise FormatError(source.path, member.header_offset, reason)
    if member.header_offset + packed > source.size:
        raise FormatError(source.path, member.header_offset, f"truncated: array {name!r} has {packed} bytes")
    with container.open(member) as stream:
        return _entry(source, name, stream.read(_MOST_HEADER), member.file_size, (container, member))


def _entry(
    source: Source, name: str, head: bytes, size: int, member: tuple[zipfile.ZipFile, zipfile.ZipInfo] | None
) -> Entry:
    """The entry for a .npy file of `size` bytes that begins with `head`."""
    begin, (shape, fortran, stored) = _header(source, name, head)
    nbytes = math.prod(shape) * stored.itemsize
    what = f"array {name!r}" if name else "the array"
    if nbytes != size - begin:
        cut = "truncated: " if size < begin + nbytes else ""
        reason = f"{cut}{what}, {stored} of shape {shape}, needs {nbytes} bytes, and {size - begin} follow the header"
        raise FormatError(source.path, begin, reason)
    try:
        dtype = dtypes.of(stored.newbyteorder("="))
    except TypeError:
        reason = f"{what} is of type {stored}, which no buffer has (objects are never unpickled)"
        raise FormatError(source.path, 0, reason) from None
    fortran = fortran and sum(count > 1 for count in shape) > 1
    if member is None and stored.isnative and not fortran:
        return Entry(name, stored.name, dtype, shape, source, begin, nbytes)
    entry = HostEntry(name, stored.name, dtype, shape, source, begin, nbytes)
    entry.stored, entry.fortran, entry.member = stored, fortran, member
    return entry


def _header(source: Source, name: str, head: bytes) -> tuple[int, tuple[tuple[int, ...], bool, numpy.dtype[Any]]]:
    """Where the elements begin; the shape, whether they are in Fortran's order, and their type."""
    from numpy.lib import format as npy

    stream = io.BytesIO(head)
    what = f"array {name!r}" if name else "no .npy file"
    try:
        version = npy.read_magic(stream)
        readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        if version not in readers:
            raise ValueError(f"version {version[0]}.{version[1]}, and 1.0 and 2.0 are read")
        shape, fortran, stored = readers[version](stream, max_header_size=_MOST_HEADER)
    except Exception as error:  # a literal of any kind raises any kind of error, tokenize's among them
        raise FormatError(source.path, 0, f"{what}: {error!s:.300}") from None
    if stored.hasobject or stored.itemsize == 0 or stored.subdtype is not None:
        raise FormatError(source.path, 0, f"{what}: objects and types without a size are never read ({stored})")
    if len(shape) > MOST_DIMENSIONS or not all(map(is_count, shape)):
        raise FormatError(source.path, 0, f"{what}: a shape must be whole numbers, not {shape!r:.100}")
    return stream.tell(), (shape, bool(fortran), stored)
