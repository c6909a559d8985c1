"""hcq.cache: the compile cache, as users see it.

`directory` is where it lives, or None where it is in memory only (a user without a home). HCQ_CACHE_DIR names another,
HCQ_CACHE_LIMIT bounds it (2 GiB; 0 keeps nothing on disk), DISABLE_COMPILER_CACHE=1 turns it off for compilers made
afterwards. Any thread may call these; `stats`, `explain`, `entries`, `verify` and `clear` read the directory.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hcq.runtime.cache.compile_cache import current, tool_version
from hcq.runtime.cache.reports import CachedEntry, CacheStats, Damage, Explanation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hcq.runtime.compiler import Compiler

    directory: Path | None

__all__ = [
    "CacheStats",
    "CachedEntry",
    "Damage",
    "Explanation",
    "clear",
    "directory",
    "entries",
    "explain",
    "forget",
    "stats",
    "tool_version",
    "verify",
]


def stats() -> CacheStats:
    """What this process found in the cache, and what the cache holds."""
    return current().stats()


def explain(src: str | bytes, compiler: Compiler) -> Explanation:
    """Why `compiler.compile_cached(src)` would, or wouldn't, find its library now: (hit, reason, changed).

    `changed` names the parts of the key that differ from the nearest entry. Counts as no use of the cache.
    """
    return current().explain(src, compiler)


def entries() -> Iterator[CachedEntry]:
    """The libraries on disk, in no order: path, size in bytes, time of last use, and the parts of the key."""
    return current().entries()


def verify(remove: bool = False) -> list[Damage]:
    """Read and check every entry; gives what is damaged, and with `remove` deletes that."""
    return current().verify(remove)


def forget() -> None:
    """Drop what this process keeps in memory; what is on disk stays."""
    current().forget()


def clear() -> int:
    """Delete every entry, here and on disk; gives how many were on disk. Only files of the cache are touched."""
    return current().clear()


def __getattr__(name: str) -> object:
    if name == "directory":
        files = current().files
        return None if files is None else Path(files.directory)
    raise AttributeError(f"module 'hcq.cache' has no attribute {name!r}")
