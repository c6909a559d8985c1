"""SPIR-V or GLSL in, a library out: a module of SPIR-V and a checksum, good for any device that has what it uses.

Portable kernels come as SPIR-V; GLSL is compiled by glslangValidator, where it is installed. What does not live here:
loading libraries, and the driver's own compiled code (program).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping

from hcq.drivers.vulkan import spirv
from hcq.errors import CompileError, InvalidProgram
from hcq.runtime.compiler import Compiler

MAGIC = b"hcq vulkan library 1\n"
_DIGEST = 32
_TOOL = "glslangValidator"
_OPTIONS = ("--target-env", "vulkan1.3", "-V", "-S", "comp")
_PATIENCE = 300


class VulkanCompiler(Compiler):
    """Takes modules of SPIR-V (bytes) as they are, and GLSL (a str). Pickles; threads may share one."""

    def __init__(self, cachekey: str | None = "vulkan") -> None:
        super().__init__(cachekey)

    def identity(self) -> str | None:
        """The version of the GLSL compiler; None where there is none."""
        tool = shutil.which(_TOOL)
        if tool is None:
            return None
        from hcq.runtime.cache.compile_cache import tool_version

        return tool_version(tool, lambda: _run([tool, "--version"])[1].partition("\n")[0])

    def key_parts(self) -> Mapping[str, str]:
        """The options for GLSL and the library's format."""
        return {"options": " ".join(_OPTIONS), "format": MAGIC.decode().strip()}

    def compile(self, src: str | bytes) -> bytes:
        """Check a module, or compile GLSL now. Raises CompileError with the compiler's log. Blocks while it runs."""
        module = _glsl(src) if isinstance(src, str) else bytes(src)
        try:
            spirv.read(module)
        except ValueError as error:
            raise CompileError(f"this is no module of SPIR-V: {error}", str(error), src) from error
        return MAGIC + hashlib.sha256(module).digest() + module


def read_library(lib: bytes) -> tuple[bytes, spirv.Module]:
    """The module of a library, and what it says. Raises InvalidProgram for bytes that are none, or damaged."""
    data = bytes(lib)
    if not data.startswith(MAGIC):
        raise InvalidProgram(f"this is no library of the Vulkan compiler ({len(data)} bytes)")
    start = len(MAGIC)
    digest, module = data[start : start + _DIGEST], data[start + _DIGEST :]
    if hashlib.sha256(module).digest() != digest:
        raise InvalidProgram(f"a damaged library of the Vulkan compiler ({len(data)} bytes)")
    return module, spirv.read(module)


def _glsl(src: str) -> bytes:
    tool = shutil.which(_TOOL)
    if tool is None:
        raise CompileError(f"GLSL is compiled by {_TOOL}, which is not here: `apt install glslang-tools`", "", src)
    with tempfile.TemporaryDirectory(prefix="hcq-") as folder:
        source, made = os.path.join(folder, "kernel.comp"), os.path.join(folder, "kernel.spv")
        with open(source, "w", encoding="utf-8") as file:
            file.write(src)
        status, said = _run([tool, *_OPTIONS, "-o", made, source])
        log = said.replace(source, "kernel.comp").strip()
        if status != 0 or not os.path.exists(made):
            raise CompileError(f"{_TOOL} refused the source", log, src)
        with open(made, "rb") as module:
            return module.read()


def _run(command: list[str]) -> tuple[int, str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"{_TOOL} does not run: {error}", str(error)) from error
    return done.returncode, done.stdout + done.stderr
