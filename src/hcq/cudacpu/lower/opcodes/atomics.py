"""atom and red: every operation, type, width, scope and space.

A block runs on one host thread: what only its threads can see (shared memory, scope cta) needs no atomic instruction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.lower.opcodes.mbarriers import complete
from hcq.cudacpu.lower.opcodes.memory import type_of
from hcq.cudacpu.lower.pointers import moved, pointer, space_of
from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.lower.types import llvm, size
from hcq.cudacpu.lower.values.arithmetic import extreme_function, half_functions
from hcq.cudacpu.ptx.nodes import Instruction, Operand, Sink, Vector

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter

_ORDERS = {"relaxed": "monotonic", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
_OPERATIONS = ("and", "or", "xor", "cas", "exch", "add", "inc", "dec", "min", "max")
_SIMPLE = {"and": "and", "or": "or", "xor": "xor", "exch": "xchg", "inc": "uinc_wrap", "dec": "udec_wrap"}
_LANES = {"v2": 2, "v4": 4, "v8": 8}


@translates("atom", "red")
def atom(e: Emitter, i: Instruction) -> None:
    d: Operand = Sink()
    operands = i.operands
    if i.opcode == "atom":
        d, *rest = operands
        operands = tuple(rest)
    if len(operands) < 2:
        e.wrong(f"{i.name} has too few operands")
    address, b, *more = operands
    type, operation = type_of(e, i), next((m for m in i.modifiers if m in _OPERATIONS), "")
    if not operation:
        e.wrong(f"{i.name} names no operation")
    at = pointer(e, address, space_of(i))
    alone = space_of(i) == "shared" or i.has("cta")
    if operation == "cas":
        _swap(e, i, d, at, b, more, type, alone)
        return
    sources = b.elements if isinstance(b, Vector) else (b,)
    targets = d.elements if isinstance(d, Vector) else (d,) * len(sources)
    if len(sources) != next((_LANES[m] for m in i.modifiers if m in _LANES), 1):
        e.wrong(f"{i.name} names another number of elements than its operand has")
    for n, (source, target) in enumerate(zip(sources, targets, strict=False)):
        _one(e, i, target, moved(e, at, n * size(type)), source, operation, type, alone)
    if i.has("async") and not i.has("mmio"):  # which no mbarrier is told of
        if not more:
            e.wrong(f"{i.name} has too few operands")
        complete(e, i, more[0], size(type) * len(sources))


def _one(
    e: Emitter, i: Instruction, d: Operand, at: str, source: Operand, operation: str, type: str, alone: bool
) -> None:
    if type in ("f16x2", "bf16x2"):  # each half is an atomic operation of its own
        value, half = e.read(source, "b32"), type[:-2]
        low = _update(e, i, at, e.op(f"trunc i32 {value} to i16"), operation, half, alone)
        upper = e.op(f"trunc i32 {e.op(f'lshr i32 {value}, 16')} to i16")
        high = _update(e, i, moved(e, at, 2), upper, operation, half, alone)
        whole = e.op(f"shl i32 {e.op(f'zext i16 {high} to i32')}, 16")
        e.write(d, e.op(f"or i32 {whole}, {e.op(f'zext i16 {low} to i32')}"), "b32")
        return
    old = _update(e, i, at, e.read(source, type), operation, type, alone)
    e.write(d, old, type)


def _update(e: Emitter, i: Instruction, at: str, value: str, operation: str, type: str, alone: bool) -> str:
    """Do it; returns the old value."""
    t, align = llvm(type), size(type)
    if type in ("f16", "bf16"):
        return _narrow(e, at, value, operation, type)
    name = _name(operation, type)
    if alone and name in _PLAIN:
        old = e.op(f"load {t}, ptr {at}, align {align}")
        e.do(f"store {t} {_PLAIN[name](e, t, old, value)}, ptr {at}, align {align}")
        return old
    return e.op(f"atomicrmw {name} ptr {at}, {t} {value} {_order(i)}, align {align}")


def _name(operation: str, type: str) -> str:
    """As LLVM calls it."""
    if operation in _SIMPLE:
        return _SIMPLE[operation]
    if type in ("f32", "f64"):
        return {"add": "fadd", "min": "fmin", "max": "fmax"}[operation]
    return operation if operation == "add" else ("" if type[0] == "s" else "u") + operation


def over_memory(e: Emitter, i: Instruction, to: str, start: str, count: str) -> None:
    """Combine each element at `to` with that at `start`, over so many bytes, as the modifiers say."""
    type, operation = type_of(e, i), next((m for m in i.modifiers if m in _OPERATIONS), "")
    if operation in ("", "cas", "exch"):
        e.wrong(f"{i.name} names no operation")
    t, name = llvm(type), f"help.bulk.{type}.{operation}"
    if type in ("f16", "bf16"):
        step = f"call i16 @{_loop(e, operation, type)}(ptr %to, i16 %value)"
    else:
        step = f"atomicrmw {_name(operation, type)} ptr %to, {t} %value monotonic, align {size(type)}"
    e.helper(name, _OVER % {"name": name, "t": t, "size": size(type), "step": step})
    e.do(f"call void @{name}(ptr {to}, ptr {start}, i64 {count})")


def _swap(
    e: Emitter, i: Instruction, d: Operand, at: str, b: Operand, more: list[Operand], type: str, alone: bool
) -> None:
    if not more:
        e.wrong(f"{i.name} has too few operands")
    t, align = llvm(type), size(type)
    expected, value = e.read(b, type), e.read(more[0], type)
    if alone:
        old = e.op(f"load {t}, ptr {at}, align {align}")
        same = e.op(f"icmp eq {t} {old}, {expected}")
        e.do(f"store {t} {e.op(f'select i1 {same}, {t} {value}, {t} {old}')}, ptr {at}, align {align}")
    else:
        order = _order(i)
        failure = {"acq_rel": "acquire", "release": "monotonic"}.get(order, order)
        pair = e.op(f"cmpxchg ptr {at}, {t} {expected}, {t} {value} {order} {failure}, align {align}")
        old = e.op(f"extractvalue {{ {t}, i1 }} {pair}, 0")
    e.write(d, old, type)


def _order(i: Instruction) -> str:
    return next((_ORDERS[m] for m in i.modifiers if m in _ORDERS), "monotonic")


# -- plain ones ---------------------------------------------------------------------------------------------------


def _chosen(condition: str):  # type: ignore[no-untyped-def]
    def write(e: Emitter, t: str, old: str, value: str) -> str:
        return e.op(f"select i1 {e.op(f'icmp {condition} {t} {old}, {value}')}, {t} {old}, {t} {value}")

    return write


def _up(e: Emitter, t: str, old: str, value: str) -> str:
    wraps = e.op(f"icmp uge {t} {old}, {value}")
    return e.op(f"select i1 {wraps}, {t} 0, {t} {e.op(f'add {t} {old}, 1')}")


def _down(e: Emitter, t: str, old: str, value: str) -> str:
    wraps = e.op(f"or i1 {e.op(f'icmp eq {t} {old}, 0')}, {e.op(f'icmp ugt {t} {old}, {value}')}")
    return e.op(f"select i1 {wraps}, {t} {value}, {t} {e.op(f'sub {t} {old}, 1')}")


_PLAIN = {
    **{name: (lambda e, t, old, value, name=name: e.op(f"{name} {t} {old}, {value}"))
       for name in ("add", "and", "or", "xor", "fadd")},
    "xchg": lambda e, t, old, value: value,
    "min": _chosen("slt"), "max": _chosen("sgt"), "umin": _chosen("ult"), "umax": _chosen("ugt"),
    "uinc_wrap": _up, "udec_wrap": _down,
}  # fmt: skip


# -- 16-bit floating point ----------------------------------------------------------------------------------------


def _narrow(e: Emitter, at: str, value: str, operation: str, type: str) -> str:
    return e.op(f"call i16 @{_loop(e, operation, type)}(ptr {at}, i16 {value})")


def _loop(e: Emitter, operation: str, type: str) -> str:
    """A compare-and-swap loop round the operation in float, which rounds once: float has bits enough."""
    name = f"help.atomic.{type}.{operation}"
    step = "fadd float %x, %y"
    if operation != "add":
        step = f"call float {extreme_function(e, operation)}(float %x, float %y)"
    widen, shrink = half_functions(e, type)
    e.helper(name, _LOOP % {"name": name, "step": step, "widen": widen, "shrink": shrink})
    return name


_LOOP = """define internal i16 @%(name)s(ptr %%at, i16 %%value) #0 {
entry:
  %%first = load atomic i16, ptr %%at monotonic, align 2
  br label %%again
