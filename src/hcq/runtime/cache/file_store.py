"""The part of the compile cache that lives on disk: one file an entry, shared by processes, no locks.

A file is named by its key's digest and carries the full key and a checksum, so that what is damaged, cut short or
another key's is told from what was asked for. Readers open and read; writers write aside and rename. Every failing
operation on the file system is a miss or a write that didn't happen, never an exception. Only a directory that belongs
to this user and that nobody else may write is used, since what is read here is run as code. What does not live here:
what a key means.

    directory/
      written           grows by a byte for each 4 KiB written; when it says enough, someone tidies up and empties it
      ab/cdef....hcq    an entry: header, full key, payload (.note where it is a note)
      ab/.new-...       an entry being written
"""

from __future__ import annotations

import os
import stat
import struct
import time

from hcq.runtime.cache.keys import LIBRARY, NOTE, digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from hcq.runtime.cache.keys import Key
    from hcq.runtime.cache.reports import StoredEntry

# magic, length of the key, length of the payload, checksum of both
_HEADER = struct.Struct("<8sQQ16s")
_MAGIC = b"HCQCACH1"
_NEW = ".new-"
_JOURNAL = "written"
_JOURNAL_UNIT = 4096
# A file being written that nobody renamed for so long was left by a process that died.
_STALE_SECONDS = 3600
_NOTE_SECONDS = 86400
# A clear or a vandal may take the directory away between making it and writing into it.
_WRITE_ATTEMPTS = 4


def _flags(*names: str) -> int:
    return sum(getattr(os, name, 0) for name in names)


# O_NONBLOCK, so that a pipe put in an entry's place doesn't hold us up.
_READ_FLAGS = os.O_RDONLY | _flags("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY")
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | _flags("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY")


