"""What is to be known of functions before they are written: types of registers, and who calls whom, suspends, ends the
thread, touches shared memory, or waits in a loop for what other threads do.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hcq.cudacpu.lower.types import is_type
from hcq.cudacpu.ptx.nodes import (
    Address,
    Function,
    Group,
    Immediate,
    Instruction,
    Label,
    Module,
    Not,
    Operand,
    Pair,
    Register,
    Symbol,
    Vector,
)

SUSPENDING = {
    "bar", "barrier", "shfl", "vote", "match", "redux", "activemask", "elect", "nanosleep", "mma", "wmma", "ldmatrix",
    "stmatrix", "movmatrix", "mbarrier",
}  # fmt: skip
_NEUTRAL = {"mov", "ld", "st", "ldu", "selp", "shfl", "cvt", "setp", "set", "slct", "atom", "red"}
_CALLS = {"call", "tailcall"}


@dataclass(slots=True)
class Facts:
    """Of one function. `inline`: it has to be written into its callers."""

    calls: set[str] = field(default_factory=set)
    symbols: set[str] = field(default_factory=set)
    suspends: bool = False
    whole: bool = True  # it suspends only at barriers of the whole block
    exits: bool = False
    loops: bool = False  # it goes back somewhere
    shared: bool = False
    recursive: bool = False
    looks: bool = False  # for what another thread did
    yields: set[int] = field(default_factory=set)  # lines of branches back in loops that wait for others
    inline: bool = False


def facts_of(module: Module) -> dict[str, Facts]:
    """Of all functions with bodies, what they reach included in `suspends` and `inline`."""
    shared = {v.name for v in module.variables if v.space == "shared"}
    facts = {f.name: _own(f, shared) for f in module.functions if f.body is not None}
    aliases = module.aliases
    for each in facts.values():
        each.calls = {aliases.get(name, name) for name in each.calls}
    _spread_waits(module, facts)
    for name, each in facts.items():
        each.recursive = name in _reached(facts, name)
    for name, each in facts.items():
        reached = [facts[other] for other in _reached(facts, name) if other in facts]
        each.inline = any(f.suspends or f.exits or f.shared for f in (each, *reached))
    for name, each in facts.items():
        each.whole = each.whole and all(facts[other].whole for other in _reached(facts, name) if other in facts)
    for name, each in list(facts.items()):
        each.suspends = each.suspends or any(facts[other].suspends for other in _reached(facts, name) if other in facts)
    return facts


def register_types(function: Function) -> dict[str, str]:
    """Registers of 32 and 64 bits that mostly hold floating-point numbers, with LLVM's type for them.

    Compilers declare them .b32 as others, and a slot of the wrong type costs bitcasts where loops carry it.
    """
    votes: Counter[str] = Counter()
    for each in function.body or []:
        if not isinstance(each, Instruction) or each.opcode in _NEUTRAL:
            continue
        types = [m for m in each.modifiers if is_type(m)]
        if not types:
            continue
        weight = 1 if types[-1] in ("f32", "f64") and types[0] == types[-1] else -1
        for operand in each.operands:
            if isinstance(operand, Register):
                votes[operand.name] += weight
    found: dict[str, str] = {}
    for name, type in function.registers.items():
        if votes[name] > 0 and type[1:] in ("32", "64"):
            found[name] = "float" if type[1:] == "32" else "double"
    return found


def registers_in(operand: Operand) -> list[str]:
    """Names of the registers that an operand mentions."""
    if isinstance(operand, Register):
        return [operand.name]
    if isinstance(operand, Address):
        inner = [operand.base.name] if isinstance(operand.base, Register) else []
        return inner + [name for each in operand.extra for name in registers_in(each)]
    if isinstance(operand, Vector | Group):
        return [name for each in operand.elements for name in registers_in(each)]
    if isinstance(operand, Not):
        return registers_in(operand.operand)
    if isinstance(operand, Pair):
        return registers_in(operand.first) + registers_in(operand.second)
    return []


def _own(function: Function, shared: set[str]) -> Facts:
    facts = Facts()
    before: Instruction | None = None
    written = {name for each in function.body or [] if isinstance(each, Instruction) for name in destinations(each)}
    for each in function.body or []:
        if not isinstance(each, Instruction):
            continue
        facts.suspends |= each.opcode in SUSPENDING
        facts.whole &= each.opcode not in SUSPENDING or is_whole_barrier(each)
        # Compilers write an exit behind a trap, where nothing comes.
        facts.exits |= each.opcode == "exit" and not (before and before.opcode == "trap" and before.guard is None)
        facts.looks |= _looks(each, written)
        before = each
        if each.opcode in _CALLS:
            callee = next((o for o in each.operands if not isinstance(o, Group)), None)
            if isinstance(callee, Symbol):
                facts.calls.add(callee.name)
        for operand in each.operands:
            facts.symbols.update(_symbols(operand))
    facts.loops = _goes_back(function)
    facts.shared = bool(facts.symbols & shared) or any(v.space == "shared" for v in function.variables)
    facts.yields = _waits(function, set())
    facts.suspends |= bool(facts.yields)
    facts.whole &= not facts.yields
    return facts


def mentioned(function: Function) -> set[str]:
    """Names of variables, functions and labels in a function's body and tables."""
    bodies = (each for each in function.body or () if isinstance(each, Instruction))
    found = {name for each in bodies for operand in each.operands for name in _symbols(operand)}
    return found | {symbol.name for table in function.tables.values() for symbol in table}


