"""Functions that a kernel calls, with every `return` at the end of a branch, where it only sets the result.

What follows an `if` moves into its branches; a `return` in a loop becomes a variable and a `break`. What does not live
here: what statements mean.
"""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hcq.errors import CompileError

# No variable of the user's can have these names, or what begins with them.
_LEFT: Final = "<left>"
RESULT: Final = "<result>"


def tail(body: Sequence[ast.stmt], error: Callable[[ast.AST, str, str], CompileError]) -> list[ast.stmt]:
    """The statements in that form. `error` makes the exception for a `return` that can't be moved."""
    for position, node in enumerate(body):
        if isinstance(node, ast.Return):
            return list(body[: position + 1])
        returns = [each for each in ast.walk(node) if isinstance(each, ast.Return)]
        if not returns:
            continue
        rest = list(body[position + 1 :])
        if isinstance(node, ast.If):
            branches = [tail([*each, *(rest if _falls(each) else [])], error) for each in (node.body, node.orelse)]
            moved = ast.copy_location(ast.If(node.test, branches[0] or [ast.Pass()], branches[1]), node)
            return [*body[:position], moved]
        valued = [each.value is not None for each in returns]
        if any(valued) != all(valued):
            raise error(returns[valued.index(False)], "a 'return' without a value beside one that has one", "")
        shape = _shape([each.value for each in returns if each.value is not None])
        loop = _Leaving(shape).visit(copy.deepcopy(node))
        value = _result(shape, ast.Load()) if all(valued) else None
        left = ast.If(ast.Name(_LEFT, ast.Load()), [ast.Return(value)], tail(rest, error))
        made = [_set(_LEFT, ast.Constant(False))]
        if value is not None:
            made += [_set(name, ast.Constant(False)) for name in _names(shape)]
        for each in (*made, left):
            ast.copy_location(each, returns[0])
            ast.fix_missing_locations(each)
        return [*body[:position], *made, loop, left]
    return list(body)


Shape = tuple["Shape", ...] | None
"""What is returned: None for one value, else the shapes of a tuple's parts."""


def _shape(values: Sequence[ast.expr]) -> Shape:
    """The shape that the tuples among some values have; the others are taken apart into it. Of tuples that differ, that
    of the first: the front end says that the others don't fit."""
    tuples = [each for each in values if isinstance(each, ast.Tuple)]
    if not tuples or not tuples[0].elts:
        return None
    count = len(tuples[0].elts)
    fitting = [each for each in tuples if len(each.elts) == count]
    return tuple(_shape([each.elts[at] for each in fitting]) for at in range(count))


def _names(shape: Shape, name: str = RESULT) -> list[str]:
    """The variables that hold a result."""
    if shape is None:
        return [name]
    return [each for at, part in enumerate(shape) for each in _names(part, f"{name} {at}")]


def _result(shape: Shape, context: ast.expr_context, name: str = RESULT) -> ast.expr:
    """A result as an expression, or as a target."""
    if shape is None:
        return ast.Name(name, context)
    return ast.Tuple([_result(part, context, f"{name} {at}") for at, part in enumerate(shape)], context)


class _Leaving(ast.NodeTransformer):
    """Turns each `return` in a loop into variables and a `break`, and leaves the loops around too."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.depth = 0

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        made = [_set(_LEFT, ast.Constant(True)), ast.Break()]
        if node.value is not None:
            made.insert(0, ast.Assign([_result(self.shape, ast.Store())], node.value))
        return [_placed(each, node) for each in made]

    def visit_For(self, node: ast.For) -> ast.stmt | list[ast.stmt]:
        return self.loop(node)

    def visit_While(self, node: ast.While) -> ast.stmt | list[ast.stmt]:
        return self.loop(node)

    def loop(self, node: ast.For | ast.While) -> ast.stmt | list[ast.stmt]:
        returns = any(isinstance(each, ast.Return) for each in ast.walk(node))
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1
        if self.depth == 0 or not returns:
            return node
        return [node, _placed(ast.If(ast.Name(_LEFT, ast.Load()), [ast.Break()], []), node)]


def _set(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _placed(node: ast.stmt, like: ast.AST) -> ast.stmt:
    return ast.fix_missing_locations(ast.copy_location(node, like))


def _falls(body: Sequence[ast.stmt]) -> bool:
    """Whether the end of the statements may be reached, as far as `return` is concerned."""
    if not body:
        return True
    last = body[-1]
    if isinstance(last, ast.If):
        return _falls(last.body) or _falls(last.orelse)
    return not isinstance(last, ast.Return)
