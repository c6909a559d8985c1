"""CUDA C to PTX or a cubin by NVRTC, through cuda-bindings.

What does not live here: what becomes of it (compiler), and reading names (mangling).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from hcq.errors import CompileError

_HINT = "pip install 'hcq[cuda]', or nvidia-cuda-nvrtc and cuda-bindings of the driver's version"
_SIGNATURES = "\ntemplate <typename F> __global__ void hcq_signature_of() {}\n"


@functools.cache
def version() -> tuple[int, int] | None:
    """NVRTC's version; None where there is none here."""
    try:
        _, major, minor = _binding().nvrtcVersion()
    except CompileError:
        return None
    return major, minor


def targets() -> tuple[int, ...]:
    """The architectures that it compiles for: 75, 80 ..."""
    return tuple(_call(_binding().nvrtcGetSupportedArchs())[0])


def include_folders() -> list[str]:
    """Where the toolkit's headers are: in its wheels, and in CUDA_HOME or CUDA_PATH."""
    spec = find_spec("nvidia")
    found = []
    for path in (spec.submodule_search_locations or ()) if spec else ():
        for folder in sorted(os.listdir(path)):
            found += [os.path.join(path, folder, "include"), os.path.join(path, folder, "include", "cccl")]
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if root := os.environ.get(variable):
            found += [os.path.join(root, "include"), os.path.join(root, "include", "cccl")]
    return [folder for folder in found if os.path.isdir(folder)]


class Compiled:
    """The result for one architecture, such as compute_80 (PTX) or sm_80 (a cubin too)."""

    def __init__(self, source: str, architecture: str, options: Sequence[str], names: Sequence[str] = ()) -> None:
        binding = _binding()
        text = source + _SIGNATURES if names else source
        program = _call(binding.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], []))[0]
        try:
            asked = {name: f"hcq_signature_of<decltype({name})>" for name in names}
            for expression in asked.values():
                _call(binding.nvrtcAddNameExpression(program, expression.encode()))
            flags = [f"--gpu-architecture={architecture}".encode(), *(each.encode() for each in options)]
            (status,) = binding.nvrtcCompileProgram(program, len(flags), flags)
            self.log = _text(binding.nvrtcGetProgramLogSize, binding.nvrtcGetProgramLog, program).strip()
            if status != binding.nvrtcResult.NVRTC_SUCCESS:
                raise CompileError(f"NVRTC refused the source ({status.name})", self.log, source)
            self.ptx = _text(binding.nvrtcGetPTXSize, binding.nvrtcGetPTX, program)
            self.cubin = b""
            if architecture.startswith("sm_"):
                self.cubin = _bytes(binding.nvrtcGetCUBINSize, binding.nvrtcGetCUBIN, program)
            self.signatures = {
                name: _call(binding.nvrtcGetLoweredName(program, expression.encode()))[0].decode()
                for name, expression in asked.items()
            }
        finally:
            binding.nvrtcDestroyProgram(program)


def _binding() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()  # the library is looked for at the first call
    except (ImportError, RuntimeError, OSError) as error:
        raise CompileError(f"CUDA C is compiled by NVRTC, which is not here: {error}; {_HINT}", "") from error
    return nvrtc


def _call(result: tuple[Any, ...]) -> tuple[Any, ...]:
    status, *rest = result
    if int(status):
        raise CompileError(f"NVRTC failed: {status.name}", "")
    return tuple(rest)


def _bytes(size: Any, get: Any, program: Any) -> bytes:
    room = bytearray(_call(size(program))[0])  # it is written in place; a bytes of length 1 is all of Python's
    _call(get(program, room))
    return bytes(room)


def _text(size: Any, get: Any, program: Any) -> str:
    return _bytes(size, get, program).rstrip(b"\0").decode("utf-8", "replace")
