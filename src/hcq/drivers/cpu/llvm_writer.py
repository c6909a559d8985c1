"""The code of one region of a kernel: its pieces with names of their own, between what it reads and what it leaves.

What does not live here: the loops around it (llvm_group), and where it starts and ends (llvm_regions).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hcq.drivers.cpu import llvm_flow as flow
from hcq.drivers.cpu.llvm_locals import Refused
from hcq.drivers.cpu.llvm_regions import END

if TYPE_CHECKING:
    from hcq.drivers.cpu.llvm_bounds import Bound
    from hcq.drivers.cpu.llvm_regions import Analysis, Piece, Region
    from hcq.drivers.cpu.llvm_text import Instruction

_VALUE = re.compile(r"%hcq\.v(\d+)")
_BLOCK = re.compile(r"label %hcq\.b(\d+)")
_ID = re.compile(r"@hcq\.(\w+)\((?:i32 (?:\w+(?:\([^)]*\))? )*(-?\d+|%hcq\.[av]\d+|poison|undef))\)")
_IDS = {"group_id": ("g", "0"), "num_groups": ("n", "1"), "local_size": ("l", "1")}  # letter, past the third dimension
_ACCESS = re.compile(r"  (?:%hcq\.v\d+ = load|store) (?!atomic |volatile )")


class Frame:
    """What the regions of a kernel have in common: where kept values lie, and how accesses are marked."""

    def __init__(self, kinds: dict[int, str], rounds: bool, leaving: bool, private: bool) -> None:
        self.kinds = kinds  # kept and shared values and their types: they live in stack slots %hcq.s<value>
        self.rounds = rounds  # items may stand at different barriers
        self.leaving = leaving  # some items may return before others meet at a barrier
        self.states = rounds or leaving  # each item has a state: the barrier it stands at, 0 when it has returned
        self.private = private  # private arrays lie in the arena, one an item
        self.access = ""  # the access group of the accesses that are independent between items
        self.marked = False  # whether those of the region being written are
        self.outer = ""  # what marks jumps from region to region
        self.offset: dict[int, int] = {}  # of a kept value or private array, in bytes a (rounded) item
        self.stride: dict[int, int] = {}  # its size
        self.state = -1  # the offset of states
        self.entry: list[str] = []  # instructions for the kernel's entry block

    def group(self) -> str:
        """What marks an access as independent of other items."""
        return f", !llvm.access.group {self.access}" if self.marked else ""


class Writer:
    """Writes one region. `loop` names the loop over items around it; '' means that it runs once a group.

    `tag` ends the names of the region's values and labels, so that several copies of a piece can stand side by side.
    """

    def __init__(
        self,
        analysis: Analysis,
        frame: Frame,
        region: Region,
        tag: str,
        bound: Bound | None,
        loop: str = "",
        copy: str = "",
    ) -> None:
        self.a = analysis
        self.frame = frame
        self.region = region
        self.tag = tag + copy
        self.loop = loop
        self.bound_by = bound
        self.inside = frozenset(region.pieces)
        self.lines: list[str] = []
        self.early: set[int] = set()  # values computed at the region's start
        self.known: dict[int, str] = {}  # names under which slots were read in this piece
        self.fresh = 0

    def write(self) -> list[str]:
        """The region's code, from its start to jumps to whatever follows."""
        a, frame = self.a, self.frame
        wanted = set(self.region.used & a.recomputed)
        if frame.private:
            wanted |= self.region.used & {i.value for i in a.allocas}
        if not self.loop:
            wanted -= a.variation.values
        self._early(wanted)
        live = a.live[self.region.number]
        for value, kind in frame.kinds.items():
            if value not in live or value not in self.region.used | self.region.defined:
                continue
            if value in a.place and not self.loop:
                continue  # it stays where it is
            if value in a.place:
                name = f"%hcq.k{value}.{self.tag}"
                self.lines.append(f"  {name} = load {kind}, ptr {self._address(value)}{frame.group()}")
            else:
                name = f"%hcq.i{value}.r{self.region.number}"
            self.lines.append(f"  store {kind} {name}, ptr %hcq.s{value}")
        self.lines.append(f"  br label %{self._label(self.region.start)}")
        for number in self.region.pieces:
            self._piece(number)
        return self.lines

    def ahead(self) -> list[str]:
        """Code for before the loop over the items: divisions that all items do alike, and first of all. LLVM doesn't
        move them there, for a division may trap, and puts them behind the guards, where no vector can be made of them.
        """
        a = self.a
        body = {i.value for i in a.pieces[self.region.start].body}
        found: set[int] = set()
        for i in a.pieces[self.region.start].body:
            if i.op in flow.DIVISIONS and i.value not in a.variation.values:
                needed = a.needed({i.value})
                if all(flow.pure(a.definitions[v]) and (v in body or v in a.recomputable) for v in needed):
                    found.update(needed)
        self._early(found)
        lines, self.lines = self.lines, []
        return lines

    def same_ahead(self) -> list[str]:
        """Code for before the loop over the items: what is the same for all and cheap, so that nothing need be moved
        out of the loop."""
        a = self.a
        here = {i.value for i in a.pieces[self.region.start].body} | (self.region.used & a.recomputed)
        self._early({v for v in here & a.recomputable if v not in a.variation.values})
        lines, self.lines = self.lines, []
        return lines

    def bound(self, operand: str) -> str:
        """A bound (see llvm_bounds) as a value that can be had before the loop."""
        if not operand.startswith("%hcq.v"):
            return operand
        value = int(operand[6:])
        if value in self.a.recomputable:
            self._early({value})
            return self._own(value)
        return f"%hcq.i{value}.r{self.region.number}"

    def _early(self, values: set[int]) -> None:
        needed = [v for v in self.a.needed(values) if v not in self.early]
        self.early.update(needed)
        for value in needed:
            i = self.a.definitions[value]
            if i.op == "alloca" and self.frame.private:
                self.lines.append(f"  {self._own(value)} = {self._element(value)}")
            else:
                self._instruction(i)

    # Names

    def _label(self, piece: int) -> str:
        return f"{self.a.pieces[piece].label}.{self.tag}"

    def _own(self, value: int) -> str:
        return f"%hcq.v{value}.{self.tag}"

    def _new(self) -> str:
        self.fresh += 1
        return f"%hcq.t{self.fresh}.{self.tag}"

    def _read(self, value: int) -> str:
        """The name of a value here; one that lives in a slot is loaded."""
        if value not in self.frame.kinds or value in self.early:
            return self._own(value)
        if value not in self.known:
            self.known[value] = self._new()
            self.lines.append(f"  {self.known[value]} = load {self.frame.kinds[value]}, ptr %hcq.s{value}")
        return self.known[value]

    def _element(self, value: int) -> str:
        """An expression for the address of this item's kept value or private array."""
        frame = self.frame
        return (
            f"getelementptr inbounds [{frame.stride[value]} x i8], ptr %hcq.base.{frame.offset[value]}, "
            f"i64 %hcq.item.{self.loop}"
        )

    def _address(self, value: int) -> str:
        name = self._new()
        self.lines.append(f"  {name} = {self._element(value)}")
        return name

    # Pieces

    def _piece(self, number: int) -> None:
        piece = self.a.pieces[number]
        self.lines.append(f"{self._label(number)}:")
        self.known.clear()
        if not (number == self.region.start and number in self.a.cuts):
            for phi in piece.phis:
                self._phi(phi, piece)
            for phi in piece.phis:
                self._keep(phi.value)
        for i in piece.body:
            if not self._left_out(i):
                self._instruction(i)
                self._keep(i.value)
        self._phi_inputs(number)
        if piece.terminator is None:
            self._stop(piece.barrier)
        elif piece.terminator.op == "ret":
            self._leave(END)
        else:
            self._branch(number, piece.terminator)

    def _left_out(self, i: Instruction) -> bool:
        if i.value in self.early:
            return True
        if i.op == "alloca":
            return self.frame.private
        if "@llvm.lifetime." in i.text:
            return self.frame.private  # in scratch they live as long as the group
        return not self.loop and i.value in self.a.variation.values

    def _phi(self, phi: Instruction, piece: Piece) -> None:
        ways = []
        for incoming, block in phi.incoming():
            source = self.a.last_piece[block]
            if source not in self.inside or self._skipped(source, piece.block):
                continue
            if incoming.startswith("%hcq.v"):
                value = int(incoming[6:])
                in_slot = value in self.frame.kinds and value not in self.early
                incoming = f"%hcq.e{value}.{source}.{self.tag}" if in_slot else self._own(value)
            ways.append(f"[ {incoming}, %{self._label(source)} ]")
        head = phi.text[: phi.text.index("[ ")].replace(f"%hcq.v{phi.value} ", f"{self._own(phi.value)} ", 1)
        self.lines.append(head + ", ".join(ways) + phi.text[phi.text.rindex(" ]") + 2 :])

    def _skipped(self, source: int, block: int) -> bool:
        """True for the way out of the first piece that no item of a bounded loop takes."""
        return self.bound_by is not None and source == self.region.start and block != self.bound_by.then

    def _phi_inputs(self, number: int) -> None:
        """Reads what phis inside the region take from slots at the end of a piece, under a name that they know."""
        done = set()
        for successor in self.a.pieces[number].successors:
            if successor not in self.inside or successor in self.a.cuts:
                continue
            for phi in self.a.pieces[successor].phis:
                for incoming, block in phi.incoming():
                    if not incoming.startswith("%hcq.v") or self.a.last_piece[block] != number:
                        continue
                    value = int(incoming[6:])
                    if value in self.frame.kinds and value not in self.early and value not in done:
                        done.add(value)
                        kind = self.frame.kinds[value]
                        self.lines.append(f"  %hcq.e{value}.{number}.{self.tag} = load {kind}, ptr %hcq.s{value}")

    def _keep(self, value: int) -> None:
        if value in self.frame.kinds:
            self.lines.append(f"  store {self.frame.kinds[value]} {self._own(value)}, ptr %hcq.s{value}")
            self.known[value] = self._own(value)

    def _branch(self, number: int, terminator: Instruction) -> None:
        a = self.a
        line = self._renamed(terminator)
        if self.bound_by is not None and number == self.region.start:
            line = f"  br label %hcq.b{self.bound_by.then}"
        edges: list[tuple[str, int]] = []

        def target(match: re.Match[str]) -> str:
            to = next((s for s in a.pieces[number].successors if a.pieces[s].block == int(match[1])), -1)
            if to not in a.cuts:
                return f"label %hcq.b{match[1]}.{self.tag}"
            edge = f"hcq.x{number}.{to}.{self.tag}"
            if (edge, to) not in edges:
                edges.append((edge, to))
            return f"label %{edge}"

        self.lines.append(_BLOCK.sub(target, line))
        at_end = dict(self.known)
        for edge, to in edges:
            self.lines.append(f"{edge}:")
            self.known = dict(at_end)
            self._stop(a.cuts[to], number)

    # Ends

    def _stop(self, outcome: int, source: int = -1) -> None:
        """Leaves what lives on at the start of region `outcome`, and goes there; `source` is the piece before a cut."""
        a, frame = self.a, self.frame
        chosen: dict[int, str] = {}
        if source >= 0:
            for phi in a.pieces[a.starts[outcome]].phis:
                if not a.stores(self.region, phi.value, outcome):
                    continue
                incoming = next(v for v, block in phi.incoming() if a.last_piece[block] == source)
                chosen[phi.value] = self._read(int(incoming[6:])) if incoming.startswith("%hcq.v") else incoming
        for value in frame.kinds:
            if value not in chosen and a.stores(self.region, value, outcome):
                chosen[value] = self._read(value)
        for value, now in chosen.items():
            if value in a.place:
                self.lines.append(f"  store {frame.kinds[value]} {now}, ptr {self._address(value)}{frame.group()}")
            else:
                self.lines.append(f"  store {frame.kinds[value]} {now}, ptr %hcq.u{value}")
        self._leave(outcome)

    def _leave(self, outcome: int) -> None:
        if not self.loop:
            self.lines.append(f"  br label %hcq.{f'r{outcome}' if outcome != END else 'exit'}{self.frame.outer}")
            return
        frame, several = self.frame, len(self.region.outcomes) > 1
        if frame.rounds or (frame.leaving and (self.region.number == 0 or (several and outcome == END))):
            at = self._new()
            self.lines += [
                f"  {at} = getelementptr inbounds i32, ptr %hcq.base.{frame.state}, i64 %hcq.item.{self.loop}",
                f"  store i32 {outcome}, ptr {at}, align 4{frame.group()}",
            ]
        if frame.rounds or (frame.leaving and END in self.region.outcomes):
            if several or frame.rounds:  # 0 stays when nobody is left
                seen, now = self._new(), self._new()
                self.lines += [
                    f"  {seen} = load i32, ptr %hcq.outcome",
                    f"  {now} = or i32 {seen}, {outcome}",
                    f"  store i32 {now}, ptr %hcq.outcome",
                ]
        elif several:
            self.lines.append(f"  store i32 {outcome}, ptr %hcq.outcome")
        self.lines.append(f"  br label %hcq.{self.loop}.next")

    # One instruction

    def _renamed(self, i: Instruction) -> str:
        return _VALUE.sub(lambda m: self._own(i.value) if int(m[1]) == i.value else self._read(int(m[1])), i.text)

    def _instruction(self, i: Instruction) -> None:
        if i.op == "call" and "@hcq." in i.text:
            match = _ID.search(i.text)
            if match is None:
                raise Refused(f"a call that can't be lowered: {i.text.strip()}")
            self._id(i.value, match[1], match[2])
            return
        if i.op == "alloca":
            if i not in self.a.pieces[0].body or i.uses or "%hcq.a" in i.text:
                raise Refused("an alloca outside the entry block, or of varying size, in a grid kernel")
            self.frame.entry.append(self._renamed(i))  # once a group: items use it one after the other
            return
        line = self._renamed(i)
        if self.frame.marked and _ACCESS.match(i.text) and "!llvm.access.group" not in line:
            line += self.frame.group()
        self.lines.append(line)

    def _id(self, value: int, what: str, dimension: str) -> None:
        result = self._own(value)
        if what == "local_id":
            choices, beyond = [f"%hcq.{axis}.{self.loop}" for axis in "xyz"], "0"
        else:
            letter, beyond = _IDS[what]
            choices = [f"%hcq.{letter}{d}" for d in range(3)]
        if not dimension.startswith("%"):
            d = int(dimension) if dimension.lstrip("-").isdigit() else 3
            self.lines.append(f"  {result} = add i32 {choices[d] if 0 <= d < 3 else beyond}, 0")
            return
        wanted = self._read(int(dimension[6:])) if dimension.startswith("%hcq.v") else dimension
        otherwise = beyond
        for d in (2, 1, 0):
            test, name = self._new(), self._new() if d else result
            self.lines += [
                f"  {test} = icmp eq i32 {wanted}, {d}",
                f"  {name} = select i1 {test}, i32 {choices[d]}, i32 {otherwise}",
            ]
            otherwise = name
