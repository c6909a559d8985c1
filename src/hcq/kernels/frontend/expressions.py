"""Expressions: names, operators, comparisons, conditions.

What does not live here: arithmetic and its types (arithmetic), subscripts and attributes (elements), calls (calls),
assignment (statements).
"""

from __future__ import annotations

import ast
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from hcq.kernels import types
from hcq.kernels.frontend.arithmetic import PYTHON, Arithmetic
from hcq.kernels.frontend.core import Join, filled
from hcq.kernels.frontend.values import (
    Array,
    Missing,
    Weak,
    describe,
    is_constant,
    is_number,
    is_pointer,
)
from hcq.kernels.ir import Block, Value

if TYPE_CHECKING:
    from collections.abc import Callable

_SIGNS: Final[dict[type[ast.AST], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.MatMult: "@",
}

_REFUSED: Final[dict[type[ast.AST], tuple[str, str]]] = {
    ast.Lambda: ("a lambda", "write a function with def and call it"),
    ast.ListComp: ("a list comprehension", "use a loop, or hcq.private(type, count) for an array"),
    ast.SetComp: ("a set comprehension", "use a loop"),
    ast.DictComp: ("a dict comprehension", "use a loop"),
    ast.GeneratorExp: ("a generator expression", "use a loop"),
    ast.List: ("a list", "use a tuple of a fixed number of values, or hcq.private(type, count) for an array"),
    ast.Dict: ("a dict", "use names"),
    ast.Set: ("a set", "use a tuple"),
    ast.JoinedStr: ("an f-string", "kernels have no text"),
    ast.Await: ("await", "kernels run by themselves"),
    ast.Yield: ("yield", "return values, or write them to memory"),
    ast.YieldFrom: ("yield from", "return values, or write them to memory"),
    ast.Starred: ("an argument with a star", "write the arguments one by one"),
    ast.Slice: ("a slice", "use a loop, or x.load(i, lanes=4) for 2, 4, 8 or 16 neighbours"),
}


class Expressions(Arithmetic):
    """Expressions of the language."""

    def expr(self, node: ast.expr) -> Any:
        """The value of an expression."""
        method: Callable[[Any], Any] | None = getattr(self, f"on_{type(node).__name__}", None)
        if method is None:
            what, hint = _REFUSED.get(type(node), (f"{type(node).__name__}", ""))
            raise self.error(node, f"{what} is not part of the kernel language", hint)
        outer, self.build.node = self.build.node, node
        try:
            return method(node)
        finally:
            self.build.node = outer

    def on_Name(self, node: ast.Name) -> Any:
        return self.name(node)

    def on_Constant(self, node: ast.Constant) -> Any:
        if isinstance(node.value, complex):
            raise self.error(node, "kernels have no complex numbers", "compute with real and imaginary parts")
        if isinstance(node.value, int) and node.value.bit_length() > 64:
            raise self.error(node, f"{node.value} has more than 64 bits")
        return node.value

    def on_Tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self.expr(each) for each in node.elts)

    def on_NamedExpr(self, node: ast.NamedExpr) -> Any:
        value = self.expr(node.value)
        self.frame.env[node.target.id] = self.named(value, node.target.id)
        return value

    def named(self, value: Any, name: str) -> Any:
        """Remembers the user's name of a value, for readers of the output."""
        if isinstance(value, Value) and not value.name and value.op is not None and value.op.code != "const":
            value.name = name
        return value

    # Operators

    def on_BinOp(self, node: ast.BinOp) -> Any:
        return self.operator(node, _SIGNS[type(node.op)], self.expr(node.left), self.expr(node.right))

    def operator(self, node: ast.AST, sign: str, a: Any, b: Any) -> Any:
        """`a sign b`, where a pointer may stand on either side of +, and before -."""
        a, b = (each.pointer if isinstance(each, Array) else each for each in (a, b))
        if sign == "+" and is_pointer(b):
            a, b = b, a
        if is_pointer(a) and sign in "+-":
            if is_pointer(b):
                raise self.error(node, "two pointers can't be added or subtracted", "keep their indices instead")
            offset = self.index(node, b)
            if sign == "-":
                offset = self.build.unary("neg", offset)
            return self.build.op("offset", (a, offset), (a.type,)).result
        for side in (a, b):
            if not is_number(side):
                if isinstance(a, tuple) and isinstance(b, tuple) and sign == "+":
                    return a + b
                raise self.error(node, f"{sign} works on numbers, not on {describe(side)}")
        return self.binary(node, sign, a, b)

    def index(self, node: ast.AST, value: Any) -> Value:
        """An integer scalar, as what counts elements."""
        if isinstance(value, (bool, float)) or not is_number(value):
            raise self.error(node, f"an index is an integer, not {describe(value)}", "convert it: hcq.i32(...)")
        plain = value.value if isinstance(value, Weak) else self.typed(node, value)
        if not isinstance(plain.type, types.Scalar) or not plain.type.is_integer:
            raise self.error(node, f"an index is an integer, not {plain.type}", "convert it: hcq.i32(...)")
        result: Value = plain
        return result

    def on_UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self.expr(node.operand)
        if isinstance(node.op, ast.Not):
            condition = self.condition(node.operand, value)
            return not condition if isinstance(condition, bool) else self.build.unary("not", condition)
        self.number(node.operand, value)
        if isinstance(node.op, ast.USub):
            return self.negative(node, value)
        return self.inverted(node, value) if isinstance(node.op, ast.Invert) else value

    def on_Compare(self, node: ast.Compare) -> Any:
        left = self.expr(node.left)
        result: Any = None
        for position, (op, right_node) in enumerate(zip(node.ops, node.comparators, strict=True)):
            if result is False:
                break
            if position == 0:
                right = self.expr(right_node)
                result = self.compared(node, op, left, right)
            else:
                held = right

                def rest(held: Any = held, op: ast.cmpop = op, right_node: ast.expr = right_node) -> tuple[Any, ...]:
                    value = self.expr(right_node)
                    return self.compared(node, op, held, value), value

                if result is True:
                    result, right = rest()
                    continue
                if position + 1 < len(node.ops):
                    # What follows needs the middle operand, so that it is computed either way.
                    right = self.expr(right_node)
                    more = self.compared(node, op, held, right)
                    result = (
                        more if more is False else result if more is True else self.build.binary("and", result, more)
                    )
                else:
                    result = self.shortened(node, "and", result, lambda: rest()[0])
        return result

    def compared(self, node: ast.Compare, op: ast.cmpop, a: Any, b: Any) -> Any:
        """One comparison of a chain."""
        if isinstance(op, (ast.Is, ast.IsNot)):
            if isinstance(a, (Value, Weak)) or isinstance(b, (Value, Weak)):
                if a is None or b is None:
                    return isinstance(op, ast.IsNot)
                raise self.error(node, "'is' compares constants", "numbers are compared by ==")
            return (a is b) == isinstance(op, ast.Is)
        if isinstance(op, (ast.In, ast.NotIn)):
            if isinstance(a, (Value, Weak)) or not isinstance(b, (tuple, str)) or any(isinstance(e, Value) for e in b):
                raise self.error(node, "'in' works on constants", "compare by == and join by 'or'")
            return (a in b) == isinstance(op, ast.In)
        sign = _SIGNS[type(op)]
        if is_number(a) and is_number(b):
            return self.binary(node, sign, a, b)
        for side in (a, b):
            if is_pointer(side) or isinstance(side, (Array, tuple)):
                raise self.error(node, f"{sign} compares numbers, not {describe(side)}")
        if is_number(a) != is_number(b) and not (is_constant(a) or is_constant(b)):
            if sign in ("==", "!="):
                return sign == "!="
            raise self.error(node, f"{sign} compares {describe(a)} with {describe(b)}")
        try:
            return bool(PYTHON[sign](a, b))
        except TypeError as error:
            raise self.error(node, str(error)) from None

    # Conditions

    def on_BoolOp(self, node: ast.BoolOp) -> Any:
        code = "and" if isinstance(node.op, ast.And) else "or"
        result = self.bool_operand(node.values[0], code)
        for operand in node.values[1:]:
            if isinstance(result, bool):
                if result == (code == "or"):
                    return result
                result = self.bool_operand(operand, code)
            else:
                result = self.shortened(operand, code, result, partial(self.bool_operand, operand, code))
        return result

    def bool_operand(self, node: ast.expr, code: str) -> Any:
        value = self.expr(node)
        if isinstance(value, Value) and types.element_of(value.type).kind == "b":
            return self.condition(node, value)
        if isinstance(value, (Value, Weak)):
            raise self.error(
                node, f"'{code}' joins conditions, and this is {describe(value)}", "compare it, such as 'n != 0'"
            )
        return self.condition(node, value)

    def shortened(self, node: ast.expr, code: str, first: Value, second: Callable[[], Any]) -> Any:
        """`first and second()`: under a branch where the second does more than compute."""
        block = Block()
        with self.inside(block):
            value = second()
            changed = self.frame.env
        if isinstance(value, bool):
            self.build.block.ops += block.ops
            self.frame.env = changed
            neutral = code == "and"
            return first if value is neutral else value
        if all(op.is_pure for op in block.ops):
            self.build.block.ops += block.ops
            self.frame.env = changed
            return self.build.binary(code, first, value)
        other = Block()
        with self.inside(other):
            short = self.build.const(code == "or", types.bool_)
            self.build.op("yield", (short,))
        with self.inside(block):
            self.build.op("yield", (value,))
        blocks = (block, other) if code == "and" else (other, block)
        return self.build.op("if", (first,), (types.bool_,), blocks).result

    def on_IfExp(self, node: ast.IfExp) -> Any:
        condition = self.condition(node.test, self.expr(node.test))
        if isinstance(condition, bool):
            return self.expr(node.body if condition else node.orelse)
        blocks, values = [], []
        for side in (node.body, node.orelse):
            block = Block()
            with self.inside(block):
                values.append(self.expr(side))
            blocks.append(block)
        if all(map(is_number, values)) and any(isinstance(each, Value) for each in values):
            element = self.common(node, values)
            assert element is not None
            for position, block in enumerate(blocks):
                with self.inside(block):
                    values[position] = self.coerce(node, values[position], element)
        join = Join(self, 2, node)
        template = join.add("this", values)
        if not join.types:
            for block in blocks:
                self.build.block.ops += block.ops
            return self.joined(node, template)
        pure = all(op.is_pure for block in blocks for op in block.ops)
        pure = pure and not any(isinstance(each, types.Pointer) for each in join.types)  # select is of numbers
        sides: list[list[Value]] = []
        for block, passed in zip(blocks, join.passed, strict=True):
            with self.inside(block):
                sides.append([self.as_type(node, each, t) for each, t in zip(passed, join.types, strict=True)])
                if not pure:
                    self.build.op("yield", sides[-1])
        if not pure:
            return self.joined(node, filled(template, self.build.op("if", (condition,), join.types, blocks).results))
        for block in blocks:
            self.build.block.ops += block.ops
        return self.joined(
            node, filled(template, [self.build.select(condition, a, b) for a, b in zip(*sides, strict=True)])
        )

    def joined(self, node: ast.AST, value: Any) -> Any:
        """What a Join gave, which must be a value."""
        if isinstance(value, Missing):
            raise self.missing(node, "this", value)
        return value

    def as_type(self, node: ast.AST, value: Any, type_: types.Type) -> Value:
        """A number as one of exactly `type_`; a pointer has it."""
        if isinstance(type_, types.Pointer):
            pointer: Value = value.pointer if isinstance(value, Array) else value
            return pointer
        result = self.coerce(node, value, types.element_of(type_))
        if isinstance(type_, types.Vector) and not isinstance(result.type, types.Vector):
            return self.splat(result, type_.lanes)
        return result
