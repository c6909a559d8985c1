"""Which float instructions are tested, and operands that are worth trying: edges of each format and near misses.

What does not live here: what they should give (model.py), how they are run (opcodes.py).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from model import FORMATS, MODES, Format

HALVES = ("f16", "bf16", "f16x2", "bf16x2")
ORDERED = ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
INTEGERS = tuple(f"{sign}{size}" for sign in "us" for size in (8, 16, 32, 64))
DIRECTED = MODES[:4]


@dataclass(frozen=True)
class Case:
    """An instruction: `d` is its destination's type, `sources` its operands'."""

    opcode: str
    d: str
    sources: tuple[str, ...]

    @property
    def text(self) -> str:
        """As PTX, with places for operands."""
        return self.opcode + " {d}, " + ", ".join(f"{{{each}}}" for each in "abc"[: len(self.sources)])


def _arithmetic() -> list[Case]:
    found = []
    for base, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
        for mode in DIRECTED:
            found.append((f"{base}.{mode}.f64", count))
            found += [(f"{base}.{mode}{each}.f32", count) for each in ("", ".ftz", ".sat", ".ftz.sat")]
            found += [(f"{base}.{mode}{each}.f32x2", count) for each in ("", ".ftz")]
        for kind in ("f16", "f16x2"):
            found += [(f"{base}.rn{each}.{kind}", count) for each in ("", ".ftz", ".sat", ".ftz.sat")]
        found += [(f"{base}.rn.{kind}", count) for kind in ("bf16", "bf16x2")]
    found += [(f"fma.rn.relu.{kind}", 3) for kind in HALVES] + [("fma.rn.ftz.relu.f16", 3)]
    found += [("add.f32", 2), ("mul.f32", 2), ("add.f64", 2), ("mad.rz.f32", 3), ("mad.rn.f64", 3)]
    for base, count in (("div", 2), ("rcp", 1), ("sqrt", 1)):
        for mode in DIRECTED:
            found += [(f"{base}.{mode}.f64", count), (f"{base}.{mode}.f32", count), (f"{base}.{mode}.ftz.f32", count)]
    for base in ("neg", "abs"):
        found += [(f"{base}.{kind}", 1) for kind in ("f32", "ftz.f32", "f64", *HALVES, "ftz.f16", "ftz.f16x2")]
    found.append(("copysign.f32", 2))
    found.append(("copysign.f64", 2))
    for base in ("min", "max"):
        found.append((f"{base}.f64", 2))
        for each in ("", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs"):
            found += [(f"{base}{each}.{kind}", 2) for kind in ("f32", *HALVES)]
            found += [(f"{base}.ftz{each}.{kind}", 2) for kind in ("f32", "f16")]
        found += [(f"{base}{each}.f32", 3) for each in ("", ".NaN", ".abs", ".ftz.NaN.abs")]
    return [Case(name, name.rsplit(".", 1)[1], (name.rsplit(".", 1)[1],) * count) for name, count in found]


def _mixed() -> list[Case]:
    found = []
    for mode in DIRECTED:
        for kind in ("f16", "bf16"):
            found += [Case(f"{base}.{mode}.f32.{kind}", "f32", (kind, "f32")) for base in ("add", "sub")]
            found += [Case(f"fma.{mode}{sat}.f32.{kind}", "f32", (kind, kind, "f32")) for sat in ("", ".sat")]
    return found


def _predicates() -> list[Case]:
    tests = ("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    found = [Case(f"testp.{test}.{kind}", "pred", (kind,)) for test in tests for kind in ("f32", "f64")]
    for name in ORDERED:
        kinds = ("f32", "ftz.f32", "f64", "f16", "bf16", "ftz.f16")
        found += [Case(f"setp.{name}.{kind}", "pred", (kind.split(".")[-1],) * 2) for kind in kinds]
    return found


def _conversions() -> list[Case]:
    found = []
    for kind in ("f32", "f64", "f16", "bf16"):
        for integer in INTEGERS:
            if kind == "bf16" and integer[1:] == "8":
                continue  # there is none
            for mode in DIRECTED:
                found.append(Case(f"cvt.{mode}i.{integer}.{kind}", integer, (kind,)))
                if kind != "bf16" or mode == "rn":
                    found.append(Case(f"cvt.{mode}.{kind}.{integer}", kind, (integer,)))
    for mode in DIRECTED:
        found += [Case(f"cvt.{mode}i.ftz.s32.f32", "s32", ("f32",)), Case(f"cvt.{mode}.sat.f32.s32", "f32", ("s32",))]
        for to, source in (("f32", "f64"), ("f16", "f32"), ("f16", "f64")):
            found += [Case(f"cvt.{mode}{each}.{to}.{source}", to, (source,)) for each in ("", ".sat")]
        found.append(Case(f"cvt.{mode}.ftz.f32.f64", "f32", ("f64",)))
        found += [Case(f"cvt.{mode}i{each}.f32.f32", "f32", ("f32",)) for each in ("", ".ftz", ".sat")]
        found += [Case(f"cvt.{mode}i.{kind}.{kind}", kind, (kind,)) for kind in ("f64", "f16")]
    for mode in ("rn", "rz"):
        for to in ("f16", "bf16", "tf32"):
            for each in ("", ".relu", ".satfinite", ".relu.satfinite"):
                found.append(Case(f"cvt.{mode}{each}.{to}.f32", to, ("f32",)))
    found += [Case(f"cvt.rna{each}.tf32.f32", "tf32", ("f32",)) for each in ("", ".satfinite")]
    for to, source in (("f64", "f32"), ("f32", "f16"), ("f64", "f16"), ("f32", "bf16"), ("f32", "f32"), ("f64", "f64")):
        sat = ("", ".sat") if source != "bf16" else ("",)
        found += [Case(f"cvt{each}.{to}.{source}", to, (source,)) for each in sat]
    found += [Case("cvt.ftz.f64.f32", "f64", ("f32",)), Case("cvt.ftz.f32.f16", "f32", ("f16",))]
    for to in INTEGERS:
        for source in INTEGERS:
            found.append(Case(f"cvt.{to}.{source}", to, (source,)))
            fits = to == source or ((to[0] == source[0] or source[0] == "u") and int(to[1:]) > int(source[1:]))
            if not fits:  # else .sat is no PTX
                found.append(Case(f"cvt.sat.{to}.{source}", to, (source,)))
    return found


CASES: dict[str, Case] = {
    f"{c.opcode}/{len(c.sources)}": c for c in (*_arithmetic(), *_mixed(), *_predicates(), *_conversions())
}


def edges(form: Format) -> list[int]:
    """Bits of a format's special numbers, both signs."""
    one = form.bias << form.mantissa
    least = 1 << form.mantissa
    found = [
        0, 1, 2, 3, least - 1, least, least + 1, one, one - 1, one + 1, one + least, form.largest, form.largest - 1,
        form.infinity, form.infinity + 1, form.infinity + (least >> 1), form.sign - 1,
        one + (form.mantissa << form.mantissa), one - (form.mantissa << form.mantissa),
        one + (1 << (form.mantissa - 1)),
    ]  # fmt: skip
    return [x | sign for x in found for sign in (0, form.sign)]


