"""The control flow of a PTX body: its blocks, where they lead, and what comes after all ways from a block."""

from __future__ import annotations

from dataclasses import dataclass, field

from hcq.cudacpu.ptx.nodes import Function, Instruction, Label, Symbol

EXIT = -1


@dataclass(slots=True)
class Block:
    """Instructions that run one after the other; `next` are the blocks that may follow, EXIT among them."""

    number: int
    body: list[Instruction] = field(default_factory=list)
    next: set[int] = field(default_factory=set)


def blocks_of(function: Function) -> list[Block]:
    """The blocks, in the order of the text."""
    found = [Block(0)]
    labels: dict[str, int] = {}
    for each in function.body or []:
        last = found[-1]
        if isinstance(each, Label):
            if last.body or any(number == last.number for number in labels.values()):
                last = Block(len(found))
                found.append(last)
            labels[each.name] = last.number
            continue
        last.body.append(each)
        if each.opcode in ("bra", "brx", "ret", "exit", "trap"):
            found.append(Block(len(found)))
    for block in found:
        _lead(function, block, labels, len(found))
    return found


def _lead(function: Function, block: Block, labels: dict[str, int], count: int) -> None:
    end = block.body[-1] if block.body else None
    after = block.number + 1 if block.number + 1 < count else EXIT
    if end is None or end.opcode not in ("bra", "brx", "ret", "exit", "trap"):
        block.next = {after}
        return
    if end.opcode == "bra":
        target = end.operands[0] if end.operands else None
        block.next = {labels.get(target.name, EXIT)} if isinstance(target, Symbol) else {EXIT}
    elif end.opcode == "brx":
        table = end.operands[1] if len(end.operands) > 1 else None
        targets = function.tables.get(table.name, []) if isinstance(table, Symbol) else []
        block.next = {labels.get(each.name, EXIT) for each in targets}
    else:
        block.next = {EXIT}
    if end.guard is not None:
        block.next.add(after)


def reaching(blocks: list[Block], wanted: set[int]) -> set[int]:
    """The blocks from which one of `wanted` is reached, these included."""
    found = set(wanted)
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            if block.number not in found and block.next & found:
                found.add(block.number)
                changed = True
    return found


def influenced(blocks: list[Block], branch: int, among: set[int], after: dict[int, int]) -> set[int]:
    """Blocks that only some of those who are at `branch` may run, or run another number of times."""
    end = after[branch]
    found: set[int] = set()
    todo = [n for n in blocks[branch].next if n in among and n != end]
    while todo:
        number = todo.pop()
        if number in found:
            continue
        found.add(number)
        todo += [n for n in blocks[number].next if n in among and n != end]
    return found


def joins(blocks: list[Block], among: set[int]) -> dict[int, int]:
    """For each of the blocks the first one that all ways from it come to, EXIT where there is none.

    Only ways inside `among` count, but where none of them ends: out of a last loop its way out is one.
    """
    every = (1 << (len(blocks) + 1)) - 1
    exit_bit = 1 << len(blocks)
    nexts = {n: [m for m in blocks[n].next if m in among] for n in among}
    ends = {n for n in among if not nexts[n]}
    while len(ending := reaching([blocks[n] for n in sorted(among)], ends)) < len(among):
        more = {n for n in among - ending if blocks[n].next - among}
        if not more:
            break
        ends |= {max(more)}
    later = dict.fromkeys(among, every)
    changed = True
    while changed:
        changed = False
        for n in sorted(among, reverse=True):
            meet = every
            for m in nexts[n]:
                meet &= later[m]
            if n in ends:
                meet &= exit_bit
            new = meet | 1 << n
            if new != later[n]:
                later[n] = new
                changed = True
    found: dict[int, int] = {}
    for n in among:
        candidates = [m for m in among if m != n and later[n] >> m & 1]
        # The nearest of them is the one that all the others come after too.
        nearest = [m for m in candidates if all(later[m] >> k & 1 for k in candidates)]
        found[n] = nearest[0] if nearest else EXIT
    return found
