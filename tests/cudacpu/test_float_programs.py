"""Random programs of float instructions give what the model gives, step by step: what an optimiser makes of several
together, and of NaNs whose bits are seen late or never, is no other result.

A NaN whose bits the manual leaves open may be any; what shows its bits is left out. What does not live here: single
instructions (test_floats.py).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import float_cases
import numpy as np
import pytest
from model import ANY_NAN, FORMATS, decode, evaluate
from ptx_host import Loaded

LANES, STEPS, PROGRAMS, INPUTS = 64, 24, 8, 8
BASES = ("add", "sub", "mul", "fma", "div", "rcp", "sqrt", "min", "max", "copysign", "setp", "testp", "cvt")
MOVES = ("select", "bits")


@dataclass
class Program:
    """Lines of PTX over registers %KIND_N, and each register's values in all lanes."""

    lines: list[str] = field(default_factory=list)
    values: dict[str, list[int]] = field(default_factory=dict)

    def of(self, kind: str) -> list[str]:
        return [each for each in self.values if each.startswith(f"%{kind}_")]

    def define(self, draw: random.Random, kind: str, values: list[int]) -> str:
        """A register for a result: mostly a new one, now and then one that has been another's."""
        old = [each for each in self.of(kind) if draw.random() < 0.2]
        name = old[0] if old and kind != "pred" else f"%{kind}_{len(self.values)}_"
        self.values.pop(name, None)
        self.values[name] = values
        return name


CASES = [
    each
    for each in float_cases.CASES.values()
    if each.opcode.split(".")[0] in BASES
    and {each.d, *each.sources} <= {"f32", "f64", "f16", "s32", "pred"}
    and each.opcode != "copysign.f64"
]
TYPES = {"f32": "f32", "f64": "f64", "f16": "b16", "s32": "b32", "pred": "pred"}


def kind_of(register: str) -> str:
    return register[1:].split("_")[0]


def step(draw: random.Random, program: Program) -> None:
    """One more instruction."""
    base = draw.choice(BASES + MOVES)
    if base == "select" and program.of("pred"):
        kind = draw.choice(("f32", "s32", "f64"))
        p, a, b = draw.choice(program.of("pred")), draw.choice(program.of(kind)), draw.choice(program.of(kind))
        chosen = zip(*(program.values[each] for each in (p, a, b)), strict=True)
        d = program.define(draw, kind, [y if x else z for x, y, z in chosen])
        program.lines.append(f"selp.{TYPES[kind]} {d}, {a}, {b}, {p};")
    elif base == "bits":
        source, to = draw.choice((("f32", "s32"), ("s32", "f32"), ("f32", "f32")))
        a = draw.choice(program.of(source))
        d = program.define(draw, to, list(program.values[a]))
        program.lines.append(f"mov.{'f32' if source == to else 'b32'} {d}, {a};")
    elif base not in MOVES:
        case = draw.choice([each for each in CASES if each.opcode.startswith(base + ".")])
        names = [draw.choice(program.of(kind)) for kind in case.sources]
        operands = list(zip(*(program.values[each] for each in names), strict=True))
        d = program.define(draw, case.d, [evaluate(case.opcode, *each) for each in operands])
        program.lines.append(f"{case.opcode} {d}, {', '.join(names)};")


def made(seed: int, given: np.ndarray) -> Program:
    """A program; `given` gets its inputs, as many of each kind."""
    draw, program = random.Random(seed), Program()
    for n in range(INPUTS):
        kind = ("f32", "f16", "s32", "f64")[n % 4]
        values = [float_cases.number(draw, kind) for _ in range(LANES)]
        name = f"%{kind}_{n}_"
        program.values[name] = values
        given[n] = values
        program.lines.append(f"ld.global.{TYPES[kind]} {name}, [%in+{n * LANES * 8}];")
    for _ in range(STEPS):
        step(draw, program)
    return program


def same(kind: str, got: int, wanted: int) -> bool:
    """The same bits, or a NaN where it may be any."""
    if wanted == ANY_NAN and kind in FORMATS:
        return decode(got, FORMATS[kind]).nan
    return got == wanted & ((1 << {"f16": 16, "f64": 64}.get(kind, 32)) - 1)


def text(name: str, program: Program) -> str:
    seen = dict.fromkeys(
        word.strip(",;") for line in program.lines for word in line.split() if word.startswith("%") and "[" not in word
    )
    lines = [
        f".visible .entry {name}(.param .u64 given, .param .u64 out) {{", ".reg .b64 %in, %to; .reg .b32 %lane, %one;",
        "ld.param.u64 %in, [given]; ld.param.u64 %to, [out]; mov.u32 %lane, %tid.x;",
        "mad.wide.u32 %in, %lane, 8, %in; mad.wide.u32 %to, %lane, 8, %to;",
        *(f".reg .{TYPES[kind_of(each)]} {each};" for each in seen), *program.lines,
    ]  # fmt: skip
    for n, each in enumerate(program.values):
        kind = kind_of(each)
        if kind == "pred":
            lines.append(f"selp.b32 %one, 1, 0, {each}; st.global.b32 [%to+{n * LANES * 8}], %one;")
        else:
            lines.append(f"st.global.{TYPES[kind]} [%to+{n * LANES * 8}], {each};")
    return "\n".join([*lines, "ret; }", ""])


@pytest.mark.parametrize("level", [1, 3])
def test_programs_give_what_their_instructions_give_one_by_one(level: int) -> None:
    inputs = np.zeros((PROGRAMS, INPUTS, LANES), np.uint64)
    programs = [made(seed, inputs[seed]) for seed in range(PROGRAMS)]
    head = ".version 8.8\n.target sm_100a\n.address_size 64\n"
    loaded = Loaded(head + "".join(text(f"k{n}", each) for n, each in enumerate(programs)), level)
    for n, program in enumerate(programs):
        out = np.zeros((len(program.values), LANES), np.uint64)
        loaded.launch(f"k{n}", inputs[n], out, block=(LANES,))
        for row, (name, values) in zip(out, program.values.items(), strict=True):
            kind = kind_of(name)
            wrong = [lane for lane in range(LANES) if not same(kind, int(row[lane]), values[lane])]
            if wrong:
                shown = "\n".join(program.lines)
                pytest.fail(f"{name}, lane {wrong[0]}: {int(row[wrong[0]]):#x}, not {values[wrong[0]]:#x}\n{shown}")
