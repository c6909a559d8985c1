"""What the tests of code for the CPU devices share: choosing a C compiler, running a function without a queue."""

from __future__ import annotations

import shutil
import struct

import numpy as np
import pytest

from hcq import _native
from hcq.drivers.cpu.compiler_c import ClangCompiler
from hcq.drivers.cpu.library import ParamKind, unpack

COMPILERS = ("clang", "gcc")
FORMATS = dict(zip(ParamKind.ALL, "QbBhHiIqQeHfd?bhiq", strict=True))  # bfloat16 as its bits


def use_compiler(name, monkeypatch):
    """A compiler that caches nothing and runs the named program; skips where that isn't installed."""
    if shutil.which(name) is None:
        pytest.skip(f"no {name} on this machine")
    monkeypatch.setenv("HCQ_CC", name)
    return ClangCompiler(cachekey=None)


def pack_kernargs(library, name, *args):
    """Arguments packed as the library says; arrays by their address. Untyped functions take a count and slots."""
    function = next(function for function in unpack(library).functions if function.name == name)
    values = [value.ctypes.data if isinstance(value, np.ndarray) else value for value in args]
    if function.params is None:
        return struct.pack(f"<Q{len(values)}q", len(values), *values)
    kernargs = bytearray()
    for param, offset, value in zip(function.params, function.offsets(), values, strict=True):
        kernargs += bytes(offset - len(kernargs))
        kernargs += struct.pack("<" + FORMATS[param.kind], value)
    return bytes(kernargs)


def launch(library, name, *args, groups=(1, 1, 1), items=(1, 1, 1)):
    """Run a function on this thread."""
    _native._Function(library, name).run(pack_kernargs(library, name, *args), list(groups), list(items))
