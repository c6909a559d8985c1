"""Calls: types that convert, builtins of the language, Python's and math's functions, methods of pointers and vectors.

What does not live here: functions that are inlined (inline).
"""

from __future__ import annotations

import ast
import builtins
import math
import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from hcq.kernels import ir, types
from hcq.kernels.builtins import FORMS, MATH, TWO, Builtin
from hcq.kernels.frontend.inline import Inline, signature
from hcq.kernels.frontend.values import (
    Array,
    Method,
    Weak,
    describe,
    is_constant,
    is_number,
    is_pointer,
    numpy_type,
    pointer_type,
)
from hcq.kernels.ir import Op, Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.kernels.types import Scalar, Vector

_PYTHON: Final = {
    builtins.int: "int",
    builtins.float: "float",
    builtins.bool: "bool",
    builtins.abs: "abs",
    builtins.min: "minimum",
    builtins.max: "maximum",
    builtins.round: "rint",
    builtins.len: "len",
    builtins.pow: "power",
    **{getattr(math, each): each for each in MATH if hasattr(math, each)},
    math.sqrt: "sqrt",
    math.fmod: "fmod",
    math.fabs: "fabs",
    math.copysign: "copysign",
    math.isnan: "isnan",
    math.isinf: "isinf",
    math.isfinite: "isfinite",
}
"""What Python's own functions are in a kernel."""
if hasattr(math, "fma"):
    _PYTHON[math.fma] = "fma"

_HINTS: Final = {
    builtins.print: "a kernel prints nothing: write values to memory, or run it on the device PYTHON in a debugger",
    math.floor: "hcq.floor(x) gives the float, hcq.i32(hcq.floor(x)) the integer",
    math.ceil: "hcq.ceil(x) gives the float, hcq.i32(hcq.ceil(x)) the integer",
    math.trunc: "hcq.trunc(x) gives the float, hcq.i32(x) the integer",
    builtins.sum: "add in a loop",
    builtins.range: "range belongs into 'for i in range(n):'",
    builtins.enumerate: "for i in range(n): ... x[i] ...",
    builtins.zip: "for i in range(n): ... x[i] ... y[i] ...",
}

_UFUNCS: Final = {
    **dict.fromkeys(("arcsin", "arccos", "arctan", "arctan2", "arcsinh", "arccosh", "arctanh"), ""),
    **{each: each for each in ("sqrt", "floor", "ceil", "trunc", "rint", "copysign", "isnan", "isinf", "isfinite")},
    **{each: each for each in ("minimum", "maximum", "fmod", "where")},
    "absolute": "abs",
    "fabs": "fabs",
    "power": "power",
    "bitwise_count": "popcount",
    "abs": "abs",
    **{each: each for each in MATH},
}
_UFUNCS.update({each: each.replace("arc", "a") for each in list(_UFUNCS) if each.startswith("arc")})

_MEMORY_SIZE: Final = 1 << 20
_INTEGER_ATOMICS: Final = ("and", "or", "xor")


