"""Which thread reads and writes where: addresses that follow from a thread's numbers and the arguments, as programs a
few bytes long for a stack of 64-bit words. The executor runs one when an access has failed in code that runs many
threads at once, to tell whose it was (native/cudacpu/run/whose.cpp, which has the same codes).

A register that counts in a loop, as compilers write it, is its first value and so many steps; how many is the same for
all that count in one place. An address that was read from memory has no program. What does not live here: the code of
accesses.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING

from hcq.cudacpu.lower.forms.analysis import destinations, registers_in
from hcq.cudacpu.lower.forms.flow import blocks_of
from hcq.cudacpu.lower.pointers import space_of
from hcq.cudacpu.lower.types import is_type, signed, size, width
from hcq.cudacpu.ptx.nodes import Address, Function, Immediate, Instruction, Operand, Register, Special, Symbol

if TYPE_CHECKING:
    from hcq.cudacpu.lower.forms.frames import Frame

_LANES = {"v2": 2, "v4": 4, "v8": 8}
_ACCESSES = {"ld", "ldu", "st", "atom", "red"}
_LONGEST = 160  # bytes
_AXES = {"x": 0, "y": 1, "z": 2}


class Code(IntEnum):
    """What is done with the words on top of the stack. Operands follow the code."""

    constant = 0  # 8 bytes
    tid = 1  # axis
    ntid = 2  # axis
    ctaid = 3  # axis
    nctaid = 4  # axis
    linear = 5
    parameter = 6  # 2 bytes: offset; bytes
    shared = 7  # where the block's shared memory begins
    add = 8
    sub = 9
    mul = 10
    and_ = 11
    or_ = 12
    xor = 13
    shl = 14
    shr = 15
    sar = 16
    udiv = 17
    urem = 18
    sdiv = 19
    srem = 20
    umin = 21
    umax = 22
    smin = 23
    smax = 24
    zext = 25  # bits
    sext = 26  # bits
    count = 27  # the second plus as often the first as the loop went round


_SPECIALS = {"tid": Code.tid, "ntid": Code.ntid, "ctaid": Code.ctaid, "nctaid": Code.nctaid}
_PLAIN = {"add": Code.add, "sub": Code.sub, "and": Code.and_, "or": Code.or_, "xor": Code.xor}
_BY_SIGN = {
    "div": (Code.udiv, Code.sdiv), "rem": (Code.urem, Code.srem), "min": (Code.umin, Code.smin),
    "max": (Code.umax, Code.smax), "shr": (Code.shr, Code.sar),
}  # fmt: skip


class _Unknown(Exception):
    """An address that doesn't follow from numbers and arguments alone, or is too long."""


def of(function: Function, frame: Frame) -> bytes:
    """The accesses of a kernel: for each its line, that of the only use of what it loads (0: there are more, or none),
    bytes, the length of its address's program, of 32 bits each, and the program, which is empty where there is none."""
    found = b""
    known = _Values(function, frame)
    uses = _uses(function)
    for each in function.body or ():
        if not isinstance(each, Instruction) or each.opcode not in _ACCESSES:
            continue
        address = next((operand for operand in each.operands if isinstance(operand, Address)), None)
        types = [m for m in each.modifiers if is_type(m)]
        if address is None or not types:
            continue
        try:
            program = known.address(address, space_of(each))
        except _Unknown:
            program = b""
        bytes_ = size(types[-1]) * next((_LANES[m] for m in each.modifiers if m in _LANES), 1)
        lines = {line for name in destinations(each) for line in uses.get(name, (0,))}
        used = lines.pop() if len(lines) == 1 else 0
        found += struct.pack("<IIII", each.line, used, bytes_, len(program)) + program
    return found


def _uses(function: Function) -> dict[str, list[int]]:
    """The lines of the instructions that read each register."""
    found: dict[str, list[int]] = {}
    for each in function.body or ():
        if isinstance(each, Instruction):
            written = () if each.opcode in ("st", "red", "bra") else destinations(each)
            reads = each.operands[1:] if written else each.operands
            for name in (name for operand in reads for name in registers_in(operand)):
                found.setdefault(name, []).append(each.line)
    return found


