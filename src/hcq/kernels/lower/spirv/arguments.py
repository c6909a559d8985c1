"""How a SPIR-V kernel finds its arguments: the push-constant block, and the block behind an address.

The layout is that of HCQProgram.fill_kernargs everywhere: buffers' addresses, 8 bytes each, then the values, each at a
multiple of its size. What does not live here: what is done with them (writer).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hcq.kernels import types
from hcq.kernels.lower.spirv.casts import stored
from hcq.kernels.types import Pointer

if TYPE_CHECKING:
    from hcq.kernels.ir import Function, Value
    from hcq.kernels.lower.spirv.module import Module
    from hcq.kernels.lower.spirv.ops import Arithmetic

HEAD: Final = 16
"""Bytes before the arguments: the launch's number of groups, three of 32 bits, and four that are not used."""

PUSHED: Final = 128
"""Bytes of push constants that every device has."""

_BITS: Final = {8: "i8", 16: "i16", 32: "i32", 64: "i64"}


class Arguments:
    """`place` is "push", or "memory" where the arguments are behind an address. `block` is the variable of the push
    constants, of `pushed` bytes; `size` the bytes of all arguments."""

    def __init__(self, module: Module, arithmetic: Arithmetic, function: Function, in_memory: bool) -> None:
        self.m, self.x = module, arithmetic
        self.offsets: dict[Value, int] = {}
        at = 0
        for each in (*function.pointers, *function.scalars):
            size = 8 if isinstance(each.type, Pointer) else types.element_of(each.type).itemsize
            at = -(-at // size) * size
            self.offsets[each] = at
            at += size
        self.size = at
        self.place = "memory" if in_memory or HEAD + at > PUSHED else "push"
        self.pushed = HEAD + (8 if self.place == "memory" else -(-at // 4) * 4)
        i32 = module.type("i32")
        words = module.made("OpTypeArray", i32, module.constant("i32", self.pushed // 4))
        module.decorate(words, "ArrayStride", 4)
        struct = module.made("OpTypeStruct", words)
        module.decorate(struct, "Block")
        module.decorations.append(["OpMemberDecorate", struct, 0, "Offset", 0])
        self.block = module.variable("PushConstant", struct)
        self._address = 0

    def word(self, number: int) -> int:
        """A word of the push constants."""
        i32 = self.m.type("i32")
        place = (self.m.constant("i32", 0), self.m.constant("i32", number))
        at = self.m.emit("OpAccessChain", self.m.pointer("PushConstant", i32), self.block, *place)
        return self.m.emit("OpLoad", i32, at)

    def double(self, number: int) -> int:
        """Two words from the push constants, as an i64."""
        low, high = (self.x.op("UConvert", "i64", self.word(number + half)) for half in range(2))
        return self.x.op(
            "BitwiseOr", "i64", low, self.x.op("ShiftLeftLogical", "i64", high, self.m.constant("i64", 32))
        )

    def read(self, value: Value) -> int:
        """An argument: a buffer's address as an i64, or a value."""
        offset = self.offsets[value]
        if isinstance(value.type, Pointer):
            return self._bits(offset, 64)
        element = types.element_of(value.type)
        raw = self._bits(offset, element.bits)
        if stored(element)[0] == "f":
            return self.x.op("Bitcast", stored(element), raw)
        return self.x.from_memory(raw, element)

    def _bits(self, offset: int, bits: int) -> int:
        """An integer of the arguments, of that many bits."""
        name = _BITS[bits]
        if self.place == "memory":
            if not self._address:
                self._address = self.double(HEAD // 4)
            at = self.x.op("IAdd", "i64", self._address, self.m.constant("i64", offset))
            pointer = self.m.pointer("PhysicalStorageBuffer", self.m.type(name))
            if bits < 32:
                self.m.need(f"StorageBuffer{bits}BitAccess")
            return self.m.emit("OpLoad", self.m.type(name), self.m.emit("OpConvertUToPtr", pointer, at), 0x2, bits // 8)
        place = (HEAD + offset) // 4
        if bits == 64:
            return self.double(place)
        word = self.word(place)
        if bits == 32:
            return word
        shift = self.m.constant("i32", 8 * (offset % 4))
        return self.x.op("UConvert", name, self.x.op("ShiftRightLogical", "i32", word, shift))
