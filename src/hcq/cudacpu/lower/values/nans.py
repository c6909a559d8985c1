"""Which registers of f32 hold only results of arithmetic, so that a NaN in them needs its bits only for who sees bits.

A NaN that arithmetic gives is canonical (arithmetic.py), and a loaded or moved one keeps its bits. To make each result
canonical costs a comparison and a choice on the way to the next operation, which asks only whether it has a NaN. So the
registers found here hold results as they come, and `Emitter.read` settles NaNs for whoever sees bits: stores, integers,
shuffles. What is copied from such a register, or is a constant, is of that kind too; a loop's sum mostly is.
"""

from __future__ import annotations

from collections.abc import Iterator

from hcq.cudacpu.ptx.nodes import Function, Group, Immediate, Instruction, Operand, Pair, Register, Vector

ARITHMETIC = frozenset(("add", "sub", "mul", "fma", "mad", "div", "rcp", "sqrt", "rsqrt", "min", "max"))
COPIES = {"mov": (1,), "selp": (1, 2), "neg": (1,), "abs": (1,)}  # operands that the result's bits may come from


def unsettled(function: Function, inferred: dict[str, str]) -> frozenset[str]:
    """The names of these registers. `inferred` has LLVM's types of registers declared by width."""
    kinds = function.registers
    found = {name for name, kind in kinds.items() if inferred.get(name, "float" if kind == "f32" else "") == "float"}
    found -= {each.name for each in (*function.returns, *function.params) if each.space == "reg"}
    copies: list[tuple[str, str]] = []
    for each in function.body or []:
        if not isinstance(each, Instruction) or not each.operands:
            continue
        groups = each.operands if each.opcode in ("call", "tailcall") else each.operands[:1]
        written = {name for operand in groups for name in _registers(operand)}
        if each.opcode in ARITHMETIC and each.modifiers[-1:] == ("f32",):
            continue
        sources = _copied(each)
        if sources is None:
            found -= written
        else:
            copies += [(name, source) for name in written for source in sources]
    while True:
        lost = {name for name, source in copies if name in found and source not in found}
        if not lost:
            return frozenset(found)
        found -= lost


def _registers(operand: Operand) -> Iterator[str]:
    if isinstance(operand, Register):
        yield operand.name
    elif isinstance(operand, Vector | Group):
        for each in operand.elements:
            yield from _registers(each)
    elif isinstance(operand, Pair):
        yield from _registers(operand.first)
        yield from _registers(operand.second)


def _copied(instruction: Instruction) -> list[str] | None:
    """The registers that a copy is made from; None where it is none, or where a constant is a NaN."""
    if instruction.opcode not in COPIES or instruction.modifiers[-1:] not in (("f32",), ("b32",)):
        return None
    sources: list[str] = []
    for n in COPIES[instruction.opcode]:
        operand = instruction.operands[n] if n < len(instruction.operands) else None
        if isinstance(operand, Register):
            sources.append(operand.name)
        elif not (
            isinstance(operand, Immediate) and isinstance(operand.value, float) and operand.value == operand.value
        ):
            return None
    return sources
