"""From a Python function to the form in the middle.

source: its text and errors that point into it. parameters: what annotations say. values: what names stand for.
core, arithmetic, expressions, inline, functions, memory, calls, loops, statements: the translation, each adding to the
one before.
What does not live here: passes over the result (hcq.kernels.passes), and launching.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hcq.kernels import ir, types
from hcq.kernels.frontend import source as sources
from hcq.kernels.frontend.core import Emitter, Frame
from hcq.kernels.frontend.statements import Statements
from hcq.kernels.ir import Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FunctionType

    from hcq.kernels.frontend.parameters import Parameter


def translate(
    function: FunctionType,
    parameters: Sequence[Parameter],
    given: Mapping[str, types.Scalar],
    constants: Mapping[str, Any],
) -> ir.Function:
    """The kernel that a Python function describes, with the values of its `constants` and the `given` types of pointers
    that have none of their own. Raises CompileError that points at the user's line and column."""
    return _Translator(function, parameters, given, constants).run()


class _Translator(Statements):
    limit = ir.MAX_OPS

    def __init__(
        self,
        function: FunctionType,
        parameters: Sequence[Parameter],
        given: Mapping[str, types.Scalar],
        constants: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self.source = sources.read(function)
        self.frame = Frame(function, self.source, None, kernel=True)
        values = []
        for each in parameters:
            if each.kind == "constant":
                self.frame.env[each.name] = constants[each.name]
                continue
            element = each.type or given[each.name]
            value = Value(element if each.kind == "scalar" else types.pointer(element), each.name)
            values.append(value)
            self.frame.env[each.name] = value
        file = self.source.file
        self.function = ir.Function(self.source.name, values, file=file, source=self.source.text)
        self.build = Emitter(self.function.body)
        self.build.frame = self.frame
        self.stack.append(function)
        for each in parameters:
            if each.kind == "constant":
                self.build.node = self.source.tree
                self.frame.env[each.name] = self.constant(constants[each.name])

    def run(self) -> ir.Function:
        try:
            ends = self.statements(self.source.tree.body)
        except RecursionError:
            node = self.build.node or self.source.tree
            raise self.error(node, "this is nested too deep to be read", "write it in several statements") from None
        if ends:
            self.build.node = self.source.tree
            self.build.op("return")
        else:
            self.leave()
        self.function.body.ops[:0] = self.arrays
        return self.function
