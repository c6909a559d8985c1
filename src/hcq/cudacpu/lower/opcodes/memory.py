"""ld, st, ldu, prefetch and their like: all spaces, widths, vectors, cache and order modifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.lower.opcodes.mbarriers import complete
from hcq.cudacpu.lower.pointers import moved, pointer, space_of, wide
from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.lower.types import bits_of, is_type, llvm, size
from hcq.cudacpu.ptx.nodes import Address, Immediate, Instruction, Operand, Register, Sink, Symbol, Vector

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter

_LANES = {"v2": 2, "v4": 4, "v8": 8}
_ORDERS = {"relaxed": "monotonic", "acquire": "acquire", "release": "release"}


def type_of(e: Emitter, instruction: Instruction) -> str:
    """The instruction's last type."""
    for modifier in reversed(instruction.modifiers):
        if is_type(modifier):
            return modifier
    return e.wrong(f"{instruction.name} names no type")


@translates("ld", "ldu")
def load(e: Emitter, i: Instruction) -> None:
    type, space = type_of(e, i), space_of(i)
    destination, address = e.operands(i, 2, 3)[:2]
    at = pointer(e, address, space)
    parts = _parts(e, i, destination)
    order, mark = _order(i, type), _mark(e, i, space)
    for number, part in enumerate(parts):
        if isinstance(part, Sink):
            continue
        if not isinstance(part, Register):
            e.wrong("expected registers as destination of a load")
        memory = _memory_type(e, part, type)
        value = _load(e, memory, moved(e, at, number * size(type)), order, _align(type, len(parts), number), mark)
        if memory == llvm(type):
            e.write(part, value, type)
        else:  # the register's own type, of the same width
            slot, _ = e.here().register(part)
            e.do(f"store {memory} {value}, ptr {slot}")


@translates("st")
def store(e: Emitter, i: Instruction) -> None:
    if i.has("bulk"):
        _fill(e, i)
        return
    type, space = type_of(e, i), space_of(i)
    address, source, *rest = e.operands(i, 2, 3)
    at = pointer(e, address, space)
    parts = _parts(e, i, source)
    order, mark = _order(i, type), _mark(e, i, space)
    # All values are read first: a vector is stored at once.
    values = [_value(e, part, type) for part in parts]
    for number, (memory, value) in enumerate(values):
        _store(e, memory, value, moved(e, at, number * size(type)), order, _align(type, len(parts), number), mark)
    if i.has("async") and not i.has("mmio"):  # which no mbarrier is told of
        complete(e, i, rest[0], size(type) * len(parts))


def _fill(e: Emitter, i: Instruction) -> None:
    """st.bulk: zeros."""
    address, size, value = e.operands(i, 3)
    if not isinstance(value, Immediate) or value.value != 0:
        e.wrong("st.bulk stores zero")
    count = wide(e, size) if isinstance(size, Register) else e.read(size, "b64")
    at = pointer(e, address, space_of(i))
    e.intrinsic("llvm.memset.p0.i64", "void", ("ptr", at), ("i8", "0"), ("i64", count), ("i1", "false"))


@translates("prefetch", "prefetchu", "applypriority", "discard")
def hint(e: Emitter, i: Instruction) -> None:
    """Hints about caches: nothing is to be done. (discard lets the bytes be anything, so also what they were.)"""


@translates("createpolicy")
def policy(e: Emitter, i: Instruction) -> None:
    e.write(i.operands[0], "0", "b64")


def _parts(e: Emitter, i: Instruction, operand: Operand) -> tuple[Operand, ...]:
    lanes = next((_LANES[m] for m in i.modifiers if m in _LANES), 1)
    if lanes == 1 and not isinstance(operand, Vector):
        return (operand,)
    if not isinstance(operand, Vector) or len(operand.elements) != lanes:
        e.wrong(f"{i.name} takes a vector of {lanes} elements")
    return operand.elements


def _memory_type(e: Emitter, part: Register, type: str) -> str:
    """What to load: the register's own type where its width is that of memory, so that no bitcasts are needed."""
    stored = e.stored(part)
    return stored if bits_of(stored) == bits_of(llvm(type)) else llvm(type)


def _value(e: Emitter, part: Operand, type: str) -> tuple[str, str]:
    if isinstance(part, Register):
        memory = _memory_type(e, part, type)
        if memory != llvm(type):
            return memory, e.whole(part)
    if isinstance(part, Sink):
        part = Immediate(0)
    return llvm(type), e.read(part, type)


def _order(i: Instruction, type: str) -> str:
    """`volatile`, an order of LLVM's, or nothing."""
    if i.has("volatile", "mmio", "cv"):
        return "volatile"
    found = next((_ORDERS[m] for m in i.modifiers if m in _ORDERS), "")
    return "volatile" if found and type == "b128" else found


def _mark(e: Emitter, i: Instruction, space: str) -> str:
    """Metadata: what no kernel writes is loaded whenever it suits; what threads do in a loop may go side by side."""
    group = f", !llvm.access.group {e.group}" if e.group else ""
    if i.opcode != "st" and space == "param" and _of_kernel(e, i):
        return f", !invariant.load !0, !hcq.same !0{group}"
    if i.opcode != "st" and (space == "const" or i.has("nc")):
        return f", !invariant.load !0{group}"
    return group if space != "param" else ""


def _of_kernel(e: Emitter, i: Instruction) -> bool:
    address = i.operands[1]
    if not isinstance(address, Address) or not isinstance(address.base, Symbol):
        return False
    place = e.here().place(address.base)
    return place is not None and place.pointer == "%params"


def _align(type: str, lanes: int, number: int) -> int:
    whole = min(size(type) * lanes, 32)
    offset = number * size(type)
    while offset % whole:
        whole //= 2
    return whole


def _load(e: Emitter, type: str, at: str, order: str, align: int, mark: str) -> str:
    if order == "volatile":
        return e.op(f"load volatile {type}, ptr {at}, align {align}")
    if order:
        return e.op(f"load atomic {type}, ptr {at} {order}, align {align}")
    return e.op(f"load {type}, ptr {at}, align {align}{mark}")


def _store(e: Emitter, type: str, value: str, at: str, order: str, align: int, mark: str) -> None:
    if order == "volatile":
        e.do(f"store volatile {type} {value}, ptr {at}, align {align}")
    elif order:
        e.do(f"store atomic {type} {value}, ptr {at} {order}, align {align}")
    else:
        e.do(f"store {type} {value}, ptr {at}, align {align}{mark}")
