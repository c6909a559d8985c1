"""Runs many instructions, each on many operands, from one module of PTX, so that little is compiled.

A case is anything with `text` (the instruction, with {d}, {a}, {b}, {c}, {e} for its registers), `d` (its destination's
type) and `sources` (its operands' types). What does not live here: what should come out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from ptx_host import Loaded

from hcq.cudacpu.lower.types import width

ROOM = 64  # operand tuples a run
SLOT = 8  # bytes of a value
SOURCES = 4  # operands at most


class Instruction(Protocol):
    text: str
    d: str
    sources: tuple[str, ...]


class Opcodes:
    """A compiled module of cases; `run` gives the destination's bits for each tuple of operands."""

    def __init__(self, cases: Sequence[Instruction], together: int = 24, level: int = 1) -> None:
        self.cases = list(cases)
        self.together = together
        head = ".version 8.8\n.target sm_100a\n.address_size 64\n"
        groups = [self.cases[n : n + together] for n in range(0, len(self.cases), together)]
        self.text = head + "".join(_kernel(f"k{n}", group) for n, group in enumerate(groups))
        self.loaded = Loaded(self.text, level)
        self._places = {id(each): divmod(n, together) for n, each in enumerate(self.cases)}

    def run(self, case: Instruction, operands: Sequence[tuple[int, ...]]) -> list[int]:
        """The results' bits, of the destination's width; 0 or 1 for a predicate."""
        return self.run_all({id(case): operands}, [case])[0]

    def run_all(self, operands: dict[int, Sequence[tuple[int, ...]]], cases: Sequence[Instruction]) -> list[list[int]]:
        """The same for several cases (operands by `id(case)`): each kernel that has some of them runs once."""
        found: dict[int, list[int]] = {}
        by_kernel: dict[int, list[Instruction]] = {}
        for each in cases:
            by_kernel.setdefault(self._places[id(each)][0], []).append(each)
        for kernel, members in by_kernel.items():
            given = np.zeros((self.together, SOURCES, ROOM), np.uint64)
            for each in members:
                place = self._places[id(each)][1]
                tuples = operands[id(each)]
                assert len(tuples) <= ROOM
                for n, column in enumerate(zip(*tuples, strict=True)):
                    given[place, n, : len(tuples)] = np.array(column, np.uint64)
            out = np.zeros((self.together, ROOM), np.uint64)
            self.loaded.launch(f"k{kernel}", given, out, block=(ROOM,))
            for each in members:
                bits = 1 if each.d == "pred" else width(each.d)
                mask = (1 << bits) - 1
                place = self._places[id(each)][1]
                found[id(each)] = [int(x) & mask for x in out[place, : len(operands[id(each)])]]
        return [found[id(each)] for each in cases]


def _register(kind: str) -> str:
    return "pred" if kind == "pred" else f"b{max(width(kind), 16)}"


def _kernel(name: str, cases: Sequence[Instruction]) -> str:
    lines = [
        f".visible .entry {name}(.param .u64 given, .param .u64 out) {{",
        ".reg .b64 %in, %to; .reg .b32 %lane, %flag;",
        "ld.param.u64 %in, [given]; ld.param.u64 %to, [out]; mov.u32 %lane, %tid.x;",
        f"mad.wide.u32 %in, %lane, {SLOT}, %in; mad.wide.u32 %to, %lane, {SLOT}, %to;",
    ]
    for n, case in enumerate(cases):
        names = {"d": f"%d{n}"}
        lines.append(f".reg .{_register(case.d)} %d{n};")
        for k, kind in enumerate(case.sources):
            register = f"%s{n}_{k}"
            names["abce"[k]] = register
            bits = max(width(kind), 16)
            lines.append(
                f".reg .b{bits} {register}; ld.global.b{bits} {register}, [%in+{(n * SOURCES + k) * ROOM * SLOT}];"
            )
        lines.append(case.text.format(**names) + ";")
        if case.d == "pred":
            lines.append(f"selp.b32 %flag, 1, 0, %d{n}; st.global.b32 [%to+{n * ROOM * SLOT}], %flag;")
        else:
            lines.append(f"st.global.b{max(width(case.d), 16)} [%to+{n * ROOM * SLOT}], %d{n};")
    return "\n".join([*lines, "ret;", "}", ""])
