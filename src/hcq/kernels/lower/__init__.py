"""From a kernel's form in the middle to the languages of devices.

`source` is all that callers need. What does not live here: compiling (the devices' compilers),
how a kernel is launched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hcq.errors import CompileError
from hcq.kernels.lower.names import entry_name

if TYPE_CHECKING:
    from hcq.kernels.ir import Function

__all__ = ["LANGUAGES", "entry_name", "source"]

LANGUAGES: Final = ("llvm", "c", "opencl", "cuda", "metal", "nvptx", "ptx", "amdgpu", "spirv", "ir")
"""What `source` writes: a device's `kernel_language` is one of them."""


def source(function: Function, language: str, target: str | None = None) -> Any:
    """The text (a str) of a kernel in a language, complete by itself; of "spirv", a module (bytes). Its entry is
    `entry_name(function.name)`, and takes the function's pointers first, then its scalars.

    `language` is one of LANGUAGES; `target` is PTX's processor, such as "sm_90", or the words that SPIR-V may use
    (docs/design/spirv.md). Raises CompileError where the language can't have the kernel.
    """
    if language == "ir":
        from hcq.kernels.text import print_function

        return print_function(function)
    if language == "llvm":
        from hcq.kernels.lower import subgroups
        from hcq.kernels.lower.llvm import writer as llvm

        return llvm.write(subgroups.expand(function, apart=True))
    if language in ("nvptx", "amdgpu", "ptx"):
        from hcq.kernels.lower import about, remainder
        from hcq.kernels.lower.llvm import targets
        from hcq.kernels.lower.llvm import writer as llvm

        processor = targets.GPUS["nvptx" if language == "ptx" else language]
        text = llvm.write(remainder.expand(function), processor)
        if language != "ptx":
            return text
        return f"// {about.line(function, entry_name(function.name))}\n{targets.assembly(text, processor, target)}"
    if language == "spirv":
        from hcq.kernels.lower.spirv import writer as spirv

        return spirv.write(function, target)
    if language in LANGUAGES:
        from hcq.kernels.lower import subgroups
        from hcq.kernels.lower.c import dialects, group
        from hcq.kernels.lower.c import writer as c

        dialect = dialects.DIALECTS[language]
        if not dialect.shuffle:
            function = subgroups.expand(function, apart=dialect is dialects.C)
        return group.write(function, dialect) if dialect is dialects.C else c.write(function, dialect)
    raise CompileError(f"kernels are not written in {language!r}; expected one of {', '.join(LANGUAGES)}")
