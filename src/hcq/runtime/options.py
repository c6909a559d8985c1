"""BufferOptions: what kind of memory a buffer wants. What does not live here: who gives it (allocators)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class BufferOptions:
    """What kind of memory a buffer wants; a device that has no such kind gives its ordinary memory. Equal by value.

    `image`: an image of that dtype and shape, where a device has images. `uncached`: memory that bypasses caches.
    `cpu_access`: device memory that is mapped for the host. `host`: page-locked host memory that the device reaches.
    `nolru`: memory that is given back to the driver when freed, and not kept for reuse.
    """

    image: Any = None
    uncached: bool = False
    cpu_access: bool = False
    host: bool = False
    nolru: bool = False
