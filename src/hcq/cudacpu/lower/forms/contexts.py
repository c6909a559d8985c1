"""Where a thread's numbers and memory come from, in each form that a function can have.

In the loop form they are arguments of the function that is a thread's body; else they are read from the `Thread`. What
special registers hold is here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.abi import Block, Grid, Thread
from hcq.cudacpu.lower.emitter import quoted

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter

_FIXED = {
    "tid.w": 0, "ntid.w": 0, "ctaid.w": 0, "nctaid.w": 0, "is_explicit_cluster": 0,
    "cluster_ctaid.x": 0, "cluster_ctaid.y": 0, "cluster_ctaid.z": 0, "cluster_ctaid.w": 0,
    "cluster_nctaid.x": 1, "cluster_nctaid.y": 1, "cluster_nctaid.z": 1, "cluster_nctaid.w": 0,
    "cluster_ctarank": 0, "cluster_nctarank": 1, "clusterid.w": 0, "nclusterid.w": 0,
    "reserved_smem_offset_begin": 0, "reserved_smem_offset_end": 0, "reserved_smem_offset_cap": 0,
    "reserved_smem_offset_0": 0, "reserved_smem_offset_1": 0,
}  # fmt: skip
_AXES = "xyz"


class Context:
    """What all forms have; these read the `Thread` that is the function's argument %thread."""

    suspends = False  # whether the function is a coroutine
    whole = False  # whether barriers are calls, which the LLVM device's regions take apart
    together = False  # whether it is the body of loops over threads, which become vectors

    def thread(self, e: Emitter) -> str:
        """Pointer to the `Thread`."""
        return "%thread"

    def block(self, e: Emitter) -> str:
        """Pointer to the `Block`."""
        return load(e, "ptr", self.thread(e), Thread.block)

    def grid(self, e: Emitter) -> str:
        """Pointer to the `Grid`."""
        return load(e, "ptr", self.block(e), Block.grid)

    def params(self, e: Emitter) -> str:
        """Pointer to the kernel's parameters."""
        return load(e, "ptr", self.grid(e), Grid.params)

    def shared(self, e: Emitter) -> str:
        """Pointer to the block's shared memory."""
        return load(e, "ptr", self.block(e), Block.shared)

    def local(self, e: Emitter) -> str:
        """Pointer to the thread's local memory."""
        return load(e, "ptr", self.thread(e), Thread.local)

    def tid(self, e: Emitter, axis: int) -> str:
        """%tid, of 32 bits."""
        return load(e, "i32", self.thread(e), Thread.tid + 4 * axis)

    def linear(self, e: Emitter) -> str:
        """The thread's number in the block, of 32 bits."""
        return load(e, "i32", self.thread(e), Thread.linear)

    def leave(self, e: Emitter) -> None:
        """End the thread."""
        if e.dead:
            return
        e.refuse("exit in a function that is called by address or calls itself is not run here")

    def suspend(self, e: Emitter) -> None:
        """Give control back to the executor; the thread's fields say why."""
        e.refuse("a barrier or an operation of a warp in a function that is no part of a kernel")

    # -- special registers ----------------------------------------------------------------------------------------

    def special(self, e: Emitter, name: str) -> tuple[str, str]:
        """Value and LLVM type of a special register."""
        if name in _FIXED:
            return str(_FIXED[name]), "i32"
        base, _, axis = name.partition(".")
        if axis:
            return self._of_axis(e, base, _AXES.index(axis)), "i32"
        if base.startswith("lanemask_"):
            return self._lanemask(e, base[9:]), "i32"
        if base.startswith("envreg"):
            return self._envreg(e, base[6:]), "i32"
        if base in ("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi"):
            return self._time(e, base)
        if base == "laneid":
            return e.op(f"and i32 {self.linear(e)}, 31"), "i32"
        if base == "warpid":
            return e.op(f"lshr i32 {self.linear(e)}, 5"), "i32"
        if base == "nwarpid":
            return e.op(f"lshr i32 {e.op(f'add i32 {self.threads(e)}, 31')}, 5"), "i32"
        if base == "smid":
            return load(e, "i32", self.block(e), Block.smid), "i32"
        if base == "nsmid":
            return str(e.unit.options.multiprocessors), "i32"
        if base == "gridid":
            return load(e, "i64", self.grid(e), Grid.id), "i64"
        if base == "dynamic_smem_size":
            return load(e, "i32", self.grid(e), Grid.dynamic_shared), "i32"
        if base in ("total_smem_size", "aggr_smem_size"):
            return load(e, "i32", self.grid(e), Grid.shared_bytes), "i32"
        return e.refuse(f"the special register %{name} is not had here")

    def threads(self, e: Emitter) -> str:
        """How many threads a block has."""
        x, y, z = (self._of_axis(e, "ntid", axis) for axis in range(3))
        return e.op(f"mul i32 {e.op(f'mul i32 {x}, {y}')}, {z}")

    def _of_axis(self, e: Emitter, base: str, axis: int) -> str:
        if base == "tid":
            return self.tid(e, axis)
        if base in ("ntid", "nctaid", "nclusterid"):
            return load(e, "i32", self.grid(e), (Grid.ntid if base == "ntid" else Grid.nctaid) + 4 * axis)
        return load(e, "i32", self.block(e), Block.ctaid + 4 * axis)

    def _lanemask(self, e: Emitter, which: str) -> str:
        lane = e.op(f"and i32 {self.linear(e)}, 31")
        bit = e.op(f"shl i32 1, {lane}")
        if which == "eq":
            return bit
        below = e.op(f"sub i32 {bit}, 1")
        if which == "lt":
            return below
        if which == "ge":
            return e.op(f"xor i32 {below}, -1")
        upto = e.op(f"or i32 {below}, {bit}")
        return upto if which == "le" else e.op(f"xor i32 {upto}, -1")

    def _envreg(self, e: Emitter, number: str) -> str:
        if number not in ("1", "2"):
            return "0"
        word = load(e, "i64", self.grid(e), Grid.workspace)
        if number == "1":
            word = e.op(f"lshr i64 {word}, 32")
        return e.op(f"trunc i64 {word} to i32")

    def _time(self, e: Emitter, name: str) -> tuple[str, str]:
        now = e.intrinsic("hcq_cuda_clock", "i64")
        if name.endswith("_hi"):
            now = e.op(f"lshr i64 {now}, 32")
        if name in ("clock64", "globaltimer"):
            return now, "i64"
        return e.op(f"trunc i64 {now} to i32"), "i32"


