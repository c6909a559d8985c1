"""Random kernels give the same in regions and as coroutines. Run by test_executor.py.

Each thread writes its own place in shared memory and, after a barrier, reads anybody's; loops and branches nest, and
what decides them is the same for all threads, or each thread's own. HCQ_TEST_RANDOM_KERNELS says how many are tried.
"""

from __future__ import annotations

import os
import random

from tier_checks import both

_COUNT = int(os.environ.get("HCQ_TEST_RANDOM_KERNELS", "6"))


class _Writer:
    """Writes a kernel's body. Registers %r20 to %r27 are what it computes with; others are for its own use."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines = [f"mad.lo.u32 %r{20 + k}, %r4, {k * 77 + 1}, {k};" for k in range(8)]
        self.lines.append("ld.global.u32 %r20, [%d4];")
        self.labels = 0
        self.counters = 0

    def body(self) -> str:
        self.block(3, True)
        self.lines += ["xor.b32 %r20, %r20, %r21;", "add.u32 %r20, %r20, %r22;", "xor.b32 %r20, %r20, %r23;"]
        self.lines += ["st.global.u32 [%d2], %r20;", "ret;"]
        return "\n".join(self.lines)

    def register(self) -> str:
        return f"%r{self.random.randrange(20, 28)}"

    def block(self, depth: int, together: bool) -> None:
        for _ in range(self.random.randrange(1, 4)):
            kinds = [self.compute] * 3
            if together:
                kinds += [self.share] * 2
            if depth:
                kinds += [self.branch, self.loop]
            kind = self.random.choice(kinds)
            if kind in (self.branch, self.loop):
                kind(depth, together)  # type: ignore[call-arg]
            else:
                kind()  # type: ignore[call-arg]

    def compute(self) -> None:
        operation = self.random.choice(["add.u32", "sub.u32", "mul.lo.u32", "xor.b32", "and.b32", "or.b32"])
        second = self.random.choice([self.register(), str(self.random.randrange(1, 99)), "%r1", "%r0"])
        self.lines.append(f"{operation} {self.register()}, {self.register()}, {second};")

    def share(self) -> None:
        """Everybody's value to everybody: written, awaited, read from a neighbour, awaited again."""
        step = self.random.randrange(1, 9)
        self.lines += [
            f"st.shared.u32 [%r7], {self.register()};",
            "bar.sync 0;",
            f"add.u32 %r30, %r1, {step};",
            "rem.u32 %r30, %r30, %r2;",
            "shl.b32 %r30, %r30, 2;",
            "add.u32 %r30, %r5, %r30;",
            f"ld.shared.u32 {self.register()}, [%r30];",
            "bar.sync 0;",
        ]

    def branch(self, depth: int, together: bool) -> None:
        alike = self.random.random() < 0.5
        label, predicate = self.label(), self.random.randrange(1, 5)
        value = "%r0" if alike else self.random.choice(["%r1", self.register()])
        self.lines += [f"and.b32 %r31, {value}, {self.random.choice([1, 3, 7])};"]
        self.lines += [f"setp.{self.random.choice(['eq', 'ne', 'lt'])}.u32 %p{predicate}, %r31, 1;"]
        self.lines.append(f"@%p{predicate} bra ELSE{label};")
        self.block(depth - 1, together and alike)
        self.lines += [f"bra END{label};", f"ELSE{label}:"]
        self.block(depth - 1, together and alike)
        self.lines.append(f"END{label}:")

    def loop(self, depth: int, together: bool) -> None:
        if self.counters >= 6:
            return self.compute()
        alike = self.random.random() < 0.6
        label, counter = self.label(), 32 + self.counters
        self.counters += 1
        value = "%r0" if alike else self.random.choice(["%r1", self.register()])
        self.lines += [f"and.b32 %r{counter}, {value}, 3;", f"AGAIN{label}:"]
        self.block(depth - 1, together and alike)
        self.lines += [
            f"add.u32 %r{counter}, %r{counter}, -1;",
            f"setp.gt.s32 %p6, %r{counter}, 0;",
            f"@%p6 bra AGAIN{label};",
        ]
        return None

    def label(self) -> int:
        self.labels += 1
        return self.labels


def check_random_kernels() -> None:
    for seed in range(_COUNT):
        writer = _Writer(seed)
        writer.share()
        body = writer.body()
        block, n = writer.random.choice([32, 33, 64, 100]), writer.random.randrange(8)
        try:
            both(body, 2, block, n)
        except BaseException:
            print(f"seed {seed}, block {block}, n {n}:\n{body}")
            raise
