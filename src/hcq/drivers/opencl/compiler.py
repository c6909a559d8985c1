"""OpenCL C in, a library out: the binary of one device and driver, and what its kernels take.

What does not live here: loading libraries (program), the cache (hcq.runtime.cache).
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

from hcq.drivers.opencl import platforms
from hcq.errors import CompileError, InvalidProgram
from hcq.runtime.compiler import Compiler, callers_level

MAGIC = b"hcq opencl library 2\n"
_DIGEST = 32

TYPES = {
    "char": "i8",
    "uchar": "u8",
    "short": "i16",
    "ushort": "u16",
    "int": "i32",
    "uint": "u32",
    "long": "i64",
    "ulong": "u64",
    "half": "f16",
    "float": "f32",
    "double": "f64",
}
"""OpenCL's scalar types as VALUE_TYPES names them."""

_TYPEDEF = re.compile(r"\btypedef\s+([\w\s]+?)\s+(\w+)\s*;")


class CompilerWarning(UserWarning):
    """What an OpenCL compiler said of a source that it took."""


class Library(NamedTuple):
    """A library taken apart. `kernels`: for each its arguments in order, "ptr", "const" for a pointer that is only read
    through, a key of VALUE_TYPES, or "?NAME" for a type that launches can't pass."""

    device: str
    options: list[str]
    kernels: dict[str, list[str]]
    binary: bytes


class OpenCLCompiler(Compiler):
    """OpenCL C for one device. Warnings come as one CompilerWarning a compile. Pickles; threads may share one.

    The binary holds for this device and driver version alone, which is the compiler's identity in the cache.
    """

    def __init__(self, device: Any, cachekey: str | None = "opencl") -> None:
        super().__init__(cachekey)
        self._identity = platforms.identity(device)
        self.options = build_options(device)
        self._context: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_context": None}  # another process finds the device again

    def identity(self) -> str:
        """Platform, device and driver with their versions."""
        return self._identity

    def key_parts(self) -> Mapping[str, str]:
        """The build options and the library's format."""
        return {"options": " ".join(self.options), "format": MAGIC.decode().strip()}

    def compile(self, src: str | bytes) -> bytes:
        """Build now. Raises CompileError with the build log. Blocks while the driver compiles."""
        cl = platforms.interface()
        if self._context is None:
            self._context = cl.Context([platforms.find(self._identity)])
        text = src if isinstance(src, str) else src.decode()
        device = self._context.devices[0]
        program = cl.Program(self._context, text)
        try:
            with platforms.building():
                built = program.build(self.options, cache_dir=False)
        except cl.Error as error:
            raise CompileError(f"{device.name.strip()} refused the source", _log(error), src) from error
        said = str(built.get_build_info(device, cl.program_build_info.LOG)).strip()
        if "warning" in said:
            warnings.warn(CompilerWarning(said), stacklevel=callers_level())
        kernels = {kernel.function_name: _arguments(cl, kernel, text) for kernel in built.all_kernels()}
        binary = bytes(built.get_info(cl.program_info.BINARIES)[0])
        head = json.dumps({"device": self._identity, "options": self.options, "kernels": kernels}).encode()
        body = len(head).to_bytes(8, "little") + head + binary
        return MAGIC + hashlib.sha256(body).digest() + body


def build_options(device: Any) -> list[str]:
    """What programs are built with: nothing reordered, divisions rounded correctly where the device can."""
    options = ["-cl-kernel-arg-info"]
    cl = platforms.interface()
    if device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
        options.append("-cl-fp32-correctly-rounded-divide-sqrt")
    return options


def read_library(lib: bytes) -> Library:
    """Take a library apart. Raises InvalidProgram for bytes that are none, or damaged."""
    data = bytes(lib)
    if not data.startswith(MAGIC):
        raise InvalidProgram(f"this is no library of the OpenCL compiler ({len(data)} bytes)")
    start = len(MAGIC)
    digest, body = data[start : start + _DIGEST], data[start + _DIGEST :]
    if hashlib.sha256(body).digest() != digest:
        raise InvalidProgram(f"a damaged library of the OpenCL compiler ({len(data)} bytes)")
    size = int.from_bytes(body[:8], "little")
    head = json.loads(body[8 : 8 + size])
    return Library(head["device"], head["options"], head["kernels"], body[8 + size :])


def _arguments(cl: Any, kernel: Any, text: str) -> list[str]:
    info, spaces = cl.kernel_arg_info, cl.kernel_arg_address_qualifier
    found = []
    for index in range(kernel.num_args):
        name = kernel.get_arg_info(index, info.TYPE_NAME)
        space = kernel.get_arg_info(index, info.ADDRESS_QUALIFIER)
        if name.endswith("*"):
            reads = kernel.get_arg_info(index, info.TYPE_QUALIFIER) & cl.kernel_arg_type_qualifier.CONST
            pointer = "const" if reads or space == spaces.CONSTANT else "ptr"
            found.append(pointer if space in (spaces.GLOBAL, spaces.CONSTANT) else f"?{name}")
        else:
            found.append(_scalar(name, text))
    return found


def _scalar(name: str, text: str) -> str:
    plain = name.replace("unsigned ", "u").replace("unsigned", "u") if name.startswith("unsigned") else name
    if plain in TYPES:
        return TYPES[plain]
    for meaning, alias in _TYPEDEF.findall(text):
        if alias == name and meaning != name:
            return _scalar(" ".join(meaning.split()), text)
    return f"?{name}"


def _log(error: Exception) -> str:
    return str(error).strip()
