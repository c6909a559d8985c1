"""A model of PTX's integer and bit instructions: bits in, bits out, as the PTX ISA (9.7.1, 9.7.2, 9.7.8, 9.7.9) says.

`CASES` are the instructions; each has a function of Python integers for what should come out. It goes bit by bit where
the manual does, and knows nothing of how the translation does it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Model = Callable[..., int]


@dataclass(frozen=True)
class Case:
    """`model` takes the operands as the types say (signed for s types) and gives the destination's value or bits."""

    text: str
    d: str
    sources: tuple[str, ...]
    model: Model

    def expected(self, operands: tuple[int, ...]) -> int:
        given = [value(bits, type) for bits, type in zip(operands, self.sources, strict=True)]
        return self.model(*given) & ((1 << (1 if self.d == "pred" else width(self.d))) - 1)


def width(type: str) -> int:
    return int(type[1:])


WIDTH = {f"{k}{n}": n for k in "bus" for n in (16, 32, 64)}


def value(bits: int, type: str) -> int:
    """Bits as a number of a type."""
    bits &= (1 << width(type)) - 1
    return bits - (1 << width(type)) if type[0] == "s" and bits >> (width(type) - 1) else bits


CASES: list[Case] = []


def case(text: str, d: str, sources: str, model: Model) -> None:
    CASES.append(Case(text, d, tuple(sources.split()), model))


def three(opcode: str, type: str, model: Model) -> None:
    case(f"{opcode}.{type} {{d}}, {{a}}, {{b}}", type, f"{type} {type}", model)


ALL = ("u16", "u32", "u64", "s16", "s32", "s64")


def clamp(x: int, type: str) -> int:
    low = -(1 << (width(type) - 1))
    return max(low, min(x, -low - 1))


def quotient(a: int, b: int) -> int:
    if b == 0:
        return -1
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int:
    return -1 if b == 0 else a - quotient(a, b) * b


# -- arithmetic ---------------------------------------------------------------------------------------------------

