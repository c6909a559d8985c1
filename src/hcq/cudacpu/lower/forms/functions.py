"""Kernels and device functions as functions of LLVM IR, in the forms that abi.hpp names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.lower import accesses, layout
from hcq.cudacpu.lower.emitter import Emitter
from hcq.cudacpu.lower.forms.contexts import Context, LoopContext, ThreadContext
from hcq.cudacpu.lower.forms.entries import LEAVING, coroutine, loop
from hcq.cudacpu.lower.forms.frames import Frame, Place
from hcq.cudacpu.lower.forms.kernel_memory import KernelMemory
from hcq.cudacpu.lower.forms.regions import RegionContext, region
from hcq.cudacpu.ptx.nodes import Function

if TYPE_CHECKING:
    from hcq.cudacpu.lower.module import Kernel, Unit


def kernel(unit: Unit, function: Function) -> tuple[str, Kernel]:
    """The text of an entry and what is told of it."""
    from hcq.cudacpu.lower.module import Kernel, symbol

    facts = unit.facts[function.name]
    kind = unit.kind(function)
    contexts = {"threads": ThreadContext, "loop": LoopContext, "regions": RegionContext}
    context = contexts[kind](LEAVING)
    e = Emitter(unit, context)
    memory = KernelMemory(unit, function)
    e.memory = memory
    frame = Frame(e, function, facts, unit.types(function), "", LEAVING)
    e.frame = frame
    places, param_bytes = layout.offsets(function.params)
    layout.check_space(function.name, "param", param_bytes, function.line)
    for name, offset in places.items():
        frame.places[name] = Place("param", "%params", offset)
    memory.place(frame)
    name = symbol(function.name)
    if kind == "threads":
        text = coroutine(e, name, function)
    elif kind == "regions":
        text = region(e, name, function)
    else:
        text = loop(e, name, function, param_bytes)
    params = tuple((places[p.name], layout.bytes_of(p), layout.alignment(p)) for p in function.params)
    directives = function.directives
    made = Kernel(
        function.name, name[1:].strip('"'), kind, params, param_bytes,
        memory.shared, layout.up(memory.local, 16), directives.get("maxntid", ()), directives.get("reqntid", ()),
        directives.get("minnctapersm", (0,))[0], function.line, min(255, 16 + len(function.registers) // 4),
        accesses.of(function, frame),
    )  # fmt: skip
    return text, made


def device_function(unit: Unit, function: Function) -> str:
    """The text of a function that is called: `void f(Thread*, ...)` with a pointer to each result and parameter."""
    from hcq.cudacpu.lower.module import symbol

    facts = unit.facts[function.name]
    e = Emitter(unit, Context())
    frame = Frame(e, function, facts, unit.types(function), "", "returning")
    e.frame = frame
    arguments = ["ptr %thread"]
    for n, each in enumerate((*function.returns, *function.params)):
        arguments.append(f"ptr %arg{n}")
        if each.space == "param":
            frame.places[each.name] = Place("param", f"%arg{n}")
        elif n >= len(function.returns):
            frame.copy_in(each.name, f"%arg{n}")
    place_locals(e, frame)
    e.body(function.body or [])
    e.place("returning")
    for n, each in enumerate(function.returns):
        if each.space == "reg":
            frame.copy_out(each.name, f"%arg{n}")
    e.end("ret void")
    kind = "noinline" if facts.recursive else ("alwaysinline" if len(function.body or []) < 400 else "")
    head = f"define internal void {symbol(function.name)}({', '.join(arguments)}) {kind} #0 {{"
    return f"{head}\n{e.text()}\n}}"


def place_locals(e: Emitter, frame: Frame) -> None:
    """Local variables and parameters of calls on the host's stack: this function may call itself."""
    for each in frame.function.variables:
        if each.space in ("local", "param"):
            frame.places[each.name] = Place(each.space, frame.room(each))
