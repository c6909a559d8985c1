"""Regions that only some items of a row have work in: `if (local_id(0) < s) ...` runs s items, not all; and
`if (global_id(0) < n)` those that n leaves of this group, without a mask on every access.

What does not live here: the regions themselves (llvm_regions).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from hcq.drivers.cpu import llvm_flow as flow
from hcq.drivers.cpu.llvm_regions import END

if TYPE_CHECKING:
    from hcq.drivers.cpu.llvm_regions import Analysis, Region

_COMPARISON = re.compile(r"icmp (?:samesign )?(\w+) (i32|i64) ([^ ,]+), ([^ ,]+)")
_WIDENED = re.compile(r"[zs]ext (?:nneg )?i32 %hcq\.v(\d+) to i64")
_SUM = re.compile(r"= add (?:nuw )?nsw i32 (%hcq\.[av]\d+), (%hcq\.[av]\d+)")
_ITEM = re.compile(r"@hcq\.local_id\((?:i32 )(?:noundef )?0\)")
_SWAPPED = {"ult": "ugt", "ule": "uge", "slt": "sgt", "sle": "sge", "eq": "eq"}
_SWAPPED.update({b: a for a, b in _SWAPPED.items()})
_NEGATED = {"ult": "uge", "ule": "ugt", "slt": "sge", "sle": "sgt", "ne": "eq"}
_NEGATED.update({b: a for a, b in _NEGATED.items() if b != "eq"})


class Bound(NamedTuple):
    """Only items with `base + x <predicate> bound` have work; they go to block `then` at the end of the first piece.
    With a base both are signed i32, and their sum does not overflow."""

    predicate: str
    kind: str  # i32 or i64
    bound: str  # as printed: a number, an argument, or hcq.v
    base: str  # the same; nothing for 0
    then: int


def find(a: Analysis, region: Region) -> Bound | None:
    """The bound of a region that starts with such a branch, None for any other."""
    piece = a.pieces[region.start]
    if len(region.outcomes) != 1 or piece.terminator is None or piece.terminator.op != "br":
        return None
    blocks = piece.terminator.successors()
    if len(blocks) != 2 or not piece.terminator.uses:
        return None
    condition = a.definitions[piece.terminator.uses[0]]
    match = _COMPARISON.search(condition.text)
    if match is None or condition.op != "icmp" or len(piece.successors) != 2:
        return None
    predicate, kind, left, right = match.groups()
    base = _item(a, region, left)
    if base is not None and _known(a, region, right):
        bound = right
    else:
        base = _item(a, region, right)
        if base is None or not _known(a, region, left):
            return None
        predicate, bound = _SWAPPED.get(predicate, ""), left
    if base and predicate.startswith("u"):  # what is left of an unsigned bound has one bit more
        return None
    for taken in (0, 1):  # the other way must do nothing that could be noticed
        wanted = predicate if taken == 0 else _NEGATED.get(predicate, "")
        if wanted in _SWAPPED and _idle(a, region, piece.successors[1 - taken]):
            return Bound(wanted, kind, bound, base, blocks[taken])
    return None


def lines(b: Bound, bound: str, base: str, tag: str) -> list[str]:
    """IR that computes `%hcq.lo.<tag>` and `%hcq.hi.<tag>`, the range of x in 0..%hcq.l0, given the names of both."""
    kind, negative = b.kind, "false"
    out = []
    if base:
        kind = "i64"
        for name, value in (("end", bound), ("base", base)):
            out.append(f"  %hcq.{name}.{tag} = sext i32 {value} to i64")
        out.append(f"  %hcq.rest.{tag} = sub nsw i64 %hcq.end.{tag}, %hcq.base.{tag}")
        bound = f"%hcq.rest.{tag}"
    out += [f"  %hcq.lx.{tag} = {'add i32 %hcq.l0, 0' if kind == 'i32' else 'zext i32 %hcq.l0 to i64'}"]
    if b.predicate.startswith("s"):
        out.append(f"  %hcq.neg.{tag} = icmp slt {kind} {bound}, 0")
        negative = f"%hcq.neg.{tag}"
    out += [
        f"  %hcq.in.{tag} = icmp ult {kind} {bound}, %hcq.lx.{tag}",
        f"  %hcq.at.{tag} = select i1 %hcq.in.{tag}, {kind} {bound}, {kind} %hcq.lx.{tag}",
        f"  %hcq.past.{tag} = add {kind} {bound}, 1",
        f"  %hcq.after.{tag} = select i1 %hcq.in.{tag}, {kind} %hcq.past.{tag}, {kind} %hcq.lx.{tag}",
    ]
    at, after = f"%hcq.at.{tag}", f"%hcq.after.{tag}"
    end = f"%hcq.lx.{tag}"
    lo, hi = {"lt": ("0", at), "le": ("0", after), "gt": (after, end), "ge": (at, end), "eq": (at, after)}[
        b.predicate[-2:]
    ]
    if lo == "0":  # below a negative bound there is no item, above it are all
        out.append(f"  %hcq.hiw.{tag} = select i1 {negative}, {kind} 0, {kind} {hi}")
        hi = f"%hcq.hiw.{tag}"
    elif b.predicate != "eq":
        out.append(f"  %hcq.low.{tag} = select i1 {negative}, {kind} 0, {kind} {lo}")
        lo = f"%hcq.low.{tag}"
    for name, value in (("lo", lo), ("hi", hi)):
        out.append(
            f"  %hcq.{name}.{tag} = {'add i32 ' + value + ', 0' if kind == 'i32' else f'trunc i64 {value} to i32'}"
        )
    return out


def _item(a: Analysis, region: Region, operand: str) -> str | None:
    """What stands beside local_id(0) in a sum: nothing where that is alone, widened or not; None for anything else."""
    if not operand.startswith("%hcq.v"):
        return None
    i = a.definitions[int(operand[6:])]
    if match := _SUM.search(i.text):
        for one, other in (match.groups(), match.groups()[::-1]):
            if _item(a, region, one) == "" and _known(a, region, other):
                return other
    if widened := _WIDENED.search(i.text):
        i = a.definitions[int(widened[1])]
    return "" if i.op == "call" and _ITEM.search(i.text) else None


def _known(a: Analysis, region: Region, operand: str) -> bool:
    """True if the bound can be had before the region's loop."""
    if not operand.startswith("%hcq.v"):
        return operand.startswith("%hcq.a") or operand.lstrip("-").isdigit()
    value = int(operand[6:])
    if value in a.recomputable:
        return value not in a.variation.values
    return value in a.shared and value in a.live[region.number] and value not in region.defined


def _idle(a: Analysis, region: Region, way: int) -> bool:
    """True if items that go this way, and all before the branch, do nothing and leave nothing behind."""
    skipped = {region.start} | (set[int]() if way in a.cuts else a.reached([way]))
    outcome = region.outcomes[0]
    defined: set[int] = set()
    for p in skipped:
        piece = a.pieces[p]
        instructions = piece.body if p == region.start else list(piece.instructions())
        if any(flow.effects(i) for i in instructions):
            return False
        if piece.terminator is not None and piece.terminator.op not in ("br", "switch", "ret"):
            return False
        defined.update(i.value for i in instructions)
        if outcome != END and any(s in a.cuts for s in piece.successors) and p != region.start:
            defined.update(i.value for i in a.pieces[a.starts[outcome]].phis)
    if way in a.cuts:
        defined.update(i.value for i in a.pieces[way].phis)
    return not any(a.stores(region, v, outcome) for v in defined & {*a.kept, *a.shared})
