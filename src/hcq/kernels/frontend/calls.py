"""Calls: types that convert, builtins of the language, Python's and math's functions, methods of pointers and vectors.

What does not live here: what each builtin is (memory, functions), functions that are inlined (inline).
"""

from __future__ import annotations

import ast
import builtins
import math
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from hcq.kernels import ir, types
from hcq.kernels.builtins import FORMS, MATH, Builtin
from hcq.kernels.frontend.inline import signature
from hcq.kernels.frontend.memory import Memory
from hcq.kernels.frontend.values import (
    Method,
    describe,
    is_number,
    numpy_type,
)
from hcq.kernels.ir import Value
from hcq.runtime.later import loaded

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


class Calls(Memory):
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
        numpy = loaded("numpy")
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


def _hashable(value: Any) -> bool:
    return not is_number(value) and getattr(type(value), "__hash__", None) is not None and not isinstance(value, tuple)