for t in ALL:
    three("add", t, lambda a, b: a + b)
    three("sub", t, lambda a, b: a - b)
    three("mul.lo", t, lambda a, b: a * b)
    three("mul.hi", t, lambda a, b, w=WIDTH[t]: (a * b) >> w)
    three("div", t, quotient)
    three("rem", t, remainder)
    three("min", t, min)
    three("max", t, max)
    case(f"mad.lo.{t} {{d}}, {{a}}, {{b}}, {{c}}", t, f"{t} {t} {t}", lambda a, b, c: a * b + c)
    case(f"mad.hi.{t} {{d}}, {{a}}, {{b}}, {{c}}", t, f"{t} {t} {t}", lambda a, b, c, w=WIDTH[t]: (a * b >> w) + c)
    case(f"sad.{t} {{d}}, {{a}}, {{b}}, {{c}}", t, f"{t} {t} {t}", lambda a, b, c: abs(a - b) + c)
    for name, holds in {
        "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
        "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    }.items():  # fmt: skip
        case(f"setp.{name}.{t} {{d}}, {{a}}, {{b}}", "pred", f"{t} {t}", lambda a, b, f=holds: int(f(a, b)))
for t in ("u16", "u32", "s16", "s32"):
    wider = f"{t[0]}{2 * width(t)}"
    case(f"mul.wide.{t} {{d}}, {{a}}, {{b}}", wider, f"{t} {t}", lambda a, b: a * b)
    case(f"mad.wide.{t} {{d}}, {{a}}, {{b}}, {{c}}", wider, f"{t} {t} {wider}", lambda a, b, c: a * b + c)
for t in ("s16", "s32", "s64"):
    case(f"abs.{t} {{d}}, {{a}}", t, t, abs)
    case(f"neg.{t} {{d}}, {{a}}", t, t, lambda a: -a)
for t, name in (("u16", "lo"), ("u32", "ls"), ("u64", "hi"), ("u32", "hs")):
    holds = {"lo": lambda a, b: a < b, "ls": lambda a, b: a <= b, "hi": lambda a, b: a > b, "hs": lambda a, b: a >= b}[
        name
    ]
    case(f"setp.{name}.{t} {{d}}, {{a}}, {{b}}", "pred", f"{t} {t}", lambda a, b, f=holds: int(f(a, b)))
three("add.sat", "s32", lambda a, b: clamp(a + b, "s32"))
three("sub.sat", "s32", lambda a, b: clamp(a - b, "s32"))
case("mad.hi.sat.s32 {d}, {a}, {b}, {c}", "s32", "s32 s32 s32", lambda a, b, c: clamp((a * b >> 32) + c, "s32"))
three("min.relu", "s32", lambda a, b: max(min(a, b), 0))
three("max.relu", "s32", lambda a, b: max(a, b, 0))


def of_24(x: int, type: str) -> int:
    return value(x << 8, type) >> 8


for t in ("u32", "s32"):
    three("mul24.lo", t, lambda a, b, t=t: of_24(a, t) * of_24(b, t))
    three("mul24.hi", t, lambda a, b, t=t: of_24(a, t) * of_24(b, t) >> 16)
    case(
        f"mad24.lo.{t} {{d}}, {{a}}, {{b}}, {{c}}",
        t,
        f"{t} {t} {t}",
        lambda a, b, c, t=t: of_24(a, t) * of_24(b, t) + c,
    )
    case(
        f"mad24.hi.{t} {{d}}, {{a}}, {{b}}, {{c}}", t, f"{t} {t} {t}",
        lambda a, b, c, t=t: (of_24(a, t) * of_24(b, t) >> 16) + c,
    )  # fmt: skip


def halves(f: Callable[[int, int], int], type: str) -> Model:
    def model(a: int, b: int) -> int:
        x, y = ((value(v & 0xFFFF, type), value(v >> 16 & 0xFFFF, type)) for v in (a, b))
        return (f(x[0], y[0]) & 0xFFFF) | (f(x[1], y[1]) & 0xFFFF) << 16

    return model


for t in ("u16", "s16"):
    case(f"add.{t}x2 {{d}}, {{a}}, {{b}}", "b32", "b32 b32", halves(lambda a, b: a + b, t))
    case(f"min.{t}x2 {{d}}, {{a}}, {{b}}", "b32", "b32 b32", halves(min, t))
    case(f"max.{t}x2 {{d}}, {{a}}, {{b}}", "b32", "b32 b32", halves(max, t))
case("max.relu.s16x2 {d}, {a}, {b}", "b32", "b32 b32", halves(lambda a, b: max(a, b, 0), "s16"))

# -- carries: the second instruction shows what the first one left -----------------------------------------------

for t in ("u32", "s32", "u64", "s64"):
    w = width(t)
    mask = (1 << w) - 1
    case(
        f"add.cc.{t} {{d}}, {{a}}, {{b}}; addc.{t} {{d}}, {{c}}, 0", t, f"{t} {t} {t}",
        lambda a, b, c, m=mask, w=w: c + ((a & m) + (b & m) >> w),
    )  # fmt: skip
    case(
        f"sub.cc.{t} {{d}}, {{a}}, {{b}}; subc.{t} {{d}}, {{c}}, 0", t, f"{t} {t} {t}",
        lambda a, b, c, m=mask: c - ((a & m) < (b & m)),
    )  # fmt: skip
    case(
        f"add.cc.{t} {{d}}, {{a}}, {{a}}; addc.cc.{t} {{d}}, {{b}}, {{c}}; addc.{t} {{d}}, 0, 0", t, f"{t} {t} {t}",
        lambda a, b, c, m=mask, w=w: (b & m) + (c & m) + (2 * (a & m) >> w) >> w,
    )  # fmt: skip
    case(
        f"sub.cc.{t} {{d}}, 0, {{a}}; subc.cc.{t} {{d}}, {{b}}, {{c}}; subc.{t} {{d}}, 0, 0", t, f"{t} {t} {t}",
        lambda a, b, c, m=mask: -int((b & m) - (c & m) - (a & m != 0) < 0),
    )  # fmt: skip
    case(
        f"mad.lo.cc.{t} {{d}}, {{a}}, {{b}}, {{c}}; madc.hi.{t} {{d}}, {{a}}, {{b}}, 0", t, f"{t} {t} {t}",
        lambda a, b, c, m=mask, w=w: (a * b >> w) + ((a * b & m) + (c & m) >> w),
    )  # fmt: skip

# -- bits ---------------------------------------------------------------------------------------------------------

for t in ("b16", "b32", "b64"):
    w = width(t)
    three("and", t, lambda a, b: a & b)
    three("or", t, lambda a, b: a | b)
    three("xor", t, lambda a, b: a ^ b)
    case(f"not.{t} {{d}}, {{a}}", t, t, lambda a: ~a)
    case(f"cnot.{t} {{d}}, {{a}}", t, t, lambda a: int(a == 0))
    case(f"shl.{t} {{d}}, {{a}}, {{b}}", t, f"{t} u32", lambda a, b, w=w: a << min(b, w))
    for n in (0, 5, w - 1, w, w + 3):
        case(f"shl.{t} {{d}}, {{a}}, {n}", t, t, lambda a, n=n: a << n)
    case(f"selp.{t} {{d}}, {{a}}, {{b}}, 1", t, f"{t} {t}", lambda a, b: a)
for t in ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64"):
    case(f"shr.{t} {{d}}, {{a}}, {{b}}", t, f"{t} u32", lambda a, b, w=WIDTH[t]: a >> min(b, w))
    case(f"shr.{t} {{d}}, {{a}}, {width(t) + 1}", t, t, lambda a, w=WIDTH[t]: a >> w)
    case(f"slct.{t}.s32 {{d}}, {{a}}, {{b}}, {{c}}", t, f"{t} {t} s32", lambda a, b, c: a if c >= 0 else b)
for t in ("b32", "b64"):
    w = width(t)
    case(f"popc.{t} {{d}}, {{a}}", "u32", t, lambda a: bin(a).count("1"))
    case(f"clz.{t} {{d}}, {{a}}", "u32", t, lambda a, w=w: w - a.bit_length())
    case(f"brev.{t} {{d}}, {{a}}", t, t, lambda a, w=w: int(f"{a:0{w}b}"[::-1], 2))


def extract(a: int, b: int, c: int, type: str) -> int:
    bits, start, length = width(type), b & 255, c & 255
    a &= (1 << bits) - 1
    sign = 0 if type[0] == "u" or not length else a >> min(start + length - 1, bits - 1) & 1
    return sum(((a >> start + n & 1) if n < length and start + n < bits else sign) << n for n in range(bits))


def insert(a: int, b: int, c: int, d: int, bits: int) -> int:
    start, length = c & 255, d & 255
    for n in range(length):
        if start + n < bits:
            b = b & ~(1 << start + n) | (a >> n & 1) << start + n
    return b


def find(a: int, type: str, amount: bool) -> int:
    if type[0] == "s" and a < 0:
        a = ~a
    place = a.bit_length() - 1
    return width(type) - 1 - place if amount and place >= 0 else place


for t in ("u32", "u64", "s32", "s64"):
    case(f"bfe.{t} {{d}}, {{a}}, {{b}}, {{c}}", t, f"{t} u32 u32", lambda a, b, c, t=t: extract(a, b, c, t))
    case(f"bfind.{t} {{d}}, {{a}}", "u32", t, lambda a, t=t: find(a, t, False))
    case(f"bfind.shiftamt.{t} {{d}}, {{a}}", "u32", t, lambda a, t=t: find(a, t, True))
for t in ("b32", "b64"):
    case(
        f"bfi.{t} {{d}}, {{a}}, {{b}}, {{c}}, {{e}}", t, f"{t} {t} u32 u32",
        lambda a, b, c, d, w=WIDTH[t]: insert(a, b, c, d, w),
    )  # fmt: skip
for table in (0x00, 0x80, 0x96, 0xE8, 0xCA, 0x1B, 0xFF):
    case(
        f"lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {table}", "b32", "b32 b32 b32",
        lambda a, b, c, t=table: sum(
            (t >> ((a >> n & 1) * 4 + (b >> n & 1) * 2 + (c >> n & 1)) & 1) << n for n in range(32)
        ),
    )  # fmt: skip


def funnel(a: int, b: int, c: int, left: bool, wrap: bool) -> int:
    n = c & 31 if wrap else min(c, 32)
    return b << n | a >> 32 - n if left else b << 32 - n | a >> n


for side in ("l", "r"):
    for mode in ("wrap", "clamp"):
        case(
            f"shf.{side}.{mode}.b32 {{d}}, {{a}}, {{b}}, {{c}}", "b32", "b32 b32 u32",
            lambda a, b, c, s=side, m=mode: funnel(a, b, c, s == "l", m == "wrap"),
        )  # fmt: skip


def nth(mask: int, start: int, offset: int) -> int:
    if offset == 0:
        return start if mask >> start & 1 else -1
    place, count, step = start, abs(offset) - 1, 1 if offset > 0 else -1
    while 0 <= place < 32:
        if mask >> place & 1:
            if count == 0:
                return place
            count -= 1
        place += step
    return -1


case("and.b32 {b}, {b}, 31; fns.b32 {d}, {a}, {b}, {c}", "b32", "b32 u32 s32", lambda a, b, c: nth(a, b & 31, c))
case("and.b32 {b}, {b}, 31; rem.s32 {c}, {c}, 9; fns.b32 {d}, {a}, {b}, {c}", "b32", "b32 u32 s32",
     lambda a, b, c: nth(a, b & 31, remainder(c, 9)))  # fmt: skip


def permute(a: int, b: int, c: int, mode: str) -> int:
    pool, s = [(a | b << 32) >> 8 * n & 255 for n in range(8)], c & 3
    if not mode:
        chosen = []
        for n in range(4):
            k = c >> 4 * n & 15
            chosen.append(255 * (pool[k & 7] >> 7) if k & 8 else pool[k & 7])
    else:
        table = {
            "f4e": [(0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)],
            "b4e": [(0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)],
            "rc8": [(0,) * 4, (1,) * 4, (2,) * 4, (3,) * 4],
            "ecl": [(0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)],
            "ecr": [(0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)],
            "rc16": [(0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)],
        }
        chosen = [pool[k] for k in table[mode][s]]
    return sum(byte << 8 * n for n, byte in enumerate(chosen))


for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"):
    case(
        f"prmt.b32{mode} {{d}}, {{a}}, {{b}}, {{c}}", "b32", "b32 b32 b32",
        lambda a, b, c, m=mode[1:]: permute(a, b, c, m),
    )  # fmt: skip


def extend(a: int, b: int, wrap: bool, signed: bool) -> int:
    n = b & 31 if wrap else min(b, 32)
    low = a & (1 << n) - 1
    return low - (1 << n) if signed and n and low >> n - 1 else low


for mode in ("wrap", "clamp"):
    for t in ("u32", "s32"):
        case(
            f"szext.{mode}.{t} {{d}}, {{a}}, {{b}}", t, "b32 u32",
            lambda a, b, m=mode, t=t: extend(a, b, m == "wrap", t == "s32"),
        )  # fmt: skip
    case(
        f"bmsk.{mode}.b32 {{d}}, {{a}}, {{b}}", "b32", "u32 u32",
        lambda a, b, m=mode: ((1 << (b & 31)) - 1 << (a & 31)) if m == "wrap" else (1 << min(b, 32)) - 1 << min(a, 32),
    )  # fmt: skip


def dot(a: int, b: int, c: int, ta: str, tb: str, first: tuple[int, int, int], bits: int) -> int:
    count, skip, _ = first
    return c + sum(
        value(a >> n * bits, f"{ta[0]}{bits}") * value(b >> (n + skip) * 8, f"{tb[0]}8") for n in range(count)
    )


for ta in ("u32", "s32"):
    for tb in ("u32", "s32"):
        case(
            f"dp4a.{ta}.{tb} {{d}}, {{a}}, {{b}}, {{c}}", "b32", "b32 b32 b32",
            lambda a, b, c, x=ta, y=tb: dot(a, b, c, x, y, (4, 0, 0), 8),
        )  # fmt: skip
        for half, skip in (("lo", 0), ("hi", 2)):
            case(
                f"dp2a.{half}.{ta}.{tb} {{d}}, {{a}}, {{b}}, {{c}}", "b32", "b32 b32 b32",
                lambda a, b, c, x=ta, y=tb, s=skip: dot(a, b, c, x, y, (2, s, 0), 16),
            )  # fmt: skip

# -- moves --------------------------------------------------------------------------------------------------------

case("mov.b64 {d}, {{{a}, {b}}}", "b64", "b32 b32", lambda a, b: a | b << 32)
case("mov.b32 {d}, {{{a}, {b}}}", "b32", "b16 b16", lambda a, b: a | b << 16)
case("mov.b64 {{_, {d}}}, {a}", "b32", "b64", lambda a: a >> 32)
case("mov.b32 {{{d}, _}}, {a}", "b16", "b32", lambda a: a)
case("set.lt.u32.s32 {d}, {a}, {b}", "u32", "s32 s32", lambda a, b: -int(a < b))
case("set.ge.f32.u32 {d}, {a}, {b}", "b32", "u32 u32", lambda a, b: 0x3F800000 * (a >= b))
case("mov.b32 {d}, 0f3FC00000", "b32", "", lambda: 0x3FC00000)
case("mov.b64 {d}, 0dBFF0000000000000", "b64", "", lambda: 0xBFF0000000000000)
case("mov.u32 {d}, (1 << 4) + ~0 * 3", "u32", "", lambda: 13)
case("mov.u32 {d}, 5 > 3 ? 0x7fU : 07", "u32", "", lambda: 127)
case("mov.u32 {d}, -7 / 2", "u32", "", lambda: -3)
case("mov.u32 {d}, WARP_SZ", "u32", "", lambda: 32)
