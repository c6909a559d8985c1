"""Whether all threads of a block come to a kernel's barriers and operations of a warp together.

A value is the same for all threads when it is made of such values alone, where all threads go alike; a branch on
another parts them until all ways from it meet again. Threads that leave for good part nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

from hcq.cudacpu.lower.forms.analysis import SUSPENDING, destinations, is_whole_barrier, is_whole_vote, registers_in
from hcq.cudacpu.lower.forms.flow import Block, blocks_of, influenced, joins, reaching
from hcq.cudacpu.ptx.nodes import Address, Function, Group, Instruction, Operand, Pair, Special, Symbol, Vector

_SAME = {"ntid", "ctaid", "nctaid", "nwarpid", "gridid", "dynamic_smem_size", "total_smem_size", "aggr_smem_size"}
LANES = {"shfl", "vote", "match", "redux", "activemask", "elect"}
MATRICES = {"mma", "wmma", "ldmatrix", "stmatrix", "movmatrix"}
_FIXED = {
    "mov", "add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "not", "setp", "selp", "min", "max", "cvt",
    "cvta", "neg", "abs", "div", "rem", "set", "bfe", "bfi", "prmt", "lop3", "popc", "clz", "brev", "fma", "mul24",
    "mad24", "shf", "sqrt", "rcp", "slct",
}  # fmt: skip


def meets(instruction: Instruction) -> bool:
    """Whether threads can meet at an instruction in the form of regions."""
    return (
        instruction.opcode in LANES | MATRICES
        or is_whole_barrier(instruction)
        or is_whole_vote(instruction)
        or instruction.modifiers[:2] == ("warp", "sync")
    )


@dataclass(frozen=True, slots=True)
class Meetings:
    """What is known of where a kernel's threads should meet: `parted` are the instructions that not all come to."""

    parted: tuple[Instruction, ...]
    varying: frozenset[str]  # registers that may differ between threads


def meetings(function: Function) -> Meetings | None:
    """Of a kernel; None where it has suspending instructions at which threads can't meet in the form of regions.

    An operation of a warp may have a guard: it says who takes part. Others may not, where it differs.
    """
    blocks = blocks_of(function)
    suspending = [(block.number, each) for block in blocks for each in block.body if each.opcode in SUSPENDING]
    if not all(meets(each) for _, each in suspending):
        return None
    among = reaching(blocks, {number for number, _ in suspending})
    varying, parted = _varying(function, blocks, among)
    for _, each in suspending:
        if each.guard is not None and each.opcode not in LANES and set(registers_in(each.guard)) & varying:
            return None
    return Meetings(tuple(each for number, each in suspending if number in parted), frozenset(varying))


def _varying(function: Function, blocks: list[Block], among: set[int]) -> tuple[set[str], set[int]]:
    """Registers that may differ between threads, and blocks that not all run together."""
    own = {each.name for each in function.params}
    after = joins(blocks, among)
    definitions: dict[str, int] = {}
    for block in blocks:
        for each in block.body:
            for name in destinations(each):
                definitions[name] = definitions.get(name, 0) + 1
    varying: set[str] = set()
    parted: set[int] = set()
    while True:
        before = len(varying), len(parted)
        for block in blocks:
            for each in block.body:
                if _differs(each, varying, block.number in parted, definitions, own):
                    varying.update(destinations(each))
        for number in among:
            end = blocks[number].body[-1] if blocks[number].body else None
            if end is None or len(blocks[number].next & among) < 2 or number in parted:
                continue
            decides = [end.guard] if end.guard is not None else list(end.operands[:1])
            if any(name in varying for each in decides for name in registers_in(each)):
                parted |= influenced(blocks, number, among, after)
        for number in set(parted):  # what stands in a parted block parts no less
            end = blocks[number].body[-1] if blocks[number].body else None
            if end is not None and end.guard is not None and set(registers_in(end.guard)) & varying:
                parted |= influenced(blocks, number, among, after)
        if before == (len(varying), len(parted)):
            return varying, parted


def _differs(i: Instruction, varying: set[str], parted: bool, definitions: dict[str, int], own: set[str]) -> bool:
    names = destinations(i)
    if not names:
        return False
    if parted and any(definitions[name] > 1 for name in names):
        return True
    if i.guard is not None and set(registers_in(i.guard)) & varying:
        return True
    if is_whole_vote(i):
        return False
    if any(name in varying for each in i.operands[1:] for name in registers_in(each)):
        return True
    if any(special.name.partition(".")[0] not in _SAME for each in i.operands[1:] for special in _specials(each)):
        return True
    if i.opcode == "ld":
        base = i.operands[1].base if isinstance(i.operands[1], Address) else None
        return not (isinstance(base, Symbol) and (i.has("const") or (i.has("param") and base.name in own)))
    return i.opcode not in _FIXED


def _specials(operand: Operand) -> list[Special]:
    if isinstance(operand, Special):
        return [operand]
    if isinstance(operand, Vector | Group):
        return [special for each in operand.elements for special in _specials(each)]
    return _specials(operand.first) + _specials(operand.second) if isinstance(operand, Pair) else []
