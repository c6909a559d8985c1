"""Functions in C on the CPU devices: how arguments travel, what kernels see, and what is refused with a reason."""

from __future__ import annotations

import shutil
import struct

import numpy as np
import pytest

from hcq import _native, config
from hcq.drivers.cpu.compiler_c import ClangCompiler
from hcq.drivers.cpu.library import ParamKind, unpack
from hcq.errors import InvalidProgram

FORMATS = dict(zip(ParamKind, "QbBhHiIqQeefd?", strict=True))


@pytest.fixture(params=["clang", "gcc"])
def compiler(request, monkeypatch):
    if shutil.which(request.param) is None:
        pytest.skip(f"no {request.param} on this machine")
    monkeypatch.setenv("HCQ_CC", request.param)
    return ClangCompiler(cachekey=None)


def launch(library, name, *args, groups=(1, 1, 1), items=(1, 1, 1)):
    """Run a function with arguments packed as its library says."""
    function = next(function for function in unpack(library).functions if function.name == name)
    kernargs = bytearray()
    for param, offset, value in zip(function.params, function.offsets(), args, strict=True):
        kernargs += bytes(offset - len(kernargs))
        value = value.ctypes.data if isinstance(value, np.ndarray) else value
        kernargs += struct.pack("<" + FORMATS[param.kind], value)
    _native._Function(library, name).run(bytes(kernargs), list(groups), list(items))


def test_a_plain_function_gets_buffers_then_values(compiler):
    library = compiler.compile("void f(float *a, const float *b, int n, float s) { while (n--) a[n] = b[n] * s; }")
    a, b = np.zeros(5, "f"), np.arange(5, dtype="f")
    launch(library, "f", a, b, 5, 1.5)
    assert a.tolist() == [0, 1.5, 3, 4.5, 6]


def test_arguments_beyond_the_registers_arrive(compiler):
    kinds = [
        ("int", "i"),
        ("float", "f"),
        ("double", "d"),
        ("signed char", "b"),
        ("unsigned short", "H"),
        ("long", "q"),
    ]
    params = ", ".join(f"{kinds[i % 6][0]} v{i}" for i in range(63))
    body = "".join(f"out[{i}] = v{i};" for i in range(63))
    library = compiler.compile(f"void f(double *out, {params}) {{ {body} }}")
    out = np.zeros(63)
    values = [-i if kinds[i % 6][1] != "H" else i for i in range(63)]
    launch(library, "f", out, *values)
    assert out.tolist() == values


def test_a_missing_function_is_named_with_those_that_are_there(compiler):
    library = compiler.compile("void scale(int *a) { *a = 1; } void shift(int *a) { *a = 2; }")
    with pytest.raises(InvalidProgram, match=r"no function 'scal' .*'scale'.*'shift'.*did you mean 'scale'"):
        _native._Function(library, "scal")


def test_hcq_cc_is_documented():
    assert "HCQ_CC" in config.VARIABLES
