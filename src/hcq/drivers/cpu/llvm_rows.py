"""Regions of which several rows are computed together: what all rows read alike is read once, and the sums of several
rows are under way at a time, as in the inner loops of a matrix library.

A tile's product, `sum += left[y][k] * right[k][x]` for each k, reads two operands for each multiplication. Four rows
read five for four. What does not live here: the loops around (llvm_group), the code of one item (llvm_writer).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hcq.drivers.cpu import llvm_flow as flow

if TYPE_CHECKING:
    from hcq.drivers.cpu.llvm_regions import Analysis, Region

ROWS = 4
_LEAST = 4  # loads that rows have in common
_MOST = 600  # instructions: four times as many come of it
_COLUMN = re.compile(r"@hcq\.local_id\(i32 (?:noundef )?0\)")
_ROW = re.compile(r"@hcq\.local_id\(i32 (?:noundef )?[^02]")  # rows of one z
_SLOT = re.compile(r"%hcq\.s(\d+)")


def worth(a: Analysis, region: Region) -> bool:
    """Whether rows have enough in common. Only of straight code that does nothing but compute what it leaves."""
    if len(region.pieces) != 1 or len(region.outcomes) != 1:
        return False
    body = a.pieces[region.start].body
    if len(body) > _MOST or any(flow.effects(i) for i in body):
        return False
    by_row, by_column = _following(a, _ROW), _following(a, _COLUMN)
    own = {v for v in a.kept if v in a.live[region.number]}
    common = 0
    for i in body:
        if i.op == "load" and not flow.same(i):
            needed = _operands(a, i.uses, own)
            common += needed.isdisjoint(by_row | own) and not needed.isdisjoint(by_column)
    return common >= _LEAST


def further(tags: list[str], kept: bool) -> list[str]:
    """IR that names the items of the rows after the first: `tags` are those of the first and of each row's copy, `kept`
    whether items keep something."""
    lines = []
    for n, tag in enumerate(tags[1:], 1):
        lines += [
            f"  %hcq.x.{tag} = add i32 %hcq.x.{tags[0]}, 0",
            f"  %hcq.y.{tag} = add nuw nsw i32 %hcq.y.{tags[0]}, {n}",
            f"  %hcq.z.{tag} = add i32 %hcq.z.{tags[0]}, 0",
        ]
        if kept:
            lines += [
                f"  %hcq.further.{tag} = mul nuw nsw i64 %hcq.wide.l0, {n}",
                f"  %hcq.item.{tag} = add nuw nsw i64 %hcq.item.{tags[0]}, %hcq.further.{tag}",
            ]
    return lines


def interleaved(copies: list[list[str]]) -> list[str]:
    """The code of several rows, an instruction of each in turn. `copies` differ in names alone, end with the jump to
    the loop's next round, and share the stack slots that they are given different ones of here."""
    lines: list[str] = []
    for together in zip(*copies, strict=True):
        if together[0].startswith("  br label ") or not together[0].startswith("  "):
            lines.append(together[0])
            continue
        lines += [_SLOT.sub(rf"%hcq.s\1.{n}", line) if n else line for n, line in enumerate(together)]
    return lines


def _following(a: Analysis, call: re.Pattern[str]) -> set[int]:
    """Values that are computed of a call's."""
    found = {v for v, i in a.definitions.items() if i.op == "call" and call.search(i.text)}
    changed = True
    while changed:
        more = {v for v, i in a.definitions.items() if v not in found and not found.isdisjoint(i.uses)}
        found |= more
        changed = bool(more)
    return found


def _operands(a: Analysis, values: list[int], own: set[int]) -> set[int]:
    """Values and all that they are computed of, up to what an item keeps."""
    seen: set[int] = set()
    todo = list(values)
    while todo:
        value = todo.pop()
        if value not in seen:
            seen.add(value)
            if value not in own:
                todo += a.definitions[value].uses
    return seen
