"""What a kernel is called in its language: the user's name where every language can have it, else one made of it."""

from __future__ import annotations

import re
from typing import Final

_WORDS: Final = (
    "alignas alignof and asm atomic_int auto bfloat bool break case catch char class compl concept const "
    "constant constexpr continue decltype default delete device do double else enum explicit export extern "
    "false float for fragment friend global goto half if image1d_t image2d_t inline int kernel local long main "
    "metal mutable namespace new noexcept not nullptr operator or private protected ptrdiff_t public register "
    "reinterpret_cast restrict return sampler shader short signed size_t sizeof static struct switch template "
    "this thread threadgroup throw true try typedef typeid typename uchar uint ulong uniform union unsigned "
    "ushort using vertex virtual void volatile wchar_t while xor "
)
"""Words of C, C++, OpenCL C, CUDA C and Metal that a Python function may be called."""

_TAKEN: Final = frozenset(_WORDS.split())
_OURS: Final = re.compile(
    r"hcq|_|HCQ|kernel_|mem(cpy|set|move|cmp)$|(float|double|half|u?char|u?short|u?int|u?long)\d+$"
)


def entry_name(name: str) -> str:
    """The name that a program is loaded by, for the kernel of that name, in every language. ASCII, never a word of the
    language; kernels of different names have different ones."""
    if re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) and name not in _TAKEN and not _OURS.match(name):
        return name
    return "kernel_" + re.sub(r"[^A-Za-z0-9]", lambda match: "__" if match[0] == "_" else f"_{ord(match[0]):x}_", name)
