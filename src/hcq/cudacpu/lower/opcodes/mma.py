"""The opcodes mma and wmma (PTX ISA 9.7.14): products of fragments, and wmma's loads and stores.

Each thread gives its registers of A and B to its warp (Op::exchange) and computes its own elements of D. Refused by
name: sparse and block-scaled products, m8n8k4 of f16, whose fragments are of quarter warps.
What does not live here: where elements are, and the sums (fragments.py); ldmatrix and its like (ldmatrix.py).
"""

from __future__ import annotations

import re

from hcq.cudacpu.abi import Op, Thread
from hcq.cudacpu.lower.emitter import Emitter
from hcq.cudacpu.lower.helpers import intrinsic
from hcq.cudacpu.lower.opcodes.floats import join, split
from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.lower.values.arithmetic import canonical, shrink, widen
from hcq.cudacpu.lower.values.fragments import BITS, INTEGERS, Shape, multiply
from hcq.cudacpu.ptx.nodes import Instruction, Operand, Register, Vector

SHAPES = {
    "f16": ("m16n8k8", "m16n8k16"),
    "bf16": ("m16n8k8", "m16n8k16"),
    "tf32": ("m16n8k4", "m16n8k8"),
    "f64": ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
    "s8": ("m8n8k16", "m16n8k16", "m16n8k32"),
    "s4": ("m8n8k32", "m16n8k32", "m16n8k64"),
    "b1": ("m8n8k128", "m16n8k128", "m16n8k256"),
    "e4m3": ("m16n8k16", "m16n8k32"),
}
WMMA_SHAPES = {
    "f16": ("m16n16k16", "m32n8k16", "m8n32k16"),
    "bf16": ("m16n16k16", "m32n8k16", "m8n32k16"),
    "tf32": ("m16n16k8",),
    "f64": ("m8n8k4",),
    "s8": ("m16n16k16", "m32n8k16", "m8n32k16"),
    "s4": ("m8n8k32",),
    "b1": ("m8n8k128",),
}
ALIKE = {"u8": "s8", "u4": "s4", "e5m2": "e4m3"}
SUMS = {**dict.fromkeys(BITS, ("f32",)), "f16": ("f16", "f32"), "e4m3": ("f16", "f32"), "f64": ("f64",)}
SUMS |= dict.fromkeys(INTEGERS, ("s32",)) | {"e5m2": ("f16", "f32")}
FLAGS = frozenset(("sync", "aligned", "row", "col", "satfinite", "rn", "rz", "rm", "rp", "xor", "and", "popc", "mma"))


def shape_of(e: Emitter, instruction: Instruction, a: str, b: str, shapes: dict[str, tuple[str, ...]]) -> Shape:
    """The shape that the modifiers name; refused where it isn't one for elements of type `a`."""
    name = next((each for each in instruction.modifiers if re.fullmatch(r"m\d+n\d+k\d+", each)), "")
    if name not in shapes.get(ALIKE.get(a, a), ()) or ALIKE.get(b, b) != ALIKE.get(a, a):
        e.refuse(f"{instruction.name}: {name} of {a} and {b} is not run here")
    m, n, k = (int(each) for each in re.findall(r"\d+", name))
    mode = next((each for each in ("rz", "rm", "rp") if instruction.has(each)), "rn")
    combine = next((each for each in ("xor", "and") if instruction.has(each)), "")
    return Shape(m, n, k, a, b, mode, combine)


@translates("mma")
def mma(e: Emitter, instruction: Instruction) -> None:
    types = [each for each in instruction.modifiers if each in BITS or each in ("f32", "s32")]
    flags = {each for each in instruction.modifiers if each not in types and not re.fullmatch(r"m\d+n\d+k\d+", each)}
    if flags - FLAGS or len(types) != 4:
        e.refuse(f"{instruction.name} is not run here")
    to, a, b, addend = types
    product(e, instruction, shape_of(e, instruction, a, b, SHAPES), to, addend)


def wmma_mma(e: Emitter, instruction: Instruction) -> None:
    """wmma.mma: its f16 form names only the types of D and C."""
    types = [each for each in instruction.modifiers if each in BITS or each in ("f32", "s32")]
    if len(types) == 2:
        to, addend = types
        a = b = "f16"
    elif len(types) == 4:
        to, a, b, addend = types
    else:
        e.refuse(f"{instruction.name} is not run here")
    product(e, instruction, shape_of(e, instruction, a, b, WMMA_SHAPES), to, addend)


