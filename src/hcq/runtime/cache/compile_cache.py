"""The compile cache over its two stores: what `Compiler.compile_cached` asks, and what `hcq.cache` shows.

The key of an entry is made of the compiler's class, cachekey, identity (which compiler, which version) and parts
(flags, target, ABI), and the source. Beside the libraries the store keeps notes: small facts such as which compiler was
last used, so that a machine where it is gone can still look up what it made.
"""

from __future__ import annotations

import os
import sys
import threading

from hcq import config
from hcq.runtime import process
from hcq.runtime.cache.file_store import FileStore
from hcq.runtime.cache.keys import FORMAT, LIBRARY, NOTE, Key, decode, text
from hcq.runtime.cache.memory_store import MemoryStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hcq.runtime.cache.reports import CachedEntry, CacheStats, Damage, Explanation
    from hcq.runtime.compiler import Compiler

    Lookup = tuple[object, ...]


class CompileCache:
    """The cache in one directory, or in memory alone where `directory` is None. Threads may share it.

    Nothing here raises for what happens on disk: a lookup misses, a write doesn't take place.
    """

    def __init__(self, directory: str | None) -> None:
        self.files = FileStore(directory) if directory is not None else None
        self.memory = MemoryStore()
        self._notes: dict[str, str] = {}
        self.hits = 0
        self.misses = 0
        self.renew_lock()

    def renew_lock(self) -> None:
        """Make the locks anew, in a forked child."""
        self._lock = threading.Lock()
        self.memory.renew_lock()

    # What compilers ask

    def get(self, compiler: Compiler, src: str | bytes) -> tuple[Lookup, bytes | None]:
        """The library kept for `src`, or None; and what `put` takes to keep one."""
        lookup = self._lookup(compiler, src)
        payload = self.memory.get(lookup)
        if payload is None and self.files is not None:
            payload = self.files.get(_key(lookup))
            if payload is not None:
                self.memory.put(lookup, payload)
        with self._lock:
            if payload is None:
                self.misses += 1
            else:
                self.hits += 1
        return lookup, payload

    def put(self, lookup: Lookup, payload: bytes) -> None:
        """Keep what a compile gave, and note which compiler that was."""
        kind, cachekey, identity, is_present = lookup[:4]
        if not is_present:
            return  # made by a compiler that said it wasn't there: nobody knows by which
        self.memory.put(lookup, payload)
        if self.files is not None:
            self.files.put(_key(lookup), payload, config.CACHE_LIMIT())
        noted = f"compiler of {kind} {cachekey}"
        if self.recall(noted) != str(identity):  # reading is cheaper than writing
            self.remember(noted, str(identity))

    def remember(self, name: str, note: str) -> None:
        """Keep a small fact by name; the last one holds."""
        if self._notes.get(name) == note:
            return
        self._notes[name] = note
        if self.files is not None:
            self.files.put(_note_key(name), text(note), config.CACHE_LIMIT())

    def recall(self, name: str) -> str | None:
        """The fact kept by this name, by this process or another; None where there is none."""
        note = self._notes.get(name)
        if note is None and self.files is not None:
            payload = self.files.get(_note_key(name))
            if payload is not None:
                note = self._notes[name] = payload.decode("utf-8", "surrogatepass")
        return note

    # What people ask

    def stats(self) -> CacheStats:
        """Counts of this process, and what is on disk (without a directory: in memory). Reads the whole directory."""
        from hcq.runtime.cache.reports import CacheStats

        limit = config.CACHE_LIMIT()
        if self.files is None or not self.files.trusted() or not os.path.isdir(self.files.directory):
            return CacheStats(self.hits, self.misses, len(self.memory), self.memory.bytes, limit)
        sizes = [entry.bytes for entry in self.files.entries(LIBRARY)]
        return CacheStats(self.hits, self.misses, len(sizes), sum(sizes), limit)

    def explain(self, src: str | bytes, compiler: Compiler) -> Explanation:
        """Why `compiler.compile_cached(src)` would, or wouldn't, find its library. Counts as no use."""
        from hcq.runtime.cache.reports import Explanation

        if compiler.cachekey is None:
            return Explanation(False, "this compiler caches nothing: its cachekey is None", ())
        lookup = self._lookup(compiler, src)
        if self.memory.get(lookup) is not None:
            return Explanation(True, "in the memory of this process", ())
        if self.files is None or not self.files.trusted():
            return Explanation(False, "not in the memory of this process, and there is no directory to look in", ())
        key = _key(lookup)
        path = self.files.path(key)
        if os.path.lexists(path):
            damage = self.files.check(path)
            if damage is None and self.files.key_of(path) == key.encoded:
                return Explanation(True, f"on disk: {path}", ())
            return Explanation(False, f"the entry {path} is unusable: {damage or 'its key is another'}", ())
        nearest = self._nearest(key)
        if nearest is None:
            return Explanation(False, "nothing of this compiler is in the cache", ())
        if "source" in nearest:
            return Explanation(
                False, "this source was never compiled with this compiler, or its entry is gone", nearest
            )
        return Explanation(False, f"changed since the nearest entry: {', '.join(nearest)}", nearest)

    def entries(self) -> Iterator[CachedEntry]:
        """The libraries on disk, in no order."""
        from hcq.runtime.cache.reports import CachedEntry

        if self.files is None or not self.files.trusted():
            return
        for entry in self.files.entries(LIBRARY):
            encoded = self.files.key_of(entry.path)
            try:
                parts = decode(encoded) if encoded is not None else {}
            except ValueError:
                parts = {}
            yield CachedEntry(entry.path, entry.bytes, entry.used, parts)

    def verify(self, remove: bool = False) -> list[Damage]:
        """Read every file and say what is damaged; with `remove`, delete that. What is damaged is never used anyway."""
        from hcq.runtime.cache.reports import Damage

        if self.files is None or not self.files.trusted():
            return []
        found = [(entry.path, self.files.check(entry.path)) for entry in self.files.entries(LIBRARY, NOTE)]
        damaged = [Damage(path, reason) for path, reason in found if reason is not None]
        if remove:
            for damage in damaged:
                self.files.remove(damage.path)
        return damaged

    def forget(self) -> None:
        """Drop what is in memory, so that the next lookup reads the disk."""
        self.memory.clear()
        self._notes.clear()

    def clear(self) -> int:
        """Delete every entry, in memory and on disk; gives how many were on disk. Files of others are left alone."""
        self.forget()
        return self.files.clear() if self.files is not None and self.files.trusted() else 0

    # Helpers

    def _lookup(self, compiler: Compiler, src: str | bytes) -> Lookup:
        """All that the key is made of, hashable and cheap: the digest is computed where the memory has no answer."""
        cls = type(compiler)
        kind = f"{cls.__module__}.{cls.__qualname__}"
        identity = compiler.identity()
        is_present = identity is not None
        if not is_present:
            identity = self.recall(f"compiler of {kind} {compiler.cachekey}")
        # The type of the source stands before it, so that text and bytes are never compared with each other.
        parts = tuple(compiler.key_parts().items())
        return kind, compiler.cachekey, identity, is_present, parts, isinstance(src, str), src

    def _nearest(self, key: Key) -> tuple[str, ...] | None:
        """The parts in which the nearest entry of the same kind of compiler differs; None where there is none."""
        best: tuple[str, ...] | None = None
        for entry in self.entries():
            if entry.parts.get("cachekey") != key.parts["cachekey"]:
                continue
            names = key.parts.keys() | entry.parts.keys()
            changed = tuple(sorted(name for name in names if key.parts.get(name) != entry.parts.get(name)))
            if best is None or ("source" in changed, len(changed)) < ("source" in best, len(best)):
                best = changed
        return best


