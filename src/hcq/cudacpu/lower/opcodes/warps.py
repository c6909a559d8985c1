"""Operations of a warp: shfl, vote, match, redux, activemask, elect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.abi import Op, Thread
from hcq.cudacpu.lower.opcodes.memory import type_of
from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.lower.types import llvm, width
from hcq.cudacpu.ptx.nodes import Instruction, Operand, Pair

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter

_MODES = {"up": 0, "down": 1, "bfly": 2, "idx": 3}
_VOTES = {"all": 0, "any": 1, "uni": 2, "ballot": 3}
_REDUX = {
    ("add", ""): 0, ("min", "s32"): 1, ("max", "s32"): 2, ("min", "u32"): 3, ("max", "u32"): 4, ("and", ""): 5,
    ("or", ""): 6, ("xor", ""): 7,
}  # fmt: skip
_ALL = "-1"  # the members of what has no .sync: whoever is there


@translates("shfl")
def shfl(e: Emitter, i: Instruction) -> None:
    d, a, b, c, *mask = e.operands(i, 4, 5)
    mode = _named(e, i, _MODES)
    if e.lanes is not None:
        found, within = e.lanes.shuffle(e.read(a, "b32"), b, c, mode)
        _write(e, d, found, "b32", within)
        return
    value = e.op(f"zext i32 {e.read(a, 'b32')} to i64")
    lane = e.op(f"zext i32 {e.read(b, 'b32')} to i64")
    clamp = e.op(f"zext i32 {e.read(c, 'b32')} to i64")
    e.suspend(Op.shuffle, *_operands(value, lane, clamp, str(mode)), mask=_mask(e, mask))
    _write(e, d, e.op(f"trunc i64 {e.answer()} to i32"), "b32")


@translates("vote")
def vote(e: Emitter, i: Instruction) -> None:
    d, a, *mask = e.operands(i, 2, 3)
    mode = _named(e, i, _VOTES)
    if e.lanes is not None:
        members, yes = e.lanes.vote(e.read(a, "pred"), _mask(e, mask))
        if mode == _VOTES["ballot"]:
            e.write(d, yes, "b32")
            return
        all_, none = e.op(f"icmp eq i32 {yes}, {members}"), e.op(f"icmp eq i32 {yes}, 0")
        either = e.op(f"or i1 {all_}, {none}")
        e.write(d, (all_, e.op(f"xor i1 {none}, true"), either)[mode], "pred")
        return
    value = e.op(f"zext i1 {e.read(a, 'pred')} to i64")
    e.suspend(Op.vote, *_operands(value, str(mode)), mask=_mask(e, mask))
    if mode == _VOTES["ballot"]:
        e.write(d, e.op(f"trunc i64 {e.answer()} to i32"), "b32")
    else:
        e.write(d, e.op(f"icmp ne i64 {e.answer()}, 0"), "pred")


@translates("match")
def match(e: Emitter, i: Instruction) -> None:
    d, a, mask = e.operands(i, 3)
    type = type_of(e, i)
    value = e.read(a, f"b{width(type)}")
    if e.lanes is not None:
        members, same = e.lanes.same(llvm(f"b{width(type)}"), value, e.read(mask, "b32"))
        if i.has("all"):
            every = e.op(f"icmp eq i32 {same}, {members}")
            _write(e, d, e.op(f"select i1 {every}, i32 {same}, i32 0"), "b32", every)
        else:
            _write(e, d, same, "b32")
        return
    if width(type) == 32:
        value = e.op(f"zext i32 {value} to i64")
    e.suspend(Op.match, *_operands(value, "1" if i.has("all") else "0"), mask=e.read(mask, "b32"))
    _write(e, d, e.op(f"trunc i64 {e.answer()} to i32"), "b32")


@translates("redux", types=("s32", "u32", "b32"))
def redux(e: Emitter, i: Instruction) -> None:
    d, a, mask = e.operands(i, 3)
    type = type_of(e, i)
    kind = next((n for (name, of), n in _REDUX.items() if i.has(name) and of in ("", type)), None)
    if kind is None:
        e.wrong(f"{i.name} names no reduction of {type}")
    e.write(d, _reduced(e, kind, e.read(a, type), e.read(mask, "b32")), type)


def _reduced(e: Emitter, kind: int, value: str, mask: str) -> str:
    if e.lanes is not None:
        return e.lanes.reduce(kind, value, mask)
    wide = e.op(f"zext i32 {value} to i64")
    e.suspend(Op.redux, *_operands(wide, str(kind)), mask=mask)
    return e.op(f"trunc i64 {e.answer()} to i32")


@translates("redux", types=("f32",))
def redux_f32(e: Emitter, i: Instruction) -> None:
    """Of integers that are ordered as the numbers are; NaNs go to an end, where the other numbers or they win."""
    d, a, mask = e.operands(i, 3)
    least = i.has("min")
    bits = e.read(a, "b32")
    if i.has("abs"):
        bits = e.op(f"and i32 {bits}, 2147483647")
    nan = e.op(f"icmp ugt i32 {e.op(f'and i32 {bits}, 2147483647')}, 2139095040")
    key = _ordered(e, bits)
    end = -(1 << 31) if least == i.has("NaN") else (1 << 31) - 1
    key = e.op(f"select i1 {nan}, i32 {end}, i32 {key}")
    result = _reduced(e, _REDUX["min" if least else "max", "s32"], key, e.read(mask, "b32"))
    none = e.op(f"icmp eq i32 {result}, {end}")
    e.write(d, e.op(f"select i1 {none}, i32 2147483647, i32 {_ordered(e, result)}"), "b32")


def _ordered(e: Emitter, bits: str) -> str:
    """A float's bits as an integer that is ordered as the floats are; it is its own inverse."""
    flipped = e.op(f"lshr i32 {e.op(f'ashr i32 {bits}, 31')}, 1")
    return e.op(f"xor i32 {bits}, {flipped}")


