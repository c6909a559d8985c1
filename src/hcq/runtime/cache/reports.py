"""What the compile cache says of itself to people. Lookups need none of this, so it is imported when somebody asks.

What does not live here: finding it out (compile_cache, file_store).
"""

from __future__ import annotations

from typing import NamedTuple


class StoredEntry(NamedTuple):
    """One file of the store: where, how many bytes, when last used (seconds since the epoch)."""

    path: str
    bytes: int
    used: float


class CacheStats(NamedTuple):
    """What this process found (`hits`, `misses`); what the cache holds: `entries`, `bytes`, at most `limit_bytes`."""

    hits: int
    misses: int
    entries: int
    bytes: int
    limit_bytes: int


class Explanation(NamedTuple):
    """Why a source is, or isn't, in the cache. `changed`: the parts of the key that differ from the nearest entry's."""

    hit: bool
    reason: str
    changed: tuple[str, ...]


class CachedEntry(NamedTuple):
    """One entry on disk: its file, bytes, when it was last used (seconds since the epoch), and the parts of its key."""

    path: str
    size: int
    used: float
    parts: dict[str, bytes]


class Damage(NamedTuple):
    """A file of the cache that is not a whole entry of ours, and why."""

    path: str
    reason: str
