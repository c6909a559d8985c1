"""cp.async, cp.async.bulk, cp.reduce.async.bulk: done when they are issued, so that waiting for them is nothing.

What does not live here: the mbarriers that are told of them (mbarriers.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.lower.opcodes.atomics import over_memory
from hcq.cudacpu.lower.opcodes.mbarriers import arrive
from hcq.cudacpu.lower.pointers import pointer, space_of
from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.ptx.nodes import Immediate, Instruction, Operand, Register

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter


@translates("cp")
def cp(e: Emitter, i: Instruction) -> None:
    if i.has("tensor") or i.modifiers[:1] not in (("async",), ("reduce",)):
        e.refuse(f"{i.name}: copies of tensors by the tensor memory accelerator are not run here")
    if i.has("commit_group", "wait_group", "wait_all"):
        return
    if i.has("bulk"):
        if not i.has("prefetch"):
            _bulk(e, i)
        return
    if i.has("mbarrier"):
        if i.has("noinc"):
            arrive(e, pointer(e, e.operands(i, 1)[0], space_of(i)), "1", "0", "0")
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
    """cp.async.bulk of plain bytes: to shared memory, counted by an mbarrier, or from it to global memory. With
    cp.reduce.async.bulk what is there is combined with what comes."""
    if i.has("multicast::cluster", "cp_mask"):
        e.refuse(f"{i.name} is not run here")
    to_name, from_name = (each.partition("::")[0] for each in i.modifiers[i.modifiers.index("bulk") + 1 :][:2])
    to_global = to_name == "global"
    destination, source, size, *rest = e.operands(i, 3, 4, 5)
    to, start = pointer(e, destination, to_name), pointer(e, source, from_name)
    count = e.op(f"zext i32 {e.read(size, 'u32')} to i64")
    if i.modifiers[0] == "reduce":
        over_memory(e, i, to, start, count)
    else:
        e.do(f"call void @{_memcpy(e)}(ptr {to}, ptr {start}, i64 {count}, i1 false)")
    if not to_global:
        arrive(e, pointer(e, rest[0], "shared"), "0", "0", e.op(f"sub i64 0, {count}"))


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
