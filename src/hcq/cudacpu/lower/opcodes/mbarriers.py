"""mbarrier, and what tells one that bytes have come.

An mbarrier has 64 bits: pending arrivals (bits 0 to 19), arrivals of a phase (20 to 39), pending bytes (40 to 62), and
the phase (63). The state that arrive gives is the word before the arrival.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.lower.pointers import pointer, space_of
from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.ptx.nodes import Address, Instruction, Operand, Sink

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter


def complete(e: Emitter, i: Instruction, mbarrier: Operand, size: int) -> None:
    """Tell an mbarrier that an asynchronous store's bytes have come."""
    if not i.has("mbarrier::complete_tx::bytes"):
        e.refuse(f"{i.name} is not run here")
    arrive(e, pointer(e, mbarrier, "shared"), "0", "0", str(-size))


@translates("mbarrier")
def mbarrier(e: Emitter, i: Instruction) -> None:
    operation = i.modifiers[0]
    space = "shared" if space_of(i) == "shared" else "generic"
    if operation == "pending_count":
        d, state = e.operands(i, 2)
        pending = e.op(f"and i64 {e.read(state, 'b64')}, 1048575")
        e.write(d, e.op(f"trunc i64 {pending} to i32"), "b32")
    elif operation == "init":
        at, count = e.operands(i, 2)
        number = _count(e, count)
        word = e.op(f"or i64 {number}, {e.op(f'shl i64 {number}, 20')}")
        e.do(f"store i64 {word}, ptr {pointer(e, at, space)}, align 8")
    elif operation == "inval":
        e.operands(i, 1)
    elif operation in ("arrive", "arrive_drop"):
        _arriving(e, i, space)
    elif operation in ("expect_tx", "complete_tx"):
        at, bytes_ = e.operands(i, 2)
        change = _wide(e, bytes_)
        if operation == "complete_tx":
            change = e.op(f"sub i64 0, {change}")
        arrive(e, pointer(e, at, space), "0", "0", change)
    elif operation in ("test_wait", "try_wait"):
        _wait(e, i, space)
    else:
        e.refuse(f"{i.name} is not run here")


def _arriving(e: Emitter, i: Instruction, space: str) -> None:
    operands = list(i.operands)
    d: Operand = operands.pop(0) if not _is_address(operands[0]) else Sink()
    at = pointer(e, operands.pop(0), space)
    bytes_ = _wide(e, operands.pop(0)) if i.has("expect_tx") else "0"
    count = _count(e, operands[0]) if operands else "1"
    before = arrive(e, at, count, count if i.modifiers[0] == "arrive_drop" else "0", bytes_)
    e.write(d, before, "b64")


def arrive(e: Emitter, at: str, count: str, drop: str, bytes_: str) -> str:
    """Count arrivals (`drop` of which stay away from now on) and bytes to come; the word before."""
    e.helper("help.mbarrier", _ARRIVE)
    return e.op(f"call i64 @help.mbarrier(ptr {at}, i64 {count}, i64 {drop}, i64 {bytes_})")


def _wait(e: Emitter, i: Instruction, space: str) -> None:
    """Other threads get their turn where the phase has not ended: a program asks again."""
    d, address, state, *_ = e.operands(i, 3, 4)
    at = pointer(e, address, space)
    if i.has("parity"):
        wanted = e.op(f"and i32 {e.read(state, 'u32')}, 1")
        then = e.op(f"trunc i32 {wanted} to i1")
    else:
        then = e.op(f"icmp slt i64 {e.read(state, 'b64')}, 0")
    done = _passed(e, at, then)
    slot = e.slot("i1")
    e.do(f"store i1 {done}, ptr {slot}")
    wait, after = e.label("wait"), e.label("waited")
    e.choose(done, after, wait)
    e.place(wait)
    e.yield_thread()
    e.do(f"store i1 {_passed(e, at, then)}, ptr {slot}")
    e.place(after)
    e.write(d, e.op(f"load i1, ptr {slot}"), "pred")


def _passed(e: Emitter, at: str, then: str) -> str:
    now = e.op(f"icmp slt i64 {e.op(f'load volatile i64, ptr {at}, align 8')}, 0")
    return e.op(f"xor i1 {now}, {then}")


def _is_address(operand: Operand) -> bool:
    return isinstance(operand, Address)


def _count(e: Emitter, operand: Operand) -> str:
    return e.op(f"and i64 {_wide(e, operand)}, 1048575")


def _wide(e: Emitter, operand: Operand) -> str:
    return e.op(f"zext i32 {e.read(operand, 'u32')} to i64")


_ARRIVE = """define internal i64 @help.mbarrier(ptr %at, i64 %count, i64 %drop, i64 %bytes) #0 {
  %old = load i64, ptr %at, align 8
  %dropped = shl i64 %drop, 20
  %less = sub i64 %old, %dropped
  %moved = shl i64 %bytes, 41
  %phase.bit = and i64 %less, -9223372036854775808
  %tx.up = shl i64 %less, 1
  %tx.sum = add i64 %tx.up, %moved
  %tx.down = lshr i64 %tx.sum, 1
  %kept = and i64 %less, 1099511627775
  %tx = and i64 %tx.down, 9223370937343148032
  %low = sub i64 %kept, %count
  %joined = or i64 %low, %tx
  %word = or i64 %joined, %phase.bit
  %pending = and i64 %word, 1048575
  %none = icmp eq i64 %pending, 0
  %empty = icmp eq i64 %tx, 0
  %complete = and i1 %none, %empty
  %flipped = xor i64 %word, -9223372036854775808
  %again.up = lshr i64 %word, 20
  %again = and i64 %again.up, 1048575
  %fresh = or i64 %flipped, %again
  %new = select i1 %complete, i64 %fresh, i64 %word
  store i64 %new, ptr %at, align 8
  ret i64 %old
}"""
