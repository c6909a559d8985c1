"""alloca, stacksave, stackrestore: local memory that a function takes while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.lower.opcodes.memory import type_of
from hcq.cudacpu.lower.pointers import wide
from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.lower.types import llvm
from hcq.cudacpu.ptx.nodes import Immediate, Instruction, Register

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter


@translates("alloca")
def alloca(e: Emitter, i: Instruction) -> None:
    d, size, *align = e.operands(i, 2, 3)
    if e.context.suspends:
        e.refuse("alloca in a kernel with barriers or operations of a warp is not run here")
    if align and not isinstance(align[0], Immediate):
        e.wrong("alloca takes its alignment as a constant")
    count = wide(e, size) if isinstance(size, Register) else e.read(size, "b64")
    at_least = int(align[0].value) if align and isinstance(align[0], Immediate) else 8
    room = e.op(f"alloca i8, i64 {count}, align {at_least}")
    value = e.op(f"sub i64 {e.op(f'ptrtoint ptr {room} to i64')}, {_local(e)}")
    _write(e, i, d, value)


@translates("stacksave")
def stacksave(e: Emitter, i: Instruction) -> None:
    (d,) = e.operands(i, 1)
    saved = e.intrinsic("llvm.stacksave.p0", "ptr")
    _write(e, i, d, e.op(f"ptrtoint ptr {saved} to i64"))


@translates("stackrestore")
def stackrestore(e: Emitter, i: Instruction) -> None:
    (a,) = e.operands(i, 1)
    e.intrinsic("llvm.stackrestore.p0", "void", ("ptr", e.op(f"inttoptr i64 {wide(e, a)} to ptr")))


def _local(e: Emitter) -> str:
    return e.op(f"ptrtoint ptr {e.context.local(e)} to i64")


def _write(e: Emitter, i: Instruction, d: object, value: str) -> None:
    type = type_of(e, i)
    e.write(d, e.convert(value, "i64", llvm(type), False), type)  # type: ignore[arg-type]
