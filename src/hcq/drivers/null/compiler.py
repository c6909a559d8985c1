"""The NULL device's compiler: any source is a library."""

from __future__ import annotations

from hcq.runtime.compiler import Compiler

MAGIC = b"hcq null library\n"


class NullCompiler(Compiler):
    """Hands the source on, marked as a library. Pickles, as compilers do; keeps nothing on disk unless asked to."""

    def __init__(self, cachekey: str | None = None) -> None:
        super().__init__(cachekey)

    def compile(self, src: str | bytes) -> bytes:
        """The library. A compiler that refuses raises CompileError with its own log and the source."""
        return MAGIC + (src.encode() if isinstance(src, str) else bytes(src))