class Calls(Inline):
    """Calls of everything that is not a user's function."""

    function: ir.Function

    def on_Call(self, node: ast.Call) -> Any:
        callee = self.expr(node.func)
        for each in node.args:
            if isinstance(each, ast.Starred):
                raise self.error(each, "an argument with a star is not part of the kernel language")
        args = [self.expr(each) for each in node.args]
        kwargs = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self.error(node, "arguments with ** are not part of the kernel language")
            kwargs[keyword.arg] = self.expr(keyword.value)
        self.build.node = node
        return self.call(node, callee, args, kwargs)

    def call(self, node: ast.Call, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """What calling any object gives."""
        callee = numpy_type(callee) or callee
        if isinstance(callee, types.Scalar):
            return self.cast(node, callee, args, kwargs)
        if isinstance(callee, types.Vector):
            return self.vector(node, callee, args, kwargs)
        if isinstance(callee, FunctionType):
            return self.inline(node, callee, args, kwargs)
        function = getattr(callee, "__kernel_function__", None)
        if isinstance(function, FunctionType):
            return self.inline(node, function, args, kwargs)
        if isinstance(callee, Method):
            return self.bound(node, f"do_{callee.name}", callee.name, [callee.owner, *args], kwargs)
        name = self.builtin_name(callee)
        if name is None:
            hint = _HINTS.get(callee, "") if _hashable(callee) else ""
            hint = hint or "a kernel calls builtins of hcq, functions of math, and plain Python functions"
            raise self.error(node.func, f"a kernel can't call {describe(callee)}", hint)
        return self.bound(node, f"do_{name}", name, args, kwargs)

    def builtin_name(self, callee: Any) -> str | None:
        """The builtin that an object stands for."""
        if isinstance(callee, Builtin):
            return callee.name
        if _hashable(callee) and callee in _PYTHON:
            return _PYTHON[callee]
        numpy = sys.modules.get("numpy")
        if numpy is not None and (isinstance(callee, numpy.ufunc) or callee is numpy.where):
            return _UFUNCS.get(callee.__name__)
        return None

    def bound(self, node: ast.Call, method: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Calls the method of this class that implements a builtin."""
        if name in MATH:
            return self.of_floats(node, name, args, kwargs)
        function: Callable[..., Any] = getattr(self, method)
        try:
            signature(getattr(type(self), method)).bind(self, node, *args, **kwargs)
        except TypeError as error:
            form = FORMS.get(name)
            raise self.error(node, f"{name}: {error}", f"it is called hcq.{name}{form[0]}" if form else "") from None
        return function(node, *args, **kwargs)

    # Types

    def cast(self, node: ast.Call, type_: Scalar, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """`hcq.f32(x)`"""
        if len(args) != 1 or kwargs:
            raise self.error(node, f"hcq.{type_} converts one value")
        return self.convert(node, self.number(node.args[0] if node.args else node, args[0]), type_)

    def vector(self, node: ast.Call, type_: Vector, args: list[Any], kwargs: dict[str, Any]) -> Value:
        """`hcq.vec[hcq.f32, 4](...)`: one value for all lanes, or one for each."""
        if kwargs or len(args) not in (1, type_.lanes):
            raise self.error(node, f"{type_!r} takes 1 or {type_.lanes} values, not {len(args)}")
        values = [
            self.coerce(each, self.number(each, value), type_.element)
            for each, value in zip(node.args, args, strict=True)
        ]
        if len(values) == 1 and isinstance(values[0].type, types.Vector):
            if values[0].type is not type_:
                raise self.error(node, f"{values[0].type} has other lanes than {type_}")
            return values[0]
        for each in values:
            if isinstance(each.type, types.Vector):
                raise self.error(node, "a vector is made of scalars")
        if len(values) == 1:
            return self.splat(values[0], type_.lanes)
        return self.build.op("pack", values, (type_,)).result

    # Where a work-item is

    def place_of(self, node: ast.Call, kind: str, dim: Any) -> Value:
        at = self.static_int(node, dim, "a dimension")
        if not 0 <= at <= 2:
            raise self.error(node, f"there is no dimension {at}: they are 0, 1 and 2")
        return self.build.id(kind, at)

    def do_global_id(self, node: ast.Call, dim: Any = 0) -> Value:
        return self.place_of(node, "global_id", dim)

    def do_local_id(self, node: ast.Call, dim: Any = 0) -> Value:
        return self.place_of(node, "local_id", dim)

    def do_group_id(self, node: ast.Call, dim: Any = 0) -> Value:
        return self.place_of(node, "group_id", dim)

    def do_global_size(self, node: ast.Call, dim: Any = 0) -> Value:
        return self.place_of(node, "global_size", dim)

    def do_local_size(self, node: ast.Call, dim: Any = 0) -> Value:
        return self.place_of(node, "local_size", dim)

    def do_num_groups(self, node: ast.Call, dim: Any = 0) -> Value:
        return self.place_of(node, "num_groups", dim)

    # Memory

    def do_local(self, node: ast.Call, type: Any, count: Any) -> Array:
        return self.array(node, "local", type, count)

    def do_private(self, node: ast.Call, type: Any, count: Any) -> Array:
        return self.array(node, "private", type, count)

    def array(self, node: ast.Call, space: Any, type_: Any, count: Any) -> Array:
        """An array at the top of the kernel: each place in the text has one of its own."""
        try:
            element = types.of_dtype(type_)
        except TypeError:
            raise self.error(
                node, f"an array's elements are of a type such as hcq.f32, not {describe(type_)}"
            ) from None
        shape = tuple(
            self.static_int(node, each, "the size of an array")
            for each in (count if isinstance(count, tuple) else (count,))
        )
        if not shape or any(each < 1 for each in shape):
            raise self.error(node, f"an array of shape {shape} has no elements")
        total = math.prod(shape)
        if total * element.itemsize > _MEMORY_SIZE:
            raise self.error(node, f"{total * element.itemsize} bytes of {space} memory", "an array has 1 MiB at most")
        location = self.locate(node)
        name = f"{space}{len(self.arrays)}"
        op = Op(space, (), (types.pointer(element, space),), {"name": name, "count": total}, location=location)
        self.arrays.append(op)
        return Array(op.result, shape)

    def do_barrier(self, node: ast.Call) -> None:
        self.build.op("barrier")

    def do_static_range(self, node: ast.Call, *bounds: Any) -> Any:
        raise self.error(node, "static_range belongs into 'for i in hcq.static_range(n):'")

    def do_load(self, node: ast.Call, pointer: Value, index: Any, lanes: Any = 1) -> Value:
        count = self.lanes(node, lanes)
        return self.build.load(pointer, self.index(node, index), count)

    def do_store(self, node: ast.Call, pointer: Value, index: Any, value: Any) -> None:
        self.number(node, value, "what is stored")
        place = self.index(node, index)
        self.build.store(pointer, place, self.stored(node, value, pointer_type(pointer).element))

    def lanes(self, node: ast.Call, lanes: Any) -> int:
        count = self.static_int(node, lanes, "the number of lanes")
        if count != 1 and count not in types.LANES:
            raise self.error(node, f"a load has 1, 2, 4, 8 or 16 lanes, not {count}")
        return count

    # Atomics

    def atomic(self, node: ast.Call, how: str, pointer: Any, index: Any, *values: Any) -> Value:
        place = pointer.pointer if isinstance(pointer, Array) else pointer
        if not is_pointer(place):
            raise self.error(node, f"an atomic operation works on a pointer and an index, not on {describe(pointer)}")
        type_ = pointer_type(place)
        element = type_.element
        if type_.space == "private":
            raise self.error(node, "nobody shares a private array", "use a plain operation")
        if element.kind == "b" or element.bits < 32:
            raise self.error(node, f"no atomic operation works on {element}", "use a buffer of 32 or 64 bits")
        if element.is_float and how in _INTEGER_ATOMICS:
            raise self.error(node, f"atomic_{how} works on integers, not on {element}")
        if element.is_float and how == "cas":
            raise self.error(node, f"atomic_cas works on integers, not on {element}", "compare the bits: hcq.bitcast")
        if isinstance(pointer, Array) and len(pointer.shape) > 1:
            raise self.error(node, "an atomic operation on an array of several dimensions", "make it one-dimensional")
        at = self.index(node, index)
        given = []
        for each in values:
            self.number(node, each)
            given.append(self.scalar_of(node, self.stored(node, each, element)))
        return self.build.op("atomic", (place, at, *given), (element,), how=how).result

    def scalar_of(self, node: ast.AST, value: Value) -> Value:
        if isinstance(value.type, types.Vector):
            raise self.error(node, f"one number is expected here, not {value.type}")
        return value

    def do_atomic_add(self, node: ast.Call, pointer: Any, index: Any, value: Any) -> Value:
        return self.atomic(node, "add", pointer, index, value)

    def do_atomic_sub(self, node: ast.Call, pointer: Any, index: Any, value: Any) -> Value:
        place = pointer.pointer if isinstance(pointer, Array) else pointer
        if is_pointer(place):
            value = self.stored(node, self.number(node, value), pointer_type(place).element)
            value = self.negative(node, value)
        return self.atomic(node, "add", pointer, index, value)

    def do_atomic_min(self, node: ast.Call, pointer: Any, index: Any, value: Any) -> Value:
        return self.atomic(node, "min", pointer, index, value)

    def do_atomic_max(self, node: ast.Call, pointer: Any, index: Any, value: Any) -> Value:
        return self.atomic(node, "max", pointer, index, value)

    def do_atomic_and(self, node: ast.Call, pointer: Any, index: Any, value: Any) -> Value:
        return self.atomic(node, "and", pointer, index, value)

    def do_atomic_or(self, node: ast.Call, pointer: Any, index: Any, value: Any) -> Value:
        return self.atomic(node, "or", pointer, index, value)

    def do_atomic_xor(self, node: ast.Call, pointer: Any, index: Any, value: Any) -> Value:
        return self.atomic(node, "xor", pointer, index, value)

    def do_atomic_exchange(self, node: ast.Call, pointer: Any, index: Any, value: Any) -> Value:
        return self.atomic(node, "exchange", pointer, index, value)

    def do_atomic_cas(self, node: ast.Call, pointer: Any, index: Any, expected: Any, value: Any) -> Value:
        return self.atomic(node, "cas", pointer, index, value, expected)

    # Sub-groups

    def do_subgroup_size(self, node: ast.Call) -> Value:
        return self.build.op("subgroup", (), (types.i32,), kind="size").result

    def do_subgroup_lane(self, node: ast.Call) -> Value:
        return self.build.op("subgroup", (), (types.i32,), kind="lane").result

    def do_subgroup_id(self, node: ast.Call) -> Value:
        return self.build.op("subgroup", (), (types.i32,), kind="index").result

    def shuffled(self, node: ast.Call, how: str, value: Any, lane: Any) -> Value:
        given = self.scalar_of(node, self.typed(node, self.number(node, value)))
        place = self.build.cast(self.index(node, lane), types.i32)
        return self.build.op("shuffle", (given, place), (given.type,), how=how).result

    def do_shuffle(self, node: ast.Call, value: Any, lane: Any) -> Value:
        return self.shuffled(node, "index", value, lane)

    def do_shuffle_xor(self, node: ast.Call, value: Any, mask: Any) -> Value:
        return self.shuffled(node, "xor", value, mask)

    def do_shuffle_up(self, node: ast.Call, value: Any, delta: Any) -> Value:
        return self.shuffled(node, "up", value, delta)

    def do_shuffle_down(self, node: ast.Call, value: Any, delta: Any) -> Value:
        return self.shuffled(node, "down", value, delta)

    def do_subgroup_add(self, node: ast.Call, value: Any) -> Any:
        return self.library(node, "subgroup_add", self.typed(node, self.number(node, value)))

    def do_subgroup_min(self, node: ast.Call, value: Any) -> Any:
        return self.library(node, "subgroup_min", self.typed(node, self.number(node, value)))

    def do_subgroup_max(self, node: ast.Call, value: Any) -> Any:
        return self.library(node, "subgroup_max", self.typed(node, self.number(node, value)))

    # Numbers

    def of_floats(self, node: ast.Call, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """exp, sin and the others: of constants now, else by mathlib."""
        count = 2 if name in TWO else 1
        if len(args) != count or kwargs:
            raise self.error(node, f"{name} takes {count} number{'s' if count > 1 else ''}")
        for each in args:
            self.number(node, each, f"what {name} takes")
        if all(map(is_constant, args)):
            try:
                return float(getattr(math, name)(*args))
            except (ValueError, OverflowError, AttributeError):
                pass  # mathlib gives NaN or infinity, of f32
        return self.mathematics(node, name, *self.floats(node, args))

    def floating(self, node: ast.Call, code: str, value: Any, whole: bool = False) -> Any:
        """An operation on one float; `whole`: an integer stays what it is."""
        self.number(node, value)
        if whole and not is_constant(value):
            element = self.element(value)
            if element is not None and not element.is_float:
                return value
        (plain,) = self.floats(node, (value,))
        return self.build.unary(code, plain)

    def do_sqrt(self, node: ast.Call, x: Any) -> Any:
        if is_constant(x) and x >= 0:
            return math.sqrt(x)
        return self.floating(node, "sqrt", x)

    def do_rsqrt(self, node: ast.Call, x: Any) -> Any:
        return self.operator(node, "/", 1.0, self.do_sqrt(node, x))

    def do_floor(self, node: ast.Call, x: Any) -> Any:
        return self.floating(node, "floor", x, whole=True)

    def do_ceil(self, node: ast.Call, x: Any) -> Any:
        return self.floating(node, "ceil", x, whole=True)

    def do_trunc(self, node: ast.Call, x: Any) -> Any:
        return self.floating(node, "trunc", x, whole=True)

    def do_rint(self, node: ast.Call, x: Any) -> Any:
        return self.floating(node, "round", x, whole=True)

    def do_fma(self, node: ast.Call, a: Any, b: Any, c: Any) -> Any:
        for each in (a, b, c):
            self.number(node, each)
        values = self.floats(node, (a, b, c))
        return self.build.op("fma", values, (values[0].type,)).result

    def do_fmod(self, node: ast.Call, a: Any, b: Any) -> Any:
        values = self.floats(node, (self.number(node, a), self.number(node, b)))
        return self.build.binary("rem", values[0], values[1])

    def do_copysign(self, node: ast.Call, a: Any, b: Any) -> Any:
        values = self.floats(node, (self.number(node, a), self.number(node, b)))
        return self.build.binary("copysign", values[0], values[1])

    def do_isnan(self, node: ast.Call, x: Any) -> Any:
        (value,) = self.floats(node, (self.number(node, x),))
        return self.build.binary("ne", value, value)

    def do_isinf(self, node: ast.Call, x: Any) -> Any:
        (value,) = self.floats(node, (self.number(node, x),))
        return self.compare(node, "==", self.build.unary("abs", value), math.inf)

    def do_isfinite(self, node: ast.Call, x: Any) -> Any:
        (value,) = self.floats(node, (self.number(node, x),))
        return self.compare(node, "<", self.build.unary("abs", value), math.inf)

    def integer(self, node: ast.Call, x: Any) -> Value:
        value = self.typed(node, self.number(node, x))
        if not types.element_of(value.type).is_integer:
            raise self.error(node, f"this works on integers, not on {value.type}", "hcq.bitcast gives a float's bits")
        return value

    def do_popcount(self, node: ast.Call, x: Any) -> Value:
        return self.build.unary("popcount", self.integer(node, x))

    def do_clz(self, node: ast.Call, x: Any) -> Value:
        return self.build.unary("clz", self.integer(node, x))

    def do_ctz(self, node: ast.Call, x: Any) -> Any:
        value = self.integer(node, x)
        lowest = self.build.binary("and", value, self.build.unary("neg", value))
        return self.build.unary("popcount", self.binary(node, "-", lowest, 1))

    def do_bitcast(self, node: ast.Call, x: Any, type: Any) -> Any:
        value = self.typed(node, self.number(node, x))
        try:
            element = types.of_dtype(type)
        except TypeError:
            raise self.error(node, f"bitcast reads bits as a type such as hcq.u32, not {describe(type)}") from None
        own = types.element_of(value.type)
        if own.bits != element.bits or "b" in own.kind + element.kind:
            raise self.error(node, f"bitcast from {own} to {element}", "both must have as many bits, and none be bool")
        return self.build.op("bitcast", (value,), (types.with_element(value.type, element),)).result

    def do_where(self, node: ast.Call, condition: Any, a: Any, b: Any) -> Any:
        for each in (condition, a, b):
            self.number(node, each)
        if is_constant(condition):
            return a if condition else b
        chosen = condition.value if isinstance(condition, Weak) else condition
        test = self.build.cast(chosen, types.bool_)
        element = self.common(node, (a, b))
        if element is None:
            element = (
                types.promote(self.default(node, a), self.default(node, b))
                if not (self.default(node, a).is_float or self.default(node, b).is_float)
                else types.f32
            )
        first, second = self.shape(node, [self.coerce(node, a, element), self.coerce(node, b, element)])
        if isinstance(test.type, types.Vector) and not isinstance(first.type, types.Vector):
            first, second = self.splat(first, test.type.lanes), self.splat(second, test.type.lanes)
        return self.build.select(test, first, second)

    do_select = do_where

    def do_minimum(self, node: ast.Call, *values: Any) -> Any:
        return self.extreme(node, "min", values)

    def do_maximum(self, node: ast.Call, *values: Any) -> Any:
        return self.extreme(node, "max", values)

    def extreme(self, node: ast.Call, code: str, values: tuple[Any, ...]) -> Any:
        if len(values) == 1 and isinstance(values[0], tuple):
            values = values[0]
        if not values:
            raise self.error(node, f"{code} of nothing")
        for each in values:
            self.number(node, each, f"what {code} takes")
        if all(map(is_constant, values)):
            return min(values) if code == "min" else max(values)
        result = values[0]
        for each in values[1:]:
            result = self.operate(node, (result, each), lambda pair: self.build.binary(code, pair[0], pair[1]))
        return result

    def do_abs(self, node: ast.Call, x: Any) -> Any:
        self.number(node, x)
        if is_constant(x):
            return abs(x)
        if self.element(x) in (types.bool_, types.u8, types.u16, types.u32, types.u64):
            return x
        result = self.build.unary("abs", x.value if isinstance(x, Weak) else x)
        return Weak(result) if isinstance(x, Weak) else result

    def do_fabs(self, node: ast.Call, x: Any) -> Any:
        return self.do_abs(node, self.floats(node, (self.number(node, x),))[0])

    def do_power(self, node: ast.Call, a: Any, b: Any) -> Any:
        return self.operator(node, "**", a, b)

    def do_int(self, node: ast.Call, x: Any) -> Any:
        """An integer stays of its type; anything else becomes an i32."""
        self.number(node, x)
        if is_constant(x):
            return int(x)
        element = self.element(x) or x.type
        return x if element.is_integer else self.convert(node, x, types.i32)

    def do_float(self, node: ast.Call, x: Any) -> Any:
        """A float stays of its type; anything else becomes an f32."""
        if isinstance(x, str):
            try:
                return float(x)  # "inf", "nan"
            except ValueError as error:
                raise self.error(node, str(error)) from None
        self.number(node, x)
        if is_constant(x):
            return float(x)
        element = self.element(x) or x.type
        return x if element.is_float else self.convert(node, x, types.f32)

    def do_bool(self, node: ast.Call, x: Any) -> Any:
        return self.condition(node, x)

    def do_len(self, node: ast.Call, x: Any) -> int:
        if isinstance(x, Array):
            return x.shape[0]
        if isinstance(x, (tuple, str)):
            return len(x)
        if isinstance(x, Value) and isinstance(x.type, types.Vector):
            return x.type.lanes
        hint = "pass it: n: hcq.i32" if is_pointer(x) else ""
        raise self.error(node, f"the length of {describe(x)} is not known in a kernel", hint)

    # Lanes of vectors, from the first to the last

    def lanes_of(self, value: Value) -> list[Value]:
        element = types.element_of(value.type)
        count = value.type.lanes if isinstance(value.type, types.Vector) else 1
        return [self.build.op("extract", (value,), (element,), lane=lane).result for lane in range(count)]

    def do_sum(self, node: ast.Call, vector: Value) -> Any:
        lanes = self.lanes_of(vector)
        result = lanes[0]
        for each in lanes[1:]:
            result = self.arithmetic(node, "+", result, each)
        return result

    def do_min(self, node: ast.Call, vector: Value) -> Any:
        return self.extreme(node, "min", tuple(self.lanes_of(vector)))

    def do_max(self, node: ast.Call, vector: Value) -> Any:
        return self.extreme(node, "max", tuple(self.lanes_of(vector)))


def _hashable(value: Any) -> bool:
    return not is_number(value) and getattr(type(value), "__hash__", None) is not None and not isinstance(value, tuple)
