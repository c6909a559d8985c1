"""Functions of a SPIR-V module besides its kernel: what is long and wanted often is written once, and called.

What does not live here: what they compute (lower.fused).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.kernels import types
from hcq.kernels.lower import fused
from hcq.kernels.lower.spirv.casts import kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.kernels.ir import Op, Value
    from hcq.kernels.lower.spirv.module import Module
    from hcq.kernels.lower.spirv.ops import Arithmetic


class Helpers:
    """A module's functions, made when they are first called."""

    def __init__(self, module: Module, arithmetic: Arithmetic) -> None:
        self.m, self.x = module, arithmetic
        self._fused = 0

    def fused(self, operands: Sequence[int]) -> int:
        """a * b + c of f64, rounded once: a call."""
        if not self._fused:
            self._fused = self._write()
        unknown = () if self.x.zero is None else (self.x.zero,)
        return self.m.emit("OpFunctionCall", self.m.type("f64"), self._fused, *operands, *unknown)

    def _write(self) -> int:
        m, function = self.m, fused.function()
        body, label, zero = m.body, m.label, self.x.zero
        f64 = m.type("f64")
        spelled = [f64] * len(function.parameters)
        if zero is not None:
            spelled.append(m.type("i32"))
        made, parameters = m.id(), [m.id() for _ in spelled]
        m.body = [["OpFunction", f64, made, 0, m.made("OpTypeFunction", f64, *spelled)]]
        m.body += [["OpFunctionParameter", *pair] for pair in zip(spelled, parameters, strict=True)]
        m.begin(m.id())
        names = dict(zip(function.parameters, parameters, strict=False))
        if zero is not None:
            self.x.zero = parameters[-1]
        for op in function.body.ops:
            self._op(op, names)
        m.do("OpFunctionEnd")
        m.functions += m.body
        m.body, m.label, self.x.zero = body, label, zero
        return made

    def _op(self, op: Op, names: dict[Value, int]) -> None:
        if op.code == "yield":
            self.m.do("OpReturnValue", names[op.operands[0]])
            return
        element = types.element_of(op.result.type)
        if op.code == "const":
            names[op.result] = self.x.literal(op.attributes["value"], element)
            return
        source = types.element_of(op.operands[op.code == "select"].type)
        operands = [names[each] for each in op.operands]
        maker = op.operands[-1].op
        known = maker is not None and maker.code == "const" and len(operands) == 2 and kind(element)[0] == "i"
        constant = int(maker.attributes["value"]) if known and maker is not None else None
        names[op.result] = self.x.write(op.code, source, element, operands, constant)