def current() -> CompileCache:
    """The cache that the environment names now: HCQ_CACHE_DIR, else hcq's place in the user's cache directory."""
    directory = config.CACHE_DIR()
    if directory is None:
        directory = _default_directory()
    cache = _caches.get(directory)
    if cache is None:
        cache = _caches.setdefault(directory, CompileCache(os.path.abspath(directory) if directory else None))
    return cache


def tool_version(path: str, ask: Callable[[], str]) -> str:
    """The version of the tool at `path`: what `ask()` said when the file was last seen as it is now.

    Asking a compiler for its version takes longer than a lookup may; its file's size and times change with it. Raises
    what `ask` raises, and OSError where there is no such file.
    """
    name = _version_name(path)
    cache = current()
    version = cache.recall(name)
    if version is None:
        version = ask()
        cache.remember(name, version)
    return version


def look_up_version(path: str) -> None:
    """Read what `tool_version` will say, where that is kept, so that a first lookup need not. Asks no tool."""
    try:
        current().recall(_version_name(path))
    except OSError:
        pass  # the lookup will say so


def _version_name(path: str) -> str:
    found = os.stat(path)  # of what a link leads to
    return f"version of {path} {found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


def _key(lookup: Lookup) -> Key:
    kind, cachekey, identity, _, parts, is_text, src = lookup
    named = {f"part {name}": text(value) for name, value in parts}  # type: ignore[attr-defined]
    return Key(
        named
        | {
            "format": FORMAT.encode(),
            "class": text(str(kind)),
            "cachekey": text(str(cachekey)),
            "compiler": b"" if identity is None else text(str(identity)),
            "source kind": b"text" if is_text else b"bytes",
            "source": text(src),  # type: ignore[arg-type]
        }
    )


def _note_key(name: str) -> Key:
    return Key({"format": FORMAT.encode(), "note": text(name)}, suffix=NOTE)


def _default_directory() -> str:
    """hcq's place in the user's cache directory; empty where the user has none."""
    roots = (os.environ.get("XDG_CACHE_HOME"), os.environ.get("HOME"))
    if roots not in _default_directories:
        directory = _user_cache_directory()
        if not os.path.isabs(directory):
            from hcq.runtime.logs import logger

            logger("cache").warning(
                "this user has no home directory: libraries are kept in memory only; see HCQ_CACHE_DIR"
            )
            directory = ""
        _default_directories[roots] = directory
    return _default_directories[roots]


def _user_cache_directory() -> str:
    if sys.platform == "linux":
        # What platformdirs says, by the XDG base directory specification, without the time that importing it takes: a
        # first hit would take twenty times as long.
        base = os.environ.get("XDG_CACHE_HOME", "")
        return os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "hcq")
    from platformdirs import user_cache_dir

    return user_cache_dir("hcq", appauthor=False)


def _enter_child() -> None:
    for cache in _caches.values():
        cache.renew_lock()


# Caches by directory as the environment spells it, so that a changed HCQ_CACHE_DIR is another cache.
_caches: dict[str, CompileCache] = {}
_default_directories: dict[tuple[str | None, str | None], str] = {}
process.at_fork_in_child(_enter_child)
