"""Checks of the driver on the CPU: which function a name gives, and what results are called. Run by inside.py."""

import ctypes
import re
from pathlib import Path

from driver import cuda, error_name, refused

LEGACY, PER_THREAD = 1, 2
NEWEST = 13050


def ask(name, version=NEWEST, flags=0):
    """Address, status."""
    at, status = ctypes.c_void_p(), ctypes.c_int(9)
    cuda.cuGetProcAddress_v2(name.encode(), ctypes.byref(at), version, ctypes.c_uint64(flags), ctypes.byref(status))
    return at.value, status.value


def symbol(name):
    return ctypes.cast(getattr(cuda.raw, name), ctypes.c_void_p).value


def check_the_version_says_which_variant():
    assert ask("cuCtxCreate", 3020) == (symbol("cuCtxCreate_v2"), 0)
    assert ask("cuCtxCreate", 11030) == (symbol("cuCtxCreate_v2"), 0)
    assert ask("cuCtxCreate", 11040) == (symbol("cuCtxCreate_v3"), 0)
    assert ask("cuCtxCreate", 12050) == (symbol("cuCtxCreate_v4"), 0)
    assert ask("cuMemPrefetchAsync", 12010) == (symbol("cuMemPrefetchAsync"), 0)
    assert ask("cuMemPrefetchAsync", 12020) == (symbol("cuMemPrefetchAsync_v2"), 0)
    assert ask("cuGetProcAddress") == (symbol("cuGetProcAddress_v2"), 0)


def check_the_flag_says_which_default_stream():
    assert ask("cuMemcpyHtoD", flags=LEGACY) == (symbol("cuMemcpyHtoD_v2"), 0)
    assert ask("cuMemcpyHtoD", flags=PER_THREAD) == (symbol("cuMemcpyHtoD_v2_ptds"), 0)
    assert ask("cuStreamQuery", flags=PER_THREAD) == (symbol("cuStreamQuery_ptsz"), 0)
    assert ask("cuStreamQuery", 6000, PER_THREAD) == (symbol("cuStreamQuery"), 0)  # older than the thread's
    assert ask("cuInit", flags=PER_THREAD) == (symbol("cuInit"), 0)


def check_what_there_is_not_is_told():
    assert ask("cuNeverHeardOf") == (None, 1)
    assert ask("cuMemAllocAsync", 11010) == (None, 2)
    at = ctypes.c_void_p()
    none = ctypes.c_uint64(0)
    assert (
        refused(cuda.cuGetProcAddress, b"cuNeverHeardOf", ctypes.byref(at), NEWEST, none).name == "CUDA_ERROR_NOT_FOUND"
    )
    for version, flags in ((NEWEST + 10, 0), (NEWEST, 3), (NEWEST, 4)):
        assert refused(ask, "cuInit", version, flags).name == "CUDA_ERROR_INVALID_VALUE"


def check_names_and_texts_of_results():
    assert error_name(0) == "CUDA_SUCCESS" and error_name(700) == "CUDA_ERROR_ILLEGAL_ADDRESS"
    text = ctypes.c_char_p()
    cuda.cuGetErrorString(700, ctypes.byref(text))
    assert text.value == b"an illegal memory access was encountered"
    assert refused(cuda.cuGetErrorString, 12345, ctypes.byref(text)).name == "CUDA_ERROR_INVALID_VALUE"
    assert text.value is None


def check_every_name_of_the_table_has_an_answer():
    table = Path(__file__).parents[2] / "native" / "cudacpu" / "api" / "names.inc"
    names = set(re.findall(r'X\("(\w+)"', table.read_text()))
    assert {name for name in names if ask(name)[1] or ask(name, flags=PER_THREAD)[1]} == set()
