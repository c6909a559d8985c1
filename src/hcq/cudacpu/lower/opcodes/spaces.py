"""Conversions between state spaces: cvta, isspacep, mapa, getctarank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.abi import Grid
from hcq.cudacpu.lower import layout
from hcq.cudacpu.lower.forms.contexts import load
from hcq.cudacpu.lower.opcodes.memory import type_of
from hcq.cudacpu.lower.pointers import space_of, wide
from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.lower.types import llvm
from hcq.cudacpu.ptx.nodes import Instruction, Operand, Register

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter


@translates("cvta")
def cvta(e: Emitter, i: Instruction) -> None:
    d, a = e.operands(i, 2)
    space, value = space_of(i), _value(e, a)
    start = base(e, space)
    if start:
        value = e.op(f"{'sub' if i.has('to') else 'add'} i64 {value}, {start}")
    _write(e, i, d, value)


@translates("isspacep")
def isspacep(e: Emitter, i: Instruction) -> None:
    d, a = e.operands(i, 2)
    space, value = space_of(i), wide(e, a)
    if space in ("shared", "local"):
        result = _within(e, value, space)
    elif space == "global":
        either = e.op(f"or i1 {_within(e, value, 'shared')}, {_within(e, value, 'local')}")
        result = e.op(f"xor i1 {either}, true")
    elif space == "const":
        result = "false"
        for variable in e.unit.module.variables:
            place = e.unit.place(variable.name) if variable.space == "const" else None
            if place is not None:
                start = e.op(f"ptrtoint ptr {place.pointer} to i64")
                offset = e.op(f"sub i64 {value}, {start}")
                result = e.op(f"or i1 {result}, {e.op(f'icmp ult i64 {offset}, {layout.bytes_of(variable)}')}")
    else:
        function = e.here().function
        if not function.entry:
            e.refuse(f"{i.name} is not run here outside of a kernel's own body")
        start = e.op(f"ptrtoint ptr {e.context.params(e)} to i64")
        _, size = layout.offsets(function.params)
        result = e.op(f"icmp ult i64 {e.op(f'sub i64 {value}, {start}')}, {size}")
    e.write(d, result, "pred")


@translates("mapa")
def mapa(e: Emitter, i: Instruction) -> None:
    """A block is its own cluster: the address stays."""
    d, a, _ = e.operands(i, 3)
    _write(e, i, d, _value(e, a))


@translates("getctarank")
def getctarank(e: Emitter, i: Instruction) -> None:
    e.write(e.operands(i, 2)[0], "0", "u32")


def base(e: Emitter, space: str) -> str:
    """The generic address where a space begins; empty where its addresses are generic ones."""
    if space == "shared":
        return e.op(f"ptrtoint ptr {e.context.shared(e)} to i64")
    return e.op(f"ptrtoint ptr {e.context.local(e)} to i64") if space == "local" else ""


def _within(e: Emitter, value: str, space: str) -> str:
    field = Grid.shared_bytes if space == "shared" else Grid.local_bytes
    size = e.op(f"zext i32 {load(e, 'i32', e.context.grid(e), field)} to i64")
    return e.op(f"icmp ult i64 {e.op(f'sub i64 {value}, {base(e, space)}')}, {size}")


def _value(e: Emitter, operand: Operand) -> str:
    return wide(e, operand) if isinstance(operand, Register) else e.read(operand, "b64")


def _write(e: Emitter, i: Instruction, d: Operand, value: str) -> None:
    type = type_of(e, i)
    e.write(d, e.convert(value, "i64", llvm(type), False), type)