class FileStore:
    """Entries in one directory, at most `limit` bytes of them. Threads and processes may share the directory."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._warned = False

    def path(self, key: Key) -> str:
        """Where the entry of `key` stands, or would."""
        return os.path.join(self.directory, key.digest[:2], key.digest[2:] + key.suffix)

    def get(self, key: Key) -> bytes | None:
        """The payload kept for `key`; None where there is none that is whole and ours. Marks it as used."""
        if not self.trusted():
            return None
        path = self.path(key)
        found = self._read(path)
        if found is None or found[0] != key.encoded:
            return None
        # Each process reads the same few notes, so marking them once a day keeps them among those lately used.
        if key.suffix != NOTE or time.time() - found[2] > _NOTE_SECONDS:
            try:
                os.utime(path)
            except OSError:
                pass  # a read-only cache answers all the same
        return found[1]

    def put(self, key: Key, payload: bytes, limit: int) -> bool:
        """Keep `payload` for `key`; False where it could not be kept. Now and then this tidies up."""
        size = _HEADER.size + len(key.encoded) + len(payload)
        if size > limit - limit // 8:
            return False
        path = self.path(key)
        pieces = (_header(key.encoded, payload), key.encoded, payload)
        for _ in range(_WRITE_ATTEMPTS):
            try:
                os.makedirs(self.directory, mode=0o700, exist_ok=True)
                if not self.trusted():
                    return False
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                _replace(path, pieces)
            except (FileNotFoundError, FileExistsError):
                continue  # mkdir says the latter of a directory that went while it looked
            except OSError as error:
                self._warn("can't be written (%s); libraries are kept in memory only", error)
                return False
            self._account(size, limit)
            return True
        if not os.path.isdir(self.directory):
            self._warn("can't be made; libraries are kept in memory only")
        return False

    def trusted(self) -> bool:
        """Whether the directory is ours alone to write. One that doesn't exist yet will be: we make it."""
        if not hasattr(os, "geteuid"):
            return True
        try:
            found = os.stat(self.directory)
        except FileNotFoundError:
            return True
        except OSError as error:
            self._warn("can't be read (%s); libraries are kept in memory only", error)
            return False
        if not stat.S_ISDIR(found.st_mode):
            self._warn("is no directory; libraries are kept in memory only")
            return False
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            self._warn("may be written by others, so it is not used: chmod 700 it, or name another by HCQ_CACHE_DIR")
            return False
        return True

    def entries(self, *suffixes: str) -> Iterator[StoredEntry]:
        """Every entry whose file ends so, in no order. Entries that come and go meanwhile may be missed."""
        from hcq.runtime.cache.reports import StoredEntry

        for path, found in self._files(*suffixes):
            yield StoredEntry(path, found.st_size, found.st_mtime)

    def key_of(self, path: str) -> bytes | None:
        """The encoded key that a file carries, without reading or checking its payload."""
        try:
            descriptor = os.open(path, _READ_FLAGS)
        except OSError:
            return None
        try:
            header = _read_all(descriptor, _HEADER.size)
            if len(header) < _HEADER.size:
                return None
            magic, key_length, _, _ = _HEADER.unpack(header)
            if magic != _MAGIC or key_length > os.fstat(descriptor).st_size:
                return None
            return _read_all(descriptor, key_length)
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def check(self, path: str) -> str | None:
        """What is wrong with a file of this store, in words; None where nothing is."""
        try:
            found = os.lstat(path)
        except OSError as error:
            return str(error)
        if not _ours(found):
            return "belongs to another user, may be written by others, or is no plain file"
        whole = self._read(path)
        if whole is None:
            return "damaged: cut short, foreign, or its checksum differs"
        name = digest(whole[0], size=20).hex()
        if os.path.splitext(path)[0] != os.path.join(self.directory, name[:2], name[2:]):
            return "stands under another key's name"
        return None

    def remove(self, path: str) -> bool:
        """Delete one file; False where that failed or it was gone."""
        try:
            os.unlink(path)
        except OSError:
            return False
        return True

    def clear(self) -> int:
        """Delete every entry and whatever else this store left; gives how many libraries went. Other files stay."""
        removed = sum(self.remove(path) for path, _ in self._files(LIBRARY))
        for path, _ in [*self._files(NOTE), *self._files(prefix=_NEW)]:
            self.remove(path)
        self.remove(os.path.join(self.directory, _JOURNAL))
        for shard in self._shards():
            try:
                os.rmdir(shard)
            except OSError:
                pass  # in use again, or not empty
        return removed

    def tidy(self, limit: int) -> None:
        """Delete what was used longest ago until an eighth of the limit is free, and what dead writers left."""
        now = time.time()
        for path, found in self._files(prefix=_NEW):
            if now - found.st_mtime > _STALE_SECONDS:
                self.remove(path)
        files = sorted(self._files(LIBRARY, NOTE), key=lambda file: file[1].st_mtime_ns)
        excess = sum(found.st_size for _, found in files) - (limit - limit // 8)
        for path, found in files:
            if excess <= 0:
                break
            if self.remove(path):
                excess -= found.st_size

    # Helpers

    def _read(self, path: str) -> tuple[bytes, bytes, float] | None:
        """The key and payload of a file, and when it was last used: where it is whole, checks, and is ours alone to
        write."""
        try:
            descriptor = os.open(path, _READ_FLAGS)
        except OSError:
            return None
        try:
            found = os.fstat(descriptor)
            content = _read_all(descriptor, found.st_size) if _ours(found) else b""
        except (OSError, MemoryError):
            return None
        finally:
            os.close(descriptor)
        if len(content) < _HEADER.size:
            return None
        magic, key_length, payload_length, checksum = _HEADER.unpack_from(content)
        if magic != _MAGIC or len(content) != _HEADER.size + key_length + payload_length:
            return None
        if digest(memoryview(content)[_HEADER.size :], size=16) != checksum:
            return None
        middle = _HEADER.size + key_length
        return content[_HEADER.size : middle], content[middle:], found.st_mtime

    def _account(self, size: int, limit: int) -> None:
        """Note in the journal that `size` bytes came, and tidy up once a sixteenth of the limit did.

        Processes append to one file, so that also many short ones together keep the bound, and none scans the directory
        at each write. Appends that are lost make the next tidying late, no more.
        """
        path = os.path.join(self.directory, _JOURNAL)
        try:
            descriptor = os.open(path, _WRITE_FLAGS | os.O_APPEND, 0o600)
            try:
                os.write(descriptor, b"." * -(-size // _JOURNAL_UNIT))
                is_time = os.fstat(descriptor).st_size * _JOURNAL_UNIT > limit // 16
                if is_time:
                    os.ftruncate(descriptor, 0)
            finally:
                os.close(descriptor)
        except OSError:
            return  # not being able to count fails nothing
        if is_time:
            self.tidy(limit)

    def _shards(self) -> list[str]:
        try:
            with os.scandir(self.directory) as found:
                return [entry.path for entry in found if _is_shard(entry.name)]
        except OSError:
            return []

    def _files(self, *suffixes: str, prefix: str = "") -> Iterator[tuple[str, os.stat_result]]:
        ends = suffixes or ("",)
        for shard in self._shards():
            try:
                with os.scandir(shard) as found:
                    names = [entry for entry in found if entry.name.startswith(prefix) and entry.name.endswith(ends)]
            except OSError:
                continue
            for entry in names:
                try:
                    yield entry.path, entry.stat(follow_symlinks=False)
                except OSError:
                    continue  # it went meanwhile

    def _warn(self, message: str, *details: object) -> None:
        if not self._warned:
            from hcq.runtime.logs import logger

            self._warned = True
            logger("cache").warning("the compile cache %s " + message, self.directory, *details)


def _header(key: bytes, payload: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, len(key), len(payload), digest(key, payload, size=16))


def _replace(path: str, pieces: tuple[bytes, ...]) -> None:
    """Write `pieces` aside and rename: at every moment others see the old file or the new one, whole."""
    aside = os.path.join(os.path.dirname(path), f"{_NEW}{os.getpid()}-{os.urandom(8).hex()}")
    descriptor = os.open(aside, _WRITE_FLAGS | os.O_EXCL, 0o600)
    try:
        try:
            for piece in pieces:
                view = memoryview(piece)
                while view:
                    view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)
        os.replace(aside, path)
    except BaseException:
        try:
            os.unlink(aside)
        except OSError:
            pass  # tidying up will find it
        raise


def _read_all(descriptor: int, size: int) -> bytes:
    pieces: list[bytes] = []
    while size > 0:
        piece = os.read(descriptor, size)
        if not piece:
            break
        pieces.append(piece)
        size -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _ours(found: os.stat_result) -> bool:
    if not stat.S_ISREG(found.st_mode):
        return False
    return not hasattr(os, "geteuid") or (found.st_uid == os.geteuid() and not found.st_mode & 0o022)


def _is_shard(name: str) -> bool:
    return len(name) == 2 and all(letter in "0123456789abcdef" for letter in name)
