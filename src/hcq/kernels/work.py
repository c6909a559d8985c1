"""What one work-item of a kernel reads, writes and computes, where its text says so: for GB/s and GFLOP/s in profiles.

What does not live here: which elements (accesses), and time (hcq.profiling).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from hcq.kernels import types

if TYPE_CHECKING:
    from hcq.kernels.ir import Block, Function, Op, Value

_COUNTED: Final = {"add": 1, "sub": 1, "mul": 1, "div": 1, "sqrt": 1, "min": 1, "max": 1, "fma": 2}


class Work(NamedTuple):
    """Of one work-item that no condition stops: operations on floats, and bytes of global memory read and written."""

    flops: int
    nbytes: int


_known: dict[str, Work | None] = {}  # by name; None where kernels of one name differ, or their loops are not known


def note(name: str, function: Function) -> None:
    """Remember what a loaded kernel does, by the name that profiles know it by."""
    found = per_item(function)
    _known[name] = found if _known.get(name, found) == found else None


def known(name: str) -> Work | None:
    """The work of an item of the kernel of this name; None where it can't be said."""
    return _known.get(name)


def per_item(function: Function) -> Work | None:
    """The work of an item. None where a loop goes round an unknown number of times."""
    seen: set[tuple[str, Value, Value]] = set()
    return _block(function.body, seen)


def _block(block: Block, seen: set[tuple[str, Value, Value]]) -> Work | None:
    flops = nbytes = 0
    for op in block.ops:
        inner = _of(op, seen)
        if inner is None:
            return None
        flops, nbytes = flops + inner.flops, nbytes + inner.nbytes
    return Work(flops, nbytes)


def _of(op: Op, seen: set[tuple[str, Value, Value]]) -> Work | None:
    if op.code == "loop":
        return None
    if op.code == "if":
        branches = [_block(each, seen) for each in op.blocks]
        if branches[0] is None or branches[1] is None:
            return None
        return Work(*(max(pair) for pair in zip(branches[0], branches[1], strict=True)))
    if op.code == "for":
        start, stop = (each.op if each.op and each.op.code == "const" else None for each in op.operands[:2])
        inner = _block(op.blocks[0], seen)
        if start is None or stop is None or inner is None:
            return None
        rounds = len(range(start.attributes["value"], stop.attributes["value"], op.attributes["step"]))
        return Work(inner.flops * rounds, inner.nbytes * rounds)
    if op.code in ("load", "store", "atomic"):
        return Work(0, _moved(op, seen))
    if op.code in _COUNTED and op.results and types.element_of(op.result.type).is_float:
        return Work(_COUNTED[op.code] * _lanes(op.result), 0)
    return Work(0, 0)


def _moved(op: Op, seen: set[tuple[str, Value, Value]]) -> int:
    """Bytes of global memory; the same element is read from memory once."""
    pointer, index = op.operands[:2]
    assert isinstance(pointer.type, types.Pointer)
    if pointer.type.space != "global" or (op.code, pointer, index) in seen:
        return 0
    seen.add((op.code, pointer, index))
    value = op.operands[2] if op.code == "store" else op.result
    return pointer.type.element.itemsize * _lanes(value) * (2 if op.code == "atomic" else 1)


def _lanes(value: Value) -> int:
    return value.type.lanes if isinstance(value.type, types.Vector) else 1
