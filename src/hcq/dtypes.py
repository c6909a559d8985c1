"""hcq.dtypes: element types, and their counterparts in NumPy and ml_dtypes.

Wherever hcq takes a dtype, anything with an integer `itemsize` will do: these, NumPy's, ml_dtypes', another library's.
These are small constants that compare by identity, pickle, and need no NumPy; `dtype.numpy` imports it when asked.
What does not live here: arithmetic, promotion, vectors.
"""

from __future__ import annotations

import builtins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    import numpy


class DType:
    """One element type: `name`, `itemsize` in bytes, and `kind`.

    Kinds are 'b' bool, 'i' signed, 'u' unsigned, 'f' floating, 'c' complex. Immutable; there is one object per name in
    a process, also after pickling.
    """

    __slots__ = ("itemsize", "kind", "name")

    name: str
    itemsize: int
    kind: str

    def __init__(self, name: str, itemsize: int, kind: str) -> None:
        for field, value in (("name", name), ("itemsize", itemsize), ("kind", kind)):
            object.__setattr__(self, field, value)

    @property
    def dtype(self) -> numpy.dtype[Any]:
        """The same, under the name by which NumPy asks: wherever it takes a dtype, it takes these constants."""
        return self.numpy

    @property
    def numpy(self) -> numpy.dtype[Any]:
        """The NumPy dtype. bfloat16 and the 8-bit floats need the package ml_dtypes: without it, ImportError."""
        import numpy

        if self.name in _ML_DTYPES:
            import ml_dtypes

            converted: numpy.dtype[Any] = numpy.dtype(getattr(ml_dtypes, self.name))
        else:
            converted = numpy.dtype(self.name)
        return converted

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"dtypes are constants: {self!r}.{name} can't be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"dtypes are constants: {self!r}.{name} can't be deleted")

    def __reduce__(self) -> tuple[object, ...]:
        return of, (self.name,)

    def __repr__(self) -> str:
        return f"dtypes.{self.name}"


bool = DType("bool", 1, "b")
int8 = DType("int8", 1, "i")
int16 = DType("int16", 2, "i")
int32 = DType("int32", 4, "i")
int64 = DType("int64", 8, "i")
uint8 = DType("uint8", 1, "u")
uint16 = DType("uint16", 2, "u")
uint32 = DType("uint32", 4, "u")
uint64 = DType("uint64", 8, "u")
float8_e4m3fn = DType("float8_e4m3fn", 1, "f")
float8_e5m2 = DType("float8_e5m2", 1, "f")
bfloat16 = DType("bfloat16", 2, "f")
float16 = DType("float16", 2, "f")
float32 = DType("float32", 4, "f")
float64 = DType("float64", 8, "f")
complex64 = DType("complex64", 8, "c")
complex128 = DType("complex128", 16, "c")

ALL: tuple[DType, ...] = tuple(value for value in list(globals().values()) if isinstance(value, DType))
"""Every dtype of this module."""

_BY_NAME = {dtype.name: dtype for dtype in ALL}
_ML_DTYPES = frozenset({"float8_e4m3fn", "float8_e5m2", "bfloat16"})
# What C, and libraries that name their types as C does, call them. Only names whose size is the same everywhere.
_C_NAMES = {
    "_Bool": bool,
    "char": int8,
    "signed char": int8,
    "unsigned char": uint8,
    "short": int16,
    "unsigned short": uint16,
    "int": int32,
    "unsigned int": uint32,
    "half": float16,
    "__bf16": bfloat16,
    "float": float32,
    "double": float64,
}


def of(dtype: Any) -> DType:
    """The dtype of this module for a name, a NumPy or ml_dtypes dtype, or another library's dtype with a known name.

    Raises TypeError where there is none.
    """
    if isinstance(dtype, DType):
        return dtype
    inner = getattr(dtype, "dtype", None)
    if isinstance(inner, DType):
        return inner  # a type of kernels, such as hcq.f32
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    found = (_BY_NAME.get(name) or _C_NAMES.get(name)) if isinstance(name, str) else None
    size = getattr(dtype, "itemsize", None)
    if found is None or (isinstance(size, int) and size != found.itemsize):
        raise TypeError(f"{dtype!r} is no element type known here; expected one of {', '.join(_BY_NAME)}")
    return found


def to_numpy(dtype: Any) -> numpy.dtype[Any]:
    """The NumPy dtype for anything that hcq takes as a dtype. Raises TypeError where NumPy has none of that layout."""
    import numpy

    if isinstance(dtype, numpy.dtype):
        return dtype
    try:
        return of(dtype).numpy
    except TypeError:
        pass
    # Other libraries describe themselves by a struct code, or are something NumPy understands (float, '<f4', a class).
    described = getattr(dtype, "fmt", None) or dtype
    try:
        converted: numpy.dtype[Any] = numpy.dtype(described)
    except TypeError:
        converted = numpy.dtype("V0")
    size = getattr(dtype, "itemsize", None)
    if converted.itemsize == 0 or (isinstance(size, int) and size != converted.itemsize):
        raise TypeError(f"NumPy has no dtype for {dtype!r}; copy the bytes out (copyout, as_buffer) and view them")
    return converted


def itemsize(dtype: Any) -> int:
    """Bytes per element of anything that hcq takes as a dtype. Raises TypeError where it has no positive `itemsize`."""
    size = getattr(dtype, "itemsize", None)
    if type(size) is int and size > 0:
        return size
    if isinstance(size, int) and not isinstance(size, builtins.bool) and size > 0:
        return int(size)
    raise TypeError(f"a dtype needs a positive integer itemsize, which {dtype!r} lacks; see hcq.dtypes")
