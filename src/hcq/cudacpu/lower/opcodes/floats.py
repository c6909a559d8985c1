"""Opcodes of float arithmetic: add sub mul fma mad div rcp sqrt rsqrt ex2 lg2 sin cos tanh (PTX ISA 9.7.3, 9.7.4).

What does not live here: how a value is computed and rounded (arithmetic.py, approximate.py), comparisons, min and max
(compare.py), conversions (convert.py).
"""

from __future__ import annotations

from hcq.cudacpu.lower.emitter import Emitter
from hcq.cudacpu.lower.helpers import intrinsic
from hcq.cudacpu.lower.registry import translates
from hcq.cudacpu.lower.values import approximate, arithmetic
from hcq.cudacpu.lower.values.convert import MODES
from hcq.cudacpu.ptx.nodes import Instruction, Operand

WIDE = ("f32", "f64")
HALVES = {"f16": "f16", "bf16": "bf16", "f16x2": "f16", "bf16x2": "bf16"}


def modifiers(e: Emitter, instruction: Instruction, *allowed: str) -> frozenset[str]:
    """The modifiers but for the last one, the type; refused where one isn't `allowed`."""
    given = frozenset(instruction.modifiers[:-1])
    for each in instruction.modifiers[:-1]:
        if each not in allowed:
            e.refuse(f"{instruction.name}: .{each} is not run here")
    return given


def mode_of(flags: frozenset[str]) -> str:
    """The rounding mode; to nearest where none is said."""
    return next((each for each in MODES if each in flags), "rn")


def split(e: Emitter, value: str) -> tuple[str, str]:
    """The lower and the upper half (i16) of a packed value (i32)."""
    low = e.op(f"trunc i32 {value} to i16")
    return low, e.op(f"trunc i32 {e.op(f'lshr i32 {value}, 16')} to i16")


def join(e: Emitter, low: str, high: str) -> str:
    """A packed value (i32) of two halves (i16)."""
    upper = e.op(f"shl i32 {e.op(f'zext i16 {high} to i32')}, 16")
    return e.op(f"or i32 {upper}, {e.op(f'zext i16 {low} to i32')}")


@translates("add", "sub", "mul", "fma", "mad", types=WIDE)
def sums_and_products(e: Emitter, instruction: Instruction) -> None:
    base, kind = instruction.opcode, instruction.modifiers[-1]
    flags = modifiers(e, instruction, *MODES, *(("ftz", "sat") if kind == "f32" else ()))
    operands = e.operands(instruction, 4 if base in ("fma", "mad") else 3)
    values = [e.read_number(each, kind) for each in operands[1:]]
    e.write(operands[0], _settled(e, operands[0], kind, _computed(e, base, kind, flags, values)), kind)


def _computed(e: Emitter, base: str, kind: str, flags: frozenset[str], values: list[str]) -> str:
    """A sum, product or fused sum of f32 or f64, with its modifiers."""
    if "ftz" in flags:
        values = [arithmetic.flushed(e, kind, each) for each in values]
    mode = mode_of(flags)
    if base in ("fma", "mad"):
        result = arithmetic.fused(e, kind, mode, *values)
    else:
        compute = {"add": arithmetic.add, "sub": arithmetic.subtract, "mul": arithmetic.multiply}[base]
        result = compute(e, kind, mode, *values)
    return arithmetic.finished(e, kind, flags, result)


def _settled(e: Emitter, destination: Operand, kind: str, value: str) -> str:
    """A result with the canonical NaN, unless the destination's get theirs when they are read."""
    return arithmetic.canonical(e, value) if kind == "f32" and not e.unsettled(destination) else value


@translates("add", "sub", "mul", "fma", types=("f32x2",))
def pairs(e: Emitter, instruction: Instruction) -> None:
    base = instruction.opcode
    flags = modifiers(e, instruction, *MODES, "ftz")
    operands = e.operands(instruction, 4 if base == "fma" else 3)
    lower, upper = [], []
    for each in operands[1:]:
        value = e.read(each, "f32x2")
        lower.append(e.op(f"bitcast i32 {e.op(f'trunc i64 {value} to i32')} to float"))
        high = e.op(f"trunc i64 {e.op(f'lshr i64 {value}, 32')} to i32")
        upper.append(e.op(f"bitcast i32 {high} to float"))
    found = [arithmetic.canonical(e, _computed(e, base, "f32", flags, each)) for each in (lower, upper)]
    halves = [e.op(f"bitcast float {each} to i32") for each in found]
    low, high = (e.op(f"zext i32 {each} to i64") for each in halves)
    e.write(operands[0], e.op(f"or i64 {low}, {e.op(f'shl i64 {high}, 32')}"), "f32x2")


