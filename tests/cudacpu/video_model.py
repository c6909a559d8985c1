"""A model of PTX's video instructions, scalar and of parts, as the PTX ISA (9.7.17, 9.7.18) says. `CASES` are they."""

from __future__ import annotations

from collections.abc import Callable

from integer_model import Case, Model, clamp, value

CASES: list[Case] = []


def case(text: str, d: str, sources: str, model: Model) -> None:
    CASES.append(Case(text, d, tuple(sources.split()), model))


KINDS: dict[str, Callable[[int, int], int]] = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vabsdiff": lambda a, b: abs(a - b),
    "vmin": min,
    "vmax": max,
    "vavrg": lambda a, b: (a + b + (a + b >= 0)) >> 1,
    "vset": lambda a, b: int(a <= b),
}


def parts(kind: str, count: int, sign_a: str, sign_b: str, to: str, mode: str = "") -> Model:
    """Of `count` parts, with the default selectors; `mode` is sat, add, or nothing."""
    bits = 32 // count
    mask = (1 << bits) - 1

    def model(a: int, b: int, c: int) -> int:
        done = [
            KINDS[kind](*(value(x >> n * bits & mask, f"{t[0]}{bits}") for x, t in ((a, sign_a), (b, sign_b))))
            for n in range(count)
        ]
        if mode == "add":
            return c + sum(done)
        if mode == "sat":
            low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if to == "s32" else (0, mask)
            done = [max(low, min(x, high)) for x in done]
        return sum((x & mask) << n * bits for n, x in enumerate(done))

    return model


for kind in KINDS:
    for count in (2, 4):
        for sign_a, sign_b, to, mode in (
            ("u32", "u32", "u32", ""), ("s32", "s32", "s32", "sat"), ("u32", "s32", "u32", "sat"),
            ("s32", "s32", "s32", "add"),
        ):  # fmt: skip
            if kind == "vset" and mode == "sat":
                continue
            types = f"{sign_a}.{sign_b}.le" if kind == "vset" else f"{to}.{sign_a}.{sign_b}"
            case(
                f"{kind}{count}.{types}{'.' if mode else ''}{mode} {{d}}, {{a}}, {{b}}, {{c}}", "b32", "b32 b32 b32",
                parts(kind, count, sign_a, sign_b, to, mode),
            )  # fmt: skip
case("vadd4.u32.u32.u32 {d}.b20, {a}.b7310, {b}.b4567, {c}", "b32", "b32 b32 b32",
     lambda a, b, c: (c & 0xFF00FF00) | (a + (b >> 24) & 255) | ((a >> 24) + (b >> 8) & 255) << 16)  # fmt: skip
case("vadd.s32.u32.s32.sat {d}, {a}.b1, {b}.h1", "s32", "u32 u32",
     lambda a, b: (a >> 8 & 255) + value(b >> 16, "s16"))  # fmt: skip
case(
    "vsub.u32.s32.s32.sat.add {d}, {a}, {b}, {c}",
    "u32",
    "s32 s32 u32",
    lambda a, b, c: c + max(0, min(a - b, 2**32 - 1)),
)
case("vabsdiff.s32.s32.s32.sat {d}.b2, {a}.b0, {b}.b3, {c}", "b32", "b32 b32 b32",
     lambda a, b, c: (c & 0xFF00FFFF) | min(abs(value(a & 255, "s8") - value(b >> 24, "s8")), 127) << 16)  # fmt: skip
case("vmin.s32.s32.u32.max {d}, {a}, {b}, {c}", "s32", "s32 u32 s32", lambda a, b, c: max(value(min(a, b), "s32"), c))
case("vset.u32.s32.gt {d}, {a}, {b}.b0", "u32", "u32 b32", lambda a, b: int(a > value(b & 255, "s8")))
case("vshl.u32.u32.u32.wrap {d}, {a}, {b}", "u32", "u32 u32", lambda a, b: a << (b & 31))
case("vshr.s32.s32.u32.clamp {d}, {a}, {b}", "s32", "s32 u32", lambda a, b: a >> min(b, 32))
case("vmad.s32.s32.u32.sat.shr7 {d}, {a}.h0, {b}.b1, {c}", "s32", "b32 b32 s32",
     lambda a, b, c: clamp(value(a, "s16") * (b >> 8 & 255) + c >> 7, "s32"))  # fmt: skip
case("vmad.u32.u32.u32.po {d}, {a}, {b}, {c}", "u32", "u32 u32 u32", lambda a, b, c: a * b + c + 1)
