"""Video instructions: scalar ones (vadd ... vset, vshl, vshr, vmad) and those of two or four parts (vadd2, vadd4 ...).

Parts are worked on with 64 bits, in which nothing overflows; selectors choose them from a word, or from those of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.ptx.nodes import Instruction, Member, Operand

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter

_KINDS = ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vset", "vavrg")
_PACKED = tuple(f"{kind}{n}" for kind in _KINDS for n in (2, 4))
_SCALE = {"shr7": 7, "shr15": 15}
_MASK = (1 << 32) - 1


@translates(*_PACKED)
def packed(e: Emitter, i: Instruction) -> None:
    d, a, b, c = e.operands(i, 4)
    kind, count = i.opcode[:-1], int(i.opcode[-1])
    bits = 32 // count
    *to, of_a, of_b = [m for m in i.modifiers if m in ("u32", "s32")]
    words = (_word(e, a), _word(e, b))
    left = _chosen(e, words, _selected(e, a, count, "0123"[:count]), of_a, bits)
    right = _chosen(e, words, _selected(e, b, count, "23" if count == 2 else "4567"), of_b, bits)
    third = e.read(c, "b32")
    wanted = _selected(e, d, 0, "0123"[:count])
    results = {n: _compute(e, i, kind, left[n], right[n]) for n in range(count) if n in wanted}
    if i.has("add"):
        total = e.op(f"zext i32 {third} to i64")
        for value in results.values():
            total = e.op(f"add i64 {total}, {value}")
        e.write(_register(d), e.op(f"trunc i64 {total} to i32"), "b32")
        return
    kept = _MASK - sum(((1 << bits) - 1) << n * bits for n in results)
    whole = e.op(f"zext i32 {e.op(f'and i32 {third}, {kept}')} to i64")
    for n, value in results.items():
        if i.has("sat"):
            value = _clamped(e, value, to[0] == "s32", bits)
        part = e.op(f"and i64 {value}, {(1 << bits) - 1}")
        whole = e.op(f"or i64 {whole}, {e.op(f'shl i64 {part}, {n * bits}')}")
    e.write(_register(d), e.op(f"trunc i64 {whole} to i32"), "b32")


@translates("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vset", "vshl", "vshr", "vmad")
def scalar(e: Emitter, i: Instruction) -> None:
    d, a, b, *c = e.operands(i, 3, 4)
    types = [m for m in i.modifiers if m in ("u32", "s32")]
    of_a, of_b = types[-2:]
    signed = types[0] == "s32" and i.opcode != "vset"
    x, y = _part(e, a, of_a), _part(e, b, of_b)
    if i.opcode == "vmad":
        _mad(e, i, d, x, y, c[0], of_a == of_b == "u32")
        return
    value = _shifted(e, i, x, y) if i.opcode in ("vshl", "vshr") else _compute(e, i, i.opcode, x, y)
    place = _place(e, d)
    bits = place[1] if place else 32
    if i.has("sat"):
        value = _clamped(e, value, signed, bits)
    if place:
        first, _ = place
        mask = ((1 << bits) - 1) << first
        kept = e.op(f"and i64 {_extended(e, c[0], False)}, {_MASK - mask}")
        moved = e.op(f"and i64 {e.op(f'shl i64 {value}, {first}')}, {mask}")
        value = e.op(f"or i64 {kept}, {moved}")
    elif c:
        value = e.op(f"trunc i64 {value} to i32")
        third = e.read(c[0], "b32")
        if i.has("add"):
            result = e.op(f"add i32 {value}, {third}")
        else:
            name = f"llvm.{'s' if signed else 'u'}{'min' if i.has('min') else 'max'}.i32"
            result = e.intrinsic(name, "i32", ("i32", value), ("i32", third))
        e.write(d, result, "b32")
        return
    e.write(_register(d), e.op(f"trunc i64 {value} to i32"), "b32")


def _compute(e: Emitter, i: Instruction, kind: str, x: str, y: str) -> str:
    if kind in ("vadd", "vsub"):
        return e.op(f"{kind[1:]} i64 {x}, {y}")
    if kind in ("vmin", "vmax"):
        return e.intrinsic(f"llvm.s{kind[1:]}.i64", "i64", ("i64", x), ("i64", y))
    if kind == "vabsdiff":
        return e.intrinsic("llvm.abs.i64", "i64", ("i64", e.op(f"sub i64 {x}, {y}")), ("i1", "false"))
    if kind == "vavrg":  # halves go away from zero where the sum isn't negative, towards it where it is
        total = e.op(f"add i64 {x}, {y}")
        more = e.op(f"zext i1 {e.op(f'icmp sge i64 {total}, 0')} to i64")
        return e.op(f"ashr i64 {e.op(f'add i64 {total}, {more}')}, 1")
    name = next((m for m in i.modifiers if m in ("eq", "ne", "lt", "le", "gt", "ge")), "")
    if not name:
        e.wrong(f"{i.name} names no comparison")
    condition = name if name in ("eq", "ne") else f"s{name}"
    return e.op(f"zext i1 {e.op(f'icmp {condition} i64 {x}, {y}')} to i64")


def _shifted(e: Emitter, i: Instruction, x: str, y: str) -> str:
    if i.has("wrap"):
        amount = e.op(f"and i64 {y}, 31")
    else:
        amount = e.intrinsic("llvm.umin.i64", "i64", ("i64", y), ("i64", "32"))
    if i.opcode == "vshr":
        return e.op(f"ashr i64 {x}, {amount}")
    return e.op(f"shl i64 {x}, {amount}")


def _mad(e: Emitter, i: Instruction, d: Operand, x: str, y: str, c: Operand, unsigned: bool) -> None:
    product = e.op(f"mul i128 {e.op(f'sext i64 {x} to i128')}, {e.op(f'sext i64 {y} to i128')}")
    third = e.op(f"{'zext' if unsigned else 'sext'} i32 {e.read(c, 'b32')} to i128")
    total = e.op(f"add i128 {product}, {third}")
    if i.has("po"):
        total = e.op(f"add i128 {total}, 1")
    for name, amount in _SCALE.items():
        if i.has(name):
            total = e.op(f"ashr i128 {total}, {amount}")
    if i.has("sat"):
        low, high = (0, _MASK) if unsigned else (-(1 << 31), (1 << 31) - 1)
        total = e.intrinsic("llvm.smax.i128", "i128", ("i128", total), ("i128", str(low)))
        total = e.intrinsic("llvm.smin.i128", "i128", ("i128", total), ("i128", str(high)))
    e.write(d, e.op(f"trunc i128 {total} to i32"), "b32")


def _clamped(e: Emitter, value: str, signed: bool, bits: int) -> str:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    value = e.intrinsic("llvm.smax.i64", "i64", ("i64", value), ("i64", str(low)))
    return e.intrinsic("llvm.smin.i64", "i64", ("i64", value), ("i64", str(high)))


# -- selectors ----------------------------------------------------------------------------------------------------


def _register(operand: Operand) -> Operand:
    return operand.register if isinstance(operand, Member) else operand


def _word(e: Emitter, operand: Operand) -> str:
    return e.read(_register(operand), "b32")


def _extended(e: Emitter, operand: Operand, signed: bool) -> str:
    return e.op(f"{'sext' if signed else 'zext'} i32 {_word(e, operand)} to i64")


def _place(e: Emitter, operand: Operand) -> tuple[int, int] | None:
    """First bit and width of the part that a selector of one part names; None for all of a register."""
    if not isinstance(operand, Member):
        return None
    kind, number = operand.selector[:1], operand.selector[1:]
    bits = {"b": 8, "h": 16}.get(kind, 0)
    if not bits or not number.isdigit() or int(number) * bits >= 32:
        e.wrong(f"{operand.selector!r} selects no part of a register")
    return int(number) * bits, bits


def _part(e: Emitter, operand: Operand, type: str) -> str:
    """The part that is selected, extended to 64 bits as its type says."""
    place = _place(e, operand)
    if place is None:
        return _extended(e, operand, type == "s32")
    return _cut(e, _word(e, operand), *place, type)


def _cut(e: Emitter, word: str, first: int, bits: int, type: str) -> str:
    moved = e.op(f"lshr i32 {word}, {first}") if first else word
    return e.op(f"{'sext' if type == 's32' else 'zext'} i{bits} {e.op(f'trunc i32 {moved} to i{bits}')} to i64")


def _selected(e: Emitter, operand: Operand, count: int, default: str) -> list[int]:
    """The numbers that a selector of several parts names, the lowest part's first; `count`: how many it must have."""
    if not isinstance(operand, Member):
        return [int(n) for n in default]
    numbers = [int(n) for n in reversed(operand.selector[1:]) if n.isdigit()]
    if (count and len(numbers) != count) or not numbers:
        e.wrong(f"{operand.selector!r} selects no parts of the operands")
    return numbers


def _chosen(e: Emitter, words: tuple[str, str], numbers: list[int], type: str, bits: int) -> list[str]:
    each = 32 // bits
    return [_cut(e, words[n // each % 2], n % each * bits, bits, type) for n in numbers]
