"""Functions of numbers: Python's and math's, hcq's own, and those of a vector's lanes.

What does not live here: which object a call means (calls), exp and the others (mathlib).
"""

from __future__ import annotations

import ast
import math
from typing import Any

from hcq.kernels import types
from hcq.kernels.builtins import TWO
from hcq.kernels.frontend.inline import Inline
from hcq.kernels.frontend.values import Array, Weak, describe, is_constant, is_pointer
from hcq.kernels.ir import Value


class Functions(Inline):
    """A method `do_NAME` for each function."""

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
