"""Calls: of device functions, by name and by address, and of what the device's runtime has (vprintf, malloc ...).

A result or parameter is passed as a pointer to its bytes. A function that suspends, ends the thread or has shared
memory is written into its caller instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.lower.forms.frames import Frame, Place
from hcq.cudacpu.lower.pointers import wide
from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.lower.types import llvm
from hcq.cudacpu.ptx.nodes import Function, Group, Instruction, Operand, Register, Sink, Symbol, Variable

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter


@translates("call")
def call(e: Emitter, i: Instruction) -> None:
    operands = list(i.operands)
    results: tuple[Operand, ...] = ()
    if operands and isinstance(operands[0], Group):
        results = operands.pop(0).elements  # type: ignore[union-attr]
    if not operands:
        e.wrong("call names no function")
    callee = operands.pop(0)
    arguments: tuple[Operand, ...] = ()
    if operands and isinstance(operands[0], Group):
        arguments = operands.pop(0).elements  # type: ignore[union-attr]
    if isinstance(callee, Register):
        _by_address(e, callee, results, arguments, operands)
    elif isinstance(callee, Symbol):
        _by_name(e, callee.name, results, arguments)
    else:
        e.wrong("call takes a function or a register")


def _by_name(e: Emitter, name: str, results: tuple[Operand, ...], arguments: tuple[Operand, ...]) -> None:
    function = e.unit.function(name)
    if function is None:
        e.wrong(f"the function {name} is not declared")
    for what, given, wanted in (("result", results, function.returns), ("parameter", arguments, function.params)):
        if len(given) != len(wanted):
            e.wrong(f"{name} has {len(wanted)} {what}s, the call {len(given)}")
    if function.body is None:
        known = _RUNTIME.get(name)
        if known is None:
            e.refuse(f"{name} is called, and no module defines it")
        write, count = known
        if len(arguments) != count:
            e.wrong(f"{name} has {count} parameters, the call {len(arguments)}")
        write(e, results, arguments)
        return
    pointers = _pointers(e, results, arguments, function.returns, function.params)
    if e.unit.facts[function.name].inline:
        _write_in(e, function, pointers)
    else:
        symbol = e.unit.address_of_function(name)
        e.do(f"call void {symbol}({_list(e, pointers)})")
    _take(e, results, pointers, function.returns)


def _by_address(
    e: Emitter, callee: Register, results: tuple[Operand, ...], arguments: tuple[Operand, ...], rest: list[Operand]
) -> None:
    prototype = e.here().prototype(rest[0].name) if rest and isinstance(rest[0], Symbol) else None
    returns = prototype.returns if prototype else [_unknown(each) for each in results]
    params = prototype.params if prototype else [_unknown(each) for each in arguments]
    if len(returns) != len(results) or len(params) != len(arguments):
        e.wrong("the call doesn't have its prototype's results and parameters")
    pointers = _pointers(e, results, arguments, returns, params)
    target = e.op(f"getelementptr i8, ptr null, i64 {wide(e, callee)}")
    e.do(f"call void {target}({_list(e, pointers)})")
    _take(e, results, pointers, returns)


def _unknown(operand: Operand) -> Variable:
    type = operand.type if isinstance(operand, Register) else "b64"
    return Variable("_", "reg" if isinstance(operand, Register) else "param", type, 0)


def _pointers(
    e: Emitter,
    results: tuple[Operand, ...],
    arguments: tuple[Operand, ...],
    returns: list[Variable],
    params: list[Variable],
) -> list[str]:
    found = [_pointer(e, each, variable, False) for each, variable in zip(results, returns, strict=True)]
    return found + [_pointer(e, each, variable, True) for each, variable in zip(arguments, params, strict=True)]


def _pointer(e: Emitter, operand: Operand, variable: Variable, given: bool) -> str:
    if isinstance(operand, Symbol):
        place = e.here().place(operand)
        if place is not None and place.space == "param" and place.pointer:
            return place.pointer
    slot = e.here().room(variable)
    if given:
        e.do(f"store {llvm(variable.type)} {e.read(operand, variable.type)}, ptr {slot}")
    return slot


def _take(e: Emitter, results: tuple[Operand, ...], pointers: list[str], returns: list[Variable]) -> None:
    for operand, pointer, variable in zip(results, pointers, returns, strict=False):
        if isinstance(operand, Register):
            e.write(operand, e.op(f"load {llvm(variable.type)}, ptr {pointer}"), variable.type)


def _list(e: Emitter, pointers: list[str]) -> str:
    return ", ".join(f"ptr {each}" for each in (e.context.thread(e), *pointers))


def _write_in(e: Emitter, function: Function, pointers: list[str]) -> None:
    facts = e.unit.facts[function.name]
    if facts.recursive:
        e.refuse(
            f"{function.name} calls itself and has a barrier, an operation of a warp, an exit or shared memory: it"
            " would have to be written into its callers"
        )
    memory, outer, line = e.memory, e.here(), e.line
    assert memory is not None
    returning = e.label("returned")
    frame = Frame(e, function, facts, e.unit.types(function), f"{e.number()}.", returning)
    e.frame = frame
    memory.place(frame)
    for n, each in enumerate((*function.returns, *function.params)):
        if each.space == "param":
            frame.places[each.name] = Place("param", pointers[n])
        elif n >= len(function.returns):
            frame.copy_in(each.name, pointers[n])
    e.body(function.body or [])
    e.place(returning)
    for n, each in enumerate(function.returns):
        if each.space == "reg":
            frame.copy_out(each.name, pointers[n])
    e.frame, e.line = outer, line


# -- what the device's runtime has --------------------------------------------------------------------------------


def _value(e: Emitter, operand: Operand, type: str) -> str:
    """A parameter's value."""
    if isinstance(operand, Symbol):
        place = e.here().place(operand)
        if place is not None and place.pointer:
            return e.op(f"load {type}, ptr {place.pointer}")
    return e.read(operand, "b32" if type == "i32" else "b64")


