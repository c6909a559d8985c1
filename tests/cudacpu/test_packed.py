"""Packed conversions, 8-bit floats, cvt.pack, set and setp of packed halves: each part as the model has one value."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from float_cases import number
from model import FORMATS, Number, compare, convert, decode, encode, power
from opcodes import ROOM, Opcodes


@dataclass(frozen=True)
class Case:
    """An instruction; `kind` says which of the tests it is for."""

    kind: str
    opcode: str
    d: str
    sources: tuple[str, ...]
    text: str


def plain(kind: str, opcode: str, d: str, *sources: str) -> Case:
    return Case(
        kind, opcode, d, sources, f"{opcode} {{d}}, {', '.join(f'{{{each}}}' for each in 'abc'[: len(sources)])}"
    )


SHORT = ("e4m3x2", "e5m2x2", "e3m2x2", "e2m3x2", "e2m1x2")


def spacing(kind: str) -> int:
    """Bits from the lower value to the upper one."""
    return 4 if kind == "e2m1x2" else 8


def _pairs() -> list[Case]:
    found = []
    for flags in ("rn", "rz", "rn.relu", "rn.satfinite", "rz.relu.satfinite"):
        found += [plain("pair", f"cvt.{flags}.{to}.f32", to, "f32", "f32") for to in ("f16x2", "bf16x2")]
    for flags in ("rn.satfinite", "rn.satfinite.relu"):
        for to in SHORT:
            found.append(plain("pair", f"cvt.{flags}.{to}.f32", to, "f32", "f32"))
            found.append(plain("halves", f"cvt.{flags}.{to}.f16x2", to, "f16x2"))
        found.append(plain("halves", f"cvt.{flags}.e4m3x2.bf16x2", "e4m3x2", "bf16x2"))
    for flags in ("rn", "rn.relu"):
        found += [plain("short", f"cvt.{flags}.f16x2.{source}", "f16x2", source) for source in SHORT]
    for flags in ("rz", "rp", "rz.satfinite", "rp.satfinite"):
        found.append(plain("scales", f"cvt.{flags}.ue8m0x2.f32", "ue8m0x2", "f32", "f32"))
        found.append(plain("scales", f"cvt.{flags}.ue8m0x2.bf16x2", "ue8m0x2", "bf16x2"))
    found.append(plain("of scales", "cvt.rn.bf16x2.ue8m0x2", "bf16x2", "ue8m0x2"))
    return found


def _sets() -> list[Case]:
    found = []
    for name in ("lt", "neu", "nan"):
        for to, kind in (("u32", "f32"), ("f32", "f32"), ("s32", "f64"), ("f16", "f16"), ("bf16", "bf16")):
            found.append(plain("set", f"set.{name}.{to}.{kind}", to, kind, kind))
        found += [plain("set2", f"set.{name}.{kind}.{kind}", kind, kind, kind) for kind in ("f16x2", "bf16x2")]
        for kind in ("f16x2", "bf16x2"):
            p, q = f"%p_{name}_{kind}_", f"%q_{name}_{kind}_"
            text = (
                f".reg .pred {p}<2>; .reg .b32 {q}<2>; setp.{name}.{kind} {p}0|{p}1, {{a}}, {{b}}; "
                f"selp.b32 {q}0, 1, 0, {p}0; selp.b32 {q}1, 2, 0, {p}1; or.b32 {{d}}, {q}0, {q}1"
            )
            found.append(Case("setp2", f"setp.{name}.{kind}", "b32", (kind, kind), text))
    return found


PACKS = [
    *(plain("pack", f"cvt.pack.sat.{to}.s32", "b32", "s32", "s32") for to in ("u16", "s16")),
    *(plain("pack", f"cvt.pack.sat.{to}.s32.b32", "b32", "s32", "s32", "b32") for to in ("u8", "s8", "u4", "s4", "s2")),
]
CASES = [*_pairs(), *_sets(), *PACKS]


@pytest.fixture(scope="module")
def opcodes() -> Opcodes:
    return Opcodes(CASES)


def short_bits(opcode: str, to: str, number_in: int, source: str) -> int:
    """An 8-bit float of a float: always .rn.satfinite."""
    value = decode(number_in, FORMATS[source])
    if "relu" in opcode.split(".") and value.negative and not value.nan:
        return 0
    return encode(value, FORMATS[to], "rn", satfinite=True)


def wanted(case: Case, operands: tuple[int, ...]) -> int:
    parts = case.opcode.split(".")
    if case.kind == "pair" and case.d in ("f16x2", "bf16x2"):
        single = ".".join([*parts[:-2], case.d[:-2], "f32"])
        return convert(single, operands[1]) | convert(single, operands[0]) << 16
    if case.kind == "pair":
        low, high = (short_bits(case.opcode, case.d[:-2], x, "f32") for x in reversed(operands))
        return low | high << spacing(case.d)
    if case.kind == "halves":
        halves = (operands[0] & 0xFFFF, operands[0] >> 16)
        low, high = (short_bits(case.opcode, case.d[:-2], x, case.sources[0][:-2]) for x in halves)
        return low | high << spacing(case.d)
    if case.kind == "short":
        result = 0
        for n in range(2):
            form, step = FORMATS[case.sources[0][:-2]], spacing(case.sources[0])
            value = decode(operands[0] >> step * n & ((1 << form.bits) - 1), form)
            zero = "relu" in parts and value.negative and not value.nan
            result |= (0 if zero else encode(value, FORMATS["f16"])) << 16 * n
        return result
    if case.kind == "scales":
        halves = operands[::-1] if len(operands) == 2 else (operands[0] & 0xFFFF, operands[0] >> 16)
        form = FORMATS["f32" if len(operands) == 2 else "bf16"]
        low, high = (scale(decode(x, form), "rp" in parts, "satfinite" in parts) for x in halves)
        return low | high << 8
    if case.kind == "of scales":
        return sum(_of_scale(operands[0] >> 8 * n & 0xFF) << 16 * n for n in range(2))
    if case.kind == "pack":
        return packed(parts[3], operands)
    return compared(case, parts, operands)


def scale(number: Number, up: bool, satfinite: bool) -> int:
    """A power of two, from 2**-127 (0) to 2**127; 255 is NaN."""
    if number.nan:
        return 255
    size = abs(number.value)
    fitting = (n for n in range(255) if (size <= power(n - 127) if up else size < power(n - 126)))
    found = None if number.infinite else next(fitting, None)
    return found if found is not None else 254 if satfinite else 255


def _of_scale(bits: int) -> int:
    form = FORMATS["bf16"]
    return encode(Number(nan=True) if bits == 255 else Number(value=power(bits - 127)), form)


def packed(to: str, operands: tuple[int, ...]) -> int:
    size, result = int(to[1:]), 0
    low, high = (-(1 << size - 1), (1 << size - 1) - 1) if to[0] == "s" else (0, (1 << size) - 1)
    for n, each in enumerate(reversed(operands[:2])):
        value = each - (1 << 32) if each >> 31 else each
        result |= (min(max(value, low), high) & ((1 << size) - 1)) << size * n
    return (result | (operands[2] << 2 * size if len(operands) == 3 else 0)) & 0xFFFFFFFF


def compared(case: Case, parts: list[str], operands: tuple[int, ...]) -> int:
    kind, name = case.sources[0], parts[1]
    if kind.endswith("x2"):
        form = FORMATS[kind[:-2]]
        one, shift = (1, 1) if case.kind == "setp2" else (form.bias << form.mantissa, 16)
        holds = (compare(name, *(decode(x >> 16 * n & 0xFFFF, form) for x in operands)) for n in range(2))
        return sum(one << shift * n for n, each in enumerate(holds) if each)
    holds_one = compare(name, *(decode(x, FORMATS[kind]) for x in operands))
    if case.d in FORMATS:
        return FORMATS[case.d].bias << FORMATS[case.d].mantissa if holds_one else 0
    return 0xFFFFFFFF if holds_one else 0


def operand(draw: random.Random, kind: str) -> int:
    if kind == "ue8m0x2":
        return draw.getrandbits(16)
    if kind in SHORT:
        values = (draw.getrandbits(FORMATS[kind[:-2]].bits) for _ in range(2))
        return sum(each << spacing(kind) * n for n, each in enumerate(values))
    if kind in FORMATS and draw.random() < 0.5:  # what an 8-bit float can nearly hold
        form = FORMATS[kind]
        exponent = form.bias + draw.randint(-18, 17)
        if 0 < exponent < (1 << form.exponent) - 1:
            top = draw.getrandbits(5) << form.mantissa - 5 | draw.choice((0, 0, 1))
            return draw.getrandbits(1) << form.bits - 1 | exponent << form.mantissa | top
    return number(draw, kind)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.opcode)
def test_each_part_is_converted_or_compared_as_one_value_is(opcodes: Opcodes, case: Case) -> None:
    draw = random.Random(case.opcode)
    for _ in range(3):
        operands = [tuple(operand(draw, kind) for kind in case.sources) for _ in range(ROOM)]
        if case.kind in ("set", "set2", "setp2"):
            operands = [(a, a if draw.random() < 0.3 else b) for a, b in operands]
        for given, got in zip(operands, opcodes.run(case, operands), strict=True):
            assert got == wanted(case, given), f"{case.opcode} of {[hex(x) for x in given]}: {got:#x}"
