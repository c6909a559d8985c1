"""The LLVM device's compiler: textual LLVM IR in, a CPU library out, in process.

What it takes is described in docs/llvm-ir-kernels.md. What does not live here: what is made of a module (llvm_module),
LLVM itself (llvm_host), and the library's layout (library).
"""

from __future__ import annotations

import functools
import os

from hcq.drivers.cpu import LIBRARY_VERSION, toolchain
from hcq.errors import CompileError
from hcq.runtime.compiler import Compiler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_REVISION = "7"  # raised when the code made from the same source changes


class LLVMCompiler(Compiler):
    """Compiles textual LLVM IR for the host processor, with all its features, at O3.

    Threads may share one; LLVM works for one at a time. `compile` blocks for some milliseconds and more.
    """

    def __init__(self, cachekey: str | None = "llvm") -> None:
        super().__init__(cachekey)

    def compile(self, src: str | bytes) -> bytes:
        """The library of an LLVM IR module. Raises CompileError with LLVM's message, the line, and the source."""
        # Imported here: opening a device, and a library from the cache, should not wait for them. Extension modules
        # come before LLVM begins to load, for the system loads one library at a time.
        from hcq.drivers.cpu import llvm_host
        from hcq.drivers.cpu.library import pack

        llvm_host.load_ahead()
        from hcq.drivers.cpu import llvm_isolated
        from hcq.drivers.cpu.llvm_module import Lowering

        source = _decoded(src)
        with llvm_host.LOCK, llvm_host.Session(source) as session:
            lowering = Lowering(session)
            module = lowering.run()
            printed = str(module)
            if llvm_isolated.ordinary(printed):
                return pack(llvm_host.emit(module), lowering.functions)
        return pack(llvm_isolated.emit(printed, source), lowering.functions)

    def load_ahead(self) -> None:
        """Begin to load LLVM in a thread, for a program that is about to compile. Needed for nothing; saves 8 ms."""
        from hcq.drivers.cpu import llvm_host

        llvm_host.load_ahead()

    def identity(self) -> str | None:
        """llvmlite's version, which is that of the LLVM in it; None where it is not installed. Imports nothing."""
        return _identity()

    def key_parts(self) -> Mapping[str, str]:
        """Processor, library format, and how this module makes code."""
        return _key_parts()


@functools.cache
def _identity() -> str | None:
    version = installed_version() or _metadata_version()
    return version and f"llvmlite {version}"


def installed_version() -> str | None:
    """From the name of the directory that an installer writes beside a package (PyPA, "Recording installed projects"):
    importlib.metadata takes 5 ms to import, much of what a cache hit takes. None where that isn't how it was
    installed."""
    from importlib.machinery import PathFinder

    found = PathFinder.find_spec("llvmlite")
    if found is None or found.origin is None:
        return None
    try:
        beside = os.listdir(os.path.dirname(os.path.dirname(found.origin)))
    except OSError:  # from an archive
        return None
    versions = [n[len("llvmlite-") : -len(".dist-info")] for n in beside if n.startswith("llvmlite-")]
    return versions[0] if len(versions) == 1 and f"llvmlite-{versions[0]}.dist-info" in beside else None


def _metadata_version() -> str | None:
    import importlib.metadata

    try:
        return importlib.metadata.version("llvmlite")
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def _key_parts() -> dict[str, str]:
    return {
        "flags": f"O3, code {_REVISION}",
        "target": toolchain.host_features(),
        "library format": str(LIBRARY_VERSION),
    }


def _decoded(src: str | bytes) -> str:
    try:
        source = src if isinstance(src, str) else bytes(src).decode()
        source.encode()
    except UnicodeError as error:
        raise CompileError(f"LLVM IR must be UTF-8 text: {error}", source=src) from None
    if "\0" in source:
        line = source[: source.index("\0")].count("\n") + 1
        raise CompileError(f"LLVM IR, line {line}: a zero byte; the source must be text", source=source)
    return source
