"""Loops inside a work-item that the group should go round together: `for k: for all items`, not `for all items: for k`.

Only innermost loops over items become vectors. A loop inside is worth turning inside out when neighbouring items read
neighbouring elements in it (a matrix product with one element an item), and not when each item walks along a row of
its own, which vectorises as it is. This decides about speed only: any answer is right, as long as items come to the
loop together (llvm_regions sees to that).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hcq.drivers.cpu import llvm_flow as flow

if TYPE_CHECKING:
    from hcq.drivers.cpu.llvm_regions import Piece
    from hcq.drivers.cpu.llvm_text import Instruction

_FAR = 1 << 20  # a stride that is no number
_UNROLLED = 250  # instructions up to which LLVM unrolls a loop of known length, which then stands in nobody's way
_DEPTH = 24
_BINARY = re.compile(r" = (?:add|sub|mul|shl|or)(?: \w+)* i\d+ ([^ ,]+), ([^ ,]+)")
_CAST = re.compile(r" = (?:zext|sext|trunc)(?: \w+)* i\d+ ([^ ,]+) to ")
_POINTER = re.compile(r"ptr(?: addrspace\(\d+\))? (%hcq\.v\d+)")
_COMPARE = re.compile(r" = icmp(?: samesign)? \w+ i\d+ ([^ ,]+), ([^ ,]+)")
_MOVED = re.compile(r"(?:load|store)(?: volatile| atomic)* (i\d+|half|bfloat|float|double)")
_SIZES = {"half": 2, "bfloat": 2, "float": 4, "double": 8}
_ITEM = re.compile(r"@hcq\.local_id\((?:i32 )(?:noundef )?0\)")

Stride = tuple[int, int]  # how an index moves with local_id(0), and with the loop


def worth_sharing(pieces: list[Piece], definitions: dict[int, Instruction]) -> set[int]:
    """Headers (piece numbers) of loops without barriers that are worth going round together."""
    found = set()
    loops = natural_loops(pieces)
    for header, body in loops.items():
        innermost = not any(other != header and other in body for other in loops)
        if innermost and not any(pieces[p].barrier for p in body):
            loop = _Loop(header, body, pieces, definitions)
            if not loop.unrolled() and loop.neighbouring():
                found.add(header)
    return found


def natural_loops(pieces: list[Piece]) -> dict[int, set[int]]:
    """Header and body of each natural loop (Aho et al., Compilers, 9.6), barriers counting as ordinary steps."""
    count = len(pieces)
    before: list[list[int]] = [[] for _ in pieces]
    for n, piece in enumerate(pieces):
        for w in piece.successors:
            before[w].append(n)
    for n, piece in enumerate(pieces):  # a barrier's other side is the next piece
        if piece.barrier:
            before[n + 1].append(n)
    everything = (1 << count) - 1
    dominators = [1] + [everything] * (count - 1)
    changed = True
    while changed:
        changed = False
        for n in range(1, count):
            new = everything
            for p in before[n]:
                new &= dominators[p]
            new |= 1 << n
            if new != dominators[n]:
                dominators[n] = new
                changed = True
    loops: dict[int, set[int]] = {}
    for header in range(count):
        for latch in before[header]:
            if dominators[latch] >> header & 1:
                body = loops.setdefault(header, {header})
                todo = [latch]
                while todo:
                    n = todo.pop()
                    if n not in body:
                        body.add(n)
                        todo.extend(before[n])
    return loops


class _Loop:
    def __init__(self, header: int, body: set[int], pieces: list[Piece], definitions: dict[int, Instruction]) -> None:
        self.pieces = [pieces[n] for n in sorted(body)]
        self.blocks = {p.block for p in self.pieces}
        self.definitions = definitions
        self.steps: dict[int, int] = {}  # counting phis, and by how much they count
        self.first: dict[int, int] = {}  # their first values, where these are numbers
        for phi in pieces[header].phis:
            self._count(phi)

    def _count(self, phi: Instruction) -> None:
        for text, block in phi.incoming():
            if block in self.blocks:
                step = self.definitions.get(int(text[6:])) if text.startswith("%hcq.v") else None
                match = _BINARY.search(step.text) if step is not None and step.op == "add" else None
                if match is None or match[1] != f"%hcq.v{phi.value}" or not match[2].lstrip("-").isdigit():
                    self.steps.pop(phi.value, None)
                    return
                self.steps[phi.value] = int(match[2])
            elif text.lstrip("-").isdigit():
                self.first[phi.value] = int(text)

    def unrolled(self) -> bool:
        """True if LLVM will unroll the loop: it goes round a small, known number of times."""
        size = sum(len(p.body) + 1 for p in self.pieces)
        for piece in self.pieces:
            terminator = piece.terminator
            if terminator is None or len(piece.successors) < 2 or not terminator.uses:
                continue
            match = _COMPARE.search(self.definitions[terminator.uses[0]].text)
            if match is None or not match[2].lstrip("-").isdigit():
                continue
            for phi, step in self.steps.items():
                counted = match[1] == f"%hcq.v{phi}" or self._follows(match[1], phi)
                if counted and phi in self.first and step:
                    times = abs(int(match[2]) - self.first[phi]) // abs(step) + 1
                    return times * size <= _UNROLLED
        return False

    def _follows(self, text: str, phi: int) -> bool:
        step = self.definitions.get(int(text[6:])) if text.startswith("%hcq.v") else None
        return step is not None and step.op == "add" and phi in step.uses

    def neighbouring(self) -> bool:
        """True if items next to each other read or write next to each other, and none goes along a row of its own."""
        near = False
        for piece in self.pieces:
            for i in piece.body:
                if i.op not in ("load", "store"):
                    continue
                addresses = _POINTER.findall(i.text)
                size = _size(i)
                stride = self._address(addresses[-1], 0, size) if addresses else (0, 0)  # a store's address comes last
                if stride is None:
                    continue
                if abs(stride[0]) > 1:
                    return False
                near = near or stride[0] != 0
        return near

    def _address(self, text: str, depth: int, size: int) -> Stride | None:
        """How an address moves, in elements of whatever its last index counts, of `size` bytes where that counts bytes;
        None where that can't be said."""
        i = self.definitions[int(text[6:])]
        if i.op != "getelementptr" or depth > _DEPTH:
            return None if i.op in ("load", "call") and not flow.same(i) else (0, 0)
        operands = i.text.split(", ")
        base = _POINTER.search(operands[1])
        total = self._address(base[1], depth + 1, size) if base else (0, 0)
        bytes_ = operands[0].endswith(" i8")
        for position, operand in enumerate(operands[2:], 3):
            moved = self._index(operand.split()[-1], depth + 1)
            if moved is None or total is None:
                return None
            if bytes_:
                moved = _elements(moved[0], size), _elements(moved[1], size)
            if position < len(operands) and moved != (0, 0):
                moved = (_FAR * bool(moved[0]), _FAR * bool(moved[1]))
            total = total[0] + moved[0], total[1] + moved[1]
        return total

    def _index(self, text: str, depth: int) -> Stride | None:
        if not text.startswith("%hcq.v"):
            return 0, 0
        value = int(text[6:])
        if value in self.steps:
            return 0, self.steps[value]
        i = self.definitions[value]
        if flow.same(i):
            return 0, 0
        if depth > _DEPTH or i.op in ("load", "atomicrmw", "cmpxchg"):
            return None
        if i.op == "call":
            return (1, 0) if _ITEM.search(i.text) else (0, 0)
        if cast := _CAST.search(i.text):
            return self._index(cast[1], depth + 1)
        match = _BINARY.search(i.text)
        if match is None:
            return 0, 0
        left, right = self._index(match[1], depth + 1), self._index(match[2], depth + 1)
        if left is None or right is None:
            return None
        if i.op in ("add", "or"):
            return left[0] + right[0], left[1] + right[1]
        if i.op == "sub":
            return left[0] - right[0], left[1] - right[1]
        factor = int(match[2]) if match[2].lstrip("-").isdigit() else _FAR
        if i.op == "shl":
            factor = 1 << min(factor, 20)
        moving = left if left != (0, 0) else right
        return moving[0] * factor, moving[1] * factor


def _size(i: Instruction) -> int:
    """Bytes of what a load or store moves, where that is a number; else 1."""
    match = _MOVED.search(i.text)
    if match is None:
        return 1
    return _SIZES.get(match[1]) or max(int(match[1][1:]) // 8, 1)


def _elements(moved: int, size: int) -> int:
    return moved // size if moved % size == 0 else _FAR
