"""A kernel as a SPIR-V module for Vulkan's compute: blocks and phis from structured control flow, ids, the entry.

What a driver has to know of a module is in docs/design/spirv.md. What does not live here: pure operations (spirv_ops),
words (spirv_module), printing (spirv_text).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from hcq.errors import CompileError
from hcq.kernels import types
from hcq.kernels.accesses import access_words
from hcq.kernels.lower import fused, indices, remainder, subgroups
from hcq.kernels.lower.names import entry_name
from hcq.kernels.lower.spirv_arguments import Arguments
from hcq.kernels.lower.spirv_codes import BUILTINS
from hcq.kernels.lower.spirv_helpers import Helpers
from hcq.kernels.lower.spirv_memory import Memory
from hcq.kernels.lower.spirv_module import Module
from hcq.kernels.lower.spirv_ops import Arithmetic, kind
from hcq.kernels.types import Pointer, Vector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hcq.kernels.ir import Block, Function, Op, Value
    from hcq.kernels.lower.spirv_module import Instruction
    from hcq.kernels.types import Scalar

_PARTS: Final = {"global_id": ("group_id", "local_size"), "global_size": ("num_groups", "local_size")}
_ACQUIRE_RELEASE, _UNIFORM, _WORKGROUP, _AVAILABLE, _VISIBLE = 0x8, 0x40, 0x100, 0x2000, 0x4000
_BARRIER: Final = _ACQUIRE_RELEASE | _UNIFORM | _WORKGROUP | _AVAILABLE | _VISIBLE
_MODES: Final = {"SignedZeroInfNanPreserve": "nan", "RoundingModeRTE": "rte", "DenormPreserve": "denorm"}
_GROUP: Final = 2  # the scope of a work-group

Edge = tuple[int, list[list[int]]]
"""The block that control comes from, and the values it brings, an identity an element."""


class _Loop:
    """The loop that is being written. `phis` are those of its head, complete when the body is: the instruction, and
    where its value comes from next."""

    __slots__ = ("before", "breaks", "continues", "exit", "head", "latch", "phis")

    def __init__(self, before: int, head: int, latch: int, exit_: int) -> None:
        self.before, self.head, self.latch, self.exit = before, head, latch, exit_
        self.continues: list[Edge] = []
        self.breaks: list[Edge] = []
        self.phis: list[list[int | str]] = []


def write(function: Function, target: str | None = None) -> bytes:
    """The module of one kernel. `target` are the words that docs/design/spirv.md lists: what the device has."""
    words = frozenset((target if target is not None else DEFAULT).split())
    function = remainder.expand(subgroups.expand(function, apart=False))
    if "fma32" not in words:
        function = fused.expand(function, (types.f32,))
    return Writer(function, words).module()


DEFAULT: Final = "nan32 nan64 rte32 rte64"
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


class Writer:
    """Writes one function. `names` are its values, an identity an element; `wide` those needed as indices, an i64."""

    def __init__(self, function: Function, words: frozenset[str]) -> None:
        if words - WORDS:
            raise CompileError(f"{min(words - WORDS)!r} is no word of a SPIR-V target: {', '.join(sorted(WORDS))}")
        self.function = function
        self.words = words
        self.needs = indices.Needs(function)
        self.m = Module()
        self.x = Arithmetic(self.m, "mesa" in words)
        self.helpers = Helpers(self.m, self.x)
        self.memory = Memory(self.m, self.x, function, words)
        self.names: dict[Value, list[int]] = {}
        self.wide: dict[Value, int] = {}
        self.ids: dict[tuple[str, int], int] = {}
        self.builtins: dict[str, int] = {}
        self.sizes: list[int] = []
        self.loops: list[_Loop] = []
        self.merges: list[tuple[int, list[Edge]]] = []

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
        for op in self.function.walk():  # ids stand at the head, once each
            if op.code == "id" and not indices.is_dead(op, self.needs):
                self.id(op.attributes["kind"], op.attributes["dim"])
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
        m.names += [["OpName", main, name], ["OpModuleProcessed", f"hcq.kernel {self.about(name)}"]]
        return m.words()

    def about(self, name: str) -> str:
        """What a driver has to know besides."""
        values = [types.element_of(each.type) for each in self.function.scalars]
        return json.dumps(
            {
                "name": name,
                "arguments": self.arguments.place,
                "argument_bytes": self.arguments.size,
                "push_bytes": self.arguments.pushed,
                "buffers": [each.name for each in self.function.pointers],
                "accesses": access_words(self.function),
                "values": [each.name for each in self.function.scalars],
                "value_types": ["boolean" if each is types.bool_ else each.name for each in values],
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

    def id(self, name: str, dim: int) -> int:
        key = (name, dim)
        if key not in self.ids:
            if name in _PARTS:  # below 2^31, as is all that a launch has
                first, second = (self.id(part, dim) for part in _PARTS[name])
                self.ids[key] = self.x.op("IMul", "i32", first, second)
                if name == "global_id":
                    self.ids[key] = self.x.op("IAdd", "i32", self.ids[key], self.id("local_id", dim))
            elif name == "local_size":
                self.ids[key] = self.sizes[dim]
            elif name == "num_groups":
                self.ids[key] = self.arguments.word(dim)
            else:
                self.ids[key] = self.builtin("WorkgroupId" if name == "group_id" else "LocalInvocationId", dim)
        return self.ids[key]

    def builtin(self, name: str, dim: int) -> int:
        m = self.m
        three = m.made("OpTypeVector", m.type("i32"), 3)
        if name not in self.builtins:
            self.builtins[name] = m.variable("Input", three)
            m.decorate(self.builtins[name], "BuiltIn", BUILTINS[name])
        return m.emit("OpCompositeExtract", m.type("i32"), m.emit("OpLoad", three, self.builtins[name]), dim)

    # Blocks and values

    def block(self, block: Block) -> None:
        """Writes operations until one leaves the block."""
        for op in block.ops:
            write: Callable[[Op], bool | None] | None = getattr(self, f"on_{op.code}", None)
            if write is not None:
                if write(op):
                    return
            elif not indices.is_dead(op, self.needs):
                self.pure(op)

    def pure(self, op: Op) -> None:
        result = op.result
        if result in self.needs.plain:
            source, element = op.operands[op.code == "select"].type, types.element_of(result.type)
            operands = [self.names[each] for each in op.operands]
            lanes = _lanes(result)
            if op.code == "select" and len(operands[0]) < lanes:
                operands[0] = operands[0] * lanes
            constant = _constant(op)
            if op.code == "fma" and element is types.f64 and "fma64" not in self.words:
                self.names[result] = [self.helpers.fused(each) for each in zip(*operands, strict=True)]
                return
            self.names[result] = [
                self.x.write(op.code, types.element_of(source), element, each, constant)
                for each in zip(*operands, strict=True)
            ]
        if result not in self.needs.wide:
            return
        if not indices.in_chain(op):
            self.widen(result)
            return
        wide = [self.wide[each] for each in op.operands]
        if op.code == "cast":
            self.wide[result] = wide[0]
        elif op.code == "neg":
            self.wide[result] = self.x.op("SNegate", "i64", *wide)
        else:
            self.wide[result] = self.x.op({"add": "IAdd", "sub": "ISub", "mul": "IMul"}[op.code], "i64", *wide)

    def widen(self, value: Value) -> None:
        """Makes the index of a value that is there as it is, where it is needed."""
        if value in self.needs.wide:
            self.wide[value] = self.x.extended(self.names[value][0], types.element_of(value.type))

    def spelled(self, value: Value) -> int:
        """The type of a value's elements."""
        return self.m.type("i64" if isinstance(value.type, Pointer) else kind(types.element_of(value.type)))

    def named(self, values: Sequence[Value]) -> list[list[int]]:
        return [self.names[each] for each in values]

    def join(self, results: Sequence[Value], edges: Sequence[Edge]) -> None:
        """Defines what comes out of control flow, at the block where the edges meet: phis, before anything else."""
        for position, result in enumerate(results):
            self.names[result] = []
            for lane in range(_lanes(result)):
                pairs = [word for label, values in edges for word in (values[position][lane], label)]
                made = pairs[0] if len(edges) == 1 else self.m.emit("OpPhi", self.spelled(result), *pairs)
                self.names[result].append(made)
        for result in results:
            self.widen(result)

    # Operations that are no arithmetic

    def on_const(self, op: Op) -> None:
        value, element = op.attributes["value"], types.element_of(op.result.type)
        self.names[op.result] = [self.x.literal(value, element)]
        if op.result in self.needs.wide:
            self.wide[op.result] = self.m.constant("i64", value)

    def on_id(self, op: Op) -> None:
        if not indices.is_dead(op, self.needs):
            self.names[op.result] = [self.id(op.attributes["kind"], op.attributes["dim"])]
            self.widen(op.result)

    def on_pack(self, op: Op) -> None:
        if op.result in self.needs.plain:
            self.names[op.result] = [self.names[each][0] for each in op.operands]

    def on_splat(self, op: Op) -> None:
        if op.result in self.needs.plain:
            self.names[op.result] = self.names[op.operands[0]] * _lanes(op.result)

    def on_extract(self, op: Op) -> None:
        if not indices.is_dead(op, self.needs):
            self.names[op.result] = [self.names[op.operands[0]][op.attributes["lane"]]]
            self.widen(op.result)

    def on_local(self, op: Op) -> None:
        self.names[op.result] = [self.memory.array(op)]

    on_private = on_local

    def on_offset(self, op: Op) -> None:
        if op.result in self.needs.plain:
            self.names[op.result] = [self.memory.moved(op, self.names[op.operands[0]][0], self.wide[op.operands[1]])]

    def on_load(self, op: Op) -> None:
        pointer, index = op.operands
        base, at = self.names[pointer][0], self.wide[index]
        self.names[op.result] = [self.memory.load(pointer, base, at, lane) for lane in range(_lanes(op.result))]
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

    # Control flow

    def on_if(self, op: Op) -> bool:
        m, edges = self.m, list[Edge]()
        then, other, merge = m.id(), m.id(), m.id()
        self.merges.append((merge, edges))
        m.do("OpSelectionMerge", merge, 0)
        m.do("OpBranchConditional", self.names[op.operands[0]][0], then, other)
        for label, block in ((then, op.blocks[0]), (other, op.blocks[1])):
            m.begin(label)
            self.block(block)
        self.merges.pop()
        m.begin(merge)
        if not edges:
            m.do("OpUnreachable")
            return True
        self.join(op.results, edges)
        return False

    def on_loop(self, op: Op) -> bool:
        (block,) = op.blocks
        loop = self.enter(block.arguments, op.operands)
        self.open(loop)
        self.block(block)
        self.again(loop, [])
        return self.leave(op, loop)

    def on_for(self, op: Op) -> bool:
        """Python's range. An index of up to 32 bits runs in 64, where nothing overflows; one of 64 bits, in steps other
        than 1, runs beside a count of the rounds that are left."""
        (block,) = op.blocks
        index, step = block.arguments[0], op.attributes["step"]
        element = types.element_of(index.type)
        start, stop = (self.x.extended(self.names[each][0], element) for each in op.operands[:2])
        counted = element.bits == 64 and abs(step) != 1
        own = [(start, step)]
        if counted:
            own.append((self.rounds(start, stop, element, step), -1))
        loop = self.enter(block.arguments[1:], op.operands[2:], own)
        at = int(loop.phis[0][2])
        if counted:
            more = self.x.test("INotEqual", int(loop.phis[1][2]), self.m.constant("i64", 0))
        else:
            sign = "U" if element is types.u64 else "S"
            more = self.x.test(sign + ("LessThan" if step > 0 else "GreaterThan"), at, stop)
        loop.breaks.append((loop.head, self.named(block.arguments[1:])))
        self.open(loop, more)
        self.wide[index] = at
        if index in self.needs.plain:
            name = kind(element)
            self.names[index] = [at if element.bits == 64 else self.x.op("UConvert", name, at)]
        self.block(block)
        self.again(loop, own)
        return self.leave(op, loop)

    def rounds(self, start: int, stop: int, element: Scalar, step: int) -> int:
        """How often a loop over a 64-bit index goes round: ceil(distance / step), without overflow."""
        low, high = (start, stop) if step > 0 else (stop, start)
        one, zero = self.m.constant("i64", 1), self.m.constant("i64", 0)
        less = self.x.op("ISub", "i64", self.x.op("ISub", "i64", high, low), one)
        whole = self.x.op("UDiv", "i64", less, self.m.constant("i64", abs(step)))
        some = self.x.test("ULessThan" if element.kind == "u" else "SLessThan", low, high)
        return self.x.choose(some, self.x.op("IAdd", "i64", whole, one), zero, "i64")

    def enter(self, carried: Sequence[Value], initial: Sequence[Value], own: Sequence[tuple[int, int]] = ()) -> _Loop:
        """Begins the head of a loop: its phis, first those that the loop changes itself (a start and a step each)."""
        m = self.m
        loop = _Loop(m.label, m.id(), m.id(), m.id())
        m.do("OpBranch", loop.head)
        m.begin(loop.head)
        self.loops.append(loop)
        starts = [(m.type("i64"), start) for start, _ in own]
        for value, first in zip(carried, initial, strict=True):
            starts += [(self.spelled(value), each) for each in self.names[first]]
        for type_, start in starts:
            m.emit("OpPhi", type_, start, loop.before)
            loop.phis.append(m.body[-1])
        made = iter(loop.phis[len(own) :])
        for value in carried:
            self.names[value] = [int(next(made)[2]) for _ in range(_lanes(value))]
        for value in carried:
            self.widen(value)
        return loop

    def open(self, loop: _Loop, more: int | None = None) -> None:
        """Ends the head and begins the body, where `more` holds."""
        m = self.m
        body = m.id()
        m.do("OpLoopMerge", loop.exit, loop.latch, 0)
        if more is None:
            m.do("OpBranch", body)
        else:
            m.do("OpBranchConditional", more, body, loop.exit)
        m.begin(body)

    def again(self, loop: _Loop, own: Sequence[tuple[int, int]]) -> None:
        """Writes where `continue` goes, the one way back to the head, and completes the head's phis."""
        m = self.m
        m.begin(loop.latch)
        nexts: list[int] = []
        for at, phi in enumerate(loop.phis[len(own) :]):
            values = [([each for value in values for each in value][at], label) for label, values in loop.continues]
            if not values:  # nothing comes here, and the head wants to know what it would bring
                nexts.append(m.emit("OpUndef", int(phi[1])))
            elif len(values) == 1:
                nexts.append(values[0][0])
            else:
                nexts.append(m.emit("OpPhi", int(phi[1]), *(word for pair in values for word in pair)))
        steps = [
            self.x.op("IAdd", "i64", int(phi[2]), m.constant("i64", step))
            for phi, (_, step) in zip(loop.phis, own, strict=False)
        ]
        m.do("OpBranch", loop.head)
        for phi, following in zip(loop.phis, [*steps, *nexts], strict=True):
            phi += [following, loop.latch]

    def leave(self, op: Op, loop: _Loop) -> bool:
        """Begins what follows a loop; True where nothing can, since nothing breaks out of it."""
        self.loops.pop()
        self.m.begin(loop.exit)
        if not loop.breaks:
            self.m.do("OpUnreachable")
            return True
        self.join(op.results, loop.breaks)
        return False

    def on_yield(self, op: Op) -> bool:
        if op.code == "yield":
            label, edges = self.merges[-1]
        else:
            loop = self.loops[-1]
            label, edges = (loop.latch, loop.continues) if op.code == "continue" else (loop.exit, loop.breaks)
        edges.append((self.m.label, self.named(op.operands)))
        self.m.do("OpBranch", label)
        return True

    on_continue = on_yield
    on_break = on_yield

    def on_return(self, op: Op) -> bool:
        self.m.do("OpReturn")
        return True


def _lanes(value: Value) -> int:
    return value.type.lanes if isinstance(value.type, Vector) else 1


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
