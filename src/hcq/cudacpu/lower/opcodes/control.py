"""bra, brx.idx, ret, exit, trap, brkpt. Calls are in calls.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.abi import Result
from hcq.cudacpu.lower.emitter import quoted
from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.ptx.nodes import Instruction, Symbol

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter


@translates("bra")
def bra(e: Emitter, i: Instruction) -> None:
    (target,) = e.operands(i, 1)
    label = _label(e, target)
    after = e.label("next")
    if i.guard is not None:
        yes = e.label("taken") if i.line in e.here().yields else label
        e.choose(e.read(i.guard, "pred"), yes, after)
        if yes != label:
            e.place(yes)
    if i.line in e.here().yields:
        e.yield_thread()
    if i.guard is None or i.line in e.here().yields:
        e.branch(label)
    if i.guard is not None:
        e.place(after)


@translates("brx")
def brx(e: Emitter, i: Instruction) -> None:
    index, table = e.operands(i, 2)
    targets = e.here().function.tables.get(table.name) if isinstance(table, Symbol) else None
    if not targets:
        e.wrong("brx.idx wants the label of a .branchtargets")
    nowhere = e.label("nowhere")
    cases = " ".join(f"i32 {n}, label %{quoted(_label(e, each))}" for n, each in enumerate(targets))
    e.end(f"switch i32 {e.read(index, 'u32')}, label %{quoted(nowhere)} [{cases}]")
    e.place(nowhere)
    e.end("unreachable")


@translates("ret")
def ret(e: Emitter, i: Instruction) -> None:
    e.operands(i, 0)
    e.branch(e.here().returns)


@translates("exit")
def leave(e: Emitter, i: Instruction) -> None:
    e.operands(i, 0)
    e.context.leave(e)


@translates("trap")
def trap(e: Emitter, i: Instruction) -> None:
    e.operands(i, 0)
    e.fail(Result.launch_failed)


@translates("brkpt", "pmevent", "setmaxnreg")
def nothing(e: Emitter, i: Instruction) -> None:
    """For debuggers and profilers of the device, of which there are none, and for the registers of its processors."""


def _label(e: Emitter, target: object) -> str:
    frame = e.here()
    if not isinstance(target, Symbol) or target.name not in frame.labels:
        e.wrong(f"{getattr(target, 'name', 'the target')} is no label of this function")
    return frame.label(target.name)
