"""A kernel with barriers in C for processors: a loop over the items of the group between each two of its barriers.

The group's first item runs it, as it does kernels without barriers (writer). A value that lives from region to region
is an array with one element an item. What does not live here: where a kernel is cut (regions), statements (flow,
writer).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hcq.kernels import types
from hcq.kernels.lower import indices
from hcq.kernels.lower.c.regions import Regions, guarded
from hcq.kernels.lower.c.writer import Writer
from hcq.kernels.lower.names import entry_name
from hcq.kernels.types import Vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.kernels.ir import Block, Function, Op, Value
    from hcq.kernels.lower.c.dialects import Dialect

_MOST: Final = 5 << 19
"""Bytes on the stack, which has 3 MiB: what up to _ITEMS items keep, and what one has for itself."""
_ITEMS: Final = 1024
"""Items of a group at most."""
_ALIGNED: Final = "__attribute__((aligned(64)))"
_ALL: Final = "0", "local_size_0"
"""The range of x of a whole row."""
_ITEM: Final = "item_0"  # names of the writer end in a number above 0


def write(function: Function, dialect: Dialect) -> str:
    """The text of one kernel for the CPU devices. One that can't be cut at its barriers meets them by fibers; of one
    without any, this takes loops that the items go through together."""
    writer = GroupWriter(function, dialect)
    if writer.regions.splits and (writer.regions.group or any(op.code == "barrier" for op in function.walk())):
        text = writer.text()
        if writer.kept_bytes * _ITEMS + writer.own_bytes <= _MOST:
            return text
    return Writer(function, dialect).text()


class GroupWriter(Writer):
    """Writes one function. `pending` is the region that is gathered: operations, and values passed on, in order."""

    def __init__(self, function: Function, dialect: Dialect) -> None:
        super().__init__(function, dialect)
        self.regions = Regions(function, self.needs)
        self.pending: list[Op | tuple[list[list[str]], Sequence[Value]]] = []
        self.in_item = False
        self.kept_bytes = self.own_bytes = 0  # of an item: from region to region, and private arrays of one region
        self.number = 0
        self.head: list[str] = []  # what stands at the head of the function: arrays of what is kept
        self.inside: list[Value] = []  # private arrays of the items, each with one region that uses it
        self.global_ids: list[int] = []
        self.range = _ALL
        self.always: set[Value] = set()  # conditions that hold for all items of their region's loop

    def text(self) -> str:
        inputs = (*self.function.pointers, *self.function.scalars)
        i64 = self.p.word("i64")
        parameters = [self.parameter(number, each) for number, each in enumerate(inputs)]
        for dim in range(3):
            self.id("local_size", dim)
            self.ids["local_id", dim] = f"local_id_{dim}"
        for kind, dim in self.wanted_ids():
            if kind == "global_id":
                self.id("group_id", dim)
                self.ids[kind, dim] = f"global_id_{dim}"
                if dim not in self.global_ids:
                    self.global_ids.append(dim)
            else:
                self.id(kind, dim)
        first = len(self.lines)
        self.block(self.function.body)
        while self.lines[-1] == "  return;":
            self.lines.pop()
        if self.regions.leaves:
            self.head.append(f"  char left_0[{_items()}];")
            self.head.append(f"  for ({i64} at = 0; at < {_items()}; at++) left_0[at] = 0;")
        self.lines[first:first] = self.head
        name = f"{self.d.kernel} {entry_name(self.function.name)}({', '.join(parameters)}) {{"
        is_first = " | ".join(self.d.ids["local_id"].format(dim) for dim in range(3))
        begin = [f"  if (({is_first}) != 0) return;", "  hcq_group_done_();"]
        return "\n".join([self.d.head + self.p.text(), name, *begin, *self.lines, "}", ""])

    # The group

    def block(self, block: Block) -> bool:
        if self.in_item:
            return super().block(block)
        for op in block.ops:
            if op.code == "barrier":
                self.flush()
            elif op in self.regions.guards:
                self.on_guard(op)
            elif op in self.regions.group:
                if op.code == "if":
                    self.flush()
                if getattr(self, f"on_{op.code}")(op):
                    return True
            elif op.code in ("yield", "continue", "break"):
                getattr(self, f"on_{op.code}")(op)
                return op.code != "yield"
            elif op.code == "return":
                self.flush()
                self.line("return;")
                return True
            elif op.code == "private":
                self.on_private(op)
            elif self.is_shared(op):
                super().block_op(op)
            elif not indices.is_dead(op, self.needs):
                self.pending.append(op)
        return True

    def is_shared(self, op: Op) -> bool:
        return (op.is_pure or op.code == "local") and op.result not in self.regions.own

    def assign(self, targets: Sequence[list[str]], values: Sequence[Value]) -> None:
        if self.in_item:
            super().assign(targets, values)
            return
        mine = [names != [] and names[0].endswith(f"[{_ITEM}]") for names in targets]
        own = [pair for pair, is_own in zip(zip(targets, values, strict=True), mine, strict=True) if is_own]
        if own:
            self.pending.append(([names for names, _ in own], [value for _, value in own]))
        self.flush()
        rest = [pair for pair, is_own in zip(zip(targets, values, strict=True), mine, strict=True) if not is_own]
        super().assign([names for names, _ in rest], [value for _, value in rest])

    def enter(self, arguments: Sequence[Value], initial: Sequence[Value]) -> list[list[str]]:
        if self.in_item:
            return super().enter(arguments, initial)
        carried = [
            self.array(value) if value in self.regions.own else self.declare(value, self.passed(first))
            for value, first in zip(arguments, initial, strict=True)
        ]
        self.assign(carried, initial) if any(each in self.regions.own for each in arguments) else self.flush()
        for value, names in zip(arguments, carried, strict=True):
            self.names[value] = names
            self.widen(value)
        return carried

    def declare(self, value: Value, texts: Sequence[str] | None = None) -> list[str]:
        if not self.in_item and value in self.regions.own:
            return self.array(value)
        return super().declare(value, texts)

    # Items

    def array(self, value: Value, spelled: str = "", size: int = 8) -> list[str]:
        """An array with one element an item for each lane of a value; what names the item's own."""
        lanes = value.type.lanes if isinstance(value.type, Vector) else 1
        names = [self.name(value.name or "kept") for _ in range(lanes)]
        self.head += [f"  {spelled or self.spelled(value)}{each}[{_items()}] {_ALIGNED};" for each in names]
        self.kept_bytes += lanes * (size if spelled else max(4, types.element_of(value.type).itemsize))
        return [f"{each}[{_ITEM}]" for each in names]

    def on_private(self, op: Op) -> None:
        """An array of the items: in their loop where one region uses it, else behind each other."""
        element = types.element_of(op.result.type)
        used = self.regions.private.get(op.result, set())
        name, stored, count = self.name(op.attributes["name"]), self.p.stored(element), op.attributes["count"]
        if len(used) == 1:
            self.names[op.result] = [name]
            self.inside.append(op.result)
            self.own_bytes += count * element.itemsize
        elif used:
            self.head.append(f"  {stored} {name}[{_items()} * {count}] {_ALIGNED};")
            self.names[op.result] = [f"({name} + {_ITEM} * {count})"]
            self.kept_bytes += count * element.itemsize

    def flush(self) -> None:
        """Writes the region that was gathered, as loops over the items."""
        gathered, self.pending = self.pending, []
        if not any(isinstance(each, tuple) or self.counts(each) for each in gathered):
            return
        i32, i64 = self.p.word("i32"), self.p.word("i64")
        self.number += 1
        outer = self.indent
        first, last = self.bounds(gathered)
        for dim in (2, 1, 0):
            of = f"local_id_{dim}"
            if dim == 0:
                row = f"({i64})(local_id_2 * local_size_1 + local_id_1) * local_size_0"
                self.line(f"{i64} row_0 = {row};")
                self.line(f"for ({i32} {of} = {first}; {of} < {last}; {of}++) {{")
            else:
                self.line(f"for ({i32} {of} = 0; {of} < local_size_{dim}; {of}++) {{")
            self.indent += "  "
        self.line(f"{i64} {_ITEM} = row_0 + local_id_0;")
        if self.regions.leaves:
            self.line(f"if (left_0[{_ITEM}]) continue;")
        for dim in self.global_ids:
            self.line(f"{i32} global_id_{dim} = group_id_{dim} * local_size_{dim} + local_id_{dim};")
        self.in_item = True
        self.region(gathered)
        self.in_item = False
        if self.regions.leaves:
            self.line(f"next_{self.number}:;")
        while self.indent != outer:
            self.indent = self.indent[:-2]
            self.line("}")

    def bounds(self, gathered: Sequence[Op | tuple[list[list[str]], Sequence[Value]]]) -> tuple[str, str]:
        """The range of x that has work: all, save where a guard is around, or all there is."""
        lasting = [each for each in gathered if isinstance(each, tuple) or self.counts(each)]
        only = lasting[0]
        if len(lasting) > 1 or isinstance(only, tuple) or only.code != "if" or only.operands[0].op not in gathered:
            return self.range
        return self.range_of(only)

    def range_of(self, op: Op) -> tuple[str, str]:
        """The range that a guard leaves of the one around, where its condition holds; that one, of another branch."""
        guard = guarded(op, self.regions.own)
        if guard is None:
            return self.range
        code, place, other = guard
        self.always.add(op.operands[0])
        i32, i64 = self.p.word("i32"), self.p.word("i64")
        at, first, last = map(self.name, ("at", "first", "last"))
        whole = place.op is not None and place.op.attributes["kind"] == "global_id"
        rest = f" - ({i64})group_id_0 * local_size_0" if whole else ""
        self.line(f"{i64} {at} = ({i64}){self.names[other][0]}{rest};")
        begin, end = self.range
        low = {"gt": f"{at} + 1", "ge": at, "eq": at}.get(code, begin)
        high = {"lt": at, "le": f"{at} + 1", "eq": f"{at} + 1"}.get(code, end)
        for name, value in ((first, low), (last, high)):
            self.line(f"{i32} {name} = ({i32})({value} < {begin} ? {begin} : {value} < {end} ? {value} : {end});")
        return first, last

    def on_guard(self, op: Op) -> bool:
        """A branch of the group that leaves out items: what stands in it goes over the others."""
        self.flush()
        outer = self.range
        self.line("{")
        self.indent += "  "
        self.range = self.range_of(op)
        self.results.append(op.results)
        self.block(op.blocks[0])
        self.results.pop()
        self.range = outer
        self.indent = self.indent[:-2]
        self.line("}")
        return False

    def counts(self, op: Op) -> bool:
        """Whether an operation does anything that is seen after its region."""
        return not op.is_pure or any(each in self.regions.kept for each in op.results)

    def region(self, gathered: Sequence[Op | tuple[list[list[str]], Sequence[Value]]]) -> None:
        """What one item does. Values of before are computed again where that is cheap."""
        kept = dict(self.names), dict(self.wide)
        here: set[Value] = set()
        for each in gathered:
            values = each[1] if isinstance(each, tuple) else [*each.operands, *_inner_operands(each)]
            for value in values:
                self.compute(value, here)
            if isinstance(each, tuple):
                super().assign(*each)
                continue
            here.update(each.results)
            super().block_op(each)
            if self.always.intersection(each.results):
                self.names[each.result] = ["1"]
            for result in each.results:
                if result in self.regions.kept:
                    self.keep(result, *kept)
        before_names, before_wide = kept
        self.names, self.wide = before_names, before_wide

    def keep(self, value: Value, names: dict[Value, list[str]], wide: dict[Value, str]) -> None:
        """Stores a value for other regions, whose names for it go into `names` and `wide`."""
        if value in self.needs.plain:
            if value not in names:
                names[value] = self.array(value)
                if value in self.needs.wide:
                    wide[value] = f"(i64){names[value][0]}"
            for place, text in zip(names[value], self.passed(value), strict=True):
                self.line(f"{place} = {text};")
        elif value in self.needs.wide:
            if value not in wide:
                (wide[value],) = self.array(value, f"{self.p.word('i64')} ")
            self.line(f"{wide[value]} = {self.wide[value]};")

    def compute(self, value: Value, here: set[Value], part: bool = False) -> None:
        """Makes a value of another region known in this one, where it is computed again; `part`: for another."""
        if value in here or value not in self.regions.own or value.op is None:
            return
        if value.op.code == "private":
            if value in self.inside and value not in here:
                here.add(value)
                stored = self.p.stored(types.element_of(value.type))
                self.line(f"{stored} {self.names[value][0]}[{value.op.attributes['count']}];")
            return
        if value in self.regions.kept or not (part or value in self.regions.again):
            return
        here.add(value)
        for each in value.op.operands:
            self.compute(each, here, part=True)
        super().block_op(value.op)

    def on_return(self, op: Op) -> bool:
        self.line(f"left_0[{_ITEM}] = 1;")
        self.line(f"goto next_{self.number};")
        return True


def _items() -> str:
    return "(local_size_0 * local_size_1 * local_size_2)"


def _inner_operands(op: Op) -> list[Value]:
    return [each for block in op.blocks for inner in block.walk() for each in inner.operands]
