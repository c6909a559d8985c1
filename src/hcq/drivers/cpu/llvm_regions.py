"""Where a kernel is cut: pieces of blocks, regions between barriers, and what crosses from one region to the next.

The reasoning stands in docs/design/llvm-grid.md. What does not live here: questions about single values (llvm_flow),
and the code that is made of regions (llvm_group).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hcq.drivers.cpu import llvm_flow as flow
from hcq.drivers.cpu import llvm_loops as loops

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hcq.drivers.cpu.llvm_text import Instruction

END = 0  # the outcome of a region whose items return; every other outcome is the number of the region that follows


class Piece:
    """Part of a block: it starts at the block's head or after a barrier, and ends at a barrier or with the block."""

    __slots__ = ("barrier", "block", "body", "label", "phis", "predecessors", "successors", "terminator")

    def __init__(self, block: int, label: str) -> None:
        self.block = block
        self.label = label
        self.phis: list[Instruction] = []
        self.body: list[Instruction] = []
        self.terminator: Instruction | None = None  # None: ends at a barrier
        self.barrier = END  # number of the region that starts after it
        self.successors: list[int] = []  # pieces reached without a barrier
        self.predecessors: list[int] = []

    def instructions(self) -> Iterator[Instruction]:
        """All but the terminator."""
        yield from self.phis
        yield from self.body


class Region(NamedTuple):
    """The pieces that items run from one start until each meets a barrier, a cut or the end."""

    number: int
    start: int
    pieces: list[int]
    outcomes: list[int]
    defined: frozenset[int]  # values that it defines, and those of phis at the cuts it goes to
    used: frozenset[int]  # values that it reads


