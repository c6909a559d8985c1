"""What HCQ_CUDACPU_CHECK=1 adds to a translation: before each access to memory, a call that tells of it.

native/cudacpu/run/check.hpp says what becomes of it. Parameters are not told of; of `wmma` it is the rows of the
matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.lower.pointers import moved, pointer, space_of
from hcq.cudacpu.lower.types import is_type, size, width
from hcq.cudacpu.ptx.nodes import Address, Immediate, Instruction, Operand, Register

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter

READ, WRITE, READ_STRONG, WRITE_STRONG, ATOMIC = range(5)  # check.hpp's Access
_SPACES = {"generic": 0, "global": 1, "const": 1, "shared": 2, "local": 3}
_LANES = {"v2": 2, "v4": 4, "v8": 8}
_STRONG = ("volatile", "relaxed", "acquire", "release", "mmio")
_MATRICES = {"x1": 1, "x2": 2, "x4": 4}


def instrument(e: Emitter, i: Instruction) -> None:
    """Write the calls for what an instruction accesses, in front of it."""
    if i.opcode in ("ld", "ldu"):
        _plain(e, i, READ_STRONG if i.has(*_STRONG) else READ)
    elif i.opcode == "st":
        _plain(e, i, WRITE_STRONG if i.has(*_STRONG) else WRITE)
    elif i.opcode in ("atom", "red"):
        _plain(e, i, ATOMIC)
    elif i.opcode == "cp" and i.has("async") and len(i.operands) >= 3:
        _bulk(e, i) if i.has("bulk") else _copy(e, i)
    elif i.opcode in ("ldmatrix", "stmatrix"):
        _rows_of_lanes(e, i)
    elif i.opcode == "wmma" and i.has("load", "store"):
        _matrix(e, i)
    elif i.opcode == "mbarrier":
        for address in _addresses(i):
            _told(e, i, address, "8", WRITE_STRONG if i.has("init", "inval") else ATOMIC)


def conclude(e: Emitter, i: Instruction) -> None:
    """Write the calls behind an instruction: one that waited learned something only when it ended."""
    if i.opcode == "mbarrier" and i.has("test_wait", "try_wait"):
        for address in _addresses(i):
            _told(e, i, address, "8", READ_STRONG)
    elif i.opcode == "cp" and i.has("mbarrier", "mbarrier::complete_tx::bytes"):
        for address in _addresses(i)[2:] or _addresses(i)[:1]:
            _tell(e, pointer(e, address, "shared"), "8", ATOMIC, "shared")


def _plain(e: Emitter, i: Instruction, access: int) -> None:
    type = next((m for m in reversed(i.modifiers) if is_type(m)), None)
    lanes = next((_LANES[m] for m in i.modifiers if m in _LANES), 1)
    for address in _addresses(i)[:1]:
        if type is not None:
            _told(e, i, address, str(size(type) * lanes), access)


def _copy(e: Emitter, i: Instruction) -> None:
    """cp.async: what is not read is written as zeros."""
    target, source = _addresses(i)[:2]
    whole = i.operands[2]
    if not isinstance(whole, Immediate):
        return
    _tell(e, pointer(e, target, "shared"), str(whole.value), WRITE, "shared")
    read = str(whole.value)
    policy = i.has("L2::cache_hint") and len(i.operands) == 4
    if not policy and len(i.operands) > 3 and isinstance(i.operands[3], Register) and i.operands[3].type != "pred":
        wanted = e.read(i.operands[3], "u32")
        read = e.op(f"select i1 {e.op(f'icmp ult i32 {wanted}, {whole.value}')}, i32 {wanted}, i32 {whole.value}")
    _tell(e, pointer(e, source, "global"), read, READ, "global")


def _bulk(e: Emitter, i: Instruction) -> None:
    """cp.async.bulk: from the second space to the first one."""
    target, source = _addresses(i)[:2]
    bytes_ = e.read(i.operands[2], "u32")
    spaces = [each for m in i.modifiers if (each := m.partition("::")[0]) in ("shared", "global")]
    to, of = (*spaces, "shared", "global")[:2]
    _tell(e, pointer(e, target, to), bytes_, ATOMIC if i.modifiers[0] == "reduce" else WRITE, to)
    _tell(e, pointer(e, source, of), bytes_, READ, of)


def _rows_of_lanes(e: Emitter, i: Instruction) -> None:
    """ldmatrix, stmatrix: eight lanes give the addresses of each matrix's rows, of 16 bytes."""
    count = 8 * next((_MATRICES[m] for m in i.modifiers if m in _MATRICES), 1)
    lane = e.op(f"and i32 {e.context.linear(e)}, 31")
    yes, after = e.label("row"), e.label("rows")
    e.choose(e.op(f"icmp ult i32 {lane}, {count}"), yes, after)
    e.place(yes)
    for address in _addresses(i)[:1]:
        _told(e, i, address, "16", READ if i.opcode == "ldmatrix" else WRITE)
    e.place(after)


def _matrix(e: Emitter, i: Instruction) -> None:
    """wmma.load and wmma.store: lane n tells of row n (column n, where columns lie together)."""
    shape = next((m for m in i.modifiers if m[0] == "m" and m[1].isdigit()), "")
    type = next((m for m in reversed(i.modifiers) if is_type(m) or m in ("u4", "s4", "b1")), "")
    m, _, rest = shape[1:].partition("n")
    n, _, k = rest.partition("k")
    part = next((each for each in i.modifiers if each in ("a", "b", "c", "d")), "")
    if not (m and n and k and type and part):
        return
    rows, columns = {"a": (m, k), "b": (k, n)}.get(part, (m, n))
    if i.has("col"):
        rows, columns = columns, rows
    bits = {"u4": 4, "s4": 4, "b1": 1}.get(type) or width(type)
    stride: Operand | None = i.operands[2] if len(i.operands) > 2 else None
    lane = e.op(f"and i32 {e.context.linear(e)}, 31")
    step = str(columns) if stride is None else e.read(stride, "u32")
    away = e.op(f"mul i32 {lane}, {step}")
    away = e.op(f"lshr i32 {e.op(f'mul i32 {away}, {bits}')}, 3")
    yes, after = e.label("row"), e.label("rows")
    e.choose(e.op(f"icmp ult i32 {lane}, {rows}"), yes, after)
    e.place(yes)
    for address in _addresses(i)[:1]:
        start = pointer(e, address, space_of(i))
        at = e.op(f"getelementptr i8, ptr {start}, i64 {e.op(f'zext i32 {away} to i64')}")
        # By pieces that hardware reads at once, so that rows need not be aligned to their length.
        length, piece = int(columns) * bits // 8, min(16, int(columns) * bits // 8)
        for offset in range(0, length, piece):
            _tell(e, moved(e, at, offset), str(piece), WRITE if i.has("store") else READ, space_of(i))
    e.place(after)


def _addresses(i: Instruction) -> list[Address]:
    return [each for each in i.operands if isinstance(each, Address)]


def _told(e: Emitter, i: Instruction, address: Address, bytes: str, access: int) -> None:
    space = space_of(i)
    if space in _SPACES:
        _tell(e, pointer(e, address, space), bytes, access, space)


def _tell(e: Emitter, at: str, bytes: str, access: int, space: str) -> None:
    e.intrinsic(
        "hcq_cuda_check",
        "void",
        ("ptr", e.context.block(e)),
        ("i32", e.context.linear(e)),
        ("i64", e.op(f"ptrtoint ptr {at} to i64")),
        ("i32", bytes),
        ("i32", str(access | _SPACES[space] << 4)),
        ("i32", str(e.line)),
    )
