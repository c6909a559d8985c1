"""Compiler: source in, library out. The base of every device's compiler.

What does not live here: any particular compiler (those are the drivers').
"""

from __future__ import annotations


class Compiler:
    """Turns source into a library that the device's runtime loads. This base class hands the source on unchanged.

    `cachekey` names this kind of compiler in the cache; None means that nothing is kept on disk. Compilers pickle.
    Threads may share one.
    """

    def __init__(self, cachekey: str | None = None) -> None:
        self.cachekey = cachekey

    def compile(self, src: str | bytes) -> bytes:
        """Compile now; the driver's part. Raises CompileError with the compiler's log."""
        return src.encode() if isinstance(src, str) else src

    def compile_cached(self, src: str | bytes) -> bytes:
        """The library for `src`, compiled if need be."""
        return self.compile(src)
