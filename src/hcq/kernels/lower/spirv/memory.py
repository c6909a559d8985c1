"""A SPIR-V kernel's memory: buffers by 64-bit addresses, arrays of the group and of the item, atomic operations.

Every access to what others may see is "non-private" in the Vulkan memory model's words, so that barriers order it.
What does not live here: control flow (flow), conversions (ops).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hcq.errors import CompileError
from hcq.kernels import types
from hcq.kernels.lower.spirv.casts import kind, stored
from hcq.kernels.pointers import Origins

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from hcq.kernels.ir import Function, Op, Value
    from hcq.kernels.lower.spirv.module import Module
    from hcq.kernels.lower.spirv.ops import Arithmetic
    from hcq.kernels.types import Scalar

_ALIGNED, _NON_PRIVATE = 0x2, 0x20
_DEVICE, _GROUP = 1, 2  # scopes
_WHOLE: Final = {"add": "IAdd", "and": "And", "or": "Or", "xor": "Xor", "exchange": "Exchange"}


class Memory:
    """Arrays are variables; a pointer into one is the number of an element. Arrays that one pointer may point into, as
    the ways go, lie in one variable, one behind the other."""

    def __init__(self, module: Module, arithmetic: Arithmetic, function: Function, words: Container[str] = ()) -> None:
        self.m, self.x = module, arithmetic
        self._words = words
        self.shared: list[int] = []
        self.local_bytes = 0
        self._origins = Origins(function)
        self._variables: dict[frozenset[Value], int] = {}
        ops = list(function.walk())
        self._together: dict[Value, frozenset[Value]] = {
            op.result: frozenset({op.result}) for op in ops if op.code in ("local", "private")
        }
        floats: set[Value] = set()
        for op in ops:
            if op.operands and isinstance(op.operands[0].type, types.Pointer):
                self._join(self._origins.of(op.operands[0]))
                element = types.element_of(op.operands[0].type)
                if op.code == "atomic" and element.is_float and not self._adds(op.attributes["how"], element):
                    floats |= self._origins.of(op.operands[0])
        # Floats that atomic operations work on are kept as integers: exchanging compares bits.
        self._as_bits = {each for one in floats for each in self._together.get(one, ())}

    def _adds(self, how: str, element: Scalar) -> bool:
        """Whether the device adds floats of this type atomically itself."""
        return how == "add" and f"atomic_add{element.bits}" in self._words

    def _join(self, origins: frozenset[Value]) -> None:
        whole = frozenset(other for each in origins for other in self._together.get(each, ()))
        if len(whole) > 1:
            self._together.update(dict.fromkeys(whole, whole))

    def element(self, pointer: Value) -> str:
        """The module's name of the type in memory."""
        name = stored(types.element_of(pointer.type))
        return name if self._as_bits.isdisjoint(self._origins.of(pointer)) else "i" + name[1:]

    def array(self, op: Op) -> int:
        """Declares an array; the number of its first element."""
        element, name = types.element_of(op.result.type), self.element(op.result)
        arrays = self._together[op.result]
        ordered = [each for each in self._together if each in arrays]
        counts = [each.op.attributes["count"] for each in ordered if each.op is not None]
        if arrays not in self._variables:
            whole = self.m.made("OpTypeArray", self.m.type(name), self.m.constant("i32", sum(counts)))
            made = self.m.variable("Workgroup" if op.code == "local" else "Function", whole)
            self._variables[arrays] = made
            if op.code == "local":
                self.shared.append(made)
                size = element.itemsize
                self.local_bytes = -(-self.local_bytes // size) * size + size * sum(counts)
        return self.m.constant("i64", sum(counts[: ordered.index(op.result)]))

    def moved(self, op: Op, base: int, index: int) -> int:
        """A pointer moved by elements: an address, or the number of an element."""
        pointer = op.operands[0]
        by = self.scaled(index, types.element_of(pointer.type).itemsize) if _is_global(pointer) else index
        return self.x.op("IAdd", "i64", base, by)

    def scaled(self, index: int, size: int) -> int:
        return index if size == 1 else self.x.op("IMul", "i64", index, self.m.constant("i64", size))

    def place(self, pointer: Value, base: int, index: int, lane: int, name: str) -> int:
        """A pointer of SPIR-V's own to an element, of a type by its name."""
        m = self.m
        if lane:
            index = self.x.op("IAdd", "i64", index, m.constant("i64", lane))
        if _is_global(pointer):
            at = self.x.op("IAdd", "i64", base, self.scaled(index, types.element_of(pointer.type).itemsize))
            bits = int(name[1:])
            if bits < 32:
                m.need(f"StorageBuffer{bits}BitAccess")
            return m.emit("OpConvertUToPtr", m.pointer("PhysicalStorageBuffer", m.type(name)), at)
        storage = "Workgroup" if _space(pointer) == "local" else "Function"
        at = index if base == m.constant("i64", 0) else self.x.op("IAdd", "i64", base, index)
        variable = self._variables[self._together[next(iter(self._origins.of(pointer)))]]
        return m.emit("OpAccessChain", m.pointer(storage, m.type(name)), variable, at)

    def how(self, pointer: Value) -> tuple[int, ...]:
        """The operands that say how memory is accessed."""
        if _is_global(pointer):
            return _ALIGNED | _NON_PRIVATE, types.element_of(pointer.type).itemsize
        return (_NON_PRIVATE,) if _space(pointer) == "local" else ()

    def load(self, pointer: Value, base: int, index: int, lane: int) -> int:
        name, element = self.element(pointer), types.element_of(pointer.type)
        at = self.place(pointer, base, index, lane, name)
        raw = self.m.emit("OpLoad", self.m.type(name), at, *self.how(pointer))
        if name != stored(element):
            raw = self.x.op("Bitcast", stored(element), raw)
        return self.x.from_memory(raw, element)

    def store(self, pointer: Value, base: int, index: int, lane: int, value: int) -> None:
        name, element = self.element(pointer), types.element_of(pointer.type)
        raw = self.x.to_memory(value, element)
        if name != stored(element):
            raw = self.x.op("Bitcast", name, raw)
        self.m.do("OpStore", self.place(pointer, base, index, lane, name), raw, *self.how(pointer))

    def atomic(self, how: str, pointer: Value, base: int, index: int, values: Sequence[int]) -> int:
        """An atomic operation; the old value. Relaxed, across the device for global memory."""
        m, element = self.m, types.element_of(pointer.type)
        adds = self._adds(how, element) and self.element(pointer)[0] == "f"
        name = kind(element) if adds else f"i{element.bits}"
        if element.bits == 64 and not adds:
            m.need("Int64Atomics")
        if _is_global(pointer):
            m.need("VulkanMemoryModelDeviceScope")
        at = self.place(pointer, base, index, 0, name)
        where = at, m.constant("i32", _DEVICE if _is_global(pointer) else _GROUP), m.constant("i32", 0)
        if adds:
            m.need(f"AtomicFloat{element.bits}AddEXT")
            m.extensions["SPV_EXT_shader_atomic_float_add"] = None
            return self.x.op("AtomicFAddEXT", name, *where, values[0])
        if not element.is_float:
            values = [self.x.unknown(each, name) for each in values]
        if how == "cas":
            value, expected = values
            return self.x.op("AtomicCompareExchange", name, *where, where[2], value, expected)
        if element.is_float:
            if how != "exchange":
                return self.exchanged(how, element, name, where, values[0])
            bits = self.x.op(
                "AtomicExchange", name, *where, self.x.unknown(self.x.op("Bitcast", name, values[0]), name)
            )
            return self.x.op("Bitcast", kind(element), bits)
        code = _WHOLE.get(how) or ("S" if element.kind == "i" else "U") + how.capitalize()
        return self.x.op(f"Atomic{code}", name, *where, values[0])

    def exchanged(self, how: str, element: Scalar, name: str, where: tuple[int, int, int], value: int) -> int:
        """A float's operation: computed, and put there if nobody else was faster, else computed again."""
        m = self.m
        first = self.x.op("AtomicLoad", name, *where)
        before, head, body, latch, done = m.label, *(m.id() for _ in range(4))
        m.do("OpBranch", head)
        m.begin(head)
        found = m.emit("OpPhi", m.type(name), first, before)
        phi = m.body[-1]
        m.do("OpLoopMerge", done, latch, 0)
        m.do("OpBranch", body)
        m.begin(body)
        old = self.x.op("Bitcast", kind(element), found)
        new = self.x.unknown(self.x.op("Bitcast", name, self.x.real(how, element, (old, value))), name)
        seen = self.x.op("AtomicCompareExchange", name, *where, where[2], new, found)
        m.do("OpBranchConditional", self.x.test("IEqual", seen, found), done, latch)
        m.begin(latch)
        m.do("OpBranch", head)
        phi += [seen, latch]
        m.begin(done)
        return old


def _space(pointer: Value) -> str:
    if not isinstance(pointer.type, types.Pointer):
        raise CompileError(f"{pointer.type} is no pointer")
    return pointer.type.space


def _is_global(pointer: Value) -> bool:
    return _space(pointer) == "global"
