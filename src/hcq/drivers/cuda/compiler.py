"""CUDA C or PTX in, a library out: PTX or a cubin, and what its kernels take.

What does not live here: NVRTC (nvrtc), loading libraries (program), the cache (hcq.runtime.cache).
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hcq.drivers.cuda import mangling, nvrtc, ptx
from hcq.errors import CompileError, InvalidProgram
from hcq.runtime.compiler import Compiler, callers_level

MAGIC = b"hcq cuda library 4\n"
_DIGEST = 32
_MACHINE_CODE = (b"\x7fELF", (0xBA55ED50).to_bytes(4, "little"))  # cubins, and fat binaries
_OPTIONS = ("--std=c++17", "-lineinfo")


class CompilerWarning(UserWarning):
    """What NVRTC said of a source that it took."""


class Kernel(NamedTuple):
    """A kernel of a library. `arguments`: for each "ptr", "const" for a pointer that is only read through, a value's
    type, "word" for 64 bits of which nobody said whether they are a pointer, or "bytesN" for a structure of N bytes.
    `names` are theirs, "" where nobody said them."""

    symbol: str
    arguments: list[str]
    names: list[str]
    items: tuple[int, int, int]


class Library(NamedTuple):
    """A library taken apart. `kernels` by the names they are asked for: symbols, and plain names where one is meant.
    None of a cubin or a fat binary, which the driver is asked of."""

    kernels: dict[str, Kernel] | None
    image: bytes


class CUDACompiler(Compiler):
    """CUDA C and PTX for a compute capability. Warnings come as one CompilerWarning a compile. Pickles; threads may
    share one.

    `options` are NVRTC's, beside ours. `as_cubin`: machine code for that capability alone, which a driver older than
    NVRTC takes too; else PTX, which drivers compile when they load it.
    """

    def __init__(
        self,
        capability: tuple[int, int],
        options: Sequence[str] = (),
        as_cubin: bool = False,
        cachekey: str | None = "cuda",
    ) -> None:
        super().__init__(cachekey)
        self.capability = capability
        self.options = [*_OPTIONS, *options]
        self.as_cubin = as_cubin

    def identity(self) -> str | None:
        """NVRTC's version; None where there is none."""
        version = nvrtc.version()
        return None if version is None else f"NVRTC {version[0]}.{version[1]}"

    def key_parts(self) -> Mapping[str, str]:
        """The options, the architecture and the library's format."""
        architecture = f"{self.capability[0]}{self.capability[1]} {'cubin' if self.as_cubin else 'ptx'}"
        return {
            "options": " ".join(self.options),
            "architecture": architecture,
            "format": MAGIC.decode().strip(),
        }

    def compile(self, src: str | bytes) -> bytes:
        """Compile CUDA C now, or take PTX, a cubin or a fat binary as it is. Raises CompileError with NVRTC's log.
        Blocks while it runs."""
        if not isinstance(src, str) and bytes(src[:4]) in _MACHINE_CODE:
            return bytes(src)
        text = src if isinstance(src, str) else _decoded(src)
        if ptx.is_ptx(text):
            found = ptx.entries(text)
            if not found:
                raise CompileError("the PTX has no kernel (.entry)", "", src)
            return _packed(found, {}, text.encode() + b"\0")
        number = self._number()
        options = [*self.options, *(f"--include-path={folder}" for folder in nvrtc.include_folders())]
        made = nvrtc.Compiled(text, f"compute_{number}", options)
        found = ptx.entries(made.ptx)
        if not found:
            raise CompileError('the source has no kernel (extern "C" __global__ void name(...))', made.log, src)
        plain = [name for name in found if not name.startswith("_Z")]
        signatures = nvrtc.Compiled(text, f"compute_{number}", options, plain).signatures if plain else {}
        if "warning" in made.log:
            warnings.warn(CompilerWarning(made.log), stacklevel=callers_level())
        if self.as_cubin:
            return _packed(found, signatures, nvrtc.Compiled(text, f"sm_{number}", options).cubin)
        return _packed(found, signatures, made.ptx.encode() + b"\0")

    def _number(self) -> int:
        wanted = self.capability[0] * 10 + self.capability[1]
        known = nvrtc.targets()
        older = [each for each in known if each <= wanted]
        if not older:
            raise CompileError(
                f"this NVRTC compiles for compute capability {min(known) / 10} and later, and the device has "
                f"{wanted / 10}: an older nvidia-cuda-nvrtc knows it",
                "",
            )
        return max(older)


def read_library(lib: bytes) -> Library:
    """Take a library apart. Raises InvalidProgram for bytes that are none, or damaged."""
    data = bytes(lib)
    if data[:4] in _MACHINE_CODE:
        return Library(None, data)
    if not data.startswith(MAGIC):
        raise InvalidProgram(f"this is no library of the CUDA compiler ({len(data)} bytes)")
    start = len(MAGIC)
    digest, body = data[start : start + _DIGEST], data[start + _DIGEST :]
    if hashlib.sha256(body).digest() != digest:
        raise InvalidProgram(f"a damaged library of the CUDA compiler ({len(data)} bytes)")
    size = int.from_bytes(body[:8], "little")
    head = json.loads(body[8 : 8 + size])
    kernels = {name: Kernel(symbol, args, names, tuple(items)) for name, (symbol, args, names, items) in head.items()}
    return Library(kernels, body[8 + size :])


def _packed(found: Mapping[str, ptx.Entry], signatures: Mapping[str, str], image: bytes) -> bytes:
    head: dict[str, Any] = {}
    plain: dict[str, list[str]] = {}
    for symbol, entry in found.items():
        known = mangling.read(symbol)
        kinds = mangling.read_signature(signatures[symbol]) if symbol in signatures else known and known.kinds
        head[symbol] = symbol, _arguments(entry, kinds), [each.name for each in entry.parameters], entry.items
        if known is not None:
            plain.setdefault(known.plain, []).append(symbol)
    for name, symbols in plain.items():
        if len(symbols) == 1 and name not in head:
            head[name] = head[symbols[0]]
    words = json.dumps(head).encode()
    body = len(words).to_bytes(8, "little") + words + image
    return MAGIC + hashlib.sha256(body).digest() + body


def _arguments(entry: ptx.Entry, kinds: Sequence[str] | None) -> list[str]:
    said = [each.kind for each in entry.parameters]
    if kinds is None or len(kinds) != len(said):
        return said
    # Of an enumeration PTX knows the size. Where it has 64 bits it is no pointer: those have a kind.
    sized = ["bits64" if own == "word" else own for own in said]
    return [kind or own for kind, own in zip(kinds, sized, strict=True)]


def _decoded(src: bytes) -> str:
    try:
        return src.decode()
    except UnicodeDecodeError:
        raise CompileError("expected CUDA C, PTX, a cubin or a fat binary", "", src) from None