class Analysis:
    """A kernel, cut at its barriers, and further where all items come together.

    With `together`, loops that are worth it are gone round together by the group. `kept` values are stored an item
    each, `shared` ones once a group, `recomputed` ones at the start of regions; `place` maps kept values to the first
    of those that share their memory.
    """

    def __init__(self, blocks: list[list[Instruction]], together: bool = True) -> None:
        self.pieces: list[Piece] = []
        self.starts = [0]  # the piece where each region starts
        self.last_piece: list[int] = []  # of each block: where a phi's values come from
        self._cut(blocks)
        self.barriers = len(self.starts) - 1
        self.follow = [list(p.successors) or ([self.starts[p.barrier]] if p.barrier else []) for p in self.pieces]
        self.definitions = {i.value: i for p in self.pieces for i in p.instructions() if i.value >= 0}
        self.allocas = [i for p in self.pieces for i in p.body if i.op == "alloca"]
        self.recomputable = flow.recomputable(self.definitions)
        # Private arrays without barriers are left to LLVM, in registers or on the stack.
        together = together and (self.barriers > 0 or not self.allocas)
        self._divide(loops.worth_sharing(self.pieces, self.definitions) if together else set())
        if not self.uniform and self.together:
            self._divide(set())
        self.kept: list[int] = []
        self.shared: list[int] = []
        self.recomputed: set[int] = set()
        self.place: dict[int, int] = {}
        self.live: list[set[int]] = [set()]  # at the start of each region
        if len(self.starts) > 1:
            self._across()

    def _divide(self, headers: set[int]) -> None:
        """Finds the regions. `headers` are of loops for a group to go round together, if its items come together."""
        while True:
            self.variation = flow.Variation(self.pieces, self.follow, self.definitions, headers)
            apart = {h for h in headers if not self._meet(h)}
            if not apart:
                break
            headers = headers - apart
        self.together = headers  # where loops start that the group goes round together
        del self.starts[self.barriers + 1 :]
        self.cuts: dict[int, int] = {}  # piece -> number of the region that starts there, though there is no barrier
        self._cut_at(headers)
        self.uniform = self._stand_together()
        if len(self.starts) > 1:
            # A loop with a barrier whose head all come to is one end for what stands before it, not the ends behind it:
            # that may be what was missing.
            self._cut_further()
            self.uniform = self.uniform or self._stand_together()
        if not self.uniform:
            del self.starts[self.barriers + 1 :]
            self.cuts = {}
            self._cut_at(headers)
        self.leaving = self.uniform and any(not self._ends_together(r, frozenset()) for r in self.regions)

    def _stand_together(self) -> bool:
        """True if all items that are left in a group always stand at the same barrier; some may have left before.
        A barrier that only some of those come to is none at which all stand."""
        return all(self._ends_together(region) for region in self.regions) and not any(
            piece.barrier and n in self.variation.pieces for n, piece in enumerate(self.pieces)
        )

    def _meet(self, header: int) -> bool:
        """True if all items that are left go round the loop at `header`, and equally often."""
        body = loops.natural_loops(self.pieces).get(header, {header})
        return header not in self.variation.pieces and not any(
            self.variation.branches(self.pieces[p]) and not set(self.pieces[p].successors) <= body for p in body
        )

    def _cut_at(self, pieces: set[int]) -> None:
        for piece in sorted(pieces):
            self.cuts[piece] = len(self.starts)
            self.starts.append(piece)
        self.regions = self._regions()

    # Pieces and regions

    def _cut(self, blocks: list[list[Instruction]]) -> None:
        first: list[int] = []
        for number, block in enumerate(blocks):
            first.append(len(self.pieces))
            piece = Piece(number, f"hcq.b{number}")
            self.pieces.append(piece)
            for i in block[:-1]:
                if i.op == "phi":
                    piece.phis.append(i)
                elif i.op == "call" and "@hcq.barrier()" in i.text:
                    piece.barrier = len(self.starts)
                    self.starts.append(len(self.pieces))
                    piece = Piece(number, f"hcq.b{number}.p{piece.barrier}")
                    self.pieces.append(piece)
                else:
                    piece.body.append(i)
            piece.terminator = block[-1]
            self.last_piece.append(len(self.pieces) - 1)
        for number, piece in enumerate(self.pieces):
            if piece.terminator is not None:
                piece.successors = list(dict.fromkeys(first[b] for b in piece.terminator.successors()))
                for successor in piece.successors:
                    self.pieces[successor].predecessors.append(number)

    def _regions(self) -> list[Region]:
        return [self._region(number, start) for number, start in enumerate(self.starts)]

    def _region(self, number: int, start: int) -> Region:
        pieces = sorted(self.reached([start]))
        defined: set[int] = set()
        used: set[int] = set()
        for p in pieces:
            piece = self.pieces[p]
            starts_here = p == start and p in self.cuts  # its phis were chosen by who went here
            for i in piece.body if starts_here else piece.instructions():
                defined.add(i.value)
                used.update(i.uses)
            if piece.terminator is not None:
                used.update(piece.terminator.uses)
            for successor in piece.successors:
                if successor in self.cuts:
                    for phi in self.pieces[successor].phis:
                        defined.add(phi.value)
                        used.update(int(v[6:]) for v, b in phi.incoming() if self._from(v, b, p))
        outcomes = sorted(self.outcomes_of(pieces))
        return Region(number, start, pieces, outcomes, frozenset(defined - {-1}), frozenset(used))

    def _from(self, value: str, block: int, piece: int) -> bool:
        return value.startswith("%hcq.v") and self.last_piece[block] == piece

    def reached(self, pieces: Iterable[int]) -> set[int]:
        """`pieces` and all that follow without a barrier or a cut."""
        seen = set(pieces)
        todo = list(seen)
        while todo:
            for successor in self.pieces[todo.pop()].successors:
                if successor not in seen and successor not in self.cuts:
                    seen.add(successor)
                    todo.append(successor)
        return seen

    def outcomes_of(self, pieces: Iterable[int]) -> set[int]:
        found = set()
        for p in pieces:
            piece = self.pieces[p]
            if piece.terminator is None:
                found.add(piece.barrier)
            elif piece.terminator.op == "ret":
                found.add(END)
            found.update(self.cuts[s] for s in piece.successors if s in self.cuts)
        return found

    def _ends_together(self, region: Region, leaving: frozenset[int] = frozenset((END,))) -> bool:
        """True if no varying branch of the region parts items that leave it at different ends, `leaving` aside."""
        return len(set(region.outcomes) - leaving) <= 1 or not any(
            self.variation.branches(self.pieces[p]) and len(self.outcomes_of(self.reached([p])) - leaving) > 1
            for p in region.pieces
        )

    # Cuts where there is no barrier: code that several regions would repeat, and ways that a group takes together

    def _cut_further(self) -> None:
        while wanted := self._repeated() or self._ways():
            self._cut_at(wanted)

    def _repeated(self) -> set[int]:
        """Where all items come together in code that more than one region has."""
        count = [0] * len(self.pieces)
        for region in self.regions:
            for p in region.pieces:
                count[p] += 1
        return {
            n
            for n, piece in enumerate(self.pieces)
            if count[n] > 1
            and n not in self.variation.pieces
            and n not in self.cuts
            and any(count[p] == 1 for p in piece.predecessors)
        }

    def _ways(self) -> set[int]:
        """Where a branch that all items take alike leads, if the ends of the region depend on it."""
        found: set[int] = set()
        for region in self.regions:
            if len(region.outcomes) <= 1:
                continue
            for p in region.pieces:
                piece = self.pieces[p]
                if p in self.variation.pieces or len(piece.successors) < 2 or self.variation.branches(piece):
                    continue
                if len({frozenset(self._ends(s)) for s in piece.successors}) > 1:
                    # Where only some items go, since others have left for there before, all can't be awaited.
                    found.update(s for s in piece.successors if s not in self.cuts and s not in self.variation.pieces)
        return found

    def _ends(self, piece: int) -> set[int]:
        """Where items that go to `piece` can end up."""
        return {self.cuts[piece]} if piece in self.cuts else self.outcomes_of(self.reached([piece]))

    # What crosses

    def _across(self) -> None:
        live = flow.liveness(self.pieces, self.follow, self.last_piece)
        self.live = [set(live[start]) for start in self.starts]
        for piece, number in self.cuts.items():
            self.live[number].update(i.value for i in self.pieces[piece].phis)
        crossing = set[int]().union(*self.live[1:])
        self.recomputed = crossing & self.recomputable
        stored = sorted(crossing - self.recomputed)
        if self.uniform:
            self.shared = [v for v in stored if v not in self.variation.values]
            stored = [v for v in stored if v in self.variation.values]
        self.kept = stored
        self._share_places()

    def _share_places(self) -> None:
        """Gives a kept phi and what it is made of one place where they are never live together: no copies then."""
        group = {v: {v} for v in self.kept}
        for piece in self.cuts:
            for phi in self.pieces[piece].phis:
                for text, _ in phi.incoming():
                    value = int(text[6:]) if text.startswith("%hcq.v") else -1
                    if phi.value not in group or value not in group or group[value] is group[phi.value]:
                        continue
                    both = group[value] | group[phi.value]
                    if all(len(both & live) <= 1 for live in self.live):
                        for member in both:
                            group[member] = both
        self.place = {v: min(members) for v, members in group.items()}

    def needed(self, values: Iterable[int]) -> list[int]:
        """Recomputable `values` and all they are computed from, in an order that defines before it uses."""
        found: list[int] = []
        seen: set[int] = set()

        def visit(value: int) -> None:
            if value not in seen:
                seen.add(value)
                for operand in self.definitions[value].uses:
                    visit(operand)
                found.append(value)

        for value in sorted(values):
            visit(value)
        return found

    def scalar(self, region: Region) -> bool:
        """True if the region only computes what is the same for all items, and does what is done once: it runs once,
        without a loop."""
        if self.variation.pieces & set(region.pieces):
            return False
        for p in region.pieces:
            piece = self.pieces[p]
            if self.variation.branches(piece):
                return False
            for i in piece.instructions():
                varies = i.value in self.variation.values
                if flow.once(i):
                    if not self.variation.values.isdisjoint(i.uses):
                        return False
                    continue
                if not (i.op == "phi" or flow.pure(i)) and i.value not in self.recomputable:
                    return False
                if varies and i.value not in self.recomputable and not (p == region.start and p in self.cuts):
                    return False
        return not any(self.stores(region, v, outcome) for outcome in region.outcomes for v in self.kept)

    def stores(self, region: Region, value: int, outcome: int) -> bool:
        """True if `value` must be written when items leave `region` at `outcome`: it is needed there and new."""
        return (
            outcome != END
            and value in self.live[outcome]
            and value in region.defined
            and not self.in_place(region, value, outcome)
        )

    def in_place(self, region: Region, value: int, outcome: int) -> bool:
        """True if `value` is a phi at the cut `outcome` and all that could be chosen lies there already."""
        if outcome == END or self.starts[outcome] not in self.cuts:
            return False
        phi = next((i for i in self.pieces[self.starts[outcome]].phis if i.value == value), None)
        if phi is None or value not in self.place:
            return False
        inside = set(region.pieces)
        for text, block in phi.incoming():
            if self.last_piece[block] in inside:
                source = int(text[6:]) if text.startswith("%hcq.v") else -1
                if (
                    source in region.defined - {value}
                    or self.place.get(source, -1) != self.place[value]
                    or source not in self.live[region.number]
                ):
                    return False
        return True
