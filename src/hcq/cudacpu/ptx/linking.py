"""Several modules of PTX to one: what one declares is what another defines, and each keeps its own beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hcq.cudacpu.ptx.errors import PtxError
from hcq.cudacpu.ptx.nodes import (
    Address,
    Function,
    Group,
    Instruction,
    Label,
    Module,
    Operand,
    Symbol,
    Variable,
    Vector,
)

_STRENGTH = {"extern": 0, "common": 1, "weak": 2, "visible": 3, "": 3}


def link(modules: Sequence[Module]) -> Module:
    """One module of all. Takes the modules' parts over: they are not to be used after.

    Raises PtxError where two define the same name, unless all but one do so weakly.
    """
    if len(modules) == 1:
        return modules[0]
    linked = Module(
        max(each.version for each in modules),
        max((each.target for each in modules), key=lambda names: int("".join(c for c in names[0] if c.isdigit()) or 0)),
        min(each.address_size for each in modules),
        modules[0].lines,
    )
    variables: dict[str, Variable] = {}
    functions: dict[str, Function] = {}
    taken: set[str] = {name for module in modules for name in _shared_names(module)}
    for module in modules:
        _keep_apart(module, taken)
        _renumber(module, len(linked.files))
        linked.files.update(module.files)
        linked.aliases.update(module.aliases)
        for variable in module.variables:
            variables[variable.name] = _variable(variables.get(variable.name), variable)
        for function in module.functions:
            functions[function.name] = _function(functions.get(function.name), function)
    linked.variables, linked.functions = list(variables.values()), list(functions.values())
    return linked


def _variable(before: Variable | None, now: Variable) -> Variable:
    if before is None:
        return now
    if before.space == now.space == "shared" and "extern" in (before.linkage, now.linkage):
        chosen = now if before.linkage == "extern" and now.count else before
        chosen.align = max(before.align, now.align)
        return chosen
    one, two = _STRENGTH[before.linkage], _STRENGTH[now.linkage]
    if one == two == 3:
        raise PtxError(f"the variable {now.name} is defined in two modules", now.line)
    if one == two == 1:
        return now if (now.count or 0) > (before.count or 0) else before
    return now if two > one else before


def _function(before: Function | None, now: Function) -> Function:
    if before is None or before.body is None:
        if before is not None and now.body is None and before.linkage != "extern":
            return before
        return now
    if now.body is None:
        return before
    if _STRENGTH[before.linkage] == _STRENGTH[now.linkage] == 3:
        raise PtxError(f"the function {now.name} is defined in two modules", now.line)
    return now if _STRENGTH[now.linkage] > _STRENGTH[before.linkage] else before


def _shared_names(module: Module) -> Iterator[str]:
    """Names that mean the same in all modules."""
    yield from (each.name for each in module.variables if each.linkage)
    yield from (each.name for each in module.functions if each.linkage or each.entry)


def _keep_apart(module: Module, taken: set[str]) -> None:
    """Give names of the module's own others where an earlier module, or all, have them."""
    shared = set(_shared_names(module))
    declared: list[Variable | Function] = [*module.variables, *module.functions]
    names: dict[str, str] = {}
    for each in declared:
        if each.name in shared or each.name in names:
            continue
        unique, count = each.name, 0
        while unique in taken:
            count += 1
            unique = f"{each.name}.{count}"
        taken.add(unique)
        if unique != each.name:
            names[each.name] = unique
    if not names:
        return
    module.aliases = {names.get(k, k): names.get(v, v) for k, v in module.aliases.items()}
    for each in declared:
        each.name = names.get(each.name, each.name)
    for variable in module.variables:
        for element in variable.elements:
            if element.symbol is not None:
                element.symbol.name = names.get(element.symbol.name, element.symbol.name)
    for function in module.functions:
        _rename(function, names)


def _rename(function: Function, names: dict[str, str]) -> None:
    own = {each.name for each in (*function.variables, *function.params, *function.returns)}
    own |= {each.name for each in function.body or () if isinstance(each, Label)}
    own |= set(function.tables) | set(function.prototypes)
    seen: set[int] = set()
    for each in function.body or ():
        if not isinstance(each, Instruction):
            continue
        for symbol in (s for operand in each.operands for s in _symbols(operand)):
            if symbol.name not in own and id(symbol) not in seen:
                seen.add(id(symbol))
                symbol.name = names.get(symbol.name, symbol.name)


def _symbols(operand: Operand) -> Iterator[Symbol]:
    if isinstance(operand, Symbol):
        yield operand
    elif isinstance(operand, Address):
        if isinstance(operand.base, Symbol):
            yield operand.base
        for each in operand.extra:
            yield from _symbols(each)
    elif isinstance(operand, Vector | Group):
        for each in operand.elements:
            yield from _symbols(each)


def _renumber(module: Module, first: int) -> None:
    """Give the module's source files numbers that no module before it has."""
    numbers = {number: first + n + 1 for n, number in enumerate(module.files)}
    module.files = {numbers[number]: name for number, name in module.files.items()}
    for function in module.functions:
        for each in function.body or ():
            if isinstance(each, Instruction) and each.source is not None:
                file, line, column = each.source
                each.source = numbers.get(file, 0), line, column
