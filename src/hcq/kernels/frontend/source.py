"""The text of a Python function as a syntax tree, and the errors that point into it.

What does not live here: what the tree means.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
import tokenize
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hcq.errors import CompileError
from hcq.kernels.ir import Location

if TYPE_CHECKING:
    from types import CodeType, FunctionType


class Source:
    """One function's text: `tree` its definition, `file`, and where in the file the tree's lines and columns begin."""

    __slots__ = ("column", "file", "first", "locals", "name", "tail", "text", "tree")

    def __init__(self, name: str, file: str, first: int, column: int, text: str, tree: ast.FunctionDef) -> None:
        self.name = name
        self.file = file
        self.first = first
        self.column = column
        self.text = text
        self.tree = tree
        self.tail: list[ast.stmt] | None = None  # the body with returns at the ends of branches (inline)
        self.locals = _stored(tree)

    def locate(self, node: ast.AST, inlined_at: Location | None = None) -> Location:
        """The place of a node in the user's file."""
        line = getattr(node, "lineno", self.tree.lineno)
        column = getattr(node, "col_offset", self.tree.col_offset)
        return Location(self.file, line + self.first - 1, column + self.column + 1, inlined_at)


def read(function: FunctionType) -> Source:
    """The source of a function. Raises CompileError where Python does not have it, or it is no plain function."""
    return _read(function.__code__, tuple(function.__globals__.get(each) for each in ("__name__", "__loader__")))


@lru_cache(maxsize=512)
def _read(code: CodeType, module: tuple[Any, Any]) -> Source:
    name, file = code.co_name, code.co_filename
    if name == "<lambda>":
        raise CompileError(
            f"{file}:{code.co_firstlineno}:1: a lambda can't be part of a kernel",
            "its text can't be told from what stands around it: write a function with def",
        )
    lines = linecache.getlines(file, dict(zip(("__name__", "__loader__"), module, strict=True)))
    if not lines or code.co_firstlineno > len(lines):
        raise CompileError(
            f"{name}: Python has no source of this function ({file})",
            "kernels are compiled from their text: define them in a file or a notebook, not by exec or at a prompt",
        )
    first = code.co_firstlineno
    try:
        block = inspect.getblock(lines[first - 1 :])
    except (SyntaxError, tokenize.TokenError):  # what follows the function is no Python: a page with examples
        ends = [end for _, end, _, _ in code.co_positions() if end is not None]
        block = lines[first - 1 : max(ends, default=first)]
    text = textwrap.dedent("".join(block))
    column = len(block[0]) - len(block[0].lstrip())
    try:
        tree = ast.parse(text).body[0]
    except SyntaxError as error:
        raise CompileError(f"{file}:{first}: {name} can't be read: {error.msg}", text) from None
    if not isinstance(tree, ast.FunctionDef):
        raise CompileError(
            f"{file}:{first}:{column + 1}: {name} is no plain function",
            "kernels and what they call are written as 'def name(...):', neither async nor lambda",
        )
    return Source(name, file, first, column, text, tree)


def refusal(location: Location, message: str, hint: str = "", source: str | None = None) -> CompileError:
    """The error for what stands at `location`: message, the line with a caret, where it was called, what to write."""
    log = []
    line = linecache.getline(location.file, location.line).rstrip("\n")
    if line:
        log += [line.expandtabs(1), " " * (location.column - 1) + "^"]
    outer = location.inlined_at
    while outer is not None:
        log.append(f"called at {outer}: {linecache.getline(outer.file, outer.line).strip()}")
        outer = outer.inlined_at
    if hint:
        log.append(hint)
    return CompileError(f"{location}: {message}", "\n".join(log), source)


def _stored(tree: ast.FunctionDef) -> frozenset[str]:
    """The names that a function assigns, its parameters among them: its local variables."""
    arguments = tree.args
    names = {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    return frozenset(names | stored_names(tree.body))


def stored_names(statements: list[ast.stmt]) -> set[str]:
    """The names that statements assign."""
    return {
        node.id
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
