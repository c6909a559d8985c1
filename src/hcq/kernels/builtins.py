"""The names that mean something inside a kernel: `hcq.global_id`, `hcq.ptr`, `hcq.fma`, ...

Here they are only names: called outside a kernel they say where they belong. What does not live here: what they become
(frontend), and exp, sin and the others, which are written in the kernel language (mathlib).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

from hcq.kernels import types

if TYPE_CHECKING:
    from hcq.kernels.types import Pointer, Vector


class Builtin:
    """One name of the kernel language. `form` is how it is called, `meaning` what it gives."""

    def __init__(self, name: str, form: str, meaning: str) -> None:
        self.name = name
        self.form = form
        self.__doc__ = f"{form}: {meaning} Inside kernels only."

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError(
            f"{self!r} belongs inside a kernel: a function under @hcq.kernel, or one that such a function calls"
        )

    def __repr__(self) -> str:
        return f"hcq.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class PointerForm:
    """`hcq.ptr[hcq.f32]`: a parameter that is a buffer of f32. Alone, `hcq.ptr` takes the type of what is passed.

    A second word says where it points: `hcq.ptr[hcq.f32, "local"]`; parameters of kernels point to "global" memory.
    """

    __slots__ = ()

    def __getitem__(self, item: Any) -> Pointer:
        element: Any
        space: Any
        element, space = item if isinstance(item, tuple) and len(item) == 2 else (item, "global")
        return types.pointer(types.of_dtype(element), space)

    def __repr__(self) -> str:
        return "hcq.ptr"

    def __reduce__(self) -> str:
        return "ptr"


class VectorForm:
    """`hcq.vec[hcq.f32, 4]`: four f32 that are loaded, stored and computed together (2, 4, 8 or 16)."""

    __slots__ = ()

    def __getitem__(self, item: Any) -> Vector:
        if not isinstance(item, tuple) or len(item) != 2:
            raise TypeError(
                f"a vector type has an element type and a number of elements, hcq.vec[hcq.f32, 4]: {item!r}"
            )
        return types.vector(types.of_dtype(item[0]), item[1])

    def __repr__(self) -> str:
        return "hcq.vec"

    def __reduce__(self) -> str:
        return "vec"


class ConstantForm:
    """`n: hcq.constexpr` is known when the kernel is compiled; each value makes a specialisation of its own."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "hcq.constexpr"

    def __reduce__(self) -> str:
        return "constexpr"


ptr: Final = PointerForm()
vec: Final = VectorForm()
constexpr: Final = ConstantForm()

if TYPE_CHECKING:  # each is made when it is asked for, at the end of this module
    _any: Any = None
    global_id = local_id = group_id = global_size = local_size = num_groups = local = private = barrier = _any
    static_range = atomic_add = atomic_sub = atomic_min = atomic_max = atomic_and = atomic_or = atomic_xor = _any
    atomic_exchange = atomic_cas = subgroup_size = subgroup_lane = subgroup_id = shuffle = shuffle_xor = _any
    shuffle_up = shuffle_down = subgroup_add = subgroup_min = subgroup_max = sqrt = rsqrt = fma = fmod = _any
    floor = ceil = trunc = rint = copysign = isnan = isinf = isfinite = popcount = clz = ctz = bitcast = _any
    where = select = minimum = maximum = exp = exp2 = expm1 = log = log2 = log10 = log1p = pow = cbrt = hypot = _any
    sin = cos = tan = asin = acos = atan = atan2 = sinh = cosh = tanh = asinh = acosh = atanh = erf = erfc = _any

