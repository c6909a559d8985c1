"""Barriers of a block and of a warp, fences, nanosleep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.abi import Op, Thread
from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.ptx.nodes import Instruction, Operand

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter
    from hcq.cudacpu.lower.forms.lanes import Lanes

CLUSTER = 16  # the number of the barrier of a cluster, which is one block here; programs have 0 to 15
_REDUCTIONS = {"popc": 0, "and": 1, "or": 2}


@translates("bar", "barrier")
def barrier(e: Emitter, i: Instruction) -> None:
    if e.lanes is not None and i.has("red"):
        _vote(e, e.lanes, i)
    elif e.context.whole:  # there is nothing but whole barriers then, and those of warps that all reach
        e.do("call void @hcq.barrier()")
    elif i.has("warp"):
        (mask,) = e.operands(i, 1)
        e.suspend(Op.warp_sync, mask=e.read(mask, "b32"))
    elif i.has("cluster"):
        if i.has("wait"):
            e.suspend(Op.barrier, *_which(e, str(CLUSTER), "0"))
    elif i.has("red"):
        _reduce(e, i)
    elif i.has("arrive"):
        number, threads = e.operands(i, 2)
        e.suspend(Op.arrive, *_which(e, _wide(e, number), _wide(e, threads)))
    else:
        first, *count = e.operands(i, 1, 2)
        e.suspend(Op.barrier, *_which(e, _wide(e, first), _wide(e, count[0]) if count else "0"))


def _vote(e: Emitter, lanes: Lanes, i: Instruction) -> None:
    d, _, predicate = e.operands(i, 3)
    members, yes = lanes.vote_of_block(e.read(predicate, "pred"))
    if i.has("popc"):
        e.write(d, yes, "u32")
    elif i.has("and"):
        e.write(d, e.op(f"icmp eq i32 {yes}, {members}"), "pred")
    else:
        e.write(d, e.op(f"icmp ne i32 {yes}, 0"), "pred")


def _reduce(e: Emitter, i: Instruction) -> None:
    operands = e.operands(i, 3, 4)
    d, number, threads, predicate = operands[0], operands[1], operands[2:-1], operands[-1]
    kind = next((k for k in _REDUCTIONS if i.has(k)), None)
    if kind is None:
        e.wrong(f"{i.name} names no reduction")
    value = e.op(f"zext i1 {e.read(predicate, 'pred')} to i64")
    e.suspend(
        Op.barrier_red, *_which(e, _wide(e, number), _wide(e, threads[0]) if threads else "0"),
        (Thread.a + 16, "i64", str(_REDUCTIONS[kind])), (Thread.a + 24, "i64", value),
    )  # fmt: skip
    answer = e.answer()
    if kind == "popc":
        e.write(d, e.op(f"trunc i64 {answer} to i32"), "u32")
    else:
        e.write(d, e.op(f"icmp ne i64 {answer}, 0"), "pred")


def _which(e: Emitter, number: str, threads: str) -> tuple[tuple[int, str, str], ...]:
    return (Thread.a + 0, "i64", number), (Thread.a + 8, "i64", threads)


def _wide(e: Emitter, operand: Operand) -> str:
    return e.op(f"zext i32 {e.read(operand, 'u32')} to i64")


@translates("membar", "fence")
def fence(e: Emitter, i: Instruction) -> None:
    """A block runs on one host thread: within it only the compiler has to be held back."""
    if i.has("cta") or i.modifiers[:1] == ("proxy",) or i.has("mbarrier_init"):
        e.do('fence syncscope("singlethread") seq_cst')
    elif i.has("acq_rel", "acquire", "release"):
        e.do("fence acq_rel")
    else:
        e.do("fence seq_cst")


@translates("nanosleep")
def nanosleep(e: Emitter, i: Instruction) -> None:
    e.yield_thread()


@translates("griddepcontrol")
def griddepcontrol(e: Emitter, i: Instruction) -> None:
    """Kernels of a stream run one after the other: what this one depends on has ended."""
