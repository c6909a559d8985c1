"""ldmatrix, stmatrix, movmatrix: 8 x 8 matrices of 16 bits between shared memory and a warp's registers.

PTX ISA 9.7.14.5: lane n of the first 8, 16 or 32 gives the address of row n % 8 of matrix n / 8; thread (g, t) has
elements 2 t and 2 t + 1 of row g, or of column g by .trans. Refused by name: shapes and types of 8 bits and fewer.
"""

from __future__ import annotations

from hcq.cudacpu.lower.emitter import Emitter
from hcq.cudacpu.lower.opcodes.mma import exchanged
from hcq.cudacpu.lower.pointers import pointer, space_of
from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.ptx.nodes import Instruction, Operand, Vector

COUNTS = {"x1": 1, "x2": 2, "x4": 4}
ROW = 16  # bytes


def _count(e: Emitter, instruction: Instruction) -> int:
    """How many matrices."""
    count = next((COUNTS[each] for each in instruction.modifiers if each in COUNTS), 0)
    if not count or not instruction.has("m8n8") or not instruction.has("b16"):
        e.refuse(f"{instruction.name} is not run here")
    return count


def _registers(e: Emitter, instruction: Instruction, operand: Operand, count: int) -> tuple[Operand, ...]:
    found = operand.elements if isinstance(operand, Vector) else (operand,)
    if len(found) != count:
        e.wrong(f"{instruction.name} takes {count} registers, found {len(found)}")
    return found


def _lane(e: Emitter) -> str:
    return e.op(f"and i32 {e.context.linear(e)}, 31")


def _half(e: Emitter, base: str, *terms: tuple[str, int]) -> str:
    """The 16 bits at base + the terms (number, bytes) as i32."""
    for number, size in terms:
        base = e.op(f"getelementptr i8, ptr {base}, i32 {e.op(f'mul i32 {number}, {size}')}")
    return e.op(f"zext i16 {e.op(f'load i16, ptr {base}')} to i32")


def _both(e: Emitter, low: str, high: str) -> str:
    return e.op(f"or i32 {low}, {e.op(f'shl i32 {high}, 16')}")


@translates("ldmatrix")
def ldmatrix(e: Emitter, instruction: Instruction) -> None:
    destination, address = e.operands(instruction, 2)
    count = _count(e, instruction)
    registers = _registers(e, instruction, destination, count)
    lane = _lane(e)
    # Lanes past the last row have no address: they give what is in their own room.
    given = e.op(f"icmp ult i32 {lane}, {8 * count}")
    row = pointer(e, address, space_of(instruction))
    row = e.op(f"select i1 {given}, ptr {row}, ptr {e.scratch(ROW)}")
    words = [e.op(f"load i64, ptr {e.op(f'getelementptr i64, ptr {row}, i32 {n}')}, align 8") for n in range(2)]
    rows = exchanged(e, "i64", 8, words)
    lane = _lane(e)
    g, t = e.op(f"lshr i32 {lane}, 2"), e.op(f"and i32 {lane}, 3")
    for n, register in enumerate(registers):
        matrix = e.op(f"getelementptr i8, ptr {rows}, i32 {n * 8 * ROW}")
        if instruction.has("trans"):
            second = e.op(f"getelementptr i8, ptr {matrix}, i32 {ROW}")
            value = _both(e, *(_half(e, each, (t, 2 * ROW), (g, 2)) for each in (matrix, second)))
        else:
            at = e.op(f"getelementptr i8, ptr {matrix}, i32 {e.op(f'mul i32 {g}, {ROW}')}")
            at = e.op(f"getelementptr i32, ptr {at}, i32 {t}")
            value = e.op(f"load i32, ptr {at}")
        e.write(register, value, "b32")


@translates("stmatrix")
def stmatrix(e: Emitter, instruction: Instruction) -> None:
    address, source = e.operands(instruction, 2)
    count = _count(e, instruction)
    values = [e.read(each, "b32") for each in _registers(e, instruction, source, count)]
    fragments = exchanged(e, "i32", 4, values)
    lane = _lane(e)
    store, after = e.label("row"), e.label("stored")
    e.choose(e.op(f"icmp ult i32 {lane}, {8 * count}"), store, after)
    e.place(store)
    row = e.op(f"and i32 {lane}, 7")
    matrix = e.op(f"lshr i32 {lane}, 3")
    base = e.op(f"getelementptr i32, ptr {fragments}, i32 {matrix}")
    at = pointer(e, address, space_of(instruction))
    size = 4 * count
    for n in range(4):
        if instruction.has("trans"):  # column c of the row is with lane 4 c + row / 2
            low, high = (e.op(f"getelementptr i8, ptr {base}, i32 {(2 * n + k) * 4 * size}") for k in range(2))
            upper, odd = e.op(f"lshr i32 {row}, 1"), e.op(f"and i32 {row}, 1")
            value = _both(e, *(_half(e, each, (upper, size), (odd, 2)) for each in (low, high)))
        else:
            first = e.op(f"getelementptr i8, ptr {base}, i32 {e.op(f'mul i32 {row}, {4 * size}')}")
            value = e.op(f"load i32, ptr {e.op(f'getelementptr i8, ptr {first}, i32 {n * size}')}")
        e.do(f"store i32 {value}, ptr {e.op(f'getelementptr i32, ptr {at}, i32 {n}')}")
    e.place(after)


@translates("movmatrix")
def movmatrix(e: Emitter, instruction: Instruction) -> None:
    destination, source = e.operands(instruction, 2)
    if not (instruction.has("m8n8") and instruction.has("trans") and instruction.has("b16")):
        e.refuse(f"{instruction.name} is not run here")
    fragments = exchanged(e, "i32", 4, [e.read(source, "b32")])
    lane = _lane(e)
    g, t = e.op(f"lshr i32 {lane}, 2"), e.op(f"and i32 {lane}, 3")
    upper, odd = e.op(f"lshr i32 {g}, 1"), e.op(f"and i32 {g}, 1")
    first = e.op(f"getelementptr i8, ptr {fragments}, i32 {e.op(f'mul i32 {t}, 32')}")
    second = e.op(f"getelementptr i8, ptr {first}, i32 16")
    value = _both(e, *(_half(e, each, (upper, 4), (odd, 2)) for each in (first, second)))
    e.write(destination, value, "b32")