again:
  %%old = phi i16 [ %%first, %%entry ], [ %%seen, %%again ]
  %%x = call float %(widen)s(i16 %%old)
  %%y = call float %(widen)s(i16 %%value)
  %%z = %(step)s
  %%new = call i16 %(shrink)s(float %%z)
  %%pair = cmpxchg ptr %%at, i16 %%old, i16 %%new monotonic monotonic, align 2
  %%seen = extractvalue { i16, i1 } %%pair, 0
  %%done = extractvalue { i16, i1 } %%pair, 1
  br i1 %%done, label %%end, label %%again
end:
  ret i16 %%old
}"""

_OVER = """define internal void @%(name)s(ptr %%first, ptr %%start, i64 %%bytes) #0 {
entry:
  br label %%check
check:
  %%at = phi i64 [ 0, %%entry ], [ %%next, %%body ]
  %%more = icmp ult i64 %%at, %%bytes
  br i1 %%more, label %%body, label %%end
body:
  %%to = getelementptr i8, ptr %%first, i64 %%at
  %%from = getelementptr i8, ptr %%start, i64 %%at
  %%value = load %(t)s, ptr %%from, align %(size)d
  %%old = %(step)s
  %%next = add i64 %%at, %(size)d
  br label %%check
end:
  ret void
}"""
