"""DLPack's words (version 1.0, dmlc.github.io/dlpack): types by code and bits, and how a capsule is asked for.

What does not live here: what is done with the memory (interop, device_interop), and the capsules themselves
(native/memory/dlpack.cpp).
"""

from __future__ import annotations

from typing import Any

from hcq import dtypes
from hcq._native import dlpack_consume

# DLDataTypeCode by kind, and by name where a type has a code of its own.
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_OWN_CODES = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12}


def word(dtype: dtypes.DType) -> tuple[int, int]:
    """DLPack's code of a type, and its bits."""
    return _OWN_CODES.get(dtype.name, _CODES[dtype.kind]), dtype.itemsize * 8


_NAMES = {word(t): t.name for t in dtypes.ALL}


def named(code: int, bits: int, lanes: int) -> dtypes.DType:
    """The dtype that DLPack's words name. Raises BufferError."""
    name = _NAMES.get((code, bits))
    if name is None or lanes != 1:
        raise BufferError(f"DLPack memory of type code {code}, {bits} bits, {lanes} lanes isn't known")
    return dtypes.of(name)


def consumed(obj: Any) -> tuple[Any, tuple[int, ...], tuple[int, ...], dtypes.DType, int]:
    """What the capsule of `obj` says: (who keeps the memory, shape, strides in bytes, dtype, type of device)."""
    try:
        capsule = obj.__dlpack__(max_version=(1, 0))
    except TypeError:  # a producer from before version 1.0
        capsule = obj.__dlpack__()
    owner, shape, strides, code, bits, lanes, kind, _ = dlpack_consume(capsule)
    return owner, shape, strides, named(code, bits, lanes), kind
