"""Makes threads that a branch parts come to operations of a warp together.

`if (warp == 0) { ... shuffle ... }`: the branch becomes a predicate, all go through what it passed over, and only
those that would not have branched do it. The operations stand alone, with the predicate as guard: who takes part.
"""

from __future__ import annotations

from dataclasses import replace

from hcq.cudacpu.lower.forms.analysis import is_whole_barrier, is_whole_vote, registers_in
from hcq.cudacpu.lower.forms.uniform import LANES, Meetings, meetings, meets
from hcq.cudacpu.ptx.nodes import Function, Immediate, Instruction, Label, Not, Operand, Register, Symbol

_MOST = 32  # branches that are rewritten, at most
_REGIONS = 200  # meetings, at most: each is a region that LLVM has to work on, 50 of them some seconds

Statement = Instruction | Label


def gathered(function: Function) -> Function | None:
    """The kernel, rewritten so that all that are left come to each meeting; None where that can't be."""
    if sum(isinstance(each, Instruction) and meets(each) for each in function.body or ()) > _REGIONS:
        return None
    for count in range(_MOST):
        found = meetings(function)
        if found is None:
            return None
        if not found.parted:
            return function
        rewritten = _without_innermost(function, found, count)
        if rewritten is None:
            return None
        function = rewritten
    return None


def _without_innermost(function: Function, found: Meetings, count: int) -> Function | None:
    """Rewrite the innermost branch that passes over the first operation that not all come to."""
    body = function.body or []
    place = next(n for n, each in enumerate(body) if any(each is other for other in found.parted))
    labels = {each.name: n for n, each in enumerate(body) if isinstance(each, Label)}
    for n in range(place - 1, -1, -1):
        each = body[n]
        if not isinstance(each, Instruction) or each.opcode != "bra" or each.guard is None:
            continue
        target = _target(each)
        end = labels.get(target, -1)
        if end > place and set(registers_in(each.guard)) & found.varying:
            return _predicated(function, n, end, target, count)
    return None


def _predicated(function: Function, start: int, end: int, label: str, count: int) -> Function | None:
    body = function.body or []
    region = body[start + 1 : end]
    inside = {each.name for each in region if isinstance(each, Label)}
    tables = {symbol.name for table in function.tables.values() for symbol in table}
    if inside & (tables | {_target(each) for each in (*body[:start], *body[end:]) if isinstance(each, Instruction)}):
        return None
    active = Register(f"%active.{count}", "pred")
    line = body[start].line
    guard = body[start].guard  # type: ignore[union-attr]
    assert guard is not None
    first = Instruction(line, "not", ("pred",), (active, guard))
    if isinstance(guard, Not):
        first = Instruction(line, "mov", ("pred",), (active, guard.operand))
    made: list[Statement] = [first]
    registers = {**function.registers, active.name: "pred"}
    run: list[Statement] = []
    for number, each in enumerate([*region, None]):
        if each is not None and not (isinstance(each, Instruction) and meets(each)):
            run.append(each)
            continue
        part = _run(run, active, label, f"skipped.{count}.{number}")
        if part is None:
            return None
        made += part
        run = []
        if isinstance(each, Instruction):
            if is_whole_barrier(each) or is_whole_vote(each) or (each.opcode not in LANES and each.guard is not None):
                return None
            if each.opcode not in LANES and each.opcode not in ("bar", "barrier"):
                return None
            made += _meeting(each, active, registers, f"%active.{count}.{number}")
    return replace(function, body=[*body[:start], *made, *body[end:]], registers=registers)


def _run(run: list[Statement], active: Register, label: str, skipped: str) -> list[Statement] | None:
    """Statements that only those do who are active. Who goes to the region's end is so no more."""
    if not run:
        return []
    own = {each.name for each in run if isinstance(each, Label)}
    made: list[Statement] = [_branch(run[0].line, skipped, Not(active))]
    for each in run:
        if isinstance(each, Instruction) and each.opcode in ("ret", "exit", "brx"):
            return None
        target = _target(each) if isinstance(each, Instruction) else ""
        if not target or target in own:
            made.append(each)
        elif target == label and isinstance(each, Instruction):
            made.append(Instruction(each.line, "mov", ("pred",), (active, Immediate(0)), each.guard))
            made.append(_branch(each.line, skipped, each.guard))
        else:
            return None
    return [*made, Label(skipped, run[-1].line)]


def _meeting(each: Instruction, active: Register, registers: dict[str, str], name: str) -> list[Statement]:
    if each.opcode not in LANES:  # a barrier of the warp: all go through it
        return [each]
    if each.guard is None:
        return [replace(each, guard=active)]
    both = Register(name, "pred")
    registers[name] = "pred"
    return [
        Instruction(each.line, "and", ("pred",), (both, active, each.guard)),
        replace(each, guard=both),
    ]


def _branch(line: int, label: str, guard: Register | Not | None) -> Instruction:
    return Instruction(line, "bra", (), (Symbol(label),), guard)


def _target(instruction: Instruction) -> str:
    """The label that a branch goes to."""
    operand: Operand | None = instruction.operands[0] if instruction.opcode == "bra" and instruction.operands else None
    return operand.name if isinstance(operand, Symbol) else ""
