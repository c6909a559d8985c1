"""One version of a kernel: the function that runs a work-group, as loops over its items, region after region.

What does not live here: which versions there are (llvm_grid, llvm_versions), where a kernel is cut (llvm_regions), and
the code of one region (llvm_writer).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from hcq.drivers.cpu import llvm_bounds as bounds
from hcq.drivers.cpu import llvm_order as order
from hcq.drivers.cpu import llvm_rows
from hcq.drivers.cpu import llvm_text as text
from hcq.drivers.cpu.llvm_context import IDS
from hcq.drivers.cpu.llvm_locals import Refused
from hcq.drivers.cpu.llvm_regions import END, Analysis, Region
from hcq.drivers.cpu.llvm_writer import Frame, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hcq.drivers.cpu.llvm_locals import Locals
    from hcq.drivers.cpu.llvm_text import Instruction

_ALLOCA = re.compile(r"alloca (?:inalloca )?(.+?)(?:, align (\d+))?(?:, addrspace\(\d+\))?$")


class Lowered(NamedTuple):
    """IR of one kernel: a function to append to the module, and the scratch memory that a group needs."""

    lines: list[str]
    scratch_group: int
    scratch_item: int


class Types(NamedTuple):
    """`value(n)` gives the type of `hcq.v<n>` as text and its size in bytes; `size(text)` the size of a type."""

    value: Callable[[int], tuple[str, int]]
    size: Callable[[str], int]


class Kernel(NamedTuple):
    """A kernel to lower: its number, its printed lines, and the attributes that its function is to have."""

    number: int
    lines: list[str]
    attributes: str


class Common(NamedTuple):
    """What the versions of a kernel have in common."""

    kernel: Kernel
    memory: Locals
    types: Types
    metadata: text.Metadata

    def parameters(self) -> list[str]:
        """The parameters of each, as printed."""
        header = self.kernel.lines[0]
        at = header.index("(", header.index("@hcq.kernel."))
        return [
            *text.arguments(header[at + 1 : text.closing(header, at)]),
            "ptr noalias noundef nonnull readonly align 8 %hcq.context",
            "ptr noalias noundef align 64 %hcq.local",
            "ptr noalias noundef align 64 %hcq.arena",
        ]


class Version:
    """One version of a kernel, as a function `@hcq.<name>.N`."""

    def __init__(self, common: Common, name: str, blocks: list[list[Instruction]], analysis: Analysis) -> None:
        self.common = common
        self.name = name
        self.types = types = common.types
        self.metadata = metadata = common.metadata
        self.analysis = analysis
        self.several = len(self.analysis.regions) > 1
        self.rounds = self.several and not self.analysis.uniform  # items may stand at different barriers
        self.frame = Frame(
            kinds={v: types.value(v)[0] for v in (*self.analysis.kept, *self.analysis.shared)},
            rounds=self.rounds,
            leaving=self.several and self.analysis.leaving,
            private=self.several,
        )
        self.jammed = {  # regions of which some rows are computed together where they can be
            region.number
            for region in self.analysis.regions
            if self.several and not self.frame.states and llvm_rows.worth(self.analysis, region)
        }
        self.item_bytes = 0
        self._place()
        self.frame.access = metadata.add("distinct !{}")
        # Work-items are independent already: more of them at once is code, not speed.
        hints = ('!{!"llvm.loop.unroll.runtime.disable"}', '!{!"llvm.loop.interleave.count", i32 1}')
        self.hints = [metadata.add(hint) for hint in hints]
        self.parallel = metadata.add(f'!{{!"llvm.loop.parallel_accesses", {self.frame.access}}}')
        self.rows = metadata.add(f"distinct !{{{{0}}, {self.hints[0]}}}")
        # Loops of the kernel with barriers inside are loops of the group here, full of others: unrolling pays for none.
        once = metadata.add('!{!"llvm.loop.unroll.disable"}')
        self.frame.outer = f", !llvm.loop {metadata.add(f'distinct !{{{{0}}, {once}}}')}"

    def _place(self) -> None:
        """Lays out what each item keeps across barriers; its private arrays lie there too."""
        a, frame = self.analysis, self.frame
        wanted: dict[int, int] = {}
        if self.several:
            for i in a.allocas:
                wanted[i.value] = self._private_size(i)
        for value in a.kept:
            place = a.place[value]
            wanted[place] = max(wanted.get(place, 1), self.types.value(value)[1])
        at: dict[int, int] = {}
        for place, size in sorted(wanted.items(), key=lambda w: (-w[1], w[0])):
            at[place] = self.item_bytes
            frame.stride[place] = size
            self.item_bytes += size
        frame.offset = {v: at[v] for v in wanted}
        for value in a.kept:
            frame.offset[value] = at[a.place[value]]
            frame.stride[value] = frame.stride[a.place[value]]
        if frame.states:
            frame.state = self.item_bytes
            self.item_bytes += 4

    def _private_size(self, i: Instruction) -> int:
        match = _ALLOCA.search(i.text)
        kind, *count = text.arguments(match[1]) if match else [""]
        if match is None or (count and not count[0].split()[-1].isdigit()):
            raise Refused("a kernel with barriers can't have an alloca whose size varies")
        align = int(match[2] or 1)
        if align > 64:
            raise Refused(f"a private array aligned to {align} bytes; at most 64 in a kernel with barriers")
        size = max(self.types.size(kind) * (int(count[0].split()[-1]) if count else 1), 1)
        return -(-size // align) * align

    # The whole function

    def write(self) -> Lowered:
        """The kernel's function."""
        body: list[str] = []
        for region in self.analysis.regions[: 1 if self.rounds else None]:
            body += self._scalar(region) if self.several and self.analysis.scalar(region) else self._loop(region)
        if self.rounds:
            body += self._round_loop()
        parameters = self.common.parameters() + (["ptr noalias %hcq.left"] if self.name == "check" else [])
        kernel = self.common.kernel
        lines = [
            f"define internal void @hcq.{self.name}.{kernel.number}({', '.join(parameters)}) "
            f"alwaysinline {kernel.attributes} {{",
            "hcq.entry:",
            *self._context(),
            *self._memory(),
            *self.common.memory.entry,
            *self.frame.entry,
            "  br label %hcq.r0",
            *body,
            "hcq.exit:",
            "  ret void",
            "}",
        ]
        return Lowered(lines, -(-self.common.memory.bytes // 64) * 64, self.item_bytes)

    def _context(self) -> list[str]:
        lines = []
        nothing = self.metadata.add("!{}")
        for letter, offset, lowest in IDS:
            known = self.metadata.add(f"!{{i32 {lowest}, i32 -2147483648}}")
            for d in range(3):
                lines += [
                    f"  %hcq.p{letter}{d} = getelementptr inbounds i8, ptr %hcq.context, i64 {offset + 4 * d}",
                    f"  %hcq.{letter}{d} = load i32, ptr %hcq.p{letter}{d}, !range {known}, !invariant.load {nothing}",
                ]
        lines.append("  %hcq.rows = mul nuw nsw i32 %hcq.l1, %hcq.l2")
        return lines

    def _memory(self) -> list[str]:
        lines = []
        if self.item_bytes:
            lines += [
                "  %hcq.wide.rows = zext i32 %hcq.rows to i64",
                "  %hcq.wide.l0 = zext i32 %hcq.l0 to i64",
                "  %hcq.items = mul nuw nsw i64 %hcq.wide.rows, %hcq.wide.l0",
                "  %hcq.above = add nuw nsw i64 %hcq.items, 63",
                "  %hcq.rounded = and i64 %hcq.above, -64",
            ]
            for offset in sorted({*self.frame.offset.values(), *([self.frame.state] if self.frame.states else [])}):
                lines += [
                    f"  %hcq.offset.{offset} = mul nuw nsw i64 %hcq.rounded, {offset}",
                    f"  %hcq.base.{offset} = getelementptr inbounds i8, ptr %hcq.arena, i64 %hcq.offset.{offset}",
                ]
        for value, kind in self.frame.kinds.items():
            lines.append(f"  %hcq.s{value} = alloca {kind}")
            if self.jammed:
                lines += [f"  %hcq.s{value}.{n} = alloca {kind}" for n in range(1, llvm_rows.ROWS)]
            if value in self.analysis.shared:
                lines.append(f"  %hcq.u{value} = alloca {kind}")
        if self.several:
            lines += ["  %hcq.outcome = alloca i32", "  store i32 0, ptr %hcq.outcome"]
        if self.frame.leaving and self.analysis.scalar(self.analysis.regions[0]):
            # Nobody else says that all items are there; any number but 0 does.
            lines += [
                "  %hcq.states = mul nuw nsw i64 %hcq.rounded, 4",
                f"  call void @llvm.memset.p0.i64(ptr %hcq.base.{self.frame.state}, i8 1, i64 %hcq.states, i1 false)",
            ]
        return lines

    # A region that runs once

    def _independent(self, regions: Iterable[Region]) -> bool:
        """True if the accesses of some regions in one loop can be marked as independent between items."""
        a = self.analysis
        # Items share private arrays where there are no barriers.
        return (self.several or not a.allocas) and all(
            order.orderly(a, r, {i.value: self.frame.stride[i.value] for i in a.allocas}, self.types.size)
            for r in regions
        )

    def _scalar(self, region: Region) -> list[str]:
        r = f"r{region.number}"
        writer = Writer(self.analysis, self.frame, region, r, None)
        return [f"hcq.{r}:", *self._shared_into(region), *writer.write()]

    def _shared_into(self, region: Region) -> list[str]:
        lines = []
        for value in self.analysis.shared:
            if value in self.analysis.live[region.number] and value in region.used | region.defined:
                lines.append(f"  %hcq.i{value}.r{region.number} = load {self.frame.kinds[value]}, ptr %hcq.u{value}")
        return lines

    # Loops over the items of a group

    def _loop(self, region: Region) -> list[str]:
        r = f"r{region.number}"
        lines = [f"hcq.{r}:", *self._shared_into(region)]
        self.frame.marked = self._independent([region])
        bound = None if self.rounds else bounds.find(self.analysis, region)
        if bound is not None:
            before = Writer(self.analysis, self.frame, region, r, None, copy=".b")
            end, base = before.bound(bound.bound), before.bound(bound.base)
            lines += before.lines
            lines += bounds.lines(bound, end, base, r)
            lines += [
                f"  %hcq.any.{r} = icmp ult i32 %hcq.lo.{r}, %hcq.hi.{r}",
                f"  br i1 %hcq.any.{r}, label %hcq.{r}.first, label %hcq.{r}.done",
                f"hcq.{r}.first:",
            ]
        if self.frame.leaving and END in region.outcomes:
            lines.append("  store i32 0, ptr %hcq.outcome")
        writer = Writer(self.analysis, self.frame, region, r, bound, loop=r)
        if not self.rounds and not (self.frame.leaving and region.number):  # somebody is there to divide
            lines += writer.ahead()
        before_rows = f"hcq.{r}.first" if bound else f"hcq.{r}"
        if region.number in self.jammed and bound is None:
            lines += self._several_rows(region)
            before_rows = f"hcq.{r}.single"
        lines += self._loop_head(r, before_rows, f"%hcq.lo.{r}" if bound else "0")
        if self.frame.leaving and region.number:
            lines += self._state(r)
            lines += [
                f"  %hcq.there.{r} = icmp ne i32 %hcq.stands.{r}, 0",
                f"  br i1 %hcq.there.{r}, label %hcq.{r}.going, label %hcq.{r}.next",
                f"hcq.{r}.going:",
            ]
        lines += writer.write()
        lines += self._loop_tail(r, f"%hcq.hi.{r}" if bound else "%hcq.l0")
        lines += self._dispatch(region)
        return lines

    def _several_rows(self, region: Region) -> list[str]:
        """The loop over items of groups whose height is a multiple of some rows, and the label of the other."""
        r, jam, count = f"r{region.number}", f"r{region.number}.rows", llvm_rows.ROWS
        tags = [jam, *(f"{jam}.{n}" for n in range(1, count))]
        lines = [
            f"  %hcq.rest.{jam} = and i32 %hcq.l1, {count - 1}",
            f"  %hcq.fits.{jam} = icmp eq i32 %hcq.rest.{jam}, 0",
            f"  br i1 %hcq.fits.{jam}, label %hcq.{jam}, label %hcq.{r}.single",
            f"hcq.{jam}:",
        ]
        writers = [Writer(self.analysis, self.frame, region, tag, None, loop=tag) for tag in tags]
        for writer in writers:
            lines += writer.same_ahead()
        lines += self._loop_head(jam, f"hcq.{jam}", "0")
        lines += llvm_rows.further(tags, bool(self.item_bytes))
        return [
            *lines,
            *llvm_rows.interleaved([writer.write() for writer in writers]),
            *self._loop_tail(jam, "%hcq.l0", count),
            f"  br label %hcq.{r}.done",
            f"hcq.{r}.single:",
        ]

    def _state(self, r: str) -> list[str]:
        """Reads which barrier an item stands at, 0 if it has returned."""
        return [
            f"  %hcq.state.{r} = getelementptr inbounds i32, ptr %hcq.base.{self.frame.state}, i64 %hcq.item.{r}",
            f"  %hcq.stands.{r} = load i32, ptr %hcq.state.{r}, align 4{self.frame.group()}",
        ]

    def _loop_head(self, r: str, before: str, first: str) -> list[str]:
        lines = [
            f"  br label %hcq.{r}.row",
            f"hcq.{r}.row:",
            f"  %hcq.row.{r} = phi i32 [ 0, %{before} ], [ %hcq.row.next.{r}, %hcq.{r}.nextrow ]",
            f"  %hcq.y.{r} = phi i32 [ 0, %{before} ], [ %hcq.y.next.{r}, %hcq.{r}.nextrow ]",
            f"  %hcq.z.{r} = phi i32 [ 0, %{before} ], [ %hcq.z.next.{r}, %hcq.{r}.nextrow ]",
        ]
        if self.item_bytes:
            lines += [
                f"  %hcq.wide.row.{r} = zext i32 %hcq.row.{r} to i64",
                f"  %hcq.before.{r} = mul nuw nsw i64 %hcq.wide.row.{r}, %hcq.wide.l0",
            ]
        lines += [
            f"  br label %hcq.{r}.item",
            f"hcq.{r}.item:",
            f"  %hcq.x.{r} = phi i32 [ {first}, %hcq.{r}.row ], [ %hcq.x.next.{r}, %hcq.{r}.next ]",
        ]
        if self.item_bytes:
            lines += [
                f"  %hcq.wide.x.{r} = zext i32 %hcq.x.{r} to i64",
                f"  %hcq.item.{r} = add nuw nsw i64 %hcq.before.{r}, %hcq.wide.x.{r}",
            ]
        return lines

    def _loop_tail(self, r: str, end: str, rows: int = 1) -> list[str]:
        hints = [*self.hints, *([self.parallel] if self.frame.marked else [])]
        if rows > 1:
            # What all of a row read is an operand where it is used; ahead of the loop it would fill all registers.
            hints.append(self.metadata.add('!{!"llvm.licm.disable"}'))
        loop = self.metadata.add(f"distinct !{{{', '.join(['{0}', *hints])}}}")
        return [
            f"hcq.{r}.next:",
            f"  %hcq.x.next.{r} = add nuw nsw i32 %hcq.x.{r}, 1",
            f"  %hcq.more.{r} = icmp ult i32 %hcq.x.next.{r}, {end}",
            f"  br i1 %hcq.more.{r}, label %hcq.{r}.item, label %hcq.{r}.nextrow, !llvm.loop {loop}",
            f"hcq.{r}.nextrow:",
            f"  %hcq.row.next.{r} = add nuw nsw i32 %hcq.row.{r}, {rows}",
            f"  %hcq.y.more.{r} = add nuw nsw i32 %hcq.y.{r}, {rows}",
            f"  %hcq.y.over.{r} = icmp eq i32 %hcq.y.more.{r}, %hcq.l1",
            f"  %hcq.y.next.{r} = select i1 %hcq.y.over.{r}, i32 0, i32 %hcq.y.more.{r}",
            f"  %hcq.z.more.{r} = add nuw nsw i32 %hcq.z.{r}, 1",
            f"  %hcq.z.next.{r} = select i1 %hcq.y.over.{r}, i32 %hcq.z.more.{r}, i32 %hcq.z.{r}",
            f"  %hcq.morerows.{r} = icmp ult i32 %hcq.row.next.{r}, %hcq.rows",
            f"  br i1 %hcq.morerows.{r}, label %hcq.{r}.row, label %hcq.{r}.done, !llvm.loop {self.rows}",
            f"hcq.{r}.done:",
        ]

    def _dispatch(self, region: Region) -> list[str]:
        """Where the group goes after a region that all items leave at one end."""
        if self.rounds:
            return ["  br label %hcq.rounds"]
        ways = {o: f"%hcq.r{o}" if o != END else "%hcq.exit" for o in region.outcomes}
        if not ways:
            return ["  unreachable"]
        default, *others = ways.items()
        if not others:
            return [f"  br label {default[1]}{self.frame.outer}"]
        r = region.number
        return [
            f"  %hcq.end.r{r} = load i32, ptr %hcq.outcome",
            f"  switch i32 %hcq.end.r{r}, label {default[1]} [ {_cases(others)} ]{self.frame.outer}",
        ]

    def _round_loop(self) -> list[str]:
        """Rounds over all items, each going on from the barrier it stands at, until all have returned.

        Region 0 has set the states; `outcome` collects whether any item is still under way.
        """
        regions = self.analysis.regions[1:]
        self.frame.marked = self._independent(regions)
        return [
            "hcq.rounds:",
            "  %hcq.alive = load i32, ptr %hcq.outcome",
            "  %hcq.over = icmp eq i32 %hcq.alive, 0",
            "  br i1 %hcq.over, label %hcq.exit, label %hcq.round",
            "hcq.round:",
            "  store i32 0, ptr %hcq.outcome",
            *self._loop_head("round", "hcq.round", "0"),
            *self._state("round"),
            "  switch i32 %hcq.stands.round, label %hcq.round.next "
            f"[ {_cases((g.number, f'%hcq.r{g.number}') for g in regions)} ]",
            *(
                line
                for g in regions
                for line in (
                    f"hcq.r{g.number}:",
                    *Writer(self.analysis, self.frame, g, f"r{g.number}", None, loop="round").write(),
                )
            ),
            *self._loop_tail("round", "%hcq.l0"),
            "  br label %hcq.rounds",
        ]


def _cases(ways: Iterable[tuple[int, str]]) -> str:
    return " ".join(f"i32 {outcome}, label {label}" for outcome, label in ways)