@translates("add", "sub", "mul", "fma", types=tuple(HALVES))
def halves(e: Emitter, instruction: Instruction) -> None:
    base, kind = instruction.opcode, instruction.modifiers[-1]
    if instruction.has("f32"):
        mixed(e, instruction)
        return
    own = ("relu",) if base == "fma" else ()
    flags = modifiers(e, instruction, "rn", *own, *(("ftz", "sat") if kind.startswith("f16") else ()))
    operands = e.operands(instruction, 4 if base == "fma" else 3)
    values = [e.read(each, kind) for each in operands[1:]]

    def compute(*each: str) -> str:
        return arithmetic.halves(e, HALVES[kind], base, flags, list(each))

    if kind.endswith("x2"):
        lower, upper = zip(*(split(e, each) for each in values), strict=True)
        result = join(e, compute(*lower), compute(*upper))
    else:
        result = compute(*values)
    e.write(operands[0], result, kind)


def mixed(e: Emitter, instruction: Instruction) -> None:
    """add, sub and fma of f32 with f16 or bf16 (9.7.5): the halves are the first operands, and are exact in f32."""
    base, kind = instruction.opcode, instruction.modifiers[-1]
    flags = modifiers(e, instruction, *MODES, "sat", "f32")
    if kind not in ("f16", "bf16") or base == "mul":
        e.refuse(f"{instruction.name} is not run here")
    operands = e.operands(instruction, 4 if base == "fma" else 3)
    values = [arithmetic.widen(e, kind, e.read(each, kind)) for each in operands[1:-1]]
    values.append(e.read_number(operands[-1], "f32"))
    result = _computed(e, base, "f32", flags - {"f32"}, values)
    e.write(operands[0], _settled(e, operands[0], "f32", result), "f32")


@translates("div", "rcp", "sqrt", "rsqrt", types=WIDE)
def quotients_and_roots(e: Emitter, instruction: Instruction) -> None:
    base, kind = instruction.opcode, instruction.modifiers[-1]
    ftz = ("ftz",) if kind == "f32" or base in ("rcp", "rsqrt") else ()
    modes = () if base == "rsqrt" else MODES
    flags = modifiers(e, instruction, "approx", *(("full",) if base == "div" else ()), *modes, *ftz)
    operands = e.operands(instruction, 3 if base == "div" else 2)
    values = [e.read_number(each, kind) for each in operands[1:]]
    if kind == "f64" and "ftz" in flags:
        e.write(operands[0], approximate.gross(e, base, values[0]), kind)
        return
    if "ftz" in flags:
        values = [arithmetic.flushed(e, kind, each) for each in values]
    mode = mode_of(flags)
    if base == "div":
        result = arithmetic.divide(e, kind, mode, *values)
        if "approx" in flags:
            result = _without_far_divisors(e, values[0], values[1], result)
    elif base == "rcp":
        result = arithmetic.divide(e, kind, mode, "1.0", values[0])
    else:
        result = arithmetic.root(e, kind, mode, values[0])
        if base == "rsqrt":
            result = arithmetic.divide(e, kind, mode, "1.0", result)
    e.write(operands[0], _settled(e, operands[0], kind, arithmetic.finished(e, kind, flags, result)), kind)


def _without_far_divisors(e: Emitter, a: str, b: str, quotient: str) -> str:
    """div.approx.f32 with a divisor beyond 2**126: zero, and NaN of an infinity, as the reciprocal would underflow."""
    magnitude = intrinsic(e, "fabs", "f32", b)
    far = e.op(f"fcmp ogt float {magnitude}, 0x47D0000000000000")
    infinite = e.op(f"fcmp oeq float {magnitude}, 0x7FF0000000000000")
    far = e.op(f"and i1 {far}, {e.op(f'xor i1 {infinite}, true')}")
    zero = intrinsic(e, "copysign", "f32", "0.0", b)
    product = e.op(f"fmul float {a}, {zero}")
    return e.op(f"select i1 {far}, float {product}, float {quotient}")


@translates("ex2", "tanh", types=("f16", "bf16", "f16x2", "bf16x2"))
@translates("ex2", "lg2", "sin", "cos", "tanh", types=("f32",))
def approximations(e: Emitter, instruction: Instruction) -> None:
    base, kind = instruction.opcode, instruction.modifiers[-1]
    flags = modifiers(e, instruction, "approx", *(() if base == "tanh" else ("ftz",)))
    operands = e.operands(instruction, 2)
    value = e.read_number(operands[1], kind)

    def compute(half: str) -> str:
        # ex2.approx.ftz.bf16 has its .ftz in its name; f16 has subnormal numbers (9.7.4, ex2)
        ftz = "ftz" in flags and kind.startswith("bf16")
        found = arithmetic.flushed(e, "f32", arithmetic.widen(e, HALVES[kind], half), ftz)
        found = arithmetic.flushed(e, "f32", approximate.approximation(e, base, found), ftz)
        return arithmetic.shrink(e, HALVES[kind], found)

    if kind == "f32":
        value = arithmetic.flushed(e, kind, value, "ftz" in flags)
        result = arithmetic.flushed(e, kind, approximate.approximation(e, base, value), "ftz" in flags)
    elif kind.endswith("x2"):
        low, high = split(e, value)
        result = join(e, compute(low), compute(high))
    else:
        result = compute(value)
    e.write(operands[0], result, kind)
