"""The part of the compile cache that lives in this process: bounded, least recently used entries go first."""

from __future__ import annotations

import threading
from collections import OrderedDict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable

LIMIT_BYTES = 64 << 20
LIMIT_ENTRIES = 4096


class MemoryStore:
    """Libraries by any hashable key. Threads may share it; the lock is held for a dictionary's operation only."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES, limit_entries: int = LIMIT_ENTRIES) -> None:
        self.limit_bytes = limit_bytes
        self.limit_entries = limit_entries
        self.bytes = 0
        self._entries: OrderedDict[Hashable, bytes] = OrderedDict()
        self.renew_lock()

    def renew_lock(self) -> None:
        """Make the lock anew, in a forked child: a thread of the parent may have held it."""
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> bytes | None:
        with self._lock:
            payload = self._entries.get(key)
            if payload is not None:
                self._entries.move_to_end(key)
            return payload

    def put(self, key: Hashable, payload: bytes) -> None:
        """Keep `payload`, dropping what was used longest ago. What alone exceeds the bound is not kept."""
        if len(payload) > self.limit_bytes:
            return
        with self._lock:
            old = self._entries.pop(key, None)
            self.bytes += len(payload) - (0 if old is None else len(old))
            self._entries[key] = payload
            while self.bytes > self.limit_bytes or len(self._entries) > self.limit_entries:
                _, dropped = self._entries.popitem(last=False)
                self.bytes -= len(dropped)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)
