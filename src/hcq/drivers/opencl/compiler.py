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

MAGIC = b"hcq opencl library 3\n"
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

_IMAGE_ACCESS = {"READ_ONLY": "r", "WRITE_ONLY": "w", "READ_WRITE": "rw"}

_READ_WRITE = re.compile(r"\b(?:__)?read_write\b")
_TYPEDEF = re.compile(r"\btypedef\s+([\w\s]+?)\s+(\w+)\s*;")


class CompilerWarning(UserWarning):
    """What an OpenCL compiler said of a source that it took."""


class Library(NamedTuple):
    """A library taken apart. `kernels`: for each its arguments in order, what they are and what they are called: "ptr",
    "const" for a pointer that is only read through, "image r", "image w" and "image rw" for images of two dimensions,
    a key of VALUE_TYPES, or "?NAME" for a type that launches can't pass."""

    device: str
    options: list[str]
    kernels: dict[str, list[tuple[str, str]]]
    binary: bytes


class OpenCLCompiler(Compiler):
    """OpenCL C for one device. Warnings come as one CompilerWarning a compile. Pickles; threads may share one.

    The binary holds for this device and driver version alone, which is the compiler's identity in the cache.
    """

    def __init__(self, device: Any, cachekey: str | None = "opencl") -> None:
        super().__init__(cachekey)
        self._identity = platforms.identity(device)
        self.options = build_options(device)
        self._latest = latest_language(device)
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
        # OpenCL C 1.2, which is the default, has no such images.
        options = [*self.options, *(self._latest if _READ_WRITE.search(text) else ())]
        try:
            with platforms.building():
                built = program.build(options, cache_dir=False)
        except cl.Error as error:
            raise CompileError(f"{device.name.strip()} refused the source", _log(error), src) from error
        said = str(built.get_build_info(device, cl.program_build_info.LOG)).strip()
        if "warning" in said:
            warnings.warn(CompilerWarning(said), stacklevel=callers_level())
        kernels = {kernel.function_name: _arguments(cl, kernel, text) for kernel in built.all_kernels()}
        binary = bytes(built.get_info(cl.program_info.BINARIES)[0])
        head = json.dumps({"device": self._identity, "options": options, "kernels": kernels}).encode()
        body = len(head).to_bytes(8, "little") + head + binary
        return MAGIC + hashlib.sha256(body).digest() + body


def build_options(device: Any) -> list[str]:
    """What programs are built with: nothing reordered, divisions rounded correctly where the device can."""
    options = ["-cl-kernel-arg-info"]
    cl = platforms.interface()
    if device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
        options.append("-cl-fp32-correctly-rounded-divide-sqrt")
    return options


def latest_language(device: Any) -> list[str]:
    """The option that asks for the latest OpenCL C that a device may have."""
    version = int(device.version.split()[1].split(".")[0])  # "OpenCL 3.0 and more", by the specification
    return [f"-cl-std=CL{min(version, 3)}.0"] if version >= 2 else []


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
    kernels = {name: [(kind, its) for kind, its in arguments] for name, arguments in head["kernels"].items()}
    return Library(head["device"], head["options"], kernels, body[8 + size :])


def _arguments(cl: Any, kernel: Any, text: str) -> list[tuple[str, str]]:
    kinds = (_kind(cl, kernel, index, text) for index in range(kernel.num_args))
    return [(kind, kernel.get_arg_info(index, cl.kernel_arg_info.NAME)) for index, kind in enumerate(kinds)]


def _kind(cl: Any, kernel: Any, index: int, text: str) -> str:
    info, spaces = cl.kernel_arg_info, cl.kernel_arg_address_qualifier
    name: str = kernel.get_arg_info(index, info.TYPE_NAME)
    if name == "image2d_t":
        access = kernel.get_arg_info(index, info.ACCESS_QUALIFIER)
        access_of = cl.kernel_arg_access_qualifier
        return next(f"image {word}" for known, word in _IMAGE_ACCESS.items() if access == getattr(access_of, known))
    if not name.endswith("*"):
        return _scalar(name, text)
    space = kernel.get_arg_info(index, info.ADDRESS_QUALIFIER)
    reads = kernel.get_arg_info(index, info.TYPE_QUALIFIER) & cl.kernel_arg_type_qualifier.CONST
    pointer = "const" if reads or space == spaces.CONSTANT else "ptr"
    return pointer if space in (spaces.GLOBAL, spaces.CONSTANT) else f"?{name}"


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
