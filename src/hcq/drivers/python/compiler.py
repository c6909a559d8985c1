"""The PYTHON device's compiler: reads and verifies the text of a kernel. The library is that text and a checksum."""

from __future__ import annotations

import hashlib

from hcq.errors import CompileError, InvalidProgram
from hcq.runtime.compiler import Compiler

MAGIC = b"hcq python library\n"


class PythonCompiler(Compiler):
    """Takes the text of hcq.kernels.text. Nothing is kept on disk: reading the text again is what a hit would cost."""

    def __init__(self, cachekey: str | None = None) -> None:
        super().__init__(cachekey)

    def compile(self, src: str | bytes) -> bytes:
        """The library. Raises CompileError with the line where the text is no kernel."""
        from hcq.kernels.text import parse

        text = src if isinstance(src, str) else bytes(src).decode()
        try:
            parse(text)
        except InvalidProgram as error:
            raise CompileError(
                "this is no kernel in the text form of hcq.kernels", log=str(error), source=text
            ) from error
        return MAGIC + hashlib.sha256(text.encode()).digest() + text.encode()


def text_of(lib: bytes, device: str) -> str:
    """The text in a library. Raises InvalidProgram for one that is damaged, or not this compiler's."""
    data = bytes(lib)
    if not data.startswith(MAGIC):
        raise InvalidProgram(f"{device}: this is no library of its compiler ({len(data)} bytes)")
    checksum, text = data[len(MAGIC) : len(MAGIC) + 32], data[len(MAGIC) + 32 :]
    if hashlib.sha256(text).digest() != checksum:
        raise InvalidProgram(f"{device}: this library is damaged")
    return text.decode()
