"""Which versions of a kernel are made: most often one, else a fast one, a general one, and a check which may run.

The fast version is for groups of which no item leaves at the guard (`if (i >= n) return;`), so that all go the same way
and nothing has to be asked an item; and it may go round loops together (llvm_loops). What does not live here: the code
of a version (llvm_group).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hcq.drivers.cpu import llvm_flow as flow
from hcq.drivers.cpu.llvm_text import Instruction

if TYPE_CHECKING:
    from hcq.drivers.cpu.llvm_regions import Analysis

Blocks = list[list[Instruction]]


class Guards(NamedTuple):
    """Branches before anything else is done, by which items leave; `stay` maps their blocks to where the others go."""

    stay: dict[int, int]
    leave: dict[int, int]
    before: frozenset[int]  # blocks up to and with the guards


def guards(a: Analysis) -> Guards | None:
    """The guards of a kernel: None if it has none, or does something before them that can't be done twice."""
    staying, inside = a.variation.staying, set(a.regions[0].pieces)
    stay: dict[int, int] = {}
    leave: dict[int, int] = {}
    pieces: list[int] = []
    varying = False
    for number in a.regions[0].pieces:
        piece = a.pieces[number]
        if number not in staying or all(s in staying for s in piece.successors):
            continue
        remain = [s for s in piece.successors if s in staying]
        if len(piece.successors) != 2 or len(remain) != 1:
            return None
        stay[piece.block] = a.pieces[remain[0]].block
        leave[piece.block] = next(a.pieces[s].block for s in piece.successors if s not in staying)
        pieces.append(number)
        varying = varying or a.variation.branches(piece)
    before, todo = set(pieces), list(pieces)
    while todo:
        for n in a.pieces[todo.pop()].predecessors:
            if n in inside and n not in before:
                before.add(n)
                todo.append(n)
    if not varying or any(flow.effects(i) for n in before for i in a.pieces[n].instructions()):
        return None
    return Guards(stay, leave, frozenset(a.pieces[n].block for n in before))


def without_leaving(blocks: Blocks, g: Guards) -> Blocks:
    """The kernel for groups of which no item leaves at a guard."""
    result = []
    for number, block in enumerate(blocks):
        gone = {guard for guard, target in g.leave.items() if target == number}
        copied = [Instruction(_without(i, gone) if gone and i.op == "phi" else i.text) for i in block]
        if number in g.stay:
            copied[-1] = Instruction(f"  br label %hcq.b{g.stay[number]}")
        result.append([i for i in copied if i.op != "phi" or "[ " in i.text])
    return result


def only_leaving(blocks: Blocks, g: Guards) -> Blocks:
    """A kernel that sets %hcq.left if an item would leave at a guard, and does nothing else."""
    left = [Instruction("  store i32 1, ptr %hcq.left"), Instruction("  ret void")]
    result = []
    for number, block in enumerate(blocks):
        if number in g.before:
            result.append([Instruction(i.text) for i in block])
        else:
            result.append(left if number in g.leave.values() else left[1:])
    return result


def _without(phi: Instruction, gone: set[int]) -> str:
    """A phi without the ways from some blocks."""
    ways = [f"[ {value}, %hcq.b{block} ]" for value, block in phi.incoming() if block not in gone]
    head, tail = phi.text[: phi.text.index("[ ")], phi.text[phi.text.rindex(" ]") + 2 :]
    return head + ", ".join(ways) + tail
