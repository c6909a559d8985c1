"""Statements: assignment, if, return and what is refused by name. What does not live here: loops, expressions."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

from hcq.kernels.frontend.core import Join, filled
from hcq.kernels.frontend.expressions import _SIGNS
from hcq.kernels.frontend.loops import Loops
from hcq.kernels.frontend.values import Array, Missing, describe, is_number, is_pointer, pointer_type
from hcq.kernels.ir import Block, Value
from hcq.kernels.types import Scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_REFUSED: Final[dict[type[ast.AST], tuple[str, str]]] = {
    ast.FunctionDef: ("a function inside a kernel", "define it outside: kernels call any plain Python function"),
    ast.AsyncFunctionDef: ("an async function", "kernels run by themselves"),
    ast.ClassDef: ("a class", "define it outside the kernel"),
    ast.Delete: ("del", "variables end by themselves"),
    ast.With: ("with", "hcq.barrier() orders a group's work"),
    ast.AsyncWith: ("async with", ""),
    ast.AsyncFor: ("async for", ""),
    ast.Raise: ("raise", "a kernel can't fail: write a flag to memory"),
    ast.Try: ("try", "a kernel can't fail"),
    ast.Import: ("import", "import outside the kernel"),
    ast.ImportFrom: ("import", "import outside the kernel"),
    ast.Global: ("global", "names from outside are constants: write results to memory"),
    ast.Nonlocal: ("nonlocal", "names from outside are constants: write results to memory"),
    ast.Match: ("match", "use if and elif"),
}

RETURN: Final = "return"
"""Where a frame keeps what its function returns: no variable can have this name."""


class Statements(Loops):
    """Statements of the language."""

    def statements(self, nodes: Sequence[ast.stmt]) -> bool:
        return all(map(self.statement, nodes))

    def statement(self, node: ast.stmt) -> bool:
        """Translates one; False where nothing can follow it."""
        method: Callable[[Any], bool | None] | None = getattr(self, f"on_{type(node).__name__}", None)
        if method is None:
            what, hint = _REFUSED.get(type(node), (type(node).__name__, ""))
            raise self.error(node, f"{what!r} is not part of the kernel language", hint)
        self.build.node = node
        self.build.frame = self.frame
        if self.build.count > self.limit:
            raise self.error(node, f"the kernel becomes longer than {self.limit} operations")
        return method(node) is not False

    def on_Pass(self, node: ast.Pass) -> None:
        """Nothing."""

    def on_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) and (isinstance(node.value.value, str) or node.value.value is ...):
            return
        value = self.expr(node.value)
        if not isinstance(node.value, ast.Call) and value is not None:
            raise self.error(node, "this line computes a value and drops it", "assign it, or leave the line out")

    def on_Assert(self, node: ast.Assert) -> None:
        condition = self.condition(node.test, self.expr(node.test))
        if not isinstance(condition, bool):
            raise self.error(
                node,
                "'assert' of what is known only when the kernel runs",
                "write a flag to memory, or use the device PYTHON",
            )
        if not condition:
            text = self.expr(node.msg) if node.msg is not None else ""
            raise self.error(node, f"assertion failed{f': {text}' if text else ''}")

    # Assignment

    def on_Assign(self, node: ast.Assign) -> None:
        value = self.expr(node.value)
        for target in node.targets:
            self.assign(target, value)

    def on_AnnAssign(self, node: ast.AnnAssign) -> None:
        type_ = self.expr(node.annotation)
        if not isinstance(type_, Scalar):
            raise self.error(node.annotation, f"a variable's type is a scalar such as hcq.f32, not {describe(type_)}")
        if node.value is None:
            raise self.error(node, "a variable without a value", "give it one: s: hcq.f32 = 0")
        value = self.number(node.value, self.expr(node.value))
        self.assign(node.target, self.convert(node.value, value, type_))

    def on_AugAssign(self, node: ast.AugAssign) -> None:
        sign = _SIGNS[type(node.op)]
        if isinstance(node.target, ast.Name):
            before = self.name(ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target))
            self.assign(node.target, self.operator(node, sign, before, self.expr(node.value)))
        elif isinstance(node.target, ast.Subscript):
            pointer, index = self.target(node.target)
            before = self.build.load(pointer, index)
            value = self.operator(node, sign, before, self.expr(node.value))
            self.build.store(pointer, index, self.stored(node, value, pointer_type(pointer).element))
        else:
            raise self.error(node.target, "only variables and elements can be assigned")

    def assign(self, target: ast.expr, value: Any) -> None:
        """`target = value`."""
        if isinstance(target, ast.Name):
            if value is None:
                raise self.error(
                    target, "None has no place in a variable", "a function that returns nothing is called alone"
                )
            self.frame.env[target.id] = self.named(value, target.id)
        elif isinstance(target, (ast.Tuple, ast.List)):
            if any(isinstance(each, ast.Starred) for each in target.elts):
                raise self.error(target, "a target with a star is not part of the kernel language")
            if not isinstance(value, tuple):
                raise self.error(target, f"{len(target.elts)} values are expected here, and this is {describe(value)}")
            if len(value) != len(target.elts):
                raise self.error(target, f"{len(value)} values for {len(target.elts)} names")
            for each, part in zip(target.elts, value, strict=True):
                self.assign(each, part)
        elif isinstance(target, ast.Subscript):
            pointer, index = self.target(target)
            self.number(target, value, "what is stored")
            element = pointer_type(pointer).element
            self.build.store(pointer, index, self.scalar(target, self.stored(target, value, element)))
        else:
            raise self.error(target, "only variables and elements can be assigned")

    def scalar(self, node: ast.AST, value: Value) -> Value:
        """A value that is no vector."""
        if not isinstance(value.type, Scalar):
            raise self.error(node, f"one element can't hold {value.type}", "x.store(i, v) writes a vector")
        return value

    def target(self, node: ast.Subscript) -> tuple[Value, Value]:
        """Pointer and index of an element that is assigned."""
        owner = self.expr(node.value)
        if isinstance(owner, Array) or is_pointer(owner):
            return self.place(node, owner)
        if is_number(owner):
            raise self.error(
                node, "an element of a vector can't be set", "make a new one: hcq.vec[hcq.f32, 4](a, b, c, d)"
            )
        raise self.error(node, f"{describe(owner)} has no elements that can be set")

    # Control flow

    def on_Break(self, node: ast.Break) -> bool:
        return self.leave_round(node, "break")

    def on_Continue(self, node: ast.Continue) -> bool:
        return self.leave_round(node, "continue")

    def on_Return(self, node: ast.Return) -> bool:
        value = None if node.value is None else self.expr(node.value)
        if not self.frame.kernel:
            self.frame.env[RETURN] = value
            return True  # it stands at the end of its branch (inline), so that nothing follows
        if value is not None:
            raise self.error(node, "a kernel returns nothing", "write results to memory: out[i] = ...")
        self.build.op("return")
        return False

    def on_If(self, node: ast.If) -> bool:
        condition = self.condition(node.test, self.expr(node.test))
        if isinstance(condition, bool):
            return self.statements(node.body if condition else node.orelse)
        self.build.node = node
        ways: list[tuple[Block, dict[str, Any], bool]] = []
        self.frame.depth += 1
        for statements in (node.body, node.orelse):
            block = Block()
            with self.inside(block):
                falls = self.statements(statements)
                if not falls:
                    self.leave()
                ways.append((block, self.frame.env, falls))
        self.frame.depth -= 1
        self.build.node = node
        through = [(block, env) for block, env, falls in ways if falls]
        blocks = [block for block, _, _ in ways]
        if not through:
            self.build.op("if", (condition,), (), blocks)
            return False
        before = self.frame.env
        join = Join(self, len(through), node)
        names = dict.fromkeys(name for _, env in through for name in env)
        templates = {
            name: join.add(name, [self.value_of(node, env, name) for _, env in through], before.get(name))
            for name in names
        }
        for (block, _), passed in zip(through, join.passed, strict=True):
            with self.inside(block):
                operands = [self.as_type(node, each, t) for each, t in zip(passed, join.types, strict=True)]
                self.build.op("yield", operands)
        op = self.build.op("if", (condition,), join.types, blocks)
        for result, name in zip(op.results, join.names, strict=True):
            result.name = name if name != RETURN else ""
        self.frame.env = {name: filled(template, op.results) for name, template in templates.items()}
        return True

    def value_of(self, node: ast.If, env: dict[str, Any], name: str) -> Any:
        """A variable at the end of a branch; a Missing where that branch gives it no value."""
        if name in env:
            return env[name]
        return Missing(
            "{name} may have no value here: it is set on one branch of a condition only",
            f"give {name} a value before the condition",
            self.locate(node),
        )