def is_whole_barrier(i: Instruction) -> bool:
    """Whether it is the barrier 0 for all threads of a block, and no more than that."""
    if i.opcode not in ("bar", "barrier") or i.has("warp", "red", "arrive", "cluster") or len(i.operands) != 1:
        return False
    number = i.operands[0]
    return isinstance(number, Immediate) and number.value == 0


def is_whole_vote(i: Instruction) -> bool:
    """Whether it is the barrier 0 for all threads of a block, which counts predicates."""
    if i.opcode not in ("bar", "barrier") or not i.has("red") or i.has("cluster") or len(i.operands) != 3:
        return False
    number = i.operands[1]
    return isinstance(number, Immediate) and number.value == 0


def _spread_waits(module: Module, facts: dict[str, Facts]) -> None:
    """Find the loops that wait through functions which look."""
    looking = {name for name in facts if any(facts[x].looks for x in (name, *_reached(facts, name)) if x in facts)}
    for function in module.functions:
        if function.name in facts and facts[function.name].calls & looking:
            facts[function.name].yields |= _waits(function, looking)
            facts[function.name].suspends |= bool(facts[function.name].yields)
            facts[function.name].whole &= not facts[function.name].yields


def _goes_back(function: Function) -> bool:
    seen: set[str] = set()
    for each in function.body or []:
        if isinstance(each, Label):
            seen.add(each.name)
        elif isinstance(each, Instruction) and each.opcode == "bra" and each.operands:
            target = each.operands[0]
            if isinstance(target, Symbol) and target.name in seen:
                return True
    return False


def _symbols(operand: Operand) -> list[str]:
    if isinstance(operand, Symbol):
        return [operand.name]
    if isinstance(operand, Address) and isinstance(operand.base, Symbol):
        return [operand.base.name]
    if isinstance(operand, Vector | Group):
        return [name for each in operand.elements for name in _symbols(each)]
    return []


def _reached(facts: dict[str, Facts], name: str) -> set[str]:
    found: set[str] = set()
    todo = list(facts[name].calls)
    while todo:
        each = todo.pop()
        if each not in found:
            found.add(each)
            todo += list(facts[each].calls) if each in facts else []
    return found


def _waits(function: Function, looking: set[str]) -> set[int]:
    """Lines of the branches back of loops whose end depends on memory that another thread is to change.

    That is: a volatile or ordered load, or an atomic operation, whose answer reaches the condition of a branch in the
    loop. A compare-and-swap that is tried again with a value just read ends by itself, whatever others do.
    """
    body = function.body or []
    at = {each.name: n for n, each in enumerate(body) if isinstance(each, Label)}
    found: set[int] = set()
    for n, each in enumerate(body):
        target = each.operands[0] if isinstance(each, Instruction) and each.opcode == "bra" and each.operands else None
        if isinstance(each, Instruction) and isinstance(target, Symbol):
            start = at.get(target.name, n)
            if start < n and _waits_in([x for x in body[start : n + 1] if isinstance(x, Instruction)], looking):
                found.add(each.line)
    return found


def _waits_in(loop: list[Instruction], looking: set[str]) -> bool:
    if any(each.opcode in ("bar", "barrier") for each in loop):
        return False
    written = {name for each in loop for name in destinations(each)}
    tainted: set[str] = set()
    for each in loop:
        if _looks(each, written):
            tainted.update(destinations(each))
        elif each.opcode == "call" and looking.intersection(
            *[_symbols(o) for o in each.operands if not _is_group(o)][:1]
        ):
            tainted.update(name for o in each.operands[:1] for name in _results(o))
    if not tainted:
        return False
    for _ in range(2):
        for each in loop:
            if any(name in tainted for operand in each.operands[1:] for name in _read_in(operand)):
                tainted.update(destinations(each))
    guards = [each.guard for each in loop if each.opcode == "bra" and each.guard is not None]
    return any(name in tainted for guard in guards for name in registers_in(guard))


def _is_group(operand: Operand) -> bool:
    return isinstance(operand, Group)


def _results(operand: Operand) -> list[str]:
    """What a call sets: registers, and variables of space param."""
    return registers_in(operand) + _symbols(operand) if isinstance(operand, Group) else []


def _read_in(operand: Operand) -> list[str]:
    return registers_in(operand) + (_symbols(operand) if isinstance(operand, Address) else [])


def destinations(instruction: Instruction) -> list[str]:
    """Names of the registers that an instruction sets, taken to be those of its first operand."""
    if instruction.opcode in ("st", "red", "bra", "bar", "barrier") or not instruction.operands:
        return []
    first = instruction.operands[0]
    return [] if isinstance(first, Address) else registers_in(first)


def _looks(instruction: Instruction, written: set[str]) -> bool:
    """Whether an instruction may be there to see what another thread did."""
    if instruction.opcode == "ld":
        return instruction.has("volatile", "relaxed", "acquire", "mmio", "cv")
    if instruction.opcode == "atom" and len(instruction.operands) > 2:
        if instruction.has("cas"):
            expected = instruction.operands[2]
            return not any(name in written for name in registers_in(expected))
        if instruction.has("exch"):
            return True
        return isinstance(instruction.operands[2], Immediate) and instruction.operands[2].value == 0
    return False