def product(e: Emitter, instruction: Instruction, shape: Shape, to: str, addend: str) -> None:
    """D = A * B + C of fragments."""
    if to not in SUMS[shape.a] or addend not in SUMS[shape.a]:
        e.refuse(f"{instruction.name} is not run here")
    if instruction.has("satfinite") and shape.a not in INTEGERS:
        e.refuse(f"{instruction.name}: .satfinite of floats is not run here")
    if shape.a == "b1" and (not shape.combine or not instruction.has("popc")):
        e.wrong(f"{instruction.name} wants .xor.popc or .and.popc")
    d, a, b, c = (_elements(each) for each in e.operands(instruction, 4))
    counts, whole = shape.registers, shape.a == "f16" and instruction.opcode == "wmma"
    per = 2 if to == "f16" else 1
    wanted = (counts[2] // per, 8 if whole else counts[0], 8 if whole else counts[1])
    wanted_c = counts[2] // (2 if addend == "f16" else 1)
    if (len(d), len(a), len(b), len(c)) != (*wanted, wanted_c):
        e.wrong(f"{instruction.name} takes {wanted[0]}, {wanted[1]}, {wanted[2]} and {wanted_c} registers")
    word = "f64" if shape.a == "f64" else "b32"
    given = [e.read(each, word) for each in (*a[: counts[0]], *b[: counts[1]])]
    sums = _sums(e, shape, addend, c)
    everything = exchanged(e, "double" if word == "f64" else "i32", shape.word, given)
    thread = e.context.linear(e)
    room = e.slot(f"[{counts[2]} x {shape.sum_type}]", 16)
    for n, each in enumerate(sums):
        e.do(f"store {shape.sum_type} {each}, ptr {_element(e, shape.sum_type, room, n)}")
    e.do(f"call void {multiply(e, shape)}(ptr {everything}, i32 {thread}, ptr {room})")
    results = [e.op(f"load {shape.sum_type}, ptr {_element(e, shape.sum_type, room, n)}") for n in range(counts[2])]
    if shape.a in INTEGERS:
        results = _with_addend(e, results, [e.read(each, "s32") for each in c], instruction.has("satfinite"))
    _write(e, d, results, to)


def exchanged(e: Emitter, kind: str, size: int, values: list[str]) -> str:
    """Give values to the warp; the address of what all 32 lanes gave, lane after lane, until its next exchange."""
    if e.lanes is not None:
        return e.lanes.give(kind, values)
    given = e.scratch(len(values) * size)
    for n, each in enumerate(values):
        e.do(f"store {kind} {each}, ptr {_element(e, kind, given, n)}")
    e.suspend(
        Op.exchange,
        (int(Thread.a), "i64", e.op(f"ptrtoint ptr {given} to i64")),
        (int(Thread.a) + 8, "i64", str(len(values) * size)),
        (int(Thread.a) + 16, "i64", "0"),
        mask="-1",
    )
    return e.op(f"getelementptr i8, ptr null, i64 {e.answer()}")


def _element(e: Emitter, kind: str, base: str, n: int) -> str:
    return e.op(f"getelementptr {kind}, ptr {base}, i32 {n}")


def _elements(operand: Operand) -> tuple[Operand, ...]:
    return operand.elements if isinstance(operand, Vector) else (operand,) if isinstance(operand, Register) else ()


def _sums(e: Emitter, shape: Shape, kind: str, registers: tuple[Operand, ...]) -> list[str]:
    """What the sums begin with: C, but for integers, which it is added to last."""
    if shape.a in INTEGERS:
        return ["0"] * len(registers)
    if kind != "f16":
        return [e.read(each, kind) for each in registers]
    halves = [half for each in registers for half in split(e, e.read(each, "b32"))]
    return [widen(e, "f16", half) for half in halves]


def _with_addend(e: Emitter, sums: list[str], addends: list[str], clamp: bool) -> list[str]:
    """Integer sums and C; what overflows is wrapped or, by .satfinite, clamped."""
    if clamp:
        return [intrinsic(e, "sadd.sat", "i32", a, b) for a, b in zip(sums, addends, strict=True)]
    return [e.op(f"add i32 {a}, {b}") for a, b in zip(sums, addends, strict=True)]


def _write(e: Emitter, registers: tuple[Operand, ...], values: list[str], kind: str) -> None:
    if kind == "f16":
        halves = [shrink(e, "f16", each) for each in values]
        for n, register in enumerate(registers):
            e.write(register, join(e, halves[2 * n], halves[2 * n + 1]), "b32")
        return
    for register, value in zip(registers, values, strict=True):
        e.write(register, canonical(e, value) if kind == "f32" else value, kind)
