"""A kernel as a SPIR-V module for Vulkan's compute: the entry, ids, and the operations of a block.

What a driver has to know of a module is in docs/design/spirv.md. What does not live here: pure operations (ops),
control flow (flow), memory (memory), words (module), printing (text).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from hcq.errors import CompileError
from hcq.kernels import types
from hcq.kernels.lower import about, fused, quotient, remainder, subgroups
from hcq.kernels.lower.names import entry_name
from hcq.kernels.lower.spirv.arguments import Arguments
from hcq.kernels.lower.spirv.codes import BUILTINS
from hcq.kernels.lower.spirv.flow import Flow, lanes
from hcq.kernels.lower.spirv.helpers import Helpers
from hcq.kernels.lower.spirv.memory import Memory
from hcq.kernels.lower.spirv.module import Module
from hcq.kernels.lower.spirv.ops import Arithmetic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.kernels.ir import Function, Op
    from hcq.kernels.lower.spirv.module import Instruction

_ACQUIRE_RELEASE, _UNIFORM, _WORKGROUP, _AVAILABLE, _VISIBLE = 0x8, 0x40, 0x100, 0x2000, 0x4000
_BARRIER: Final = _ACQUIRE_RELEASE | _UNIFORM | _WORKGROUP | _AVAILABLE | _VISIBLE
_MODES: Final = {"SignedZeroInfNanPreserve": "nan", "RoundingModeRTE": "rte", "DenormPreserve": "denorm"}
_GROUP: Final = 2  # the scope of a work-group


def write(function: Function, target: str | None = None) -> bytes:
    """The module of one kernel. `target` are the words that docs/design/spirv.md lists: what the device has."""
    words = frozenset((target if target is not None else DEFAULT).split())
    function = quotient.expand(remainder.expand(subgroups.expand(function, apart=False)), words)
    if "fma32" not in words:
        function = fused.expand(function, (types.f32,))
    return Writer(function, words).module()


DEFAULT: Final = "nan32 nan64 rte32 rte64 div32 div64 sqrt32 sqrt64"
"""What is taken to be there where no device is named."""

WORDS: Final = frozenset(DEFAULT.split()) | {
    "kernargs",
    "denorm32",
    "denorm64",
    "fma32",
    "fma64",
    "mesa",
    "llvmpipe",
    "atomic_add32",
    "atomic_add64",
}


class Writer(Flow):
    """Writes one function."""

    def __init__(self, function: Function, words: frozenset[str]) -> None:
        if words - WORDS:
            raise CompileError(f"{min(words - WORDS)!r} is no word of a SPIR-V target: {', '.join(sorted(WORDS))}")
        self.words = words
        module = Module()
        super().__init__(function, module, Arithmetic(module, "mesa" in words))
        self.helpers = Helpers(self.m, self.x)
        self.memory = Memory(self.m, self.x, function, words)
        self.builtins: dict[str, int] = {}
        self.sizes: list[int] = []

    # The function

    def module(self) -> bytes:
        m = self.m
        m.need("Shader")
        m.need("PhysicalStorageBufferAddresses")
        m.need("VulkanMemoryModel")
        main, name = m.id(), entry_name(self.function.name)
        m.label = entry = m.id()
        self.sizes = [self.size(dim) for dim in range(3)]
        self.arguments = Arguments(m, self.x, self.function, "kernargs" in self.words)
        if "llvmpipe" in self.words:
            self.x.zero = self.arguments.word(3)
        for each in (*self.function.pointers, *self.function.scalars):
            self.names[each] = [self.arguments.read(each)]
        for kind, dim in self.wanted_ids():
            self.id(kind, dim)
        for each in self.function.parameters:
            self.widen(each)
        self.block(self.function.body)
        void = m.type("void")
        start: list[Instruction] = [["OpFunction", void, main, 0, m.made("OpTypeFunction", void)], ["OpLabel", entry]]
        m.body = [*start, *m.variables, *m.body, ["OpFunctionEnd"]]
        interface = [self.arguments.block, *self.builtins.values(), *self.memory.shared]
        m.head += [
            ["OpMemoryModel", "PhysicalStorageBuffer64", "Vulkan"],
            ["OpEntryPoint", "GLCompute", main, name, *interface],
            ["OpExecutionModeId", main, "LocalSizeId", *self.sizes],
        ]
        for mode, words in _MODES.items():
            for bits in (32, 64):
                if f"{words}{bits}" in self.words and (bits == 32 or "Float64" in m.capabilities):
                    m.need(mode)
                    m.head.append(["OpExecutionMode", main, mode, bits])
        m.names += [["OpName", main, name], ["OpModuleProcessed", f"{about.MARK}{self.about(name)}"]]
        return m.words()

    def about(self, name: str) -> str:
        """What a driver has to know besides."""
        return json.dumps(
            {
                **about.of(self.function, name),
                "arguments": self.arguments.place,
                "argument_bytes": self.arguments.size,
                "push_bytes": self.arguments.pushed,
                "local_bytes": self.memory.local_bytes,
            },
            ensure_ascii=False,
        )

    def size(self, dim: int) -> int:
        """Items of a group: a constant that is given when the pipeline is made."""
        made = self.m.id()
        self.m.globals.append(["OpSpecConstant", self.m.type("i32"), made, 1])
        self.m.decorate(made, "SpecId", dim)
        return made

    def new_id(self, kind: str, dim: int, parts: Sequence[int]) -> int:
        if parts:
            first, second, *rest = parts
            made = self.x.op("IMul", "i32", first, second)
            for each in rest:
                made = self.x.op("IAdd", "i32", made, each)
            return made
        if kind == "local_size":
            return self.sizes[dim]
        if kind == "num_groups":
            return self.arguments.word(dim)
        return self.builtin("WorkgroupId" if kind == "group_id" else "LocalInvocationId", dim)

    def builtin(self, name: str, dim: int) -> int:
        m = self.m
        three = m.made("OpTypeVector", m.type("i32"), 3)
        if name not in self.builtins:
            self.builtins[name] = m.variable("Input", three)
            m.decorate(self.builtins[name], "BuiltIn", BUILTINS[name])
        return m.emit("OpCompositeExtract", m.type("i32"), m.emit("OpLoad", three, self.builtins[name]), dim)

    def value(self, op: Op) -> None:
        result = op.result
        source, element = op.operands[op.code == "select"].type, types.element_of(result.type)
        operands = self.named(op.operands)
        if op.code == "select" and len(operands[0]) < lanes(result):
            operands[0] = operands[0] * lanes(result)
        constant = _constant(op)
        if op.code == "fma" and element is types.f64 and "fma64" not in self.words:
            self.names[result] = [self.helpers.fused(each) for each in zip(*operands, strict=True)]
            return
        self.names[result] = [
            self.x.write(op.code, types.element_of(source), element, each, constant)
            for each in zip(*operands, strict=True)
        ]

    def index(self, op: Op, operands: Sequence[int]) -> int:
        code = {"add": "IAdd", "sub": "ISub", "mul": "IMul", "neg": "SNegate"}[op.code]
        return self.x.op(code, "i64", *operands)

    # Operations that are no arithmetic

    def on_const(self, op: Op) -> None:
        value, element = op.attributes["value"], types.element_of(op.result.type)
        self.names[op.result] = [self.x.literal(value, element)]
        if op.result in self.needs.wide:
            self.wide[op.result] = self.m.constant("i64", value)

    def on_id(self, op: Op) -> None:
        self.names[op.result] = [self.id(op.attributes["kind"], op.attributes["dim"])]
        self.widen(op.result)

    def on_pack(self, op: Op) -> None:
        self.names[op.result] = [self.names[each][0] for each in op.operands]

    def on_splat(self, op: Op) -> None:
        self.names[op.result] = self.names[op.operands[0]] * lanes(op.result)

    def on_extract(self, op: Op) -> None:
        self.names[op.result] = [self.names[op.operands[0]][op.attributes["lane"]]]
        self.widen(op.result)

    def on_local(self, op: Op) -> None:
        self.names[op.result] = [self.memory.array(op)]

    on_private = on_local

    def on_offset(self, op: Op) -> None:
        self.names[op.result] = [self.memory.moved(op, self.names[op.operands[0]][0], self.wide[op.operands[1]])]

    def on_load(self, op: Op) -> None:
        pointer, index = op.operands
        base, at = self.names[pointer][0], self.wide[index]
        self.names[op.result] = [self.memory.load(pointer, base, at, lane) for lane in range(lanes(op.result))]
        self.widen(op.result)

    def on_store(self, op: Op) -> None:
        pointer, index, value = op.operands
        for lane, each in enumerate(self.names[value]):
            self.memory.store(pointer, self.names[pointer][0], self.wide[index], lane, each)

    def on_atomic(self, op: Op) -> None:
        pointer, index = op.operands[:2]
        values = [self.names[each][0] for each in op.operands[2:]]
        self.names[op.result] = [
            self.memory.atomic(op.attributes["how"], pointer, self.names[pointer][0], self.wide[index], values)
        ]
        self.widen(op.result)

    def on_barrier(self, op: Op) -> None:
        scope = self.m.constant("i32", _GROUP)
        self.m.do("OpControlBarrier", scope, scope, self.m.constant("i32", _BARRIER))


def _constant(op: Op) -> int | None:
    """The second operand where it is a constant of an integer."""
    if len(op.operands) < 2:
        return None
    maker = op.operands[1].op
    if maker is not None and maker.code == "splat":
        maker = maker.operands[0].op
    if maker is None or maker.code != "const" or types.element_of(maker.result.type).is_float:
        return None
    return int(maker.attributes["value"])