def core(form: Format) -> list[int]:
    """Bits of the few numbers whose combinations matter: zeros, ones, infinities, NaN, the least, the largest."""
    one = form.bias << form.mantissa
    found = [0, 0, one, form.infinity, 1 << form.low, form.largest]
    return [*(x | sign for x in found for sign in (0, form.sign)), form.infinity + (1 << form.low)]


def number(draw: random.Random, kind: str) -> int:
    """Bits of one operand of a type: edges, short mantissas, numbers near one and any bits."""
    if kind.endswith("x2"):
        return number(draw, kind[:-2]) | number(draw, kind[:-2]) << FORMATS[kind[:-2]].bits
    if kind not in FORMATS:
        return _integer(draw, int(kind[1:]))
    form = FORMATS[kind]
    choice = draw.random()
    if choice < 0.25:
        return draw.choice(edges(form))
    if choice < 0.45:
        return draw.getrandbits(form.bits)
    sign, width = draw.getrandbits(1) << (form.bits - 1), form.mantissa
    mantissa = draw.choice((0, 1, (1 << width) - 1, 1 << draw.randrange(width), draw.getrandbits(width)))
    near = draw.randint(-2, 2) if choice < 0.8 else draw.choice((-width, width, width + 1, -form.bias + 1, 30, 62))
    exponent = min(max(form.bias + near, 0), (1 << form.exponent) - 2)
    return sign | exponent << width | mantissa


def _integer(draw: random.Random, width: int) -> int:
    choice = draw.random()
    if choice < 0.3:
        return draw.choice((0, 1, (1 << width) - 1, 1 << (width - 1), (1 << (width - 1)) - 1, (1 << width) - 2))
    if choice < 0.6:
        return draw.getrandbits(width)
    return (draw.getrandbits(width) >> draw.randrange(width)) ^ -draw.getrandbits(1) & ((1 << width) - 1)


def operands(draw: random.Random, case: Case, count: int) -> list[tuple[int, ...]]:
    """Tuples of operands; in some the last one nearly cancels or repeats the others."""
    found: list[tuple[int, ...]] = []
    for n in range(count):
        if n % 3 == 0 and case.sources[0] in FORMATS:
            found.append(tuple(draw.choice(core(FORMATS[kind])) for kind in case.sources))
            continue
        values = [number(draw, kind) for kind in case.sources]
        if len(values) > 1 and draw.random() < 0.15 and len(set(case.sources)) == 1:
            values[-1] = values[0] ^ draw.choice((0, 1, 1 << (FORMATS.get(case.sources[0], FORMATS["f16"]).bits - 1)))
        found.append(tuple(values))
    return found
