"""The types of portable kernels: scalars, short vectors, pointers; and which type an operation on two of them has.

Scalars wrap the element types of `hcq.dtypes`, so a buffer's dtype names a kernel's type. Promotion is NumPy's (NEP
50): Python numbers are weak and take the other operand's type. What does not live here: values and operations (ir),
how a type is spelled in C or LLVM IR (lower).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from hcq import dtypes

if TYPE_CHECKING:
    from hcq.dtypes import DType

Space: TypeAlias = Literal["global", "local", "private"]
"""Where a pointer points: a buffer, memory of the work-group, or an array of one work-item."""

SPACES: Final = ("global", "local", "private")
LANES: Final = (2, 4, 8, 16)
"""How many elements a vector may have."""


class Scalar:
    """A number type of a kernel: `hcq.f32`, `hcq.i32`, ... One object a name; immutable; compares by identity.

    `name` as printed, `dtype` the element type of buffers, `kind` 'b', 'i', 'u' or 'f', `bits` 8 to 64 (bool is 8 in
    memory). Inside a kernel calling one converts (`hcq.f32(i)`); outside it gives a NumPy scalar. Wherever hcq takes a
    dtype it takes these too.
    """

    __slots__ = ("bits", "dtype", "kind", "name")

    def __init__(self, name: str, dtype: DType) -> None:
        self.name = name
        self.dtype = dtype
        self.kind = dtype.kind
        self.bits = dtype.itemsize * 8

    @property
    def itemsize(self) -> int:
        """Bytes of an element in memory."""
        return self.dtype.itemsize

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        """Whether it is a signed or unsigned integer; bool is not."""
        return self.kind in "iu"

    @property
    def range(self) -> tuple[int, int]:
        """The least and the largest value of an integer or bool."""
        if self.kind == "b":
            return 0, 1
        if self.kind == "u":
            return 0, (1 << self.bits) - 1
        return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1

    def __call__(self, value: Any) -> Any:
        return self.dtype.numpy.type(value)

    def __repr__(self) -> str:
        return f"hcq.{self.name}" if self.kind != "b" else "hcq.bool_"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, ...]:
        return scalar, (self.name,)


class Vector:
    """`lanes` elements of one scalar type that are loaded, stored and computed together. Made by `vector`."""

    __slots__ = ("element", "lanes")

    def __init__(self, element: Scalar, lanes: int) -> None:
        self.element = element
        self.lanes = lanes

    @property
    def itemsize(self) -> int:
        """Bytes in memory: elements lie side by side."""
        return self.element.itemsize * self.lanes

    def __repr__(self) -> str:
        return f"hcq.vec[{self.element!r}, {self.lanes}]"

    def __str__(self) -> str:
        return f"{self.element}x{self.lanes}"

    def __reduce__(self) -> tuple[object, ...]:
        return vector, (self.element, self.lanes)


class Pointer:
    """The address of elements of one scalar type in one space. Made by `pointer`; one object a type."""

    __slots__ = ("element", "space")

    def __init__(self, element: Scalar, space: Space) -> None:
        self.element = element
        self.space: Space = space

    def __repr__(self) -> str:
        return f"hcq.ptr[{self.element!r}]" if self.space == "global" else f'hcq.ptr[{self.element!r}, "{self.space}"]'

    def __str__(self) -> str:
        return f"ptr<{self.element}, {self.space}>"

    def __reduce__(self) -> tuple[object, ...]:
        return pointer, (self.element, self.space)


Type: TypeAlias = Scalar | Vector | Pointer

bool_: Final = Scalar("bool", dtypes.bool)
i8: Final = Scalar("i8", dtypes.int8)
i16: Final = Scalar("i16", dtypes.int16)
i32: Final = Scalar("i32", dtypes.int32)
i64: Final = Scalar("i64", dtypes.int64)
u8: Final = Scalar("u8", dtypes.uint8)
u16: Final = Scalar("u16", dtypes.uint16)
u32: Final = Scalar("u32", dtypes.uint32)
u64: Final = Scalar("u64", dtypes.uint64)
f16: Final = Scalar("f16", dtypes.float16)
bf16: Final = Scalar("bf16", dtypes.bfloat16)
f32: Final = Scalar("f32", dtypes.float32)
f64: Final = Scalar("f64", dtypes.float64)

SCALARS: Final[tuple[Scalar, ...]] = (bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64)
_BY_NAME: Final = {each.name: each for each in SCALARS}
_BY_DTYPE: Final = {each.dtype: each for each in SCALARS}
_FLOATS: Final = {16: f16, 32: f32, 64: f64}


def scalar(name: str) -> Scalar:
    """The scalar type that is printed as `name`. Raises TypeError where there is none."""
    found = _BY_NAME.get(name)
    if found is None:
        raise TypeError(f"no kernel type is called {name!r}; expected one of {', '.join(_BY_NAME)}")
    return found


def of_dtype(dtype: Any) -> Scalar:
    """The scalar type of a buffer's elements. Raises TypeError where kernels have none (complex, 8-bit floats)."""
    if isinstance(dtype, Scalar):
        return dtype
    found = _BY_DTYPE.get(dtypes.of(dtype))
    if found is None:
        raise TypeError(
            f"kernels have no type for elements of {dtypes.of(dtype)!r}; expected one of {', '.join(_BY_NAME)}"
        )
    return found