def _as_pointer(e: Emitter, operand: Operand) -> str:
    return e.op(f"getelementptr i8, ptr null, i64 {_value(e, operand, 'i64')}")


def _give(e: Emitter, results: tuple[Operand, ...], value: str, type: str) -> None:
    for operand in results[:1]:
        place = e.here().place(operand) if isinstance(operand, Symbol) else None
        if place is not None and place.pointer:
            e.do(f"store {type} {value}, ptr {place.pointer}")
        elif not isinstance(operand, Sink):
            e.write(operand, value, "b32" if type == "i32" else "b64")


def _vprintf(e: Emitter, results: tuple[Operand, ...], arguments: tuple[Operand, ...]) -> None:
    text, values = (_as_pointer(e, each) for each in arguments)
    done = e.intrinsic("hcq_cuda_printf", "i32", ("ptr", e.context.block(e)), ("ptr", text), ("ptr", values))
    _give(e, results, done, "i32")


def _malloc(e: Emitter, results: tuple[Operand, ...], arguments: tuple[Operand, ...]) -> None:
    at = e.intrinsic("hcq_cuda_malloc", "ptr", ("i64", _value(e, arguments[0], "i64")))
    _give(e, results, e.op(f"ptrtoint ptr {at} to i64"), "i64")


def _free(e: Emitter, results: tuple[Operand, ...], arguments: tuple[Operand, ...]) -> None:
    e.intrinsic("hcq_cuda_free", "void", ("ptr", _as_pointer(e, arguments[0])))


def _assertfail(e: Emitter, results: tuple[Operand, ...], arguments: tuple[Operand, ...]) -> None:
    message, file, function = (_as_pointer(e, arguments[n]) for n in (0, 1, 3))
    line = _value(e, arguments[2], "i32")
    e.intrinsic(
        "hcq_cuda_assert", "void", ("ptr", e.context.block(e)), ("i32", e.context.linear(e)), ("ptr", message),
        ("ptr", file), ("i32", line), ("ptr", function),
    )  # fmt: skip
    e.end("unreachable")


# With how many parameters each has.
_RUNTIME = {"vprintf": (_vprintf, 2), "malloc": (_malloc, 1), "free": (_free, 1), "__assertfail": (_assertfail, 5)}
