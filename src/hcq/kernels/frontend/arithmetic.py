"""Operations on numbers with NumPy's typing: promotion, conversion, comparison, Python's // and % and **.

What does not live here: the syntax they are written in (expressions), and which functions are called (calls).
"""

from __future__ import annotations

import ast
import math
import operator
from typing import TYPE_CHECKING, Any, Final

from hcq.kernels import arithmetic as exact
from hcq.kernels import types
from hcq.kernels.frontend.core import Core
from hcq.kernels.frontend.values import Weak, describe, is_constant, is_number
from hcq.kernels.ir import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hcq.kernels.types import Scalar, Type

PYTHON: Final[dict[str, Callable[..., Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""What an operator does with two constants."""

_CODES: Final = {"+": "add", "-": "sub", "*": "mul", "<<": "shl", ">>": "shr", "&": "and", "|": "or", "^": "xor"}
_COMPARISONS: Final = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_MIRRORED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LARGEST_POWER: Final = 1024


class Arithmetic(Core):
    """Operations on numbers."""

    # Types

    def element(self, value: Any) -> Scalar | None:
        """The element type of a number; None for a weak one."""
        return types.element_of(value.type) if isinstance(value, Value) else None

    def common(self, node: ast.AST, values: Sequence[Any]) -> Scalar | None:
        """The element type of an operation on all values; None where all are weak."""
        typed = [each for each in map(self.element, values) if each is not None]
        if not typed:
            return None
        result = typed[0]
        for each in typed[1:]:
            result = types.promote(result, each)
        for each in values:
            if not isinstance(each, Value):
                sample = each.sample if isinstance(each, Weak) else each
                try:
                    result = types.of_weak(sample, result)
                except OverflowError as error:
                    raise self.error(node, str(error), f"convert one of them, such as hcq.i64({each})") from None
        return result

    def default(self, node: ast.AST, value: Any) -> Scalar:
        """The type that a weak number has alone."""
        if isinstance(value, Weak):
            return value.type
        try:
            return types.of_weak(value)
        except OverflowError as error:
            raise self.error(node, str(error)) from None

    def typed(self, node: ast.AST, value: Any) -> Value:
        """The number as a value of the kernel; a weak one of the type that it has alone."""
        if isinstance(value, Value):
            return value
        return self.coerce(node, value, self.default(node, value))

    def number(self, node: ast.AST, value: Any, what: str = "this") -> Any:
        """`value`, which must be a number."""
        if is_number(value):
            return value
        hint = ""
        if isinstance(value, Value):
            hint = "an element of it is x[i]"
        raise self.error(node, f"{what} must be a number, and is {describe(value)}", hint)

    def coerce(self, node: ast.AST, value: Any, element: Scalar) -> Value:
        """A number converted to an element type, as an operation on both does it: weak ones must fit."""
        if isinstance(value, Value):
            return self.build.cast(value, element)
        if isinstance(value, Weak):
            if value.type is not element:
                self.unsettled += 1
            return self.build.cast(value.value, element)
        return self.build.const(self.fit(node, value, element), element)

    def fit(self, node: ast.AST, value: bool | int | float, element: Scalar) -> bool | int | float:
        """A Python number as one of the type; an error where it does not fit."""
        if element.kind == "b":
            if isinstance(value, bool):
                return value
            raise self.error(node, f"{value!r} is no bool", "write True or False, or a comparison")
        if element.is_integer:
            low, high = element.range
            if isinstance(value, float):
                raise self.error(node, f"the float {value!r} is no {element}", f"convert it: hcq.{element}({value!r})")
            if not low <= value <= high:
                raise self.error(node, f"{value} does not fit: {element} holds {low} to {high}")
            return int(value)
        if isinstance(value, int):
            try:
                rounded = exact.evaluator("cast", types.i64, element)(int(value))
            except OverflowError:
                rounded = math.inf
        else:
            rounded = exact.rounder(element)(value)
        if math.isinf(rounded) and not (isinstance(value, float) and math.isinf(value)):
            raise self.error(node, f"{value!r} is too large for {element}")
        return float(rounded)

    def shape(self, node: ast.AST, values: Sequence[Value]) -> list[Value]:
        """Scalars beside vectors repeated for each lane; vectors must have equal lanes."""
        lanes = {each.type.lanes for each in values if isinstance(each.type, types.Vector)}
        if not lanes:
            return list(values)
        if len(lanes) > 1:
            first, second = sorted(lanes)[:2]
            raise self.error(node, f"a vector of {first} meets one of {second}")
        (count,) = lanes
        return [each if isinstance(each.type, types.Vector) else self.splat(each, count) for each in values]

    def splat(self, value: Value, lanes: int) -> Value:
        """A vector with the value in every lane."""
        wanted = types.vector(types.element_of(value.type), lanes)
        return self.build.op("splat", (value,), (wanted,)).result

    # Operations

    def weakly(self, node: ast.AST, values: Sequence[Any], compute: Callable[[Sequence[Value]], Value]) -> Any:
        """An operation on weak numbers that are not all constants; the result is weak too."""
        defaults = [self.default(node, each) for each in values]
        element = types.f32 if any(each.is_float for each in defaults) else defaults[0]
        for each in defaults:
            element = element if element.is_float else types.promote(element, each)
        return Weak(compute([self.coerce(node, each, element) for each in values]))

    def operate(self, node: ast.AST, values: Sequence[Any], compute: Callable[[Sequence[Value]], Value]) -> Any:
        """`compute` on the values converted to their common type. All weak: the result is weak."""
        element = self.common(node, values)
        if element is None:
            return self.weakly(node, values, compute)
        return compute(self.shape(node, [self.coerce(node, each, element) for each in values]))

    def binary(self, node: ast.AST, sign: str, a: Any, b: Any) -> Any:
        """`a sign b` for two numbers."""
        if is_constant(a) and is_constant(b):
            return self.static(node, sign, a, b)
        if sign in _COMPARISONS:
            return self.compare(node, sign, a, b)
        if sign == "**":
            return self.power(node, a, b)

        def compute(values: Sequence[Value]) -> Value:
            return self.arithmetic(node, sign, values[0], values[1])

        return self.operate(node, (a, b), compute)

    def static(self, node: ast.AST, sign: str, a: Any, b: Any) -> Any:
        """An operation on two constants, by Python's rules."""
        try:
            if (
                sign in ("<<", "**")
                and isinstance(a, int)
                and isinstance(b, int)
                and b > 64
                and abs(a) > (sign == "**")
            ):
                raise OverflowError("the result has more than 64 bits")  # and computing it may take an hour
            result = PYTHON[sign](a, b)
        except (ArithmeticError, ValueError, TypeError) as error:
            raise self.error(node, f"{a!r} {sign} {b!r}: {error}") from None
        if isinstance(result, int) and result.bit_length() > 64:
            raise self.error(node, f"{a!r} {sign} {b!r} has more than 64 bits")
        if isinstance(result, complex):
            raise self.error(node, f"{a!r} {sign} {b!r} is complex, which kernels have no type for")
        return result

    def arithmetic(self, node: ast.AST, sign: str, a: Value, b: Value) -> Value:
        """`a sign b` for two values of one type."""
        element = types.element_of(a.type)
        if element.kind == "b" and sign not in "&|^":
            raise self.error(
                node, f"{sign} of two conditions", "count them as numbers: hcq.i32(a), or combine them by &, | and ^"
            )
        if sign in ("<<", ">>", "&", "|", "^"):
            if element.is_float:
                raise self.error(
                    node, f"{sign} works on integers, not on {element}", "hcq.bitcast gives a float's bits"
                )
            return self.build.binary(_CODES[sign], a, b)
        if sign == "/":
            wide = element if element.is_float else types.f64
            return self.build.binary("div", self.build.cast(a, wide), self.build.cast(b, wide))
        if sign in ("//", "%"):
            if element.is_float:
                result: Value = self.library(node, "floordiv" if sign == "//" else "modulo", a, b)
                return result
            return self.build.binary("floordiv" if sign == "//" else "mod", a, b)
        if sign not in _CODES:
            raise self.error(node, f"the operator {sign} is not part of the kernel language")
        return self.build.binary(_CODES[sign], a, b)

    def compare(self, node: ast.AST, sign: str, a: Any, b: Any) -> Value:
        """A comparison; its result is a bool, or a vector of them."""
        kinds = [self.element(a), self.element(b)]
        if kinds[0] is not None and kinds[1] is not None and {kinds[0], kinds[1]} & {types.u64}:
            signed = [each is not None and each.kind == "i" for each in kinds]
            if signed[0]:
                return self.compare_signs(sign, *self.shape(node, (a, b)))
            if signed[1]:
                return self.compare_signs(_MIRRORED[sign], *self.shape(node, (b, a)))

        def compute(values: Sequence[Value]) -> Value:
            return self.build.binary(_COMPARISONS[sign], values[0], values[1])

        result = self.operate(node, (a, b), compute)
        return result.value if isinstance(result, Weak) else result

    def compare_signs(self, sign: str, a: Value, b: Value) -> Value:
        """A signed integer with a u64, exactly, as NumPy has it."""
        zero = self.build.const(0, types.element_of(a.type))
        lanes = a.type.lanes if isinstance(a.type, types.Vector) else 1
        below = self.build.binary("lt", a, self.splat(zero, lanes) if lanes > 1 else zero)
        among = self.build.binary(_COMPARISONS[sign], self.build.cast(a, types.u64), b)
        if sign in ("<", "<=", "!="):
            return self.build.binary("or", below, among)
        return self.build.binary("and", self.build.unary("not", below), among)

    def power(self, node: ast.AST, a: Any, b: Any) -> Any:
        """`a ** b`: by multiplication where b is a whole constant or both are integers, else by mathlib."""
        if isinstance(b, int) and not isinstance(b, bool) and abs(b) <= _LARGEST_POWER:
            element = self.element(a)
            if element is not None and element.kind == "b":
                raise self.error(node, "** of a condition", "convert it: hcq.i32(a)")
            if b < 0 and (element is None or not element.is_float):
                raise self.error(node, "an integer to a negative power", "convert it to a float first: hcq.f32(a)")
            result = self.raised(node, a, abs(b))
            return result if b >= 0 else self.binary(node, "/", 1, result)
        element = self.common(node, (a, b))
        if element is not None and element.is_integer:
            values = self.shape(node, [self.coerce(node, each, element) for each in (a, b)])
            if not any(isinstance(each.type, types.Vector) for each in values):
                return self.library(node, "power", *values)
        return self.mathematics(node, "pow", *self.floats(node, (a, b)))

    def raised(self, node: ast.AST, a: Any, count: int) -> Any:
        """a to the power `count` by squaring: the same order of multiplications everywhere."""
        if count == 0:
            return self.coerce(node, 1, self.element(a) or self.default(node, a)) if isinstance(a, Value) else 1
        result: Any = None
        while True:
            if count & 1:
                result = a if result is None else self.binary(node, "*", result, a)
            count >>= 1
            if not count:
                return result
            a = self.binary(node, "*", a, a)

    def negative(self, node: ast.AST, value: Any) -> Any:
        """-value"""
        if is_constant(value):
            return -value
        if self.element(value) is types.bool_:
            raise self.error(node, "- of a condition", "write 'not c', or convert it: hcq.i32(c)")
        if isinstance(value, Weak):
            return Weak(self.build.unary("neg", value.value))
        return self.build.unary("neg", value)

    def inverted(self, node: ast.AST, value: Any) -> Any:
        """~value"""
        if is_constant(value):
            if isinstance(value, float):
                raise self.error(node, "~ works on integers")
            return ~value if not isinstance(value, bool) else not value
        plain = value.value if isinstance(value, Weak) else value
        if types.element_of(plain.type).is_float:
            raise self.error(node, f"~ works on integers, not on {plain.type}", "hcq.bitcast gives a float's bits")
        result = self.build.unary("not", plain)
        return Weak(result) if isinstance(value, Weak) else result

    def condition(self, node: ast.AST, value: Any) -> bool | Value:
        """A number as a condition: a constant bool, or a value that is a bool."""
        if is_constant(value) or value is None or isinstance(value, (str, tuple)):
            return bool(value)
        if not is_number(value):
            raise self.error(node, f"a condition must be a number, and is {describe(value)}")
        plain: Value = value.value if isinstance(value, Weak) else value
        if isinstance(plain.type, types.Vector):
            raise self.error(
                node,
                f"a condition is one bool, and this is {plain.type}",
                "choose lane by lane with hcq.where(c, a, b)",
            )
        return plain if plain.type is types.bool_ else self.build.cast(plain, types.bool_)

    def convert(self, node: ast.AST, value: Any, element: Scalar) -> Any:
        """`hcq.f32(value)`: any number to any type."""
        if is_constant(value):
            if element.kind == "b":
                return bool(value)
            if isinstance(value, float) and element.is_integer:
                number = exact.evaluator("cast", types.f64, element)(value)
                return self.build.const(number, element)
            if isinstance(value, int) and element.is_integer:
                return self.build.const(exact.wrapper(element)(int(value)), element)
            if element.is_float and isinstance(value, float):
                return self.build.const(exact.rounder(element)(value), element)
            return self.build.const(self.fit(node, value, element), element)
        plain: Value = value.value if isinstance(value, Weak) else value
        if isinstance(value, Weak):
            self.unsettled += 1
        return self.build.cast(plain, element)

    def stored(self, node: ast.AST, value: Any, element: Scalar) -> Value:
        """A value as it is written into an element: converted within its kind, as NumPy's assignment does."""
        if isinstance(value, Value):
            own = types.element_of(value.type)
            if (own.is_float and not element.is_float) or (element.kind == "b" and own.kind != "b"):
                how = "value != 0" if element.kind == "b" else f"hcq.{element}(value)"
                raise self.error(node, f"{own} can't be stored as {element}", f"convert it: {how}")
        return self.coerce(node, value, element)

    def floats(self, node: ast.AST, values: Sequence[Any]) -> list[Any]:
        """Arguments of a function of floats, of one float type: integers become floats as in NumPy."""
        element = self.common(node, values)
        if element is None:
            return [self.coerce(node, each, types.f32) for each in values]
        if not element.is_float:
            element = types.promote(element, types.f16)
        return self.shape(node, [self.coerce(node, each, element) for each in values])

    def library(self, node: ast.AST, name: str, *arguments: Any) -> Any:
        """A function of hcq.kernels.library, inlined."""
        raise NotImplementedError

    def mathematics(self, node: ast.AST, name: str, *arguments: Value) -> Any:
        """A function of hcq.kernels.mathlib, inlined."""
        raise NotImplementedError

    def result_type(self, value: Value, element: Scalar) -> Type:
        return types.with_element(value.type, element)