class _Values:
    def __init__(self, function: Function, frame: Frame) -> None:
        self.frame = frame
        self.definitions: dict[str, Instruction | None] = {}  # None: more than one, or under a condition
        for each in function.body or ():
            if isinstance(each, Instruction):
                for name in destinations(each):
                    once = name not in self.definitions and each.guard is None
                    self.definitions[name] = each if once else None
        self.counting = _counting(function)  # registers, and their first values, steps and places
        self.seen: set[int] = set()
        self.loops: dict[str, set[int]] = {}  # the places where what a register's program has counts
        self.programs: dict[str, bytes | None] = {}

    def address(self, address: Address, space: str) -> bytes:
        """The program of an address. Raises _Unknown."""
        if space not in ("global", "generic", "const", "shared") or not isinstance(address.base, Register):
            raise _Unknown
        self.seen = set()
        program = self.register(address.base)
        if space == "shared":
            program = bytes((Code.shared,)) + program + bytes((Code.sext, 32, Code.add))
        return program + (_constant(address.offset) + bytes((Code.add,)) if address.offset else b"")

    def register(self, register: Register) -> bytes:
        """The program of a register's bits, the upper ones zero. Raises _Unknown."""
        name = register.name
        if name not in self.programs:
            self.programs[name] = None  # for whoever asks meanwhile, round a loop
            definition, counting = self.definitions.get(name), self.counting.get(name)
            before, self.seen = self.seen, set()
            try:
                if definition is not None:
                    program = self._computed(definition)
                elif counting is not None:
                    first, step, place = counting
                    program = self._computed(first) + self._value(step, register.type) + bytes((Code.count,))
                    program = _narrowed(program, register.type)
                    self.seen.add(place)
                else:
                    raise _Unknown
                # What counts in several places goes round by itself in each.
                self.programs[name] = program if len(program) <= _LONGEST and len(self.seen) <= 1 else None
            except _Unknown:
                pass
            self.loops[name], self.seen = self.seen, before
        self.seen |= self.loops.get(name, set())
        found = self.programs[name]
        if found is None:
            raise _Unknown
        return found

    def _computed(self, i: Instruction) -> bytes:
        types = [m for m in i.modifiers if is_type(m)]
        if not types or types[-1][0] not in "sub" or width(types[-1]) > 64:
            raise _Unknown
        type, sources = types[-1], i.operands[1:]
        if i.opcode == "mov":
            return self._value(sources[0], type)
        if i.opcode == "cvta" and space_of(i) == "global":
            return self._value(sources[0], type)
        if i.opcode == "ld" and space_of(i) == "param":
            return self._parameter(sources[0], type)
        if i.opcode == "cvt" and len(i.modifiers) == 2 and types[0][0] in "sub":
            return _narrowed(self._extended(sources[0], type), types[0])
        if i.opcode in _PLAIN and set(i.modifiers) == {type}:
            return _narrowed(self._both(sources, type, False, _PLAIN[i.opcode]), type)
        if i.opcode == "shl":
            return _narrowed(self._value(sources[0], type) + self._value(sources[1], "u32") + bytes((Code.shl,)), type)
        if i.opcode == "shr":
            code = _BY_SIGN["shr"][signed(type)]
            return _narrowed(self._extended(sources[0], type) + self._value(sources[1], "u32") + bytes((code,)), type)
        if i.opcode in _BY_SIGN and set(i.modifiers) == {type}:
            return _narrowed(self._both(sources, type, True, _BY_SIGN[i.opcode][signed(type)]), type)
        if i.opcode in ("mul", "mad") and i.has("lo", "wide"):
            product = self._both(sources[:2], type, True, Code.mul)
            result = type if i.has("lo") else f"{type[0]}{2 * width(type)}"
            if i.opcode == "mad":
                product += self._value(sources[2], result) + bytes((Code.add,))
            return _narrowed(product, result)
        raise _Unknown

    def _both(self, sources: tuple[Operand, ...], type: str, extended: bool, code: Code) -> bytes:
        read = self._extended if extended else self._value
        return read(sources[0], type) + read(sources[1], type) + bytes((code,))

    def _extended(self, operand: Operand, type: str) -> bytes:
        """An operand as 64 bits, by its sign where the type has one."""
        program = self._value(operand, type)
        return program + bytes((Code.sext, width(type))) if signed(type) and width(type) < 64 else program

    def _value(self, operand: Operand, type: str) -> bytes:
        if isinstance(operand, Register):
            program = self.register(operand)
            return program if width(operand.type) <= width(type) else _narrowed(program, type)
        if isinstance(operand, Immediate) and isinstance(operand.value, int):
            return _constant(operand.value & (1 << width(type)) - 1)
        if isinstance(operand, Special):
            base, _, axis = operand.name.partition(".")
            if base in _SPECIALS and axis in _AXES:
                return bytes((_SPECIALS[base], _AXES[axis]))
            if base in ("laneid", "warpid"):
                how = (Code.and_, 31) if base == "laneid" else (Code.shr, 5)
                return bytes((Code.linear,)) + _constant(how[1]) + bytes((how[0],))
        if isinstance(operand, Symbol):
            place = self.frame.place(operand)
            if place is not None and place.space == "shared":
                return _constant(place.offset + operand.offset)
        raise _Unknown

    def _parameter(self, operand: Operand, type: str) -> bytes:
        base = operand.base if isinstance(operand, Address) else None
        place = self.frame.place(base) if isinstance(base, Symbol) else None
        if (
            place is None
            or place.pointer != "%params"
            or not isinstance(operand, Address)
            or not isinstance(base, Symbol)
        ):
            raise _Unknown
        return struct.pack("<BHB", Code.parameter, place.offset + base.offset + operand.offset, size(type))


def _counting(function: Function) -> dict[str, tuple[Instruction, Operand, int]]:
    """Registers with a first value and a step, added in one place: the number of the block that does it."""
    found: dict[str, list[tuple[Instruction, int]]] = {}
    for block in blocks_of(function):
        for each in block.body:
            for name in destinations(each):
                found.setdefault(name, []).append((each, block.number))
    counting = {}
    for name, definitions in found.items():
        if len(definitions) != 2 or any(each.guard is not None for each, _ in definitions):
            continue
        for (first, _), (step, place) in (definitions, definitions[::-1]):
            adds = step.opcode == "add" and len(step.modifiers) == 1 and len(step.operands) == 3
            if adds and isinstance(step.operands[1], Register) and step.operands[1].name == name:
                counting[name] = first, step.operands[2], place
                break
    return counting


def _constant(value: int) -> bytes:
    return struct.pack("<BQ", Code.constant, value & (1 << 64) - 1)


def _narrowed(program: bytes, type: str) -> bytes:
    return program + bytes((Code.zext, width(type))) if width(type) < 64 else program
