"""Kernels as the LLVM device takes them: one thread's code, with calls for ids and barriers.

hcq.drivers.cpu.llvm_module makes loops over the threads between two barriers of it (docs/design/llvm-grid.md). For
kernels that suspend nowhere but at barriers of the whole block. What does not live here: the other forms (entries).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.abi import Block, Grid, Thread
from hcq.cudacpu.lower.forms.analysis import is_whole_vote
from hcq.cudacpu.lower.forms.contexts import Context, load
from hcq.cudacpu.lower.forms.lanes import Lanes
from hcq.cudacpu.lower.forms.uniform import LANES, MATRICES
from hcq.cudacpu.ptx.nodes import Function, Instruction

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter


_MANY = 5  # fused multiplications of a kernel


class RegionContext(Context):
    """Ids are calls that the lowering knows; the rest is read from the `Block`. `leaving` is the label of its end."""

    whole = together = True

    def __init__(self, leaving: str) -> None:
        self.leaving = leaving

    def thread(self, e: Emitter) -> str:
        """A `Thread` of its own, for functions that are really called."""
        slot = e.slot(f"[{int(Thread.size)} x i8]", 16, "thread")
        fields: list[tuple[int, str, str]] = [(Thread.block, "ptr", "%block"), (Thread.local, "ptr", self.local(e))]
        fields += [(Thread.tid + 4 * axis, "i32", self.tid(e, axis)) for axis in range(3)]
        fields.append((Thread.linear, "i32", self.linear(e)))
        for offset, type, value in fields:
            at = e.op(f"getelementptr i8, ptr {slot}, i64 {int(offset)}")
            e.do(f"store {type} {value}, ptr {at}")
        return slot

    def block(self, e: Emitter) -> str:
        return "%block"

    def local(self, e: Emitter) -> str:
        stride = e.op(f"zext i32 {load(e, 'i32', self.grid(e), Grid.local_bytes)} to i64")
        number = e.op(f"zext i32 {self.linear(e)} to i64")
        first = load(e, "ptr", "%block", Block.local)
        return e.op(f"getelementptr i8, ptr {first}, i64 {e.op(f'mul nuw nsw i64 {number}, {stride}')}")

    def tid(self, e: Emitter, axis: int) -> str:
        return e.op(f"call i32 @hcq.local_id(i32 {axis})")

    def linear(self, e: Emitter) -> str:
        x, y, z = (self.tid(e, axis) for axis in range(3))
        width, height = (load(e, "i32", self.grid(e), Grid.ntid + 4 * axis) for axis in range(2))
        row = e.op(f"add i32 {e.op(f'mul i32 {z}, {height}')}, {y}")
        return e.op(f"add i32 {e.op(f'mul i32 {row}, {width}')}, {x}")

    def leave(self, e: Emitter) -> None:
        e.branch(self.leaving)


def region(e: Emitter, name: str, function: Function) -> str:
    """`void k(Block*)` for one thread, before its lowering."""
    from hcq.cudacpu.lower.forms.entries import LEAVING

    e.declare("declare i32 @hcq.local_id(i32) nounwind willreturn memory(none)")
    e.declare("declare void @hcq.barrier() convergent nounwind")
    instructions = [each for each in function.body or () if isinstance(each, Instruction)]
    opcodes = {each.opcode for each in instructions}
    votes = any(map(is_whole_vote, instructions))
    if opcodes & (LANES | MATRICES) or votes:
        e.lanes = Lanes(e, function)
        e.lanes.begin(votes or bool(opcodes & LANES - {"shfl", "elect"}))
    e.body(function.body or [])
    e.place(LEAVING)
    e.end("ret void")
    # Wider vectors win where there is more to compute than to fetch (docs/design/llvm-grid.md).
    text = e.text()
    wide = ' "prefer-vector-width"="512"' if text.count("@llvm.fma.") >= _MANY else ""
    return f"define void {name}(ptr %block) #0{wide} {{\n{text}\n}}"
