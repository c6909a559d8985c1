"""Functions that a kernel calls: their bodies take the place of the call.

What does not live here: builtins, and how `return` comes to stand at the ends of branches (returns).
"""

from __future__ import annotations

import ast
import inspect
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hcq.errors import CompileError
from hcq.kernels import library, types
from hcq.kernels.frontend import returns
from hcq.kernels.frontend import source as sources
from hcq.kernels.frontend.core import Frame
from hcq.kernels.frontend.elements import Elements
from hcq.kernels.frontend.values import Missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.kernels.ir import Value

signature = lru_cache(maxsize=1024)(inspect.signature)
"""inspect.signature, which takes long, of functions that are called again and again."""

_DEPTH = 64
_RETURN = "return"


class Inline(Elements):
    """Calls of Python functions."""

    def inline(self, node: ast.AST, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What a Python function returns for these arguments; its operations are appended here."""
        name = function.__name__
        if function in self.stack:
            raise self.error(node, f"{name} calls itself, which kernels can't", "use a loop")
        if len(self.stack) > _DEPTH:
            raise self.error(node, f"functions are called {_DEPTH} deep here")
        try:
            source = sources.read(function)
        except CompileError as error:
            raise self.error(node, error.message, error.log) from None
        try:
            bound = signature(function).bind(*args, **kwargs)
        except TypeError as error:
            raise self.error(node, f"{name}: {error}") from None
        for parameter in bound.signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise self.error(node, f"{name} takes *{parameter.name}", "functions of kernels have fixed parameters")
        bound.apply_defaults()
        outer, outer_node = self.frame, self.build.node
        self.frame = Frame(function, source, outer.source.locate(node, outer.inlined_at), kernel=False)
        self.build.frame = self.frame
        self.frame.env = {key: self.constant(value) for key, value in bound.arguments.items()}
        self.frame.env[_RETURN] = None
        self.stack.append(function)
        try:
            if source.tail is None:
                source.tail = returns.tail(source.tree.body, self.error)
            self.statements(source.tail)
            result = self.frame.env[_RETURN]
        finally:
            self.stack.pop()
            self.frame, self.build.frame, self.build.node = outer, outer, outer_node
        if isinstance(result, Missing):
            why = result.why.replace("{name}", f"what {name} returns")
            raise self.error(node, why, "return one type on every way: hcq.f32(...)")
        return result

    def library(self, node: ast.AST, name: str, *arguments: Any) -> Any:
        """A function of hcq.kernels.library, inlined."""
        return self.inline(node, getattr(library, name), arguments, {})

    def mathematics(self, node: ast.AST, name: str, *arguments: Value) -> Any:
        """A function of hcq.kernels.mathlib, inlined; its arguments are of one float type. f16 and bf16 go by f32."""
        from hcq.kernels import mathlib

        element = types.element_of(arguments[0].type)
        computed = types.computed(element)
        values = [self.build.cast(each, computed) for each in arguments]
        result = self.inline(node, mathlib.FUNCTIONS[name], [*values, mathlib.FORMATS[computed.name]], {})
        return self.build.cast(result, element)
