"""Questions about the values of a kernel, given its control flow: what is live, what is cheap, what varies by item.

Pieces are numbered; `follow[n]` lists where piece n goes, barriers included. The rules stand in
docs/design/llvm-grid.md. What does not live here: where kernels are cut (llvm_regions), and the code made of them
(llvm_group).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hcq.drivers.cpu.llvm_regions import Piece
    from hcq.drivers.cpu.llvm_text import Instruction

_CHEAP = frozenset(
    ("add", "sub", "mul", "shl", "lshr", "ashr", "and", "or", "xor", "fadd", "fsub", "fmul", "fneg", "icmp", "fcmp")
    + ("select", "getelementptr", "trunc", "zext", "sext", "fptrunc", "fpext", "sitofp", "uitofp", "ptrtoint")
    + ("ptrtoaddr", "inttoptr", "bitcast", "addrspacecast", "extractelement", "insertelement", "shufflevector")
    + ("extractvalue", "insertvalue")
)
DIVISIONS = frozenset(("udiv", "sdiv", "urem", "srem"))
_PURE = _CHEAP | DIVISIONS | {"fdiv", "frem", "fptoui", "fptosi"}
_PURE_CALL = re.compile(r"@llvm\.(?:[su](?:min|max)|fma|fmuladd|fabs|sqrt|floor|ceil|ctpop|ctlz|cttz|abs)\.")
_CHEAP_CALL = re.compile(r"@llvm\.(?:[su](?:min|max)|fma|fmuladd|fabs|abs)\.")
_GROUP_CALL = re.compile(r"@hcq\.(?:group_id|local_size|num_groups)\(")
_ITEM_CALL = re.compile(r"@hcq\.local_id\(")
_RECOMPUTED = 16  # instructions at most to recompute one value rather than to store it


def pure(i: Instruction) -> bool:
    """True if it does nothing but compute a value, the same for all items when its operands are."""
    if i.op == "call":
        return bool(_GROUP_CALL.search(i.text) or _PURE_CALL.search(i.text))
    return i.op in _PURE or same(i)


def same(i: Instruction) -> bool:
    """A load of what is there and the same while the group runs, as whoever wrote the module promises."""
    return i.op == "load" and "!hcq.same" in i.text


def once(i: Instruction) -> bool:
    """A call that a group makes once where its items come to it together; whoever wrote the module promises that it may
    be made by any number of them, one after the other, and gives all the same."""
    return i.op == "call" and "!hcq.once" in i.text


def effects(i: Instruction) -> bool:
    """True if skipping it could be noticed by anything but the values it defines. Loads can be skipped."""
    return not (pure(i) or i.op in ("phi", "load", "alloca") or (i.op == "call" and bool(_ITEM_CALL.search(i.text))))


def recomputable(definitions: dict[int, Instruction]) -> set[int]:
    """Values that follow from arguments and ids alone, cheaply and without a trap, and addresses of private arrays."""
    cost: dict[int, int] = {}
    changed = True
    while changed:
        changed = False
        for value, i in definitions.items():
            if value in cost or not all(v in cost for v in i.uses):
                continue
            if i.op == "alloca":
                cost[value] = 1
            elif (
                i.op in _CHEAP
                or same(i)
                or (
                    i.op == "call"
                    and (_GROUP_CALL.search(i.text) or _ITEM_CALL.search(i.text) or _CHEAP_CALL.search(i.text))
                )
            ):
                total = 1 if same(i) else 1 + sum(cost[v] for v in set(i.uses))  # LLVM moves it out of the loop
                if total > _RECOMPUTED:
                    continue
                cost[value] = total
            else:
                continue
            changed = True
    return set(cost)


def liveness(pieces: list[Piece], follow: list[list[int]], last_piece: list[int]) -> list[set[int]]:
    """Values live at the start of each piece, after its phis were chosen but before they are defined (Appel, Modern
    Compiler Implementation, 10.1). What a phi reads is read at the end of the piece it comes from."""
    uses: list[set[int]] = []
    defined: list[set[int]] = []
    for piece in pieces:
        seen = {i.value for i in piece.phis}
        used: set[int] = set()
        for i in piece.body + ([piece.terminator] if piece.terminator else []):
            used.update(v for v in i.uses if v not in seen)
            seen.add(i.value)
        uses.append(used)
        defined.append(seen)
    at_end: list[set[int]] = [set() for _ in pieces]
    for piece in pieces:
        for phi in piece.phis:
            for text, block in phi.incoming():
                if text.startswith("%hcq.v"):
                    at_end[last_piece[block]].add(int(text[6:]))
    live: list[set[int]] = [set() for _ in pieces]
    changed = True
    while changed:
        changed = False
        for number in range(len(pieces) - 1, -1, -1):
            after = at_end[number].union(*(live[n] for n in follow[number]))
            before = uses[number] | (after - defined[number])
            if before != live[number]:
                live[number] = before
                changed = True
    return live


class Variation:
    """What may differ between the items of a group: `values`, and `pieces` that only some items may execute.

    Items that leave, which is to go where no barrier can follow, are no concern of the others: what is said of code
    from where barriers can be reached is said of the items that are still there. `headers` are pieces that count as
    barriers do.
    """

    def __init__(
        self, pieces: list[Piece], follow: list[list[int]], definitions: dict[int, Instruction], headers: set[int]
    ) -> None:
        self.values = {value for value, i in definitions.items() if i.op != "phi" and not pure(i) and not once(i)}
        self.pieces: set[int] = set()
        self.staying = _before_stops(pieces, follow, headers)
        together = [[w for w in ways if (w in self.staying) == (n in self.staying)] for n, ways in enumerate(follow)]
        branches = [n for n, p in enumerate(pieces) if p.terminator is not None and len(p.successors) > 1]
        parted = _parted(together, branches, [len(t) < len(f) for t, f in zip(together, follow, strict=True)])
        changed = True
        while changed:
            changed = False
            for value, i in definitions.items():
                if value not in self.values and not self.values.isdisjoint(i.uses):
                    self.values.add(value)
                    changed = True
            for number in list(branches):
                if self.branches(pieces[number]):
                    branches.remove(number)
                    between, meeting = parted[number]
                    if number in self.staying:
                        between = between | _reached(follow, [w for w in follow[number] if w not in self.staying])
                    self.pieces |= between
                    # Where paths meet, and in loops that items leave at different trips, phis vary.
                    for joined in between | meeting:
                        self.values.update(i.value for i in pieces[joined].phis)
                    changed = True

    def branches(self, piece: Piece) -> bool:
        """True if items of one group may go different ways at the end of `piece`."""
        return piece.terminator is not None and not self.values.isdisjoint(piece.terminator.uses)


def _before_stops(pieces: list[Piece], follow: list[list[int]], headers: set[int]) -> set[int]:
    """The pieces from which a barrier can be reached, or one of `headers`."""
    before: list[list[int]] = [[] for _ in follow]
    for n, ways in enumerate(follow):
        for w in ways:
            before[w].append(n)
    return _reached(before, [n for n, piece in enumerate(pieces) if piece.barrier or n in headers])


def _reached(follow: list[list[int]], starts: list[int]) -> set[int]:
    seen, todo = set(starts), list(starts)
    while todo:
        for w in follow[todo.pop()]:
            if w not in seen:
                seen.add(w)
                todo.append(w)
    return seen


def _parted(follow: list[list[int]], branches: list[int], leaving: list[bool]) -> dict[int, tuple[set[int], set[int]]]:
    """For each branch: the pieces between it and its nearest post-dominator, and that one (none at the exit).

    `leaving` tells the pieces from where there is a way that `follow` leaves out. It counts as an exit only where there
    is no other: a loop that is left by leaving has none.
    """
    count = len(follow)
    everything = set(range(count + 1))
    after = [list(ways) or [count] for ways in follow]  # `count` is the exit
    before: list[list[int]] = [[] for _ in range(count + 1)]
    for n, ways in enumerate(after):
        for w in ways:
            before[w].append(n)
    ending = _reached(before, [count])
    for n in range(count):
        if leaving[n] and n not in ending:
            after[n].append(count)
    dominators = [set(everything) for _ in range(count)] + [{count}]
    changed = bool(branches)
    while changed:
        changed = False
        for n in range(count - 1, -1, -1):
            new = set.intersection(*(dominators[w] for w in after[n])) | {n}
            if new != dominators[n]:
                dominators[n] = new
                changed = True
    found: dict[int, tuple[set[int], set[int]]] = {}
    for branch in branches:
        if len(follow[branch]) < 2:
            found[branch] = set[int](), set[int]()
            continue
        strict = dominators[branch] - {branch}
        nearest = count  # also where no path leads to the exit
        if dominators[branch] != everything:
            nearest = next(d for d in strict if dominators[d] >= strict)
        between: set[int] = set()
        todo = [n for n in after[branch] if n != nearest]
        while todo:
            n = todo.pop()
            if n not in between and n != count:
                between.add(n)
                todo.extend(w for w in after[n] if w != nearest)
        found[branch] = between, ({nearest} if nearest != count else set[int]())
    return found