def vector(element: Scalar, lanes: int) -> Vector:
    """The vector type of `lanes` elements. Raises TypeError for a number of lanes no device has."""
    if lanes not in LANES:
        raise TypeError(f"a vector has 2, 4, 8 or 16 elements, not {lanes}")
    return _vector(element, lanes)


def pointer(element: Scalar, space: Space = "global") -> Pointer:
    """The type of a pointer. Raises TypeError for an unknown space."""
    if space not in SPACES:
        raise TypeError(f"a pointer points to global, local or private memory, not {space!r}")
    return _pointer(element, space)


def element_of(type_: Type) -> Scalar:
    """The scalar that a type consists of or points to."""
    return type_ if isinstance(type_, Scalar) else type_.element


def computed(element: Scalar) -> Scalar:
    """What numbers of a type are computed in: f32, where they are narrow floats; else their own."""
    return f32 if element.is_float and element.bits < 32 else element


def with_element(type_: Type, element: Scalar) -> Scalar | Vector:
    """A type of the same shape with other elements: what a comparison or conversion of `type_` gives."""
    return vector(element, type_.lanes) if isinstance(type_, Vector) else element


@cache
def promote(a: Scalar, b: Scalar) -> Scalar:
    """The type of an operation on both, as NumPy's `result_type` has it; with bf16 as ml_dtypes has it.

    Mixed signs give the next larger signed integer, u64 with a signed one f64, an integer with a float the smallest
    float that holds the integer's values as NumPy sees it (i8 with f16 is f16, i16 with f16 f32, i32 with f32 f64).
    """
    if a is b:
        return a
    if b.kind == "b" or (a.kind != "b" and _rank(a) > _rank(b)):
        a, b = b, a
    if a.kind == "b":
        return b
    if b.is_float:
        return _promote_float(a, b)
    if a.kind == b.kind:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    return _BY_NAME[f"i{unsigned.bits * 2}"] if unsigned.bits < 64 else f64


def of_weak(value: bool | int | float, other: Scalar | None = None) -> Scalar:
    """The type a Python number takes beside `other`, or alone: bool, i32 (i64 where it needs it, then u64), f32.

    Raises OverflowError where an integer does not fit the type that it must take.
    """
    if isinstance(value, bool):
        return bool_ if other is None else other
    if isinstance(value, float):
        if other is None:
            return f32
        return other if other.is_float else f64
    if other is not None and other.is_float:
        return other
    for candidate in (other,) if other is not None and other.kind != "b" else (i32, i64, u64):
        low, high = candidate.range
        if low <= value <= high:
            return candidate
    wanted = f"{other} holds {other.range[0]} to {other.range[1]}" if other is not None else "64 bits"
    raise OverflowError(f"{value} does not fit: {wanted}")


_vector = cache(Vector)
_pointer = cache(Pointer)


def _rank(type_: Scalar) -> tuple[int, int]:
    return ("iufb".index(type_.kind) if type_.kind != "b" else -1, type_.bits)


def _promote_float(a: Scalar, b: Scalar) -> Scalar:
    """`b` is a float; `a` an integer or a float."""
    if a.is_float:
        if bf16 in (a, b):
            other = a if b is bf16 else b
            return f32 if other is f16 else other
        return a if a.bits > b.bits else b
    if b is bf16:
        return bf16 if a.bits == 8 else f32 if a.bits == 16 else f64
    needed = {8: 16, 16: 32, 32: 64, 64: 64}[a.bits]
    return _FLOATS[max(needed, b.bits)]
