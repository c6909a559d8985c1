"""Every form of every instruction that ptx_forms.txt names, as PTX. What does not live here: what is done with them.

`python tests/cudacpu/ptx_forms.py` writes the table of docs/ptx.md.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hcq.cudacpu.lower.types import WIDTHS

FILE = Path(__file__).with_name("ptx_forms.txt")
LETTERS = {1: "p", 8: "y", 16: "h", 32: "r", 64: "d", 128: "q"}  # of registers, by width
PLACES = {"shared": "[%ss]", "local": "[%sl]"}  # an address in these spaces; in others [%dg]
HEAD = """.version {version}
.target {target}
.address_size 64
.visible .global .align 128 .b8 gvar[512];
.const .align 16 .b8 cvar[64];
.shared .align 128 .b8 svar[512];
.shared .align 8 .b64 sbar;
"""
REGISTERS = """.reg .pred %p<12>; .reg .b8 %y<20>; .reg .b16 %h<20>; .reg .b32 %r<40>;
.reg .b64 %d<40>; .reg .b128 %q<12>;
.reg .b64 %dg, %db, %sl; .reg .b32 %ss, %sb;
.local .align 128 .b8 lvar[128];
"""
KERNEL = """.visible .entry {name}(.param .b64 kp_{name}) {{
{registers}mov.u64 %dg, gvar; mov.u32 %ss, svar; mov.u32 %sb, sbar; mov.u64 %sl, lvar; mov.u64 %db, gvar;
{text}
ret; }}
"""


@dataclass(frozen=True)
class Form:
    """One instruction. `head` is its opcode with modifiers, `operands` as PTX has them; `line` is of the file."""

    head: str
    operands: tuple[str, ...]
    refused: bool
    line: str

    @property
    def text(self) -> str:
        return f"{self.head} {', '.join(self.operands)};".replace(" ;", ";")

    @property
    def modifiers(self) -> list[str]:
        return self.head.split(".")[1:]

    @property
    def types(self) -> list[str]:
        return [each for each in self.modifiers if each in WIDTHS]

    @property
    def space(self) -> str:
        return _space(self.modifiers)


def forms() -> list[Form]:
    found: dict[str, Form] = {}
    for line in FILE.read_text().splitlines():
        if line and not line.startswith("#"):
            refused = line.startswith("- ")
            for head, operands in _expanded(line.removeprefix("- ")):
                form = Form(head, operands, refused, line)
                found.setdefault(form.text, form)
    return list(found.values())


def module(texts: list[str], target: str = "sm_100a", version: str = "9.0") -> str:
    """A kernel for each text; those of one form are as long as another's."""
    kernels = (
        KERNEL.format(name=f"k{n}", registers=REGISTERS, text=text.replace("[kp]", f"[kp_k{n}]"))
        for n, text in enumerate(texts)
    )
    return HEAD.format(version=version, target=target) + "".join(kernels)


def _expanded(line: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    head, _, operands = f"{line} ".partition(" : ")
    for each in _alternatives(head.strip()):
        for chosen in _alternatives(operands.strip()):
            names = _Names(each)
            yield each, tuple(names.operand(one.strip()) for one in _split(chosen))


def _alternatives(text: str) -> list[str]:
    parts = re.split(r"<([^<>]*)>", text)
    pools = [[part] if n % 2 == 0 else ["", "|p"] if part == "||p" else part.split("|") for n, part in enumerate(parts)]
    return ["".join(each) for each in itertools.product(*pools)]


def _split(text: str) -> list[str]:
    """At commas outside of brackets."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [each for each in found if each]


def _space(modifiers: list[str]) -> str:
    names = (each.partition("::")[0] for each in modifiers)
    return next((each for each in names if each in ("shared", "local", "global", "const", "param")), "")


class _Names:
    """Gives the operands of one form registers."""

    def __init__(self, head: str) -> None:
        self._base, *self._modifiers = head.split(".")
        self._types = [each for each in self._modifiers if each in WIDTHS]
        self._used: dict[str, int] = {}

    def _register(self, letter: str) -> str:
        number = self._used[letter] = self._used.get(letter, -1) + 1
        return f"%{letter}{number}"

    def _of(self, type: str) -> str:
        return self._register(LETTERS[WIDTHS[type]])

    def _vector(self, letter: str, count: int) -> str:
        return "{" + ",".join(self._register(letter) for _ in range(count)) + "}"

    def _count(self, pattern: str) -> int:
        return next((int(each[1:]) for each in self._modifiers if re.fullmatch(pattern, each)), 1)

    def operand(self, text: str) -> str:
        types = self._types
        if text in ("0", "1") and types and self._base not in ("bar", "barrier", "cp", "mma", "wgmma"):
            return self._of(types[min(int(text), len(types) - 1)])
        if text == "W":
            return self._register(LETTERS[2 * WIDTHS[types[0]]])
        if text == "C":
            return self._register(LETTERS[max(WIDTHS[types[0]], 16)])
        if text == "A":
            return PLACES.get(_space(self._modifiers), "[%dg]")
        if text == "V":
            letter, count = LETTERS[WIDTHS[types[-1]]], self._count(r"v\d")
            return self._register(letter) if count == 1 else self._vector(letter, count)
        if text in ("N", "M"):
            return self._vector("r", self._count(r"x\d") * (2 if text == "M" else 1))
        if text in LETTERS.values():
            return self._register(text)
        if text == "!p":
            return "!" + self._register("p")
        if "|" in text:
            return "|".join(each if each == "_" else self.operand(each) for each in text.split("|"))
        if text.startswith("[%X"):
            return f"[%{'s' if _space(self._modifiers) == 'shared' else 'd'}{text[3]}]"
        if text.startswith("[%dg,"):
            return "[%dg, " + self._vector("r", text.count("r")) + "]"
        if text.startswith("{"):
            several = re.fullmatch(r"\{([rd])(?:\*(\d+))?\}", text)
            if several:
                return self._vector(several[1], int(several[2] or 1))
            return "{" + ",".join(each if each == "_" else self.operand(each) for each in text[1:-1].split(",")) + "}"
        return text


def table() -> str:
    """How many forms of each instruction are run, and what is refused."""
    run: dict[str, int] = {}
    refused: dict[str, dict[str, None]] = {}
    for form in forms():
        name = form.head.partition(".")[0]
        run[name] = run.get(name, 0) + (not form.refused)
        if form.refused:
            refused.setdefault(name, {})[_short(form)] = None
    lines = ["| instruction | forms that run | refused by name |", "|---|---|---|"]
    for name, count in run.items():
        lines.append(f"| `{name}` | {count or ''} | {', '.join(f'`{each}`' for each in refused.get(name, ()))} |")
    return "\n".join(lines)


def _short(form: Form) -> str:
    if form.head.startswith("mov"):
        return form.operands[1]
    left_out = {"sync", "aligned", "relu", "satfinite", *WIDTHS}
    words = [each for each in form.modifiers if each not in left_out]
    return ".".join(words[:4] if form.head.startswith(("mma", "ldmatrix", "stmatrix", "cvt")) else words)


if __name__ == "__main__":
    print(table())
