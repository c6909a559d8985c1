"""Compiler: source in, library out; and asking the cache first. The base of every device's compiler.

What does not live here: any particular compiler (those are the drivers'), and the cache itself (hcq.runtime.cache).
"""

from __future__ import annotations

import os
import sys
import time

from hcq import config
from hcq.errors import CompileError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_COMPILE = 9  # the kind of such spans in native/core/record.hpp
_REMEMBERED = 512
_sources: dict[bytes, str | bytes] = {}  # by library, the oldest first

_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")


def callers_level() -> int:
    """The `stacklevel` with which a compiler's own warnings.warn points at the line outside hcq that asked for it."""
    level = 1
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    return level


def source_of(library: bytes) -> str | bytes | None:
    """The source that this process had compiled, or looked up, to that library; None where it was too long ago."""
    return _sources.get(library)


class Compiler:
    """Turns source into a library that the device's runtime loads. This base class hands the source on unchanged.

    `cachekey` names this kind of compiler in the cache; None, or DISABLE_COMPILER_CACHE=1, means that nothing is
    cached. A driver overrides `compile`, and whatever else changes the result goes into `identity` and `key_parts`.
    Compilers pickle, and threads may share one.
    """

    def __init__(self, cachekey: str | None = None) -> None:
        self.cachekey = None if config.DISABLE_COMPILER_CACHE() else cachekey

    def compile(self, src: str | bytes) -> bytes:
        """Compile now; the driver's part. Raises CompileError with the compiler's own log. Blocks while it runs."""
        return src.encode() if isinstance(src, str) else src

    def identity(self) -> str | None:
        """Which compiler this is, with its version; None where it is not installed: then the cache answers for the one
        last used. Asked at every lookup, so it must be cheap when asked again (see hcq.cache.tool_version)."""
        return ""

    def key_parts(self) -> Mapping[str, str]:
        """Whatever else changes the result, by name: flags, target with its features, ABI. Asked at every lookup."""
        return {}

    def compile_cached(self, src: str | bytes) -> bytes:
        """The library for `src`: from the cache, else compiled and kept there. A failed compile is not kept.

        Raises CompileError, also where nothing is cached and ASSERT_COMPILE=1. May block while compiling.
        """
        if self.cachekey is None:
            self._refuse_to_compile(src)
            return _remember(src, self._compile(src))
        if not isinstance(src, (str, bytes)):
            raise TypeError(f"a source is str or bytes, not {type(src).__name__}")
        from hcq.runtime.cache.compile_cache import current

        cache = current()
        lookup, library = cache.get(self, src)
        if library is None:
            self._refuse_to_compile(src)
            library = self._compile(src)
            cache.put(lookup, library)
        return _remember(src, library)

    def _compile(self, src: str | bytes) -> bytes:
        from hcq import _native

        began = time.perf_counter_ns() if _native.recording() else 0
        try:
            library = self.compile(src)
        except CompileError as error:
            if error.source is None:  # the driver's compiler need not say what it was given
                error.source = src
            raise
        finally:
            if began:
                label = f"compile by {type(self).__name__}"
                _native.record_span(_COMPILE, label, began, time.perf_counter_ns())
        if not isinstance(library, (bytes, bytearray, memoryview)):
            raise TypeError(f"{type(self).__name__}.compile must return bytes, not {type(library).__name__}")
        return bytes(library)

    def _refuse_to_compile(self, src: str | bytes) -> None:
        if config.ASSERT_COMPILE():
            raise CompileError(
                "ASSERT_COMPILE=1, and this source is not in the cache: hcq.cache.explain(src, compiler) says why",
                source=src,
            )


def _remember(src: str | bytes, library: bytes) -> bytes:
    if library not in _sources:
        _sources[library] = src
        while len(_sources) > _REMEMBERED:
            _sources.pop(next(iter(_sources)), None)  # another thread may have taken it
    return library
