"""BufferOptions: what kind of memory a buffer wants. What does not live here: who gives it (allocators)."""

from __future__ import annotations

from typing import Any, NoReturn

_FIELDS = ("image", "uncached", "cpu_access", "host", "nolru")


class BufferOptions:
    """What kind of memory a buffer wants; a device that has no such kind gives its ordinary memory.

    Equal by value, hashable, and never changed. Threads may share one.

    `image`: an image of that dtype and shape, where a device has images. `uncached`: memory that bypasses caches.
    `cpu_access`: device memory that is mapped for the host. `host`: page-locked host memory that the device reaches.
    `nolru`: memory that is given back to the driver when freed, and not kept for reuse.
    """

    # Not a dataclass: importing that module would take a fifth of the time in which a device opens.
    __slots__ = _FIELDS
    image: Any
    uncached: bool
    cpu_access: bool
    host: bool
    nolru: bool

    def __init__(
        self,
        image: Any = None,
        uncached: bool = False,
        cpu_access: bool = False,
        host: bool = False,
        nolru: bool = False,
    ) -> None:
        for name, value in zip(_FIELDS, (image, uncached, cpu_access, host, nolru), strict=True):
            object.__setattr__(self, name, value)

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in _FIELDS)

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if isinstance(other, BufferOptions) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        given = (f"{name}={value!r}" for name, value in zip(_FIELDS, self._values(), strict=True))
        return f"{type(self).__name__}({', '.join(given)})"

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), self._values()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"buffer options don't change: make others, BufferOptions({name}=...)")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("buffer options don't change")
