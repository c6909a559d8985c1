"""What a name or an expression stands for while a function is translated.

Beside Python's own objects - numbers that are constants, types, functions, tuples - these are: `ir.Value`, a number or
pointer that exists when the kernel runs; and the classes here. What does not live here: operations on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from hcq.kernels import types
from hcq.kernels.ir import Value
from hcq.runtime.later import loaded

if TYPE_CHECKING:
    from hcq.kernels.ir import Location
    from hcq.kernels.types import Pointer, Scalar

Number: TypeAlias = "Value | Weak | bool | int | float"
"""A scalar or vector, or a Python number, which is weak: it takes the type of what it meets."""


class Weak:
    """A number that a loop changes and that began as a Python number: what the loop's body gives decides its type.

    `value` has the type that it would have alone. Where it is used as another one, `Core.unsettled` counts that: what
    was translated with it must be translated anew.
    """

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    @property
    def type(self) -> Scalar:
        return types.element_of(self.value.type)

    @property
    def sample(self) -> bool | int | float:
        """A Python number of its kind."""
        return False if self.type.kind == "b" else 0.0 if self.type.is_float else 0


class Array:
    """An array of the work-group or the work-item: a pointer to its first element, and a shape."""

    __slots__ = ("pointer", "shape")

    def __init__(self, pointer: Any, shape: tuple[int, ...]) -> None:
        self.pointer = pointer
        self.shape = shape


class Method:
    """`x.load` before it is called."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: Any, name: str) -> None:
        self.owner = owner
        self.name = name


class Missing:
    """A variable that has no value here, or not the same on all ways that lead here. Reading it is an error: `why`."""

    __slots__ = ("hint", "location", "why")

    def __init__(self, why: str, hint: str = "", location: Location | None = None) -> None:
        self.why = why
        self.hint = hint
        self.location = location


def is_constant(value: object) -> bool:
    """Whether it is a Python number."""
    return isinstance(value, (bool, int, float))


def is_number(value: object) -> bool:
    """Whether it is a number of any sort."""
    return isinstance(value, (bool, int, float, Weak)) or (
        isinstance(value, Value) and not isinstance(value.type, types.Pointer)
    )


def is_pointer(value: object) -> bool:
    return isinstance(value, Value) and isinstance(value.type, types.Pointer)


def pointer_type(value: Any) -> Pointer:
    assert isinstance(value.type, types.Pointer)
    return value.type


def is_dynamic(value: object) -> bool:
    """Whether it is known only when the kernel runs, or has such a part."""
    if isinstance(value, tuple):
        return any(map(is_dynamic, value))
    return isinstance(value, (Value, Weak, Array))


def same(a: object, b: object) -> bool:
    """Whether two ways give a variable one value, as far as can be told now."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (bool, int, str, bytes)):
        return a == b
    return isinstance(a, float) and isinstance(b, float) and repr(a) == repr(b)


def numpy_scalar(value: object) -> tuple[Scalar, bool | int | float] | None:
    """Type and Python number of a NumPy scalar; None for anything else."""
    numpy = loaded("numpy")
    if numpy is None or not isinstance(value, numpy.generic):
        return None
    try:
        type_ = types.of_dtype(value.dtype)
    except TypeError:
        return None
    convert: Any = bool if type_.kind == "b" else float if type_.is_float else int
    return type_, convert(value)


def numpy_type(value: object) -> Scalar | None:
    """The scalar type that a scalar class of NumPy stands for, such as np.float32; None for anything else."""
    numpy = loaded("numpy")
    if numpy is None or not isinstance(value, type) or not issubclass(value, numpy.generic):
        return None
    try:
        return types.of_dtype(value)
    except TypeError:
        return None


def describe(value: object) -> str:
    """What a value is, for messages."""
    if isinstance(value, Value):
        return str(value.type)
    if isinstance(value, Weak):
        return f"a Python {type(value.sample).__name__}"
    if isinstance(value, Array):
        return f"an array of {types.element_of(value.pointer.type)}"
    if isinstance(value, Method):
        return f"the method {value.name}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    if is_constant(value):
        return f"the {type(value).__name__} {value!r}"
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"
