"""Helper functions that a kernel's text in the C family begins with: only those that it needs, each after what it uses.

Written once for all dialects from typedefs and the dialect's table. What does not live here: which operation needs
which helper (ops).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from hcq.errors import CompileError
from hcq.kernels import types

if TYPE_CHECKING:
    from hcq.kernels.lower.c.dialects import Dialect
    from hcq.kernels.types import Scalar, Space

HELD: Final = {types.bool_: "bool", types.f16: "f32", types.bf16: "f32"}
STORED: Final = {types.bool_: "u8", types.f16: "u16", types.bf16: "u16"}
_SIGNS: Final = {"and": "&", "or": "|", "xor": "^"}


class Prelude:
    """The helpers asked for so far. Each method adds what it names, once, and returns the helper's name."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.texts: dict[str, str] = {}
        self.used: set[str] = set()
        self.memory: set[str] = set()

    def text(self) -> str:
        """Typedefs and helpers."""
        lines = []
        for name, spelled in self.dialect.types.items():
            if name in self.used:
                lines.append(f"typedef {spelled} {name};")
        lines += [f"typedef {name} m_{name}{self.dialect.alias};" for name in sorted(self.memory)]
        return "\n".join([*lines, *self.texts.values(), ""])

    # Types

    def word(self, name: str) -> str:
        """A type by its name here, which is then defined."""
        if name == "bool":
            return self.dialect.boolean
        if name not in self.dialect.types:
            raise CompileError(f"{self.dialect.name} has no {name}: a kernel for it can't use this type")
        self.used.add(name)
        return name

    def held(self, element: Scalar) -> str:
        """The type of a variable."""
        return self.word(HELD.get(element, element.name))

    def stored(self, element: Scalar) -> str:
        """The type of an element in memory."""
        name = self.word(STORED.get(element, element.name))
        self.memory.add(name)
        return f"m_{name}"

    def pointer(self, element: Scalar, space: Space) -> str:
        return f"{self.dialect.spaces[space]}{self.stored(element)} *"

    def whole(self, value: int, element: Scalar) -> str:
        """An integer constant of a type."""
        t = self.word(element.name)
        suffix = ("u" if element.kind == "u" else "") + (self.dialect.long if element.bits == 64 else "")
        if element.kind == "i" and value == element.range[0]:
            return f"({t})({value + 1}{suffix} - 1)"
        return f"{value}{suffix}" if element.bits >= 32 else f"({t}){value}{suffix}"

    # Helpers

    def add(self, name: str, result: str, parameters: str, body: str) -> str:
        """A helper function. `body` is indented by two spaces."""
        if name not in self.texts:
            self.texts[name] = f"{self.dialect.function} {result} {name}({parameters}) {{\n{body.rstrip()}\n}}"
        return name

    def divide(self, code: str, element: Scalar) -> str:
        t, name = self.word(element.name), f"hcq_{code}_{element.name}"
        if element.kind == "u":
            return self.add(name, t, f"{t} a, {t} b", f"  return b == 0 ? 0 : ({t})(a {'/%'[code == 'mod']} b);")
        u = self.word(f"u{max(element.bits, 32)}")
        lines = ["  if (b == 0) return 0;"]
        if code == "mod":
            lines += ["  if (b == -1) return 0;", f"  {t} r = ({t})(a % b);"]
            lines += [f"  return r != 0 && (r ^ b) < 0 ? ({t})(r + b) : r;"]
        else:
            lines += [f"  if (b == -1) return ({t})(0 - ({u})a);", f"  {t} q = ({t})(a / b), r = ({t})(a % b);"]
            lines += [f"  return r != 0 && (r ^ b) < 0 ? ({t})(q - 1) : q;"]
        return self.add(name, t, f"{t} a, {t} b", "\n".join(lines))

    def shift(self, code: str, element: Scalar) -> str:
        t, name, bits = self.word(element.name), f"hcq_{code}_{element.name}", element.bits
        count, u = self.word(f"u{bits}"), self.word(f"u{max(bits, 32)}")
        if code == "shl":
            body = f"  return ({count})b < {bits} ? ({t})(({u})a << ({count})b) : 0;"
        elif element.kind == "i":
            body = f"  return ({t})(a >> (({count})b < {bits} ? b : {bits - 1}));"
        else:
            body = f"  return b < {bits} ? ({t})(a >> b) : 0;"
        return self.add(name, t, f"{t} a, {t} b", body)

    def count(self, code: str, element: Scalar) -> str:
        t, bits = self.word(element.name), element.bits
        wide, same = max(bits, 32), self.word(f"u{bits}")
        text = self.dialect.counts[code][wide == 64].format(f"({self.word(f'u{wide}')})({same})a")
        if code == "clz":
            text = f"a == 0 ? {bits} : {text} - {wide - bits}"
        return self.add(f"hcq_{code}_{element.name}", t, f"{t} a", f"  return ({t})({text});")

    def least(self, code: str, element: Scalar) -> str:
        """min or max of floats: NaN if either is."""
        t = self.held(element)
        body = f"  return a {'<' if code == 'min' else '>'} b || a != a ? a : b;"
        return self.add(f"hcq_{code}_{t}", t, f"{t} a, {t} b", body)

    def to_integer(self, source: str, element: Scalar) -> str:
        """From a float, held to the range; by choices alone, which compilers make vectors of."""
        t, held = self.word(element.name), self.word(source)
        low, high = element.range
        suffix = "f" if source == "f32" else ""
        top = float(high + 1)
        below = math.nextafter(top, 0) if source == "f64" else top - math.ulp(top / 2) * 2**29  # f32 has 29 digits less
        bottom, inside, past = (f"{each.hex()}{suffix}" for each in (float(low), below, top))
        lines = [f"  {held} b = a == a ? a : 0;", f"  b = b > {bottom} ? b : {bottom};"]
        lines += [f"  b = b < {inside} ? b : {inside};", f"  {t} r = ({t})b;"]
        lines += [f"  return a >= {past} ? {self.whole(high, element)} : r;"]
        return self.add(f"hcq_{source}_to_{element.name}", t, f"{held} a", "\n".join(lines))

    def bitcast(self, source: str, target: str) -> str:
        """The same bits as another type of the typedefs."""
        a, b = self.word(source), self.word(target)
        if self.dialect.bitcast:
            body = f"  return {self.dialect.bitcast.format(b)};"
        else:
            body = f"  union {{ {a} a; {b} b; }} u;\n  u.a = a;\n  return u.b;"
        return self.add(f"hcq_{source}_as_{target}", b, f"{a} a", body)

    def load(self, element: Scalar) -> str:
        """f16 or bf16 from its bits."""
        u16, f32 = self.word("u16"), self.word("f32")
        if element is types.bf16:
            body = f"  return {self.bitcast('u32', 'f32')}(({self.word('u32')})a << 16);"
        else:
            self.word("u32")
            body = self.dialect.half_from
        return self.add(f"hcq_from_{element.name}", f32, f"{u16} a", body)

    def store(self, element: Scalar) -> str:
        """f16's or bf16's bits of a float, rounded."""
        u16, f32, u32 = self.word("u16"), self.word("f32"), self.word("u32")
        if element is types.bf16:
            body = (
                f"  {u32} bits = {self.bitcast('f32', 'u32')}(a);\n"
                "  if (a != a) return (u16)(bits >> 16 | 64);\n"
                "  return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);"
            )
        else:
            body = self.dialect.half_to
        return self.add(f"hcq_to_{element.name}", u16, f"{f32} a", body)

    def round(self, element: Scalar) -> str:
        f32 = self.word("f32")
        body = f"  return {self.load(element)}({self.store(element)}(a));"
        return self.add(f"hcq_round_{element.name}", f32, f"{f32} a", body)

    def odd(self) -> str:
        """A double as a float, rounded to odd: rounding that to fewer digits is as good as rounding the double."""
        f32, f64, u32 = self.word("f32"), self.word("f64"), self.word("u32")
        body = (
            f"  {f32} near = ({f32})a;\n  {f64} back = near;\n  {u32} bits = {self.bitcast('f32', 'u32')}(near);\n"
            f"  if (back == a || a != a) return near;\n  if ((back < 0 ? -back : back) > (a < 0 ? -a : a)) bits--;\n"
            f"  return {self.bitcast('u32', 'f32')}(bits | 1);"
        )
        return self.add("hcq_odd", f32, f"{f64} a", body)

    def short(self, element: Scalar) -> str:
        """A 32- or 64-bit integer as a float that rounds to bf16 as the integer does: 24 digits, rounded to odd."""
        t, f32, u64 = self.word(element.name), self.word("f32"), self.word("u64")
        clz = self.count("clz", types.u64)
        sign = "a < 0" if element.kind == "i" else "0"
        body = (
            f"  {u64} size = {sign} ? 0 - ({u64})a : ({u64})a;\n  int drop = 40 - (int){clz}(size);\n"
            f"  {f32} scale = 1;\n"
            f"  if (drop > 0) {{\n    {u64} lost = size & ((({u64})1 << drop) - 1);\n"
            f"    size = size >> drop | (lost != 0);\n    scale = ({f32})(({u64})1 << drop);\n  }}\n"
            f"  return {sign} ? -(({f32})size * scale) : ({f32})size * scale;"
        )
        return self.add(f"hcq_short_{element.name}", f32, f"{t} a", body)

    def atomic(self, how: str, element: Scalar, space: Space) -> str:
        """An atomic operation that the language lacks, by compare-and-exchange; and cas itself."""
        t, raw = self.word(element.name), self.word(f"u{element.bits}")
        words = self.dialect.spaces[space]
        there = f"{words}{self.stored(types.scalar(raw))} *"
        swap = self.dialect.swap.get(raw)
        if swap is None:
            raise CompileError(f"{self.dialect.name} has no atomic operations on {element.name}")
        back = f"{self.bitcast(raw, t)}(old)" if raw != t else "old"
        name = f"hcq_atomic_{how}_{element.name}" + (f"_{space}" if self.dialect.spaces["local"] else "")
        if how == "cas":
            to = (lambda text: f"{self.bitcast(t, raw)}({text})") if raw != t else (lambda text: text)
            body = f"  {raw} old = {to('b')};\n  {swap.format('p', 'old', to('a'), space=words)};\n  return {back};"
            return self.add(name, t, f"{there}p, {t} a, {t} b", body)
        combined = {"add": "now + a", "exchange": "a"}.get(how) or (
            f"{self.least(how, element)}(now, a)"
            if element.is_float
            else f"now {'<' if how == 'min' else '>'} a ? now : a"
        )
        if element.kind == "f" and how == "add":
            combined = (self.dialect.f32 if t == "f32" else self.dialect.f64)["add"].format("now", "a")
        made = f"{self.bitcast(t, raw)}({combined})" if raw != t else combined
        body = (
            f"  {raw} old = *p, seen;\n  {t} now;\n  do {{\n    seen = old;\n    now = {back};\n"
            f"    {raw} made = {made};\n    {swap.format('p', 'old', 'made', space=words)};\n"
            f"  }} while (old != seen);\n  return now;"
        )
        return self.add(name, t, f"{there}p, {t} a", body)

    def combined(self, how: str, element: Scalar) -> str:
        """What an atomic operation makes of `now` and `a`."""
        if how == "exchange":
            return "a"
        if how in _SIGNS:
            return f"now {_SIGNS[how]} a"
        if how != "add" and element.is_float:
            return f"{self.least(how, element)}(now, a)"
        if how != "add":
            return f"now {'<' if how == 'min' else '>'} a ? now : a"
        if element.is_float:
            return (self.dialect.f32 if element is types.f32 else self.dialect.f64)["add"].format("now", "a")
        unsigned = self.word(f"u{element.bits}")
        return f"({element.name})(({unsigned})now + ({unsigned})a)"
