"""cp.async and the mbarrier: copies are done when they are issued, so that waiting for them is nothing.

An mbarrier has 64 bits: pending arrivals (bits 0 to 19), arrivals of a phase (20 to 39), pending bytes (40 to 62), and
the phase (63). The state that arrive gives is the word before the arrival.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.lower.pointers import pointer, space_of, wide
from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.ptx.nodes import Address, Immediate, Instruction, Operand, Register, Sink

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter


@translates("cp")
def cp(e: Emitter, i: Instruction) -> None:
    if i.modifiers[:1] != ("async",) or i.has("tensor", "reduce"):
        e.refuse(f"{i.name}: copies of tensors by the tensor memory accelerator are not run here")
    if i.has("commit_group", "wait_group", "wait_all"):
        return
    if i.has("bulk"):
        if not i.has("prefetch"):
            _bulk(e, i)
        return
    if i.has("mbarrier"):
        if i.has("noinc"):
            _arrive(e, pointer(e, e.operands(i, 1)[0], "shared"), "1", "0", "0")
        return
    destination, source, size, *rest = e.operands(i, 3, 4, 5)
    if not isinstance(size, Immediate):
        e.wrong("cp.async takes its size as a constant")
    total = int(size.value)
    to, start = pointer(e, destination, "shared"), pointer(e, source, "global")
    if not rest or (i.has("L2::cache_hint") and len(rest) == 1):
        e.do(f"call void @{_memcpy(e)}(ptr {to}, ptr {start}, i64 {total}, i1 false)")
        return
    given = _given(e, rest[0], total)
    e.do(f"call void @{_memset(e)}(ptr {to}, i8 0, i64 {total}, i1 false)")
    e.do(f"call void @{_memcpy(e)}(ptr {to}, ptr {start}, i64 {given}, i1 false)")


def _bulk(e: Emitter, i: Instruction) -> None:
    """cp.async.bulk of plain bytes: to shared memory, counted by an mbarrier, or from it to global memory."""
    if i.has("multicast::cluster", "cp_mask"):
        e.refuse(f"{i.name} is not run here")
    to_global = i.modifiers[2] == "global"
    destination, source, size, *rest = e.operands(i, 3, 4, 5)
    to = pointer(e, destination, "global" if to_global else "shared")
    start = pointer(e, source, "shared" if to_global or i.modifiers[3] == "shared::cta" else "global")
    count = e.op(f"zext i32 {e.read(size, 'u32')} to i64")
    e.do(f"call void @{_memcpy(e)}(ptr {to}, ptr {start}, i64 {count}, i1 false)")
    if not to_global:
        _arrive(e, pointer(e, rest[0], "shared"), "0", "0", e.op(f"sub i64 0, {count}"))


def _given(e: Emitter, operand: Operand, total: int) -> str:
    """How many bytes are really copied: said by a number, or none where a predicate says to ignore the source."""
    if isinstance(operand, Register) and operand.type == "pred":
        return e.op(f"select i1 {e.read(operand, 'pred')}, i64 0, i64 {total}")
    wide = e.op(f"zext i32 {e.read(operand, 'u32')} to i64")
    return e.intrinsic("llvm.umin.i64", "i64", ("i64", wide), ("i64", str(total)))


def _memcpy(e: Emitter) -> str:
    e.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    return "llvm.memcpy.p0.p0.i64"


def _memset(e: Emitter) -> str:
    e.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    return "llvm.memset.p0.i64"


def complete(e: Emitter, i: Instruction, mbarrier: Operand, size: int) -> None:
    """Tell an mbarrier that an asynchronous store's bytes have come."""
    if not i.has("mbarrier::complete_tx::bytes"):
        e.refuse(f"{i.name} is not run here")
    _arrive(e, pointer(e, mbarrier, "shared"), "0", "0", str(-size))


def fill(e: Emitter, i: Instruction) -> None:
    """st.bulk: zeros."""
    address, size, value = e.operands(i, 3)
    if not isinstance(value, Immediate) or value.value != 0:
        e.wrong("st.bulk stores zero")
    count = wide(e, size) if isinstance(size, Register) else e.read(size, "b64")
    e.do(f"call void @{_memset(e)}(ptr {pointer(e, address, space_of(i))}, i8 0, i64 {count}, i1 false)")


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
        _arrive(e, pointer(e, at, space), "0", "0", change)
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
    before = _arrive(e, at, count, count if i.modifiers[0] == "arrive_drop" else "0", bytes_)
    e.write(d, before, "b64")


def _arrive(e: Emitter, at: str, count: str, drop: str, bytes_: str) -> str:
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