@translates("activemask")
def activemask(e: Emitter, i: Instruction) -> None:
    (d,) = e.operands(i, 1)
    if e.lanes is not None:
        e.write(d, e.lanes.vote("true", _ALL)[1], "b32")
        return
    e.suspend(Op.active_mask)
    e.write(d, e.op(f"trunc i64 {e.answer()} to i32"), "b32")


@translates("elect")
def elect(e: Emitter, i: Instruction) -> None:
    """The lowest lane of the mask leads."""
    d, mask = e.operands(i, 2)
    members = e.read(mask, "b32")
    if e.lanes is not None:
        e.do("call void @hcq.barrier()")
    else:
        e.suspend(Op.warp_sync, mask=members)
    leader = e.intrinsic("llvm.cttz.i32", "i32", ("i32", members), ("i1", "false"))
    lane = e.op(f"and i32 {e.context.linear(e)}, 31")
    if not isinstance(d, Pair):
        e.wrong("elect.sync has a destination d|p")
    e.write(d.first, leader, "b32")
    e.write(d.second, e.op(f"icmp eq i32 {lane}, {leader}"), "pred")


def _named(e: Emitter, i: Instruction, table: dict[str, int]) -> int:
    for name, number in table.items():
        if i.has(name):
            return number
    return e.wrong(f"{i.name} names none of {', '.join(table)}")


def _operands(*values: str) -> tuple[tuple[int, str, str], ...]:
    return tuple((Thread.a + 8 * n, "i64", value) for n, value in enumerate(values))


def _mask(e: Emitter, mask: list[Operand]) -> str:
    return e.read(mask[0], "b32") if mask else _ALL


def _write(e: Emitter, d: Operand, value: str, type: str, second: str = "") -> None:
    """Set d, and p of d|p: to `second`, or what the executor answered."""
    if isinstance(d, Pair):
        e.write(d.first, value, type)
        e.write(d.second, second or e.op(f"icmp ne i64 {e.answer(1)}, 0"), "pred")
    else:
        e.write(d, value, type)
