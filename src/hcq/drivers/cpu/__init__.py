"""The host CPU devices: CLANG (C source) and LLVM (LLVM IR). Factories only; the parts are one noun a module."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hcq.drivers.cpu.device import CPUDevice

LIBRARY_VERSION = 2
"""The version of the library format (library.py), which is part of every key: lookups need nothing else of it."""


def open_clang(name: str) -> CPUDevice:
    """CLANG: C by clang, gcc, cc or zig, whichever is there. Opens without one too; a miss then says so."""
    from hcq.drivers.cpu.compiler_c import ClangCompiler
    from hcq.drivers.cpu.device import CPUDevice
    from hcq.runtime.registry import device_index

    device_index(name)
    compiler = ClangCompiler()
    compiler.look_around()
    return CPUDevice(name, compiler, "c")


def open_llvm(name: str) -> CPUDevice:
    """LLVM: textual LLVM IR, compiled in process."""
    from hcq.drivers.cpu.compiler_llvm import LLVMCompiler
    from hcq.drivers.cpu.device import CPUDevice
    from hcq.runtime.registry import device_index

    device_index(name)
    return CPUDevice(name, LLVMCompiler(), "llvm")
