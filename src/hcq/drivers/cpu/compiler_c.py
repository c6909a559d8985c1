"""ClangCompiler: the C compiler of the CLANG device. What does not live here: running a compiler (toolchain)."""

from __future__ import annotations

import functools
import os

from hcq.drivers.cpu import LIBRARY_VERSION, toolchain
from hcq.errors import CompileError
from hcq.runtime.compiler import Compiler, callers_level

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from hcq.drivers.cpu.toolchain import Toolchain

CompilerWarning = toolchain.CompilerWarning


class ClangCompiler(Compiler):
    """C source in, a library for the CPU devices out, by clang, gcc, cc or the ziglang wheel, whichever is there first.

    Sources are complete by themselves: besides the compiler's own headers only `hcq.h` is found, and nothing is
    included that the source doesn't include. Functions of the C library and the math library can be called. The
    compiler's warnings come as one `CompilerWarning` a compile; they are not fatal. HCQ_CC names another compiler.
    """

    def __init__(self, cachekey: str | None = "clang") -> None:
        super().__init__(cachekey)

    def compile(self, src: str | bytes) -> bytes:
        """Compile now. Blocks while the compiler runs. Raises CompileError: no compiler, or its log with the lines."""
        from hcq.drivers.cpu.object_library import make_library  # opening a device should not wait for it

        found = toolchain.find_c_compiler()
        if found is None:
            raise CompileError(toolchain.missing(), source=src)
        made = toolchain.compile_object(found, src)
        if made.warnings:
            import warnings

            warnings.warn(CompilerWarning(made.warnings), stacklevel=callers_level())
        return make_library(made.object)

    def identity(self) -> str | None:
        """The compiler's version and target, in its own words; None where there is no compiler. Cached in the process,
        and beside the compile cache as long as the compiler's file stays as it is."""
        found = toolchain.find_c_compiler()
        return None if found is None else _identity(found)

    def lacking(self) -> tuple[str, str] | None:
        """What keeps this compiler from compiling, in short and with what to do; None where it can.

        For listings: cached programs load all the same.
        """
        return None if toolchain.find_c_compiler() is not None else ("no C compiler", toolchain.missing())

    def key_parts(self) -> Mapping[str, str]:
        """Flags, processor, library format and the contents of hcq.h."""
        return _key_parts()

    def look_around(self) -> None:
        """Find the compiler, read what is kept of its version, and ask the processor what it can do, so that a first
        cache hit doesn't have to: these take 0.2 ms in a virtual machine. Remembered in the process."""
        found = toolchain.find_c_compiler()
        if self.cachekey is None:
            return  # nothing is looked up
        if found is not None:
            from hcq.runtime.cache.compile_cache import look_up_version

            look_up_version(found.path)
        _key_parts()


@functools.lru_cache(maxsize=8)
def _identity(found: Toolchain) -> str:
    # A program that runs another one, such as ccache, doesn't change when that does: asked once a process.
    from hcq.runtime.cache.compile_cache import tool_version

    is_wrapper = len(found.command) > 1 and not found.is_zig
    version = found.version() if is_wrapper else tool_version(found.path, found.version)
    return " ".join((version, *found.flags()))


@functools.cache
def _key_parts() -> dict[str, str]:
    from hcq.runtime.cache.keys import digest

    with open(os.path.join(toolchain.INCLUDE, "hcq.h"), "rb") as file:
        header = digest(file.read(), size=8).hex()
    return {
        "flags": " ".join(toolchain.common_flags()),
        "target": toolchain.host_features(),
        "library format": str(LIBRARY_VERSION),
        "hcq.h": header,
    }