FORMS: Final[dict[str, tuple[str, str]]] = {
    # Where a work-item is; each is an i32
    "global_id": ("(dim)", "this work-item among all, in dimension 0, 1 or 2."),
    "local_id": ("(dim)", "this work-item in its group."),
    "group_id": ("(dim)", "the group."),
    "global_size": ("(dim)", "how many work-items there are."),
    "local_size": ("(dim)", "how many work-items a group has."),
    "num_groups": ("(dim)", "how many groups there are."),
    # Memory and order
    "local": ("(type, count)", "an array that the work-group shares, undefined at its start; count may be a shape."),
    "private": ("(type, count)", "an array of this work-item, undefined at its start; count may be a shape."),
    "barrier": ("()", "all work-items of the group come here before one goes on; they see what was written before."),
    "static_range": ("(stop) or (start, stop[, step])", "a range whose loop is unrolled; its index is a constant."),
    # Atomics give the old value
    "atomic_add": ("(pointer, index, value)", "adds to the element at once; gives its old value."),
    "atomic_sub": ("(pointer, index, value)", "subtracts from the element at once; gives its old value."),
    "atomic_min": ("(pointer, index, value)", "keeps the smaller; gives the old value."),
    "atomic_max": ("(pointer, index, value)", "keeps the larger; gives the old value."),
    "atomic_and": ("(pointer, index, value)", "bitwise and; gives the old value."),
    "atomic_or": ("(pointer, index, value)", "bitwise or; gives the old value."),
    "atomic_xor": ("(pointer, index, value)", "bitwise exclusive or; gives the old value."),
    "atomic_exchange": ("(pointer, index, value)", "stores; gives the old value."),
    "atomic_cas": ("(pointer, index, expected, value)", "stores value where expected is there; gives the old value."),
    # Sub-groups
    "subgroup_size": ("()", "how many work-items run together; a power of two."),
    "subgroup_lane": ("()", "the place of this work-item in its sub-group."),
    "subgroup_id": ("()", "the place of the sub-group in its group."),
    "shuffle": ("(value, lane)", "the value that the work-item at that lane of the sub-group holds."),
    "shuffle_xor": ("(value, mask)", "the value of the work-item at (own lane ^ mask)."),
    "shuffle_up": ("(value, delta)", "the value of the work-item at (own lane - delta)."),
    "shuffle_down": ("(value, delta)", "the value of the work-item at (own lane + delta)."),
    "subgroup_add": ("(value)", "the sum over the sub-group, in every one of its work-items."),
    "subgroup_min": ("(value)", "the least value of the sub-group."),
    "subgroup_max": ("(value)", "the largest value of the sub-group."),
    # Numbers
    "sqrt": ("(x)", "the square root, correctly rounded."),
    "rsqrt": ("(x)", "1 / sqrt(x), rounded twice."),
    "fma": ("(a, b, c)", "a * b + c, rounded once."),
    "fmod": ("(a, b)", "C's remainder of floats, with the sign of a; % has the sign of b."),
    "floor": ("(x)", "the next lower whole number, of x's type."),
    "ceil": ("(x)", "the next higher whole number, of x's type."),
    "trunc": ("(x)", "the whole number toward zero, of x's type."),
    "rint": ("(x)", "the nearest whole number, ties to even, of x's type."),
    "copysign": ("(a, b)", "the magnitude of a with the sign of b."),
    "isnan": ("(x)", "whether x is not a number."),
    "isinf": ("(x)", "whether x is infinite."),
    "isfinite": ("(x)", "whether x is neither infinite nor NaN."),
    "popcount": ("(x)", "how many bits of an integer are set."),
    "clz": ("(x)", "how many zero bits lead; the width for 0."),
    "ctz": ("(x)", "how many zero bits trail; the width for 0."),
    "bitcast": ("(x, type)", "the bits of x read as another type of the same size."),
    "where": ("(condition, a, b)", "a where the condition holds, else b; both are computed."),
    "select": ("(condition, a, b)", "as hcq.where."),
    "minimum": ("(a, b)", "the smaller; NaN if either is. min() is the same."),
    "maximum": ("(a, b)", "the larger; NaN if either is. max() is the same."),
}

MATH: Final = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "pow", "cbrt", "hypot"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    *("erf", "erfc"),
)
"""Functions of floats that mathlib writes in the language."""

TWO: Final = ("pow", "hypot", "atan2")
"""Those of two arguments."""

FORMS.update(
    {each: ("(a, b)" if each in TWO else "(x)", f"{each} of floats, the same bits everywhere.") for each in MATH}
)
_MADE: Final[dict[str, Builtin]] = {}


def __getattr__(name: str) -> Any:
    """The builtin of that name, made when it is first asked for."""
    form = FORMS.get(name)
    if form is None:
        raise AttributeError(f"module 'hcq.kernels.builtins' has no attribute {name!r}")
    return _MADE.setdefault(name, Builtin(name, f"hcq.{name}{form[0]}", form[1]))