class LoopContext(Context):
    """The body of a thread that a loop calls: everything is an argument. `leaving` is the label of its end."""

    together = True

    ARGUMENTS = (
        "ptr %thread, ptr %block, ptr %grid, ptr %params, ptr %shared, ptr %local, i32 %linear, "
        "i32 %tid.x, i32 %tid.y, i32 %tid.z"
    )

    def __init__(self, leaving: str) -> None:
        self.leaving = leaving

    def block(self, e: Emitter) -> str:
        return "%block"

    def grid(self, e: Emitter) -> str:
        return "%grid"

    def params(self, e: Emitter) -> str:
        return "%params"

    def shared(self, e: Emitter) -> str:
        return "%shared"

    def local(self, e: Emitter) -> str:
        return "%local"

    def tid(self, e: Emitter, axis: int) -> str:
        return f"%tid.{_AXES[axis]}"

    def linear(self, e: Emitter) -> str:
        return "%linear"

    def leave(self, e: Emitter) -> None:
        e.branch(self.leaving)


class ThreadContext(Context):
    """A coroutine. `leaving` is the label of its end."""

    suspends = True

    def __init__(self, leaving: str) -> None:
        self.leaving = leaving

    def leave(self, e: Emitter) -> None:
        e.branch(self.leaving)

    def suspend(self, e: Emitter) -> None:
        e.declare("declare i8 @llvm.coro.suspend(token, i1)")
        field = e.op(f"getelementptr i8, ptr %thread, i64 {int(Thread.line)}")
        e.do(f"store i32 {e.line}, ptr {field}")
        answer = e.op("call i8 @llvm.coro.suspend(token none, i1 false)")
        go_on = e.label("resumed")
        e.end(f"switch i8 {answer}, label %coro.suspended [i8 0, label %{quoted(go_on)} i8 1, label %coro.cleanup]")
        e.place(go_on)


def load(e: Emitter, type: str, base: str, offset: int) -> str:
    """Read a field that doesn't change while the block runs, nor from thread to thread where `base` doesn't."""
    at = e.op(f"getelementptr i8, ptr {base}, i64 {int(offset)}") if offset else base
    return e.op(f"load {type}, ptr {at}, align {8 if type in ('ptr', 'i64') else 4}, !invariant.load !0, !hcq.same !0")
