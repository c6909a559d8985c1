"""Random kernels with barriers and operations of a warp do in regions what they do as a coroutine a thread."""

from __future__ import annotations

import random

import numpy as np
import pytest
from ptx_host import HEAD, Loaded

from hcq.cudacpu import lower

REGISTERS = 5


class Program:
    """Grows a body of statements over %v0 ... that differ between threads and %u, which doesn't."""

    def __init__(self, seed: int, threads: int) -> None:
        self.draw = random.Random(seed)
        self.left = threads % 32 > 0  # whether lanes of a warp are not there
        self.lines: list[str] = []
        self.labels = 0

    def v(self) -> str:
        return f"%v{self.draw.randrange(REGISTERS)}"

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def arithmetic(self) -> None:
        operation = self.draw.choice(["add.u32", "xor.b32", "sub.u32", "mul.lo.u32", "max.s32", "and.b32", "or.b32"])
        second = self.draw.choice([self.v(), "%u", str(self.draw.randrange(1, 99)), "%t"])
        self.lines.append(f"{operation} {self.v()}, {self.v()}, {second};")

    def together(self, barriers: bool = True) -> None:
        """What needs others: at the same place for all that are left, or for all of a warp."""
        kind, d, a = self.draw.randrange(7 if barriers else 6), self.v(), self.v()
        if kind == 0:
            mode = self.draw.choice(["up", "down", "bfly", "idx"])
            clamp = self.draw.choice(["31", "0x181f"]) if mode != "up" else self.draw.choice(["0", "0x1800"])
            lane = self.draw.choice(["1", "5", "16"])
            # What a lane that is not there gives is undefined; the predicate is not.
            self.lines.append(f"shfl.sync.{mode}.b32 %x|%p, {a}, {lane}, {clamp}, -1;")
            self.lines.append(f"selp.b32 %y, 1, 2, %p; add.u32 {d}, {d}, %y;")
            if not self.left:
                self.lines.append(f"xor.b32 {d}, {d}, %x;")
        elif kind == 1:
            self.lines.append(f"and.b32 %x, {a}, 1; setp.eq.u32 %p, %x, 1; vote.sync.ballot.b32 {d}, %p, -1;")
        elif kind == 2:
            mode = self.draw.choice(["all", "any", "uni"])
            self.lines.append(f"setp.gt.s32 %p, {a}, 40; vote.sync.{mode}.pred %q, %p, -1; selp.b32 {d}, {d}, {a}, %q;")
        elif kind == 3:
            operation = self.draw.choice(["add.s32", "min.s32", "max.u32", "and.b32", "xor.b32"])
            self.lines.append(f"redux.sync.{operation} {d}, {a}, -1;")
        elif kind == 4:
            self.lines.append(f"and.b32 %x, {a}, 3; match.any.sync.b32 {d}, %x, -1;")
        elif kind == 5:
            self.lines.append(f"activemask.b32 %x; add.u32 {d}, {a}, %x;")
        else:
            other = self.draw.choice([4, 32, 60])
            self.lines.append(f"st.shared.u32 [%s], {a}; bar.sync 0; xor.b32 %x, %t, {other // 4}; shl.b32 %x, %x, 2;")
            self.lines.append("mov.u32 %y, s; add.u32 %x, %x, %y; ld.shared.u32 %x, [%x]; bar.sync 0;")
            self.lines.append(f"add.u32 {d}, {d}, %x;")

    def statement(self, depth: int, alike: bool) -> None:
        kind = self.draw.random()
        if kind < 0.35 or depth > 2:
            self.arithmetic()
        elif kind < 0.6 and alike:
            self.together()
        elif kind < 0.75:
            end = self.label()
            self.lines.append(f"setp.lt.u32 %p, {self.v()}, {self.draw.randrange(1000)}; @%p bra {end};")
            self.block(depth + 1, False)
            self.lines.append(f"{end}:")
        elif kind < 0.9 and alike:
            end, head, counter = self.label(), self.label(), f"%n{depth}"
            self.lines.append(f"and.b32 {counter}, %u, 3; {head}:")
            self.lines.append(f"setp.eq.u32 %alike, {counter}, 0; @%alike bra {end}; sub.u32 {counter}, {counter}, 1;")
            self.block(depth + 1, True)
            self.lines.append(f"bra {head}; {end}:")
        elif alike and self.draw.random() < 0.6:
            end = self.label()
            self.lines.append(f"setp.ge.u32 %first, %t, 32; @%first bra {end};")
            for _ in range(self.draw.randrange(1, 5)):
                if self.draw.random() < 0.6:
                    self.together(False)
                else:
                    self.statement(depth + 1, False)
            self.lines.append(f"{end}:")
        elif alike and depth == 0 and not self.left:
            self.left = True
            limit = self.draw.choice([7, 32, 45])
            self.lines.append(f"setp.ge.u32 %p, %t, {limit}; @%p bra store;")
        else:
            self.arithmetic()

    def block(self, depth: int, alike: bool) -> None:
        for _ in range(self.draw.randrange(1, 4)):
            self.statement(depth, alike)

    def text(self) -> str:
        for _ in range(9):
            self.statement(0, True)
        start = "".join(f"mad.lo.u32 %v{n}, %t, {n + 3}, {7 * n};" for n in range(REGISTERS))
        end = "".join(f"st.global.u32 [%o+{4 * n}], %v{n};" for n in range(REGISTERS))
        return f"""{HEAD}.visible .entry k(.param .u64 out, .param .u32 u) {{
            .reg .b64 %o; .reg .b32 %t, %u, %x, %y, %s, %v<{REGISTERS}>, %n<4>; .reg .pred %p, %q, %alike, %first;
            .shared .align 4 .b32 s[64];
            ld.param.u64 %o, [out]; ld.param.u32 %u, [u]; mov.u32 %t, %tid.x; mad.wide.u32 %o, %t, {4 * REGISTERS}, %o;
            shl.b32 %s, %t, 2; mov.u32 %x, s; add.u32 %s, %s, %x; st.shared.u32 [%s], 0; bar.sync 0;
            {start}
            {chr(10).join(self.lines)}
            store: {end} ret; }}"""


def run(text: str, regions: bool, threads: int) -> tuple[np.ndarray, str]:
    loaded = Loaded(text, options=lower.Options(regions=regions))
    out = np.zeros((64, REGISTERS), np.uint32)
    loaded.launch("k", out, np.uint32(6), block=(threads,))
    return out, loaded.kernels["k"].kind


@pytest.mark.parametrize("seed", range(12))
def test_regions_do_what_coroutines_do(seed):
    threads = (64, 50, 33)[seed % 3]
    text = Program(seed, threads).text()
    wanted, _ = run(text, False, threads)
    found, kind = run(text, True, threads)
    assert kind == "regions", text
    assert (wanted == found).all(), text
