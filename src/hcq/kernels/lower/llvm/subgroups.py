"""Sub-groups of GPUs by their own instructions: PTX's warps of 32, AMD's waves of the processor's size.

A value travels in words of 32 bits. What does not live here: sub-groups through local memory (lower.subgroups), for
targets without any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hcq.kernels import types
from hcq.kernels.lower.llvm.text import VALUES

if TYPE_CHECKING:
    from hcq.kernels.ir import Op
    from hcq.kernels.lower.llvm.writer import Writer

NATIVE: Final = frozenset({"nvptx", "amdgpu"})
"""Targets with such instructions."""
_PTX: Final = {"index": ("idx", 31), "xor": ("bfly", 31), "up": ("up", 0), "down": ("down", 31)}
_LANE_CODE: Final = {"xor": "xor", "up": "sub", "down": "add"}


def write_subgroup(w: Writer, op: Op) -> str:
    """size, lane or index, an i32 (PTX ISA, %laneid; LLVM's AMDGPU guide, mbcnt)."""
    kind = op.attributes["kind"]
    if kind == "size":
        return _size(w)
    if kind == "lane":
        return _lane(w)
    x, y, z = (w.id("local_id", dim) for dim in range(3))
    wide, high = (w.id("local_size", dim) for dim in range(2))
    row = w.e.emit(f"mul i32 {z}, {high}")
    row = w.e.emit(f"add i32 {row}, {y}")
    linear = w.e.emit(f"mul i32 {row}, {wide}")
    linear = w.e.emit(f"add i32 {linear}, {x}")
    return w.e.emit(f"udiv i32 {linear}, {_size(w)}")


def write_shuffle(w: Writer, op: Op) -> str:
    """The value of another lane: shfl.sync (PTX ISA 9.7.9.6), ds_bpermute."""
    value, lane = (w.names[each] for each in op.operands)
    kind = VALUES[types.element_of(op.result.type)]
    bits = 32 if kind == "float" else 64 if kind == "double" else int(kind[1:])
    whole = value if kind.startswith("i") else w.e.emit(f"bitcast {kind} {value} to i{bits}")
    if bits == 64:
        low = w.e.emit(f"trunc i64 {whole} to i32")
        high = w.e.emit(f"lshr i64 {whole}, 32")
        high = w.e.emit(f"trunc i64 {high} to i32")
        moved = [w.e.emit(f"zext i32 {_word(w, op, each, lane)} to i64") for each in (low, high)]
        high = w.e.emit(f"shl i64 {moved[1]}, 32")
        whole = w.e.emit(f"or i64 {high}, {moved[0]}")
    elif bits == 32:
        whole = _word(w, op, whole, lane)
    else:
        wide = w.e.emit(f"zext i{bits} {whole} to i32")
        whole = w.e.emit(f"trunc i32 {_word(w, op, wide, lane)} to i{bits}")
    return whole if kind.startswith("i") else w.e.emit(f"bitcast i{bits} {whole} to {kind}")


def _word(w: Writer, op: Op, value: str, lane: str) -> str:
    how = op.attributes["how"]
    if w.target.name == "nvptx":
        name, clamp = _PTX[how]
        given = ("i32", "-1"), ("i32", value), ("i32", lane), ("i32", str(clamp))
        return w.e.call(f"llvm.nvvm.shfl.sync.{name}.i32", "i32", *given)
    if how in _LANE_CODE:
        lane = w.e.emit(f"{_LANE_CODE[how]} i32 {_lane(w)}, {lane}")
    at = w.e.emit(f"shl i32 {lane}, 2")
    return w.e.call("llvm.amdgcn.ds.bpermute", "i32", ("i32", at), ("i32", value))


def _size(w: Writer) -> str:
    return "32" if w.target.name == "nvptx" else w.e.call("llvm.amdgcn.wavefrontsize", "i32")


def _lane(w: Writer) -> str:
    if w.target.name == "nvptx":
        return w.e.call("llvm.nvvm.read.ptx.sreg.laneid", "i32")
    low = w.e.call("llvm.amdgcn.mbcnt.lo", "i32", ("i32", "-1"), ("i32", "0"))
    return w.e.call("llvm.amdgcn.mbcnt.hi", "i32", ("i32", "-1"), ("i32", low))
